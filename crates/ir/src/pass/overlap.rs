//! Starts collectives early and waits for them late, so that they run beside other work.
//!
//! `y = all_reduce x` becomes `s = all_reduce{started} x` and `y = wait s x`. A `wait` costs
//! nothing but the time that is left: it has the memory of its operand, like `after`. As it reads
//! both operands, the plan keeps the memory of both until then.
//!
//! The order is found by list scheduling. Of the equations that are ready, those come first that
//! lead to the next start; a `wait` comes only when nothing else is left to do. An equation leads
//! to a start at once if all work that is left before the start is light (moving and pointwise ops:
//! putting gradients into a bucket); heavy work stays in the given order, which was chosen for
//! little memory. What replaces an input waits for all that may fail, as in
//! [`schedule`](super::schedule). Gathers with no heavy work before them could all start at the
//! beginning, and take the memory of all parameters of a model whose parts are spread over workers:
//! each of these starts when the one before it is waited for, so that they are one ahead.
//!
//! Guarantees: the same bits. Collectives start in the order of the program, which all workers
//! have in common; the new order follows from the program alone. Every start has its wait in the
//! same program. A barrier is not split: it is there to be waited for. Programs inside control flow
//! are treated alike. Idempotent. Memory at a time may rise: by what is sent, and by what is
//! computed meanwhile. Variables are renumbered in order.

use super::Target;
use super::rebuild::{Rebuild, with_programs};
use super::schedule::writers_after_failures;
use crate::{Collective, CollectiveOp, Equation, Family, Inst, Op, Program, Structure, Vars};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Starts collectives early and waits for them late.
#[must_use]
pub fn overlap(program: &Program) -> Program {
    overlap_on(program, Target::default())
}

/// [`overlap`] for a machine.
#[must_use]
pub fn overlap_on(program: &Program, target: Target) -> Program {
    if !program.is_ordered() {
        return program.clone();
    }
    let split = split(program, target);
    let order = List::new(&split, target).order();
    let equations = order.into_iter().map(|i| split.equations[i].clone()).collect();
    Program { equations, ..split }.renumbered()
}

/// Every collective as a start and a wait.
fn split(program: &Program, target: Target) -> Program {
    let mut new = Rebuild::new(program);
    for e in &program.equations {
        match &e.op {
            Op::Collective(of) if !of.started && of.collective != Collective::Barrier => {
                let inputs = new.inputs(e);
                let start = CollectiveOp { started: true, ..CollectiveOp::clone(of) };
                new.keep_as(e, Op::Collective(Arc::new(start)), inputs.clone());
                let mut waited = Vars::from_slice(&[new.var(e.outputs[0])]);
                waited.extend(inputs);
                new.keep_as(e, Op::Wait, waited);
            }
            _ => {
                let inputs = new.inputs(e);
                let op = with_programs(&e.op, |inside| overlap_on(inside, target));
                new.keep_as(e, op, inputs);
            }
        }
    }
    new.finish()
}

/// What an equation waits for, and how urgent it is.
struct List<'a> {
    program: &'a Program,
    /// The equations that wait for each one.
    after: Vec<Vec<u32>>,
    /// How many equations each one waits for.
    waits: Vec<usize>,
    /// The ordered equations.
    ordered: Vec<usize>,
    /// By equation: the first of the ordered ones that needs it, by its number in the list.
    leads_to: Vec<Option<usize>>,
    /// By ordered equation: how much heavy work is left that leads to it.
    heavy: Vec<usize>,
}

