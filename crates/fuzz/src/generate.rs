//! Random programs. A statement is run as it is added, on the first example, so shapes and values
//! are known: what is refused, not finite or too large is discarded, and no shape rule is
//! written down a second time.

use crate::ast::{Block, EXAMPLES, Nest, Program, ProgramInput, Stmt, Var};
use crate::compare::{Outcome, outcome};
use crate::interpret::{Env, function, step};
use crate::ops::{ArgKind, FAMILIES, OpRow, SOMETIMES, UNTRACED, VIEW, WRITES, fit, lines};
use crate::rng::Rng;
use crate::switches::Switches;
use crate::ways::Way;
use pullback::{DType, ErrorKind, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

/// Values beyond this are discarded: their second derivatives are meaningless.
const LARGEST: f64 = 100.0;
/// More elements than this are discarded.
const LONGEST: usize = 128;

/// The program of a seed.
pub fn program(seed: u64, switches: Switches) -> Program {
    generate(seed, switches, None)
}

/// The program of a seed with this row somewhere in it.
pub fn program_with(seed: u64, switches: Switches, row: &'static OpRow) -> Program {
    generate(seed, switches, Some(row))
}

fn generate(seed: u64, switches: Switches, inject: Option<&'static OpRow>) -> Program {
    let mut rng = Rng::new(seed);
    let dtype = match rng.unit() {
        p if p < 0.1 => DType::F32,
        p if p < 0.14 => DType::BF16,
        p if p < 0.18 => DType::F16,
        _ => DType::F64,
    };
    let dyadic = rng.chance(0.3);
    let inputs: Vec<ProgramInput> =
        (0..1 + rng.below(3)).map(|_| input(&mut rng, dyadic)).collect();
    let size = 2 + rng.below(9);
    // Some programs write to tensors that they capture.
    let states = if inject.is_none() && rng.chance(0.12) { 1 + rng.below(2) } else { 0 };
    let first_state = inputs.len();
    let state: Vec<(Var, ProgramInput)> =
        (0..states).map(|k| (first_state + k, input(&mut rng, dyadic))).collect();
    let fresh = first_state + states;
    let mut make =
        Generator { rng, switches, fresh, inject, state: state.clone(), dtype, ended: false };
    let args: Vec<Tensor> = inputs.iter().map(|x| x.first(dtype)).collect();
    let params: Vec<Var> = (0..inputs.len()).collect();
    let mut env = Env::default();
    state.iter().for_each(|(var, x)| env.set(*var, x.first(dtype)));
    let outer: Vec<(Var, ArgKind)> = state.iter().map(|s| (s.0, ArgKind::Float)).collect();
    let body = make.block(&env, &outer, params, &args, size, BlockContext::default());
    let mut program = Program { dtype, inputs, state, body: Arc::new(body), fresh: make.fresh };
    // Most writes to a value that backward needs are refused: some such programs are kept, to see
    // that all ways refuse them.
    while program.writes() && !make.rng.chance(0.1) {
        let way = Way::of("grad");
        let run = || way.function(&program)(&program.first());
        match outcome(run) {
            Outcome::Refused(error) if error.kind() == ErrorKind::InPlace => {
                program.body = Arc::new(without_last_write(&program.body).0);
            }
            _ => break,
        }
    }
    set_example_count(&mut program);
    program
}

/// Statements were chosen for the first example. Where another one is refused or not finite, it
/// becomes one near the first.
fn set_example_count(program: &mut Program) {
    let f = function(program);
    for i in 1..EXAMPLES {
        let xs: Vec<Tensor> =
            program.stacked().iter().map(|x| x.select_at(0, i as isize)).collect();
        let fine = match outcome(|| f(&xs)) {
            Outcome::Gave(values) => {
                values.iter().flat_map(|v| &v.data).all(|x| x.abs() <= 10.0 * LARGEST)
            }
            Outcome::Refused(_) | Outcome::Panicked(_) => false,
        };
        if !fine {
            for input in &mut program.inputs {
                let n = input.len();
                let (first, rest) = input.values.split_at_mut(n);
                let near = |v: f64| v * (1.0 + 0.015625 * i as f64);
                rest[(i - 1) * n..i * n].iter_mut().zip(first).for_each(|(to, v)| *to = near(*v));
            }
        }
    }
}

fn without_last_write(block: &Block) -> (Block, bool) {
    let mut block = block.clone();
    for i in (0..block.stmts.len()).rev() {
        match &mut block.stmts[i] {
            Stmt::Write { .. } => {
                block.stmts.remove(i);
                return (block, true);
            }
            Stmt::Nest { bodies, .. } => {
                for body in bodies {
                    let (less, done) = without_last_write(body);
                    if done {
                        *body = Arc::new(less);
                        return (block, true);
                    }
                }
            }
            Stmt::Call { .. } => {}
        }
    }
    (block, false)
}

fn input(rng: &mut Rng, dyadic: bool) -> ProgramInput {
    let rank = *rng.pick(&[0, 1, 1, 1, 2, 2, 2, 3]);
    // Values of 64 bytes or less are no matter for a budget of the tape: some are longer.
    let long = rng.chance(0.15);
    let length = |rng: &mut Rng| match () {
        () if rng.chance(0.04) => 0,
        () if long => 3 + rng.below(4),
        () => 1 + rng.below(3),
    };
    let shape: Vec<usize> = (0..rank).map(|_| length(rng)).collect();
    let n = EXAMPLES * shape.iter().product::<usize>();
    let value = |rng: &mut Rng| match dyadic {
        true => rng.below(9) as f64 * 0.5 - 2.0,
        false => rng.between(0.2, 1.6) * if rng.chance(0.4) { -1.0 } else { 1.0 },
    };
    ProgramInput { shape, values: (0..n).map(|_| value(rng)).collect() }
}

/// Where a block is.
#[derive(Clone, Copy, Default)]
struct BlockContext {
    depth: usize,
    in_checkpoint: bool,
}

struct Generator {
    rng: Rng,
    switches: Switches,
    fresh: Var,
    inject: Option<&'static OpRow>,
    /// What the program captures and may write to, and the dtype of it.
    state: Vec<(Var, ProgramInput)>,
    dtype: DType,
    /// A statement that fails was added: nothing may follow.
    ended: bool,
}

/// What is known while a block is made.
struct Scope<'a> {
    around: &'a Env,
    args: &'a [Tensor],
    env: Env,
    /// What can be named, those from around first.
    vars: Vec<(Var, ArgKind)>,
    /// Of what a variable is a view; none if it may not be written to.
    root: HashMap<Var, Option<Var>>,
    block: Block,
}

