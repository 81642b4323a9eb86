//! The body of a scan, differentiated and cut in two.
//!
//! Forward and backward of one iteration are traced together, as one program: the iteration, then
//! its pullback of given cotangents. What does not depend on a cotangent is forward work; what does
//! is backward work; what backward work reads of forward work is saved, stacked over the
//! iterations. So nothing is computed twice, as on the tape. Values that are cheap to recompute
//! (literals, counts, views) are not saved; rows of the sequences and shared operands are available
//! anyway.

use super::body as trace_body;
use super::compiled::halves;
use crate::trace::{FinishedTrace, evaluate};
use crate::{Scalar, Spec, Tensor, custom, vjp};
use pullback_ir::{Equation, Line, Op, Program, ResultMemory, Scan, Var, View};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// A scan's two halves.
pub(crate) struct Split {
    /// The iteration, with what is kept as its last outputs.
    pub forward: Program,
    /// From shared operands, then the cotangents of the carry's floats and the gradients so far of
    /// the shared floats (its carry), then rows of the sequences, of what is kept, and of the
    /// cotangents of float ys: the new carry, then the gradients of the float rows.
    pub backward: Program,
    pub kept: usize,
    /// What both take after the shared operands.
    pub constants: Vec<Tensor>,
    /// The gradients of shared matrices that are computed after the loop.
    pub products: Vec<DeferredProduct>,
}

/// The gradient of a shared matrix that is a sum over the iterations of products: one product of
/// the concatenated factors of all iterations. Adding one thin product per iteration would pass
/// over the matrix at every iteration.
pub(crate) struct DeferredProduct {
    /// Which operand of the iteration it belongs to.
    pub operand: usize,
    pub factors: [Factor; 2],
}

/// A factor of every iteration: a stack, seen through views of one iteration.
pub(crate) struct Factor {
    pub stack: IterationStack,
    pub views: Vec<View>,
}

/// A stack of values of all iterations.
#[derive(Clone, Copy)]
pub(crate) enum IterationStack {
    /// A sequence that the backward scan takes.
    Given(usize),
    /// One that it gives, counted after carries and sums.
    Made(usize),
}

/// Which of these are floats.
pub(crate) fn floats<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Vec<usize> {
    specs.into_iter().enumerate().filter(|(_, s)| s.dtype.is_float()).map(|(i, _)| i).collect()
}

pub(crate) fn input_specs(program: &Program) -> Vec<Spec> {
    program.inputs.iter().map(|&v| program.spec(v).clone()).collect()
}

pub(crate) fn output_specs(program: &Program) -> Vec<Spec> {
    program.outputs.iter().map(|&v| program.spec(v).clone()).collect()
}

/// A traced program, and the constants that its rules added: inputs after all others.
pub(crate) struct TracedProgram {
    pub program: Program,
    pub constants: Vec<Tensor>,
}

/// A program and its pullback as one: from its inputs and cotangents of its float outputs, its
/// outputs and the gradients of its float inputs.
pub(crate) fn joint(program: &Program, name: &'static str, at: Line) -> TracedProgram {
    let (inputs, outputs) = (input_specs(program), output_specs(program));
    let (float_in, float_out) = (floats(&inputs), floats(&outputs));
    let specs: Vec<Spec> =
        inputs.iter().cloned().chain(float_out.iter().map(|&k| outputs[k].clone())).collect();
    let (_, recorded) = trace_body(name, &specs, at, |args| {
        let (x, cotangents) = args.split_at(inputs.len());
        let point: Vec<Tensor> = float_in.iter().map(|&i| x[i].clone()).collect();
        let run = |point: &Vec<Tensor>| {
            let mut all = x.to_vec();
            float_in.iter().zip(point).for_each(|(&i, p)| all[i] = p.clone());
            custom::with_captures_cut(|| evaluate(program, &all))
        };
        // The other outputs have no cotangent; they are results of the same program.
        let all = RefCell::new(Vec::new());
        let (ys, pullback) = vjp(
            |point: &Vec<Tensor>| {
                let ys = run(point);
                all.borrow_mut().clone_from(&ys);
                float_out.iter().map(|&k| ys[k].clone()).collect::<Vec<Tensor>>()
            },
            &point,
        );
        let mut others = all.borrow().clone();
        float_out.iter().zip(ys).for_each(|(&k, y)| others[k] = y);
        others.into_iter().chain(pullback(&cotangents.to_vec())).collect::<Vec<Tensor>>()
    });
    traced(recorded)
}

