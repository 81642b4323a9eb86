//! Shrinks a failing program as long as it fails in the same way.

use crate::ast::{Block, EXAMPLES, Program, ProgramInput, Stmt, Var};
use crate::check::{Failure, Pair};
use crate::ops::{ArgKind, row};
use crate::ways::Way;
use std::sync::Arc;

/// Candidates that are tried at most.
const MAX_CANDIDATES: usize = 3000;

/// The smallest program found that fails as this one does, and its failure.
pub fn shrink(program: &Program, failure: &Failure) -> (Program, Failure) {
    let (mut program, mut failure) = (program.clone(), failure.clone());
    let mut tried = 0;
    loop {
        let mut smaller = false;
        for pair in simpler_pairs(&failure.pair) {
            let next = Failure { pair, ..failure.clone() };
            tried += 1;
            if next.remains(&program) {
                (failure, smaller) = (next, true);
                break;
            }
        }
        let mut n = 0;
        while let Some(candidate) = candidate(&program, n) {
            n += 1;
            let Some(candidate) = candidate else { continue };
            if tried >= MAX_CANDIDATES {
                break;
            }
            tried += 1;
            if failure.remains(&candidate) {
                // The same position is another change now, so it is tried again.
                (program, smaller) = (candidate, true);
                n -= 1;
            }
        }
        if !smaller || tried >= MAX_CANDIDATES {
            break;
        }
    }
    let mut checker = crate::check::Checker::new(&program);
    let last = checker.pair(&failure.pair).unwrap_or(failure);
    (program, last)
}

fn simpler_pairs(pair: &Pair) -> Vec<Pair> {
    let shorter = |way: &Way| -> Vec<Way> {
        let without = |i: usize| {
            let mut steps = way.0.clone();
            steps.remove(i);
            Way(steps)
        };
        (0..way.0.len()).map(without).collect()
    };
    match pair {
        Pair::Plain(way) => shorter(way).into_iter().map(Pair::Plain).collect(),
        Pair::Numeric(way) => shorter(way).into_iter().map(Pair::Numeric).collect(),
        Pair::Again(way) => shorter(way).into_iter().map(Pair::Again).collect(),
        Pair::Modes(..) => Vec::new(),
    }
}

/// Change number `n` of a program: `None` when there are no more, `Some(None)` where it changes
/// nothing.
#[expect(clippy::option_option, reason = "no more, and nothing here, are two things")]
fn candidate(program: &Program, n: usize) -> Option<Option<Program>> {
    let count = program.body.count();
    let mut n = n;
    let mut take = |size: usize| {
        let here = n < size;
        let index = n;
        n = n.wrapping_sub(size);
        here.then_some(index)
    };
    // Statements, from the last to the first: without it, taken out of what it is in, simpler.
    if let Some(i) = take(count * CHANGES) {
        let (at, how) = (count - 1 - i / CHANGES, i % CHANGES);
        return Some(change(program, at, how));
    }
    let results = program.body.results.len();
    if let Some(i) = take(results) {
        return Some((results > 1).then(|| {
            with_body(program, |body| {
                body.results.remove(i);
            })
        }));
    }
    let inputs = program.inputs.len();
    if let Some(i) = take(inputs) {
        return Some((inputs > 1).then(|| without_input(program, i)));
    }
    if let Some(i) = take(inputs * 12) {
        return Some(smaller_input(program, i / 12, i % 12));
    }
    None
}

const CHANGES: usize = 14;