/// The outcome of a statement that was tried.
enum StatementOutcome {
    Fine,
    No,
    Panicked,
}

impl Generator {
    fn block(
        &mut self,
        around: &Env,
        outer: &[(Var, ArgKind)],
        params: Vec<Var>,
        args: &[Tensor],
        size: usize,
        place: BlockContext,
    ) -> Block {
        let mut env = around.clone();
        let mut vars = outer.to_vec();
        for (&param, x) in params.iter().zip(args) {
            env.set(param, x.clone());
            vars.push((param, ArgKind::of(x)));
        }
        let block = Block { params, ..Block::default() };
        let mut scope = Scope { around, args, env, vars, root: HashMap::new(), block };
        if place.depth == 0 {
            scope.root.extend(self.state.iter().map(|s| (s.0, Some(s.0))));
        }
        let inject_at = self.rng.below(size);
        for i in 0..size {
            if place.depth == 0
                && i == inject_at
                && let Some(row) = self.inject
            {
                self.call(&mut scope, row);
                continue;
            }
            // A choice that cannot be made is followed by another.
            for _ in 0..12 {
                if self.ended || self.statement(&mut scope, place) {
                    break;
                }
            }
        }
        let floats: Vec<Var> =
            scope.vars.iter().filter(|v| v.1 == ArgKind::Float).map(|v| v.0).collect();
        let mut results = vec![floats[floats.len() - 1]];
        for _ in 0..self.rng.below(3) {
            let next = *self.rng.pick(&floats[floats.len().saturating_sub(4)..]);
            if !results.contains(&next) {
                results.push(next);
            }
        }
        if place.depth == 0 && self.rng.chance(0.15) {
            let mut others = scope.vars.iter().filter(|v| v.1 != ArgKind::Float).map(|v| v.0);
            results.extend(others.next_back());
        }
        scope.block.results = results;
        scope.block
    }

    fn statement(&mut self, scope: &mut Scope, place: BlockContext) -> bool {
        let writes = self.switches.writes_in_bodies || place.depth == 0;
        let nested = if place.depth < 2 { 0.17 } else { 0.0 };
        match self.rng.unit() {
            p if p < 0.12 && writes => self.write(scope),
            p if p > 1.0 - nested => self.nest(scope, place),
            _ => {
                let family = match self.rng.chance(0.3) {
                    true => self.rng.below(4),
                    false => self.rng.below(FAMILIES.len()),
                };
                let row = self.rng.pick(FAMILIES[family].1);
                let allowed = self.switches.refused_in_traces || !row.has(UNTRACED);
                let usual = self.switches.extremes || !["any", "all", "det"].contains(&row.name);
                allowed && usual && self.call(scope, row)
            }
        }
    }

