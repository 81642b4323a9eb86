//! Rewrites a program so that late equations read recomputed values in place of those that are not
//! kept.
//!
//! Late equations are processed in order. When one reads a value that is not kept, the value is
//! recomputed in front of it, with everything it depends on back to what is kept; later equations
//! read the same copies. What is recomputed waits (by [`Op::After`]) for a *token*: the last result
//! that comes before in the program and is in memory in any case. So no pass moves the second
//! computation to the first, or merges the two.

use super::liveness::{Liveness, is_alias};
use crate::{Equation, Op, Program, ResultMemory, Var, Vars};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The new program, and what is recomputed in it.
pub(super) struct Recomputed {
    pub(super) program: Program,
    /// The roots that are recomputed.
    pub(super) roots: Vec<Var>,
    pub(super) work: u64,
}

/// Recomputes, after the moment, what is not kept.
pub(super) fn recompute(liveness: &Liveness, moment: usize, kept: &[bool]) -> Recomputed {
    let program = liveness.program;
    let mut maker = Maker {
        liveness,
        moment,
        kept,
        out: Program { equations: program.equations[..moment].to_vec(), ..program.clone() },
        copies: FxHashMap::default(),
        waiting: FxHashMap::default(),
        roots: Vec::new(),
        work: 0,
    };
    let barrier = |e: &&Equation| !joins_others(&e.op);
    let first = program.equations[..moment].iter().rev().find(barrier);
    let mut token = first.or(program.equations[..moment].last()).map(|e| e.outputs[0]);
    let mut late_token = false;
    for e in &program.equations[moment..] {
        if let Some(token) = maker.token_for(e, token, late_token) {
            maker.restore(e, token);
        }
        let mut e = e.clone();
        if e.op == Op::After {
            // What is not kept need not be waited for: it was computed before.
            let gone = |v: &Var| maker.is_gone(*v);
            let left: Vars = e.inputs[1..].iter().copied().filter(|v| !gone(v)).collect();
            let left = if left.is_empty() { token.into_iter().collect() } else { left };
            e.inputs.truncate(1);
            e.inputs.extend(left);
        }
        e.inputs.iter_mut().for_each(|v| *v = maker.copies.get(v).copied().unwrap_or(*v));
        if barrier(&&e) {
            (token, late_token) = (Some(e.outputs[0]), true);
        }
        maker.out.equations.push(e);
    }
    Recomputed { program: maker.out, roots: maker.roots, work: maker.work }
}

/// Ops whose results need not be in memory: they become part of regions, or cost nothing.
fn joins_others(op: &Op) -> bool {
    op.is_fusible() || op.memory() != ResultMemory::Own
}

struct Maker<'a> {
    liveness: &'a Liveness<'a>,
    moment: usize,
    kept: &'a [bool],
    out: Program,
    /// The recomputed copy of each variable.
    copies: FxHashMap<Var, Var>,
    /// The `after` of each variable and token.
    waiting: FxHashMap<(Var, Var), Var>,
    roots: Vec<Var>,
    work: u64,
}

impl Maker<'_> {
    fn is_gone(&self, v: Var) -> bool {
        let root = self.liveness.root(v).index();
        self.is_early(v) && !self.liveness.free[root] && !self.kept[root]
    }

    fn is_early(&self, v: Var) -> bool {
        self.liveness.made[v.index()].is_some_and(|made| made < self.moment)
    }

    /// The token for the values that an equation lacks.
    fn token_for(&self, e: &Equation, barrier: Option<Var>, late: bool) -> Option<Var> {
        let late_operand = || {
            let made = |v: &&Var| self.liveness.made[v.index()].filter(|&made| made >= self.moment);
            e.inputs.iter().filter(|v| made(v).is_some()).max_by_key(made).copied()
        };
        if late { barrier } else { late_operand().or(barrier) }
    }

    /// Recomputes what an equation reads and is not kept.
    fn restore(&mut self, e: &Equation, token: Var) {
        let program = self.liveness.program;
        let mut needed: BTreeSet<usize> = BTreeSet::new();
        let operands = if e.op == Op::After { &e.inputs[..1] } else { &e.inputs[..] };
        let mut open: Vec<Var> = operands.to_vec();
        while let Some(v) = open.pop() {
            if !self.is_gone(v) || self.copies.contains_key(&v) {
                continue;
            }
            if let Some(made) = self.liveness.made[v.index()]
                && needed.insert(made)
            {
                let e = &program.equations[made];
                let of = if is_alias(&e.op) { &e.inputs[..1] } else { &e.inputs[..] };
                open.extend(of);
            }
        }
        for i in needed {
            self.copy(&program.equations[i], token);
            self.work += self.liveness.work[i];
            self.roots.extend(self.liveness.makes(i));
        }
    }

    fn copy(&mut self, e: &Equation, token: Var) {
        if e.op == Op::After {
            let x = self.copies.get(&e.inputs[0]).copied().unwrap_or(e.inputs[0]);
            self.copies.insert(e.outputs[0], x);
            return;
        }
        let mut inputs = e.inputs.clone();
        let mut waits = false;
        for v in &mut inputs {
            if let Some(&copy) = self.copies.get(v) {
                (*v, waits) = (copy, true);
            }
        }
        if !waits {
            // One operand that waits is enough: the largest that is not a view.
            let plain = |v: Var| self.liveness.root(v) == v;
            let size = |v: Var| (plain(v), self.liveness.program.spec(v).bytes());
            if let Some(k) = (0..inputs.len()).max_by_key(|&k| size(inputs[k])) {
                inputs[k] = self.waited(inputs[k], token);
            }
        }
        let specs = e.outputs.iter().map(|&v| self.out.spec(v).clone()).collect::<Vec<_>>();
        let outputs: Vars = specs.into_iter().map(|spec| self.out.fresh(spec)).collect();
        self.copies.extend(e.outputs.iter().copied().zip(outputs.iter().copied()));
        self.out.equations.push(Equation { op: e.op.clone(), inputs, outputs, at: e.at });
    }

    /// A kept value, available only after the token. A view is reapplied to the value that waits,
    /// so that fusion can still look through it.
    fn waited(&mut self, v: Var, token: Var) -> Var {
        if let Some(&known) = self.waiting.get(&(v, token)) {
            return known;
        }
        let made = self.liveness.made[v.index()].map(|i| &self.liveness.program.equations[i]);
        let (op, inputs) = match made {
            Some(e) if matches!(e.op, Op::View(_)) => {
                (e.op.clone(), Vars::from_slice(&[self.waited(e.inputs[0], token)]))
            }
            _ => (Op::After, Vars::from_slice(&[v, token])),
        };
        let spec = self.out.spec(v).clone();
        let new = self.out.fresh(spec);
        let at = made.and_then(|e| e.at);
        let outputs = Vars::from_slice(&[new]);
        self.out.equations.push(Equation { op, inputs, outputs, at });
        self.waiting.insert((v, token), new);
        new
    }
}