pub(crate) fn traced(recorded: FinishedTrace) -> TracedProgram {
    let constants = recorded.captures.into_iter().map(|c| c.tensor).collect();
    TracedProgram { program: recorded.program.renumbered(), constants }
}

/// The iteration itself, without what is kept of it.
fn own_iteration(scan: &Scan) -> Program {
    let mut iteration = scan.body.clone();
    iteration.outputs.truncate(iteration.outputs.len() - scan.kept);
    // Without what only led to the kept values, so that cutting it again gives the same two halves.
    let mut live = vec![false; iteration.specs.len()];
    iteration.outputs.iter().for_each(|v| live[v.index()] = true);
    for e in iteration.equations.iter().rev() {
        if e.op.is_ordered() || e.outputs.iter().any(|v| live[v.index()]) {
            e.inputs.iter().for_each(|v| live[v.index()] = true);
        }
    }
    iteration.equations.retain(|e| {
        // Other workers take part in a collective, whether its result is read or not.
        e.op.is_ordered() || e.outputs.iter().any(|v| live[v.index()])
    });
    iteration
}

pub(crate) fn split(scan: &Scan, at: Line) -> Rc<Split> {
    halves(scan, at, || split_anew(scan, at))
}

fn split_anew(scan: &Scan, at: Line) -> Split {
    let iteration = own_iteration(scan);
    let TracedProgram { program: both, constants } = joint(&iteration, "scan", at);
    let joined = JoinedIteration::new(scan, &iteration, &both, constants.len());
    let (n, results) = (joined.inputs, iteration.outputs.len());

    let mut forward = Program {
        specs: both.specs.clone(),
        inputs: joined.with_constants(&both.inputs[..n]),
        ..Program::default()
    };
    forward.equations = both.equations.iter().filter(|e| !joined.is_late(e)).cloned().collect();
    forward.outputs = both.outputs[..results].to_vec();

    // Backward: walked from its outputs; missing values are recomputed if that is cheap, and saved
    // otherwise.
    let float_in = floats(&input_specs(&iteration));
    let gradients: Vec<(usize, Var)> =
        float_in.into_iter().zip(both.outputs[results..].iter().copied()).collect();
    let hoisted = joined.hoisted(&gradients);
    let inside: Vec<(usize, Var)> =
        gradients.into_iter().filter(|(i, _)| hoisted.iter().all(|h| h.0 != *i)).collect();
    let (kept, needed) = joined.kept_and_needed(&inside, &hoisted);
    forward.outputs.extend(&kept);

    let outputs = output_specs(&iteration);
    let carry_cotangents = floats(&outputs[..scan.carry]).len();
    let (backward, stacked) = joined.backward(&inside, &needed, carry_cotangents, &kept, at);
    let (backward, products) = with_products(backward, stacked, hoisted);
    let kept = kept.len();
    Split {
        forward: forward.renumbered(),
        backward: backward.renumbered(),
        kept,
        constants,
        products,
    }
}

/// An iteration and its pullback as one program.
struct JoinedIteration<'a> {
    both: &'a Program,
    definitions: Vec<Option<usize>>,
    /// Which variables depend on a cotangent.
    late: Vec<bool>,
    /// The position of each input.
    places: FxHashMap<Var, usize>,
    /// Where the shared inputs of the iteration end, those of the carry, all, and the cotangents,
    /// which the constants follow.
    shared: usize,
    carried: usize,
    inputs: usize,
    cotangents: usize,
}

/// Stacks of values: those that the backward scan takes, and those that it gives.
struct Stacks {
    given: Vec<Var>,
    made: Vec<Var>,
    /// What it gives before them: carries and sums.
    first: Vec<Var>,
}

