//! A program in which late equations read what is made again, in the place of what is not kept.
//!
//! Late equations are taken in order. When one reads a value that is not kept, the value is made
//! again in front of it, with all that it is made from back to what is kept; later equations read
//! the same copies. What is made again waits (by [`Op::After`]) for a *token*: the last result that
//! comes before in the program and is in memory in any case. So nothing moves the second
//! computation to the first, or makes one of both.

use super::lives::{Lives, is_alias};
use crate::{Equation, Op, Program, Var, Vars};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The new program, and what is made again in it.
pub(super) struct Again {
    pub(super) program: Program,
    /// The roots of which there is a second one.
    pub(super) roots: Vec<Var>,
    pub(super) work: u64,
}

/// Makes again, after the moment, what is not kept.
pub(super) fn made_again(lives: &Lives, moment: usize, kept: &[bool]) -> Again {
    let program = lives.program;
    let mut maker = Maker {
        lives,
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
            // What is gone need not be waited for: it was there before.
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
    Again { program: maker.out, roots: maker.roots, work: maker.work }
}

/// Ops whose results need not be in memory: they become part of regions, or cost nothing.
fn joins_others(op: &Op) -> bool {
    op.is_pointwise()
        || is_alias(op)
        || matches!(op, Op::Reduce(..) | Op::Random { .. } | Op::Literal { .. } | Op::Iota { .. })
}

struct Maker<'a> {
    lives: &'a Lives<'a>,
    moment: usize,
    kept: &'a [bool],
    out: Program,
    /// What is made again, by what it was.
    copies: FxHashMap<Var, Var>,
    /// What waits, by what it is and what it waits for.
    waiting: FxHashMap<(Var, Var), Var>,
    roots: Vec<Var>,
    work: u64,
}

impl Maker<'_> {
    fn is_gone(&self, v: Var) -> bool {
        let root = self.lives.root(v).index();
        self.is_early(v) && !self.lives.free[root] && !self.kept[root]
    }

    fn is_early(&self, v: Var) -> bool {
        self.lives.made[v.index()].is_some_and(|made| made < self.moment)
    }

    /// What the values that an equation lacks wait for.
    fn token_for(&self, e: &Equation, barrier: Option<Var>, late: bool) -> Option<Var> {
        let late_operand = || {
            let made = |v: &&Var| self.lives.made[v.index()].filter(|&made| made >= self.moment);
            e.inputs.iter().filter(|v| made(v).is_some()).max_by_key(made).copied()
        };
        if late { barrier } else { late_operand().or(barrier) }
    }

    /// Makes again what an equation reads and is gone.
    fn restore(&mut self, e: &Equation, token: Var) {
        let program = self.lives.program;
        let mut needed: BTreeSet<usize> = BTreeSet::new();
        let operands = if e.op == Op::After { &e.inputs[..1] } else { &e.inputs[..] };
        let mut open: Vec<Var> = operands.to_vec();
        while let Some(v) = open.pop() {
            if !self.is_gone(v) || self.copies.contains_key(&v) {
                continue;
            }
            if let Some(made) = self.lives.made[v.index()]
                && needed.insert(made)
            {
                let e = &program.equations[made];
                let of = if is_alias(&e.op) { &e.inputs[..1] } else { &e.inputs[..] };
                open.extend(of);
            }
        }
        for i in needed {
            self.copy(&program.equations[i], token);
            self.work += self.lives.work[i];
            self.roots.extend(self.lives.makes(i));
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
            // One operand that waits is enough: the largest that lies as it is.
            let plain = |v: Var| self.lives.root(v) == v;
            let size = |v: Var| (plain(v), self.lives.program.spec(v).bytes());
            if let Some(k) = (0..inputs.len()).max_by_key(|&k| size(inputs[k])) {
                inputs[k] = self.waited(inputs[k], token);
            }
        }
        let specs = e.outputs.iter().map(|&v| self.out.spec(v).clone()).collect::<Vec<_>>();
        let outputs: Vars = specs.into_iter().map(|spec| self.out.fresh(spec)).collect();
        self.copies.extend(e.outputs.iter().copied().zip(outputs.iter().copied()));
        self.out.equations.push(Equation { op: e.op.clone(), inputs, outputs, at: e.at });
    }

    /// A value that is there, but not before the token. A view is taken anew of what waits, so that
    /// fusion can still see through it.
    fn waited(&mut self, v: Var, token: Var) -> Var {
        if let Some(&known) = self.waiting.get(&(v, token)) {
            return known;
        }
        let made = self.lives.made[v.index()].map(|i| &self.lives.program.equations[i]);
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