fn change(program: &Program, at: usize, how: usize) -> Option<Program> {
    let stmt = nth(&program.body, at)?;
    match how {
        // Without it: its results are its operands, or an input.
        0 => replaced(program, at, stmt, stmt.args().first().copied()),
        1 => replaced(program, at, stmt, stmt.args().get(1).copied()),
        2 => replaced(program, at, stmt, program.body.params.first().copied()),
        // Its body in its place.
        3 => inlined(program, at, stmt),
        // Its plain numbers 0.
        4..=7 => {
            let mut less = stmt.clone();
            let draw = less.draws_mut().get_mut(how - 4)?;
            if *draw == 0 {
                return None;
            }
            *draw = 0;
            Some(with_stmt(program, at, vec![less]))
        }
        // A simple op in its place.
        8 | 9 => {
            let Stmt::Call { row: before, args, outs, .. } = stmt else { return None };
            let simple = row(["sin", "deep_clone"][how - 8])?;
            let one = outs.len() == 1 && outs[0].1 == ArgKind::Float && !args.is_empty();
            let fits = one && before.args[0] == ArgKind::Float && before.name != simple.name;
            if !fits || before.args.len() == 1 && how == 8 {
                return None;
            }
            let args = args[..1].to_vec();
            let less = Stmt::Call { row: simple, args, draws: vec![0; 4], outs: outs.clone() };
            Some(with_stmt(program, at, vec![less]))
        }
        // Operands replaced by inputs.
        10 | 11 => {
            let first = *program.body.params.first()?;
            let mut less = stmt.clone();
            let Stmt::Call { row, args, .. } = &mut less else { return None };
            let k = how - 10;
            if row.args.get(k) != Some(&ArgKind::Float) || args[k] == first {
                return None;
            }
            args[k] = first;
            Some(with_stmt(program, at, vec![less]))
        }
        // Fewer results and arguments of bodies.
        12 => {
            let mut less = stmt.clone();
            let Stmt::Nest { bodies, outs, .. } = &mut less else { return None };
            let body = bodies.iter_mut().find(|b| b.results.len() > 1)?;
            Arc::make_mut(body).results.truncate(1);
            let _ = outs;
            Some(with_stmt(program, at, vec![less]))
        }
        _ => {
            let mut less = stmt.clone();
            let Stmt::Nest { bodies, .. } = &mut less else { return None };
            let body = bodies.iter_mut().find(|b| b.results.len() > 1)?;
            Arc::make_mut(body).results.remove(0);
            Some(with_stmt(program, at, vec![less]))
        }
    }
}

/// Without a statement; what used its numbers uses `by`.
fn replaced(program: &Program, at: usize, stmt: &Stmt, by: Option<Var>) -> Option<Program> {
    let mut program = with_stmt(program, at, Vec::new());
    let mut body = (*program.body).clone();
    for &(out, kind) in stmt.outs() {
        if kind == ArgKind::Float {
            rename(&mut body, out, by?);
        } else if uses(&body, out) {
            return None;
        }
    }
    program.body = Arc::new(body);
    Some(program)
}

fn inlined(program: &Program, at: usize, stmt: &Stmt) -> Option<Program> {
    let Stmt::Nest { how, args, bodies, outs, .. } = stmt else { return None };
    let same = how.is_transparent() || *how == crate::ast::Nest::Cond;
    let body = &bodies[0];
    if !same || outs.len() > body.results.len() {
        return None;
    }
    let mut inner = (**body).clone();
    for (&param, &arg) in body.params.iter().zip(args) {
        rename(&mut inner, param, arg);
    }
    let mut whole = (*with_stmt(program, at, inner.stmts.clone()).body).clone();
    for (&(out, _), &result) in outs.iter().zip(&inner.results) {
        rename(&mut whole, out, result);
    }
    Some(Program { body: Arc::new(whole), ..program.clone() })
}

fn with_body(program: &Program, f: impl FnOnce(&mut Block)) -> Program {
    let mut body = (*program.body).clone();
    f(&mut body);
    Program { body: Arc::new(body), ..program.clone() }
}

fn without_input(program: &Program, i: usize) -> Program {
    let mut program = program.clone();
    program.inputs.remove(i);
    with_body(&program.clone(), |body| {
        let gone = body.params.remove(i);
        rename(body, gone, body.params[0]);
    })
    .with_inputs(program.inputs)
}

impl Program {
    fn with_inputs(mut self, inputs: Vec<ProgramInput>) -> Program {
        self.inputs = inputs;
        self
    }
}