impl JoinedIteration<'_> {
    fn new<'a>(
        scan: &Scan,
        iteration: &Program,
        both: &'a Program,
        constants: usize,
    ) -> JoinedIteration<'a> {
        let (inputs, cotangents) = (iteration.inputs.len(), both.inputs.len() - constants);
        let mut late = vec![false; both.specs.len()];
        both.inputs[inputs..cotangents].iter().for_each(|v| late[v.index()] = true);
        for e in &both.equations {
            if e.inputs.iter().any(|v| late[v.index()]) {
                e.outputs.iter().for_each(|v| late[v.index()] = true);
            }
        }
        JoinedIteration {
            both,
            definitions: both.definitions(),
            late,
            places: both.inputs.iter().enumerate().map(|(i, &v)| (v, i)).collect(),
            shared: scan.shared,
            carried: scan.shared + scan.carry,
            inputs,
            cotangents,
        }
    }

    /// These inputs, with the constants after the shared ones.
    fn with_constants(&self, inputs: &[Var]) -> Vec<Var> {
        let (shared, rest) = inputs.split_at(self.shared);
        [shared, &self.both.inputs[self.cotangents..], rest].concat()
    }

    fn is_late(&self, e: &Equation) -> bool {
        e.outputs.iter().any(|v| self.late[v.index()])
    }

    /// Shared matrices whose gradient is a product of values of the iteration, with its factors.
    fn hoisted(&self, gradients: &[(usize, Var)]) -> Vec<(usize, [ViewedVar; 2])> {
        let turns_value = |v: Var| match (self.definitions[v.index()], self.places.get(&v)) {
            (None, Some(&i)) => (self.shared..self.cotangents).contains(&i),
            (None, None) => false,
            (Some(e), _) => {
                !matches!(self.both.equations[e].op, Op::Literal { .. } | Op::Iota { .. })
            }
        };
        let factors_of = |g: Var| {
            let e = &self.both.equations[self.definitions[g.index()]?];
            let plain = matches!(e.op, Op::Dot) && self.both.spec(g).shape.len() == 2;
            if !plain {
                return None;
            }
            let found = [0, 1].map(|k| through_views(self.both, &self.definitions, e.inputs[k]));
            found.iter().all(|factor| turns_value(factor.0)).then_some(found)
        };
        (gradients.iter())
            .filter(|(i, g)| *i < self.shared && self.late[g.index()])
            .filter_map(|&(i, g)| Some((i, factors_of(g)?)))
            .collect()
    }

    /// What of the forward half is kept for these gradients and factors, and which equations the
    /// backward half needs.
    fn kept_and_needed(
        &self,
        inside: &[(usize, Var)],
        hoisted: &[(usize, [ViewedVar; 2])],
    ) -> (Vec<Var>, Vec<bool>) {
        let mut kept: Vec<Var> = Vec::new();
        let mut needed = vec![false; self.both.equations.len()];
        // A gradient that depends on no cotangent is zero, as the pullback is linear: nothing is
        // kept for it.
        let late = inside.iter().map(|g| g.1).filter(|g| self.late[g.index()]);
        let mut wanted: Vec<Var> = late.collect();
        wanted.extend(hoisted.iter().flat_map(|h| &h.1).map(|factor| factor.0));
        // Other workers take part in a collective, whether its result is read or not.
        let ordered = self.both.equations.iter().filter(|e| self.is_late(e) && e.op.is_ordered());
        wanted.extend(ordered.flat_map(|e| &e.outputs));
        let mut seen = vec![false; self.both.specs.len()];
        while let Some(v) = wanted.pop() {
            if std::mem::replace(&mut seen[v.index()], true) {
                continue;
            }
            match (self.definitions[v.index()], self.places.get(&v)) {
                (None, Some(&i)) if (self.shared..self.carried).contains(&i) => kept.push(v),
                (None, _) => {}
                (Some(e), _) => {
                    let equation = &self.both.equations[e];
                    if self.late[v.index()] || is_cheap(&equation.op) {
                        needed[e] = true;
                        wanted.extend(&equation.inputs);
                    } else {
                        kept.push(v);
                    }
                }
            }
        }
        kept.sort_unstable();
        (kept, needed)
    }

    /// The backward half, without its outputs, and the stacks of its values. Gradients of shared
    /// inputs are accumulated, those of the carry are carried on, those of rows are returned.
    fn backward(
        &self,
        inside: &[(usize, Var)],
        needed: &[bool],
        carry_cotangents: usize,
        kept: &[Var],
        at: Line,
    ) -> (Program, Stacks) {
        let both = self.both;
        let mut backward = Program { specs: both.specs.clone(), ..Program::default() };
        let equations = both.equations.iter().zip(needed).filter(|(_, n)| **n);
        backward.equations = equations.map(|(e, _)| e.clone()).collect();
        let of = |range: std::ops::Range<usize>| -> Vec<Var> {
            inside.iter().filter(|(i, _)| range.contains(i)).map(|g| g.1).collect()
        };
        let mut or_zeros = |all: Vec<Var>| -> Vec<Var> {
            let mut zeros = |g: Var| {
                let zeros = Op::literal(Scalar::from(0.0), both.spec(g).clone());
                crate::fail::or_raise(backward.push(zeros, &[], Some(at)))[0]
            };
            all.into_iter().map(|g| if self.late[g.index()] { g } else { zeros(g) }).collect()
        };
        let carry = or_zeros(of(self.shared..self.carried));
        let made = or_zeros(of(self.carried..self.inputs));
        let (mut sums, mut so_far) = (Vec::new(), Vec::new());
        for g in of(0..self.shared) {
            let sum = backward.fresh(both.spec(g).clone());
            so_far.push(sum);
            if !self.late[g.index()] {
                sums.push(sum);
                continue;
            }
            let added = backward.push(Op::Binary(pullback_ir::Binary::Add), &[sum, g], Some(at));
            sums.extend(crate::fail::or_raise(added));
        }
        let cotangents = &both.inputs[self.inputs..self.cotangents];
        let (d_carry, d_rows) = cotangents.split_at(carry_cotangents);
        let rows = &both.inputs[self.carried..self.inputs];
        let given: Vec<Var> = rows.iter().chain(kept).chain(d_rows).copied().collect();
        backward.inputs = self.with_constants(&both.inputs[..self.shared]);
        backward.inputs.extend(d_carry.iter().chain(&so_far).chain(&given));
        (backward, Stacks { given, made, first: [carry, sums].concat() })
    }
}

