//! The body of a scan, differentiated and cut in two.
//!
//! Forward and backward of one iteration are traced together, as one program: the iteration, then
//! its pullback of given cotangents. What does not depend on a cotangent is forward work; what does
//! is backward work; what backward work reads of forward work is saved, stacked over the
//! iterations. So nothing is computed twice, as on the tape. Values that are cheap to recompute
//! (literals, counts, views) are not saved; rows of the sequences and shared operands are available
//! anyway.

use super::body as trace_body;
use crate::trace::{Recorded, evaluate};
use crate::{Scalar, Spec, Tensor, custom, vjp};
use pullback_ir::{Equation, Line, Op, Program, ResultMemory, Scan, Var, View};
use rustc_hash::FxHashMap;
use std::cell::RefCell;

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

pub(crate) fn traced(recorded: Recorded) -> TracedProgram {
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

pub(crate) fn split(scan: &Scan, at: Line) -> Split {
    let iteration = own_iteration(scan);
    let TracedProgram { program: both, constants } = joint(&iteration, "scan", at);
    let fixed_inputs = both.inputs.len() - constants.len();
    let (n, results) = (iteration.inputs.len(), iteration.outputs.len());
    let (fixed, carried) = (scan.shared, scan.shared + scan.carry);
    let definitions = both.definitions();

    // What depends on a cotangent.
    let mut late = vec![false; both.specs.len()];
    both.inputs[n..fixed_inputs].iter().for_each(|v| late[v.index()] = true);
    for e in &both.equations {
        if e.inputs.iter().any(|v| late[v.index()]) {
            e.outputs.iter().for_each(|v| late[v.index()] = true);
        }
    }

    let with_constants = |inputs: &[Var]| {
        let (shared, rest) = inputs.split_at(fixed);
        [shared, &both.inputs[fixed_inputs..], rest].concat()
    };
    let mut forward = Program {
        specs: both.specs.clone(),
        inputs: with_constants(&both.inputs[..n]),
        ..Program::default()
    };
    let is_late = |e: &Equation| e.outputs.iter().any(|v| late[v.index()]);
    forward.equations = both.equations.iter().filter(|e| !is_late(e)).cloned().collect();
    forward.outputs = both.outputs[..results].to_vec();

    // Backward: walked from its outputs; missing values are recomputed if that is cheap, and saved
    // otherwise.
    let gradients = &both.outputs[results..];
    let inputs = input_specs(&iteration);
    let float_in = floats(&inputs);
    let place: FxHashMap<Var, usize> =
        both.inputs.iter().enumerate().map(|(i, &v)| (v, i)).collect();
    // Shared matrices whose gradient is a product of values of the iteration.
    let turns_value = |v: Var| match (definitions[v.index()], place.get(&v)) {
        (None, Some(&i)) => (fixed..fixed_inputs).contains(&i),
        (None, None) => false,
        (Some(e), _) => !matches!(both.equations[e].op, Op::Literal { .. } | Op::Iota { .. }),
    };
    let factors_of = |g: Var| {
        let e = &both.equations[definitions[g.index()]?];
        let plain = matches!(e.op, Op::Dot) && both.spec(g).shape.len() == 2;
        if !plain {
            return None;
        }
        let found = [0, 1].map(|k| through_views(&both, &definitions, e.inputs[k]));
        found.iter().all(|factor| turns_value(factor.0)).then_some(found)
    };
    let hoisted: Vec<(usize, [Seen; 2])> = (float_in.iter().zip(gradients))
        .filter(|(i, g)| **i < fixed && late[g.index()])
        .filter_map(|(&i, &g)| Some((i, factors_of(g)?)))
        .collect();
    let is_hoisted = |i: usize| hoisted.iter().any(|h| h.0 == i);
    let mut backward = Program { specs: both.specs.clone(), ..Program::default() };
    let mut kept: Vec<Var> = Vec::new();
    let mut needed = vec![false; both.equations.len()];
    // A gradient that depends on no cotangent is zero, as the pullback is linear: nothing is kept
    // for it.
    let inside =
        (float_in.iter().zip(gradients)).filter(|(i, g)| !is_hoisted(**i) && late[g.index()]);
    let mut wanted: Vec<Var> = inside.map(|(_, &g)| g).collect();
    wanted.extend(hoisted.iter().flat_map(|h| &h.1).map(|factor| factor.0));
    // Other workers take part in a collective, whether its result is read or not.
    let ordered = both.equations.iter().filter(|e| is_late(e) && e.op.is_ordered());
    wanted.extend(ordered.flat_map(|e| &e.outputs));
    let mut seen = vec![false; both.specs.len()];
    while let Some(v) = wanted.pop() {
        if std::mem::replace(&mut seen[v.index()], true) {
            continue;
        }
        match (definitions[v.index()], place.get(&v)) {
            (None, Some(&i)) if (fixed..carried).contains(&i) => kept.push(v),
            (None, _) => {}
            (Some(e), _) => {
                let equation = &both.equations[e];
                if late[v.index()] || is_cheap(&equation.op) {
                    needed[e] = true;
                    wanted.extend(&equation.inputs);
                } else {
                    kept.push(v);
                }
            }
        }
    }
    kept.sort_unstable();
    forward.outputs.extend(&kept);
    backward.equations =
        both.equations.iter().zip(&needed).filter(|(_, n)| **n).map(|(e, _)| e.clone()).collect();

    // The gradients of the float inputs: shared ones are accumulated, those of the carry are
    // carried on, those of rows are returned.
    let of = |range: std::ops::Range<usize>| -> Vec<Var> {
        let inside = (float_in.iter().zip(gradients))
            .filter(|(i, _)| range.contains(*i) && !is_hoisted(**i));
        inside.map(|(_, &g)| g).collect()
    };
    let (shared, carry, rows) = (of(0..fixed), of(fixed..carried), of(carried..n));
    let mut or_zeros = |all: Vec<Var>| -> Vec<Var> {
        let mut zeros = |g: Var| {
            let spec = both.spec(g);
            let zeros = Op::literal(Scalar::from(0.0), spec.clone());
            crate::fail::or_raise(backward.push(zeros, &[], Some(at)))[0]
        };
        all.into_iter().map(|g| if late[g.index()] { g } else { zeros(g) }).collect()
    };
    let (carry, rows) = (or_zeros(carry), or_zeros(rows));
    let outputs = output_specs(&iteration);
    let carry_cotangents = floats(&outputs[..scan.carry]).len();
    let (d_carry, d_rows) = both.inputs[n..fixed_inputs].split_at(carry_cotangents);
    let mut sums = Vec::new();
    let mut so_far = Vec::new();
    for &g in &shared {
        let sum = backward.fresh(both.spec(g).clone());
        so_far.push(sum);
        if !late[g.index()] {
            sums.push(sum);
            continue;
        }
        let added = backward.push(Op::Binary(pullback_ir::Binary::Add), &[sum, g], Some(at));
        sums.extend(crate::fail::or_raise(added));
    }
    backward.inputs = with_constants(&both.inputs[..fixed]);
    backward.inputs.extend(d_carry.iter().chain(&so_far));
    backward.inputs.extend(both.inputs[carried..n].iter().chain(&kept).chain(d_rows));
    let given: Vec<Var> =
        (both.inputs[carried..n].iter()).chain(&kept).chain(d_rows).copied().collect();
    let mut stacked = rows.clone();
    let mut stack_of = |v: Var| match given.iter().position(|&g| g == v) {
        Some(at) => IterationStack::Given(at),
        None => {
            let at = stacked.iter().position(|&s| s == v).unwrap_or(stacked.len());
            if at == stacked.len() {
                stacked.push(v);
            }
            IterationStack::Made(at)
        }
    };
    let mut products = Vec::new();
    for (operand, factors) in hoisted {
        let factors = factors.map(|(v, views)| Factor { stack: stack_of(v), views });
        products.push(DeferredProduct { operand, factors });
    }
    backward.outputs = carry.iter().chain(&sums).chain(&stacked).copied().collect();
    Split {
        forward: forward.renumbered(),
        backward: backward.renumbered(),
        kept: kept.len(),
        constants,
        products,
    }
}

/// A variable, and views of it.
type Seen = (Var, Vec<View>);

/// The variable that this one is a view of, and the chain of views from there to it.
fn through_views(program: &Program, definitions: &[Option<usize>], v: Var) -> Seen {
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