    fn draws(&mut self) -> Vec<u32> {
        (0..6).map(|_| self.rng.bits() as u32 & 0xffff).collect()
    }

    /// A variable of this kind, a late one rather than an early one.
    fn var(&mut self, scope: &Scope, kind: ArgKind) -> Option<Var> {
        let of_kind: Vec<Var> = scope.vars.iter().filter(|v| v.1 == kind).map(|v| v.0).collect();
        if of_kind.is_empty() {
            return None;
        }
        let n = of_kind.len();
        let (a, b) = (self.rng.below(n), self.rng.below(n));
        Some(of_kind[if self.rng.chance(0.7) { a.max(b) } else { a }])
    }

    fn vars(&mut self, scope: &Scope, kinds: &[ArgKind]) -> Option<Vec<Var>> {
        kinds.iter().map(|&kind| self.var(scope, kind)).collect()
    }

    fn call(&mut self, scope: &mut Scope, row: &'static OpRow) -> bool {
        // Few statements give indices and masks, and many take them: where there are none, some are
        // made first.
        for (kind, by) in [(ArgKind::Index, "to_index"), (ArgKind::Mask, "gt_number")] {
            let lacks = row.args.contains(&kind) && !scope.vars.iter().any(|v| v.1 == kind);
            if lacks && let Some(maker) = crate::ops::row(by) {
                self.call(scope, maker);
            }
        }
        let Some(args) = self.vars(scope, row.args) else { return false };
        let draws = self.draws();
        let root = match (args.first(), row.has(VIEW)) {
            (Some(first), true) => {
                let repeats = ["expand", "unfold", "every_other", "meshgrid"].contains(&row.name);
                let root = scope.root.get(first).copied().flatten();
                root.filter(|_| self.switches.writes_through_repeats || !repeats)
            }
            _ if row.has(SOMETIMES) && !self.switches.sometimes_aliases => None,
            _ => Some(self.fresh),
        };
        let stmt = Stmt::Call { row, args, draws, outs: Vec::new() };
        self.add(scope, stmt, root)
    }

    fn write(&mut self, scope: &mut Scope) -> bool {
        let may = |v: &&(Var, ArgKind)| {
            v.1 == ArgKind::Float && scope.root.get(&v.0).copied().flatten().is_some()
        };
        let targets: Vec<Var> = scope.vars.iter().filter(may).map(|v| v.0).collect();
        if targets.is_empty() {
            return false;
        }
        let target = *self.rng.pick(&targets);
        let row = self.rng.pick(WRITES);
        let Some(args) = self.vars(scope, &vec![ArgKind::Float; row.operands]) else {
            return false;
        };
        let draws = self.draws();
        let root = scope.root.get(&target).copied().flatten();
        let detached = self.state.iter().any(|s| Some(s.0) == root);
        self.add(scope, Stmt::Write { row, target, args, draws, detached }, None)
    }

    fn nest(&mut self, scope: &mut Scope, place: BlockContext) -> bool {
        let how = *self.rng.pick(&Nest::ALL);
        let careful = !self.switches.derivatives_and_checkpoints;
        if careful && (place.in_checkpoint && how.differentiates())
            || careful && how == Nest::Checkpoint && place.depth > 0
            || !self.switches.no_grad_forward && how == Nest::NoGrad
        {
            return false;
        }
        let count = match how {
            Nest::WhileLoop | Nest::WhileLoopBounded | Nest::ForiLoop | Nest::ScanTimes => 1,
            Nest::Jacrev | Nest::Jacfwd | Nest::Jacobian | Nest::Hessian => 1,
            Nest::AssociativeScan | Nest::AssociativeScanReverse => 1,
            Nest::Scan | Nest::ScanReverse => 2 + self.rng.below(2),
            _ => 1 + self.rng.below(2),
        };
        let Some(args) = self.vars(scope, &vec![ArgKind::Float; count]) else { return false };
        let values: Vec<Tensor> = args.iter().map(|&v| scope.env.get(v).clone()).collect();
        let row = |x: &Tensor| {
            let x = lines(x);
            if x.shape()[0] == 0 { None } else { Some(x.select_at(0, 0)) }
        };
        let given: Option<Vec<Tensor>> = match how {
            Nest::Vmap => values.iter().map(row).collect(),
            Nest::AssociativeScan | Nest::AssociativeScanReverse => {
                row(&values[0]).map(|x| vec![x.clone(), x])
            }
            Nest::Scan | Nest::ScanReverse => {
                let (carry, xs) = values.split_at(1);
                xs.iter().map(row).collect::<Option<Vec<_>>>().map(|xs| [carry, &xs].concat())
            }
            Nest::ForiLoop => {
                Some(vec![values[0].clone(), Tensor::from(0.25).cast(values[0].dtype())])
            }
            Nest::Hessian => Some(vec![fit(&values[0], &[values[0].len().min(3)])]),
            _ => Some(values.clone()),
        };
        let Some(given) = given else { return false };
        // What a body is given is not an input of the program: it is detached from nothing here,
        // and is never written to.
        let inner = BlockContext {
            depth: place.depth + 1,
            in_checkpoint: place.in_checkpoint || how == Nest::Checkpoint,
        };
        let mut bodies = Vec::new();
        for _ in 0..if how == Nest::Cond { 2 } else { 1 } {
            let params: Vec<Var> = (self.fresh..self.fresh + given.len()).collect();
            self.fresh += given.len();
            let size = 1 + self.rng.below(4);
            let (env, vars) = (scope.env.clone(), scope.vars.clone());
            bodies.push(Arc::new(self.block(&env, &vars, params, &given, size, inner)));
        }
        let draws = self.draws();
        let root = match how {
            Nest::Cond if self.switches.aliases_of_bodies => Some(self.fresh),
            _ => None,
        };
        if !self.switches.aliases_of_bodies {
            scope.root.clear();
        }
        let ended = self.ended;
        let added = self.add(scope, Stmt::Nest { how, args, bodies, draws, outs: vec![] }, root);
        self.ended = ended && added;
        added
    }