/// The backward half with its outputs, among them the factors of products that are computed after
/// the loop.
fn with_products(
    mut backward: Program,
    stacks: Stacks,
    hoisted: Vec<(usize, [ViewedVar; 2])>,
) -> (Program, Vec<DeferredProduct>) {
    let Stacks { given, mut made, first } = stacks;
    let mut stack_of = |v: Var| match given.iter().position(|&g| g == v) {
        Some(at) => IterationStack::Given(at),
        None => {
            let at = made.iter().position(|&s| s == v).unwrap_or(made.len());
            if at == made.len() {
                made.push(v);
            }
            IterationStack::Made(at)
        }
    };
    let mut products = Vec::new();
    for (operand, factors) in hoisted {
        let factors = factors.map(|(v, views)| Factor { stack: stack_of(v), views });
        products.push(DeferredProduct { operand, factors });
    }
    backward.outputs = [first, made].concat();
    (backward, products)
}

/// A variable, and views of it.
type ViewedVar = (Var, Vec<View>);

/// The variable that this one is a view of, and the chain of views from there to it.
fn through_views(program: &Program, definitions: &[Option<usize>], v: Var) -> ViewedVar {
    let (mut v, mut views) = (v, Vec::new());
    while let Some(e) = definitions[v.index()].map(|e| &program.equations[e]) {
        let Op::View(view) = &e.op else { break };
        views.push(view.clone());
        v = e.inputs[0];
    }
    views.reverse();
    (v, views)
}

/// Whether a value costs next to nothing to recompute.
fn is_cheap(op: &Op) -> bool {
    // Not `after`, whose place in the order is what it is for.
    op.memory() != ResultMemory::Own && !matches!(op, Op::After | Op::Wait)
}