fn smaller_input(program: &Program, i: usize, how: usize) -> Option<Program> {
    let input = &program.inputs[i];
    let with = |shape: Vec<usize>| {
        let n: usize = shape.iter().product();
        let old = input.len();
        let value = |k: usize| match old {
            0 => 0.5,
            _ => input.values[(k / n.max(1)) * old + (k % n.max(1)) % old],
        };
        ProgramInput { values: (0..n * EXAMPLES).map(value).collect(), shape }
    };
    let rank = input.shape.len();
    let less = match how {
        0 if rank > 0 => with(vec![]),
        1 if rank > 1 => with(vec![input.len()]),
        2..=4 if rank > how - 2 && input.shape[how - 2] > 1 => {
            let mut shape = input.shape.clone();
            shape[how - 2] -= 1;
            with(shape)
        }
        5..=7 if rank > how - 5 && input.shape[how - 5] == 1 => {
            let mut shape = input.shape.clone();
            shape.remove(how - 5);
            with(shape)
        }
        8 => mapped(input, |_, _| 1.0),
        9 => mapped(input, |k, _| 0.5 + 0.25 * k as f64),
        10 => mapped(input, |_, v| (v * 2.0).round() / 2.0),
        11 => mapped(input, |_, v| (v * 10.0).round() / 10.0),
        _ => return None,
    };
    if less == *input {
        return None;
    }
    // Simpler values must be simpler than those that were found simpler before.
    if (8..=11).contains(&how) && weight(&less) >= weight(input) {
        return None;
    }
    let mut inputs = program.inputs.clone();
    inputs[i] = less;
    Some(program.clone().with_inputs(inputs))
}

/// How many characters its values take.
fn weight(input: &ProgramInput) -> usize {
    input.values.iter().map(|v| v.to_string().len()).sum()
}

fn mapped(input: &ProgramInput, f: impl Fn(usize, f64) -> f64) -> ProgramInput {
    let values = input.values.iter().enumerate().map(|(k, &v)| f(k, v)).collect();
    ProgramInput { shape: input.shape.clone(), values }
}

/// The statement at this place, counting those of inner blocks after the one they are in.
fn nth(block: &Block, at: usize) -> Option<&Stmt> {
    let mut left = at;
    for stmt in &block.stmts {
        if left == 0 {
            return Some(stmt);
        }
        left -= 1;
        for body in stmt.bodies() {
            match left.checked_sub(body.count()) {
                Some(rest) => left = rest,
                None => return nth(body, left),
            }
        }
    }
    None
}

/// The program with other statements instead of one.
fn with_stmt(program: &Program, at: usize, stmts: Vec<Stmt>) -> Program {
    with_body(program, |body| {
        splice(body, at, stmts);
    })
}

fn splice(block: &mut Block, at: usize, new: Vec<Stmt>) {
    let mut left = at;
    for i in 0..block.stmts.len() {
        if left == 0 {
            block.stmts.splice(i..=i, new);
            return;
        }
        left -= 1;
        if let Stmt::Nest { bodies, .. } = &mut block.stmts[i] {
            for body in bodies {
                match left.checked_sub(body.count()) {
                    Some(rest) => left = rest,
                    None => return splice(Arc::make_mut(body), left, new),
                }
            }
        }
    }
}

fn rename(block: &mut Block, from: Var, to: Var) {
    let swap = |vars: &mut Vec<Var>| {
        vars.iter_mut().filter(|v| **v == from).for_each(|v| *v = to);
    };
    for stmt in &mut block.stmts {
        match stmt {
            Stmt::Call { args, .. } => swap(args),
            Stmt::Write { target, args, .. } => {
                swap(args);
                if *target == from {
                    *target = to;
                }
            }
            Stmt::Nest { args, bodies, .. } => {
                swap(args);
                bodies.iter_mut().for_each(|body| rename(Arc::make_mut(body), from, to));
            }
        }
    }
    swap(&mut block.results);
}

fn uses(block: &Block, var: Var) -> bool {
    let target = |stmt: &Stmt| matches!(stmt, Stmt::Write { target, .. } if *target == var);
    block.results.contains(&var)
        || block.any(|stmt| {
            let results = stmt.bodies().iter().any(|b| b.results.contains(&var));
            stmt.args().contains(&var) || target(stmt) || results
        })
}