    /// Runs a statement, and keeps it if what it gives can be worked with.
    fn add(&mut self, scope: &mut Scope, mut stmt: Stmt, root: Option<Var>) -> bool {
        let first = self.fresh;
        match self.attempt(scope, &mut stmt) {
            StatementOutcome::Fine => {}
            // What panics is kept: it is a failure in every way of running it.
            StatementOutcome::Panicked => {
                self.ended = true;
                scope.block.stmts.push(stmt);
                return true;
            }
            StatementOutcome::No => {
                self.fresh = first;
                if matches!(stmt, Stmt::Write { .. }) {
                    self.start_over(scope);
                }
                return false;
            }
        }
        for &(var, kind) in stmt.outs() {
            scope.vars.push((var, kind));
            let root = root.map(|r| if r == first { var } else { r });
            scope.root.insert(var, root.filter(|_| kind == ArgKind::Float));
        }
        scope.block.stmts.push(stmt);
        true
    }

    fn attempt(&mut self, scope: &mut Scope, stmt: &mut Stmt) -> StatementOutcome {
        // Names for as many results as a row may have; those that there are not are dropped below.
        let names: Vec<(Var, ArgKind)> = (0..6).map(|i| (self.fresh + i, ArgKind::Float)).collect();
        if let Stmt::Call { outs, .. } | Stmt::Nest { outs, .. } = stmt {
            *outs = names.clone();
        }
        let mut env = scope.env.clone();
        let mut given: Vec<Option<Tensor>> = Vec::new();
        let came = outcome(|| {
            step(stmt, &mut env);

            match &*stmt {
                Stmt::Write { target, .. } => vec![env.get(*target).clone()],
                Stmt::Call { .. } | Stmt::Nest { .. } => {
                    given = names.iter().map(|n| env.find(n.0)).collect();
                    given.iter().flatten().cloned().collect()
                }
            }
        });
        match came {
            Outcome::Gave(values) => {
                let fine = values
                    .iter()
                    .all(|v| v.data.len() <= LONGEST && v.data.iter().all(|x| x.abs() <= LARGEST));
                if !fine {
                    return StatementOutcome::No;
                }
            }
            Outcome::Refused(_) => return StatementOutcome::No,
            Outcome::Panicked(_) => return StatementOutcome::Panicked,
        }
        let given: Vec<Tensor> = given.into_iter().flatten().collect();
        if let Stmt::Call { outs, .. } | Stmt::Nest { outs, .. } = stmt {
            outs.truncate(given.len());
            outs.iter_mut().zip(&given).for_each(|(out, x)| out.1 = ArgKind::of(x));
        }
        self.fresh += given.len();
        scope.env = env;
        StatementOutcome::Fine
    }

    /// The values as they were before a write that was not kept.
    fn start_over(&mut self, scope: &mut Scope) {
        let mut env = scope.around.clone();
        for (var, x) in self.state.iter().filter(|s| scope.root.contains_key(&s.0)) {
            env.set(*var, x.first(self.dtype));
        }
        for (&param, x) in scope.block.params.iter().zip(scope.args) {
            env.set(param, x.clone());
        }
        for stmt in &scope.block.stmts {
            step(stmt, &mut env);
        }
        scope.env = env;
    }
}