impl List<'_> {
    fn new(program: &Program, target: Target) -> List<'_> {
        let (count, made) = (program.equations.len(), program.definitions());
        let (mut after, mut waits) = (vec![Vec::new(); count], vec![0; count]);
        let mut edge = |from: usize, to: usize| {
            after[from].push(to as u32);
            waits[to] += 1;
        };
        let is_ordered = |&i: &usize| program.equations[i].op.is_ordered();
        let ordered: Vec<usize> = (0..count).filter(is_ordered).collect();
        for (i, e) in program.equations.iter().enumerate() {
            e.inputs.iter().filter_map(|v| made[v.index()]).for_each(|m| edge(m, i));
        }
        ordered.windows(2).for_each(|pair| edge(pair[0], pair[1]));
        writers_after_failures(program, target, &made, &mut edge);
        let (mut leads_to, mut heavy) = (vec![None; count], vec![0; ordered.len()]);
        for (number, &i) in ordered.iter().enumerate() {
            let mut open = vec![i];
            while let Some(i) = open.pop() {
                if leads_to[i].is_some() {
                    continue;
                }
                leads_to[i] = Some(number);
                heavy[number] += usize::from(is_heavy(&program.equations[i]));
                let inputs = &program.equations[i].inputs;
                open.extend(inputs.iter().filter_map(|v| made[v.index()]));
            }
        }
        let mut list = List { program, after, waits, ordered, leads_to, heavy };
        list.gather_one_ahead();
        list
    }

    /// Gathers of what is there from the beginning: each starts after the wait of the one before.
    fn gather_one_ahead(&mut self) {
        let (program, made) = (self.program, self.program.definitions());
        let mut is_early = vec![true; program.equations.len()];
        let mut waited: Option<usize> = None;
        for (i, e) in program.equations.iter().enumerate() {
            let of_early = e.inputs.iter().all(|v| made[v.index()].is_none_or(|m| is_early[m]));
            is_early[i] = of_early && !is_heavy(e);
            let Op::Collective(of) = &e.op else { continue };
            if of.collective == Collective::AllGather && of.started && is_early[i] {
                if let Some(wait) = waited {
                    self.after[wait].push(i as u32);
                    self.waits[i] += 1;
                }
                let reads = |e: &Equation| {
                    e.op == Op::Wait && e.inputs[0] == program.equations[i].outputs[0]
                };
                waited = program.equations.iter().position(reads);
            }
        }
    }

    fn order(mut self) -> Vec<usize> {
        let count = self.program.equations.len();
        let mut ready: BinaryHeap<Reverse<(Urgency, usize)>> = BinaryHeap::new();
        let mut done = vec![false; count];
        // Those that lead to an ordered equation below this come at once.
        let mut near = self.near(0);
        for i in (0..count).filter(|&i| self.waits[i] == 0) {
            ready.push(Reverse((self.urgency(i, near), i)));
        }
        let mut order = Vec::with_capacity(count);
        while let Some(Reverse((_, i))) = ready.pop() {
            if std::mem::replace(&mut done[i], true) {
                continue;
            }
            order.push(i);
            if let (Some(number), true) = (self.leads_to[i], is_heavy(&self.program.equations[i])) {
                self.heavy[number] -= 1;
            }
            for next in std::mem::take(&mut self.after[i]) {
                let next = next as usize;
                self.waits[next] -= 1;
                if self.waits[next] == 0 {
                    ready.push(Reverse((self.urgency(next, near), next)));
                }
            }
            let nearer = self.near(near);
            if nearer > near {
                // What was ready before may be urgent now.
                for j in (0..count).filter(|&j| self.waits[j] == 0 && !done[j]) {
                    ready.push(Reverse((self.urgency(j, nearer), j)));
                }
                near = nearer;
            }
        }
        order
    }

    /// How many of the ordered equations have no heavy work left before them, from the first on.
    fn near(&self, from: usize) -> usize {
        let left = self.heavy[from..].iter().take_while(|&&heavy| heavy == 0).count();
        (from + left).min(self.ordered.len())
    }

    fn urgency(&self, i: usize, near: usize) -> Urgency {
        match self.leads_to[i] {
            _ if self.program.equations[i].op == Op::Wait => Urgency::Last,
            Some(number) if number < near => Urgency::First,
            Some(_) | None => Urgency::InTurn,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    First,
    InTurn,
    Last,
}

/// Whether an equation is more than moving and pointwise work. To wait is the heaviest.
fn is_heavy(e: &Equation) -> bool {
    match e.op.family() {
        Family::View => e.op == Op::Wait,
        Family::Source | Family::Pointwise(_) | Family::Movement | Family::Collective => false,
        Family::Structure(Structure::Region(region)) => {
            region.body.iter().any(|inst| matches!(inst, Inst::Reduce(..)))
        }
        Family::Structure(_) | Family::Index | Family::Reduction => true,
        Family::Window | Family::Linear | Family::Fused => true,
    }
}
