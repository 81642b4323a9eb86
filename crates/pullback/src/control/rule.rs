//! How control flow differentiates.
//!
//! - `scan`: forward keeps, per iteration, what backward reads (`split.rs`); backward is a scan in
//!   reverse order.
//! - `cond`: the pullback of the branch that was taken, computed by the branch again.
//! - `while`: runs again and records checkpoints of the state, from which backward recomputes the
//!   iterations in reverse (`checkpoints.rs`).
//!
//! Forward mode carries tangents along with values through the same construct. The rules are made
//! of tensor operations and constructs again, so they nest.

use super::checkpoints::{WhileLoop, vjp_while};
use super::split::{
    DeferredProduct, Factor, IterationStack, TracedProgram, floats, input_specs, joint,
    output_specs, split, traced,
};
use super::{apply_flow, body};
use crate::batch::{BatchedValue, batch};
use crate::rule::{Derivatives, Grad, RuleContext};
use crate::trace::evaluate;
use crate::transform::pushforward;
use crate::{Result, Spec, Tensor, custom, mode, vjp};
use pullback_ir::{Flow, Line, Op, Program, Scan, Unary, Var, View};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::sync::Arc;

/// The row of control flow.
pub(crate) fn row(flow: &Flow) -> Grad {
    Grad::Flow(vjp_of, jvp_of, matches!(flow, Flow::Scan(_)))
}

/// What replaces a construct whose result will be differentiated.
pub(crate) struct Replacement {
    pub op: Op,
    /// How many results are the construct's own.
    pub own: usize,
    /// Operands to put in at a place.
    pub constants: (usize, Vec<Tensor>),
}

impl Replacement {
    /// The operands of the construct and those that were put in.
    pub fn operands<'a>(&'a self, inputs: &[&'a Tensor]) -> Vec<&'a Tensor> {
        let (place, constants) = &self.constants;
        let (before, after) = inputs.split_at(*place);
        before.iter().copied().chain(constants).chain(after.iter().copied()).collect()
    }
}

pub(crate) fn prepare(op: &Op, at: Line) -> Option<Replacement> {
    match op {
        Op::Flow(flow) => match &**flow {
            Flow::Scan(scan) if scan.kept == 0 => {
                let halves = split(scan, at);
                if halves.kept == 0 {
                    return None;
                }
                let (own, place) = (scan.body.outputs.len(), scan.shared);
                let shared = scan.shared + halves.constants.len();
                let Scan { length, reverse, carry, .. } = *scan;
                let (body, kept) = (halves.forward.clone(), halves.kept);
                let scan = Scan { body, length, reverse, shared, carry, kept };
                let op = Op::Flow(Arc::new(Flow::Scan(scan)));
                Some(Replacement { op, own, constants: (place, halves.constants.clone()) })
            }
            Flow::Scan(_) | Flow::Cond { .. } | Flow::While { .. } => None,
        },
        _ => None,
    }
}

/// Refuses a construct whose body has a custom function that captured a value which follows from an
/// operand that is being differentiated: its rule would cut that gradient off. Rules of constructs
/// replay their bodies with every float tracked, constants as well, so they cannot detect this
/// themselves.
pub(crate) fn check_captured(op: &Op, differentiated: impl Fn(usize) -> bool) -> Result<()> {
    let Op::Flow(flow) = op else { return Ok(()) };
    for (body, first) in bodies(flow).into_iter().filter(|(body, _)| has_captures(body)) {
        let mut reached: Vec<bool> =
            (0..body.inputs.len()).map(|i| differentiated(i + first)).collect();
        // A state that is reached in one iteration is an operand of the next.
        let carried = match &**flow {
            Flow::Scan(scan) => scan.shared..scan.shared + scan.carry,
            Flow::While { shared, .. } => *shared..body.inputs.len(),
            Flow::Cond { .. } => 0..0,
        };
        loop {
            let outputs = reach(body, &reached)?;
            let before = reached.clone();
            carried.clone().zip(outputs).for_each(|(i, out)| reached[i] |= out);
            if reached == before {
                break;
            }
        }
    }
    Ok(())
}

/// The bodies that derivatives pass through, and the operand that is the first input of each.
fn bodies(flow: &Flow) -> SmallVec<[(&Program, usize); 2]> {
    match flow {
        Flow::Scan(scan) => smallvec![(&scan.body, 0)],
        Flow::Cond { yes, no } => smallvec![(yes, 1), (no, 1)],
        Flow::While { body, .. } => smallvec![(body, 0)],
    }
}

fn has_captures(body: &Program) -> bool {
    body.equations.iter().any(|e| match &e.op {
        Op::Custom(custom) => custom::captures(custom, e.inputs.len()),
        Op::Flow(flow) => bodies(flow).iter().any(|(body, _)| has_captures(body)),
        _ => false,
    })
}

/// Which outputs depend on the inputs that are reached, if no custom function captured what does.
fn reach(body: &Program, inputs: &[bool]) -> Result<SmallVec<[bool; 8]>> {
    let mut reached = vec![false; body.specs.len()];
    for (v, &on) in body.inputs.iter().zip(inputs) {
        reached[v.index()] = on && body.spec(*v).dtype.is_float();
    }
    for e in &body.equations {
        let on = |i: usize| e.inputs.get(i).is_some_and(|v| reached[v.index()]);
        if let Op::Custom(op) = &e.op {
            custom::check_captured(
                op,
                &e.inputs.iter().map(|&v| body.spec(v)).collect::<Vec<_>>(),
                on,
            )?;
        }
        check_captured(&e.op, on)?;
        let through = !matches!(e.op, Op::Unary(Unary::Stop)) && (0..e.inputs.len()).any(on);
        for v in &e.outputs {
            reached[v.index()] = through && body.spec(*v).dtype.is_float();
        }
    }
    Ok(body.outputs.iter().map(|v| reached[v.index()]).collect())
}

#[track_caller]
fn line() -> Line {
    mode::user_line(Line::caller())
}

/// The cotangent of a result, or zeros.
fn cotangent(dys: &Derivatives, k: usize, like: &Tensor) -> Tensor {
    dys[k].clone().unwrap_or_else(|| like.zeros_like_splat())
}

/// The same for a result that is not kept: a branch and a loop are run again from their operands,
/// so what they gave may be written over.
fn cotangent_of(dys: &Derivatives, k: usize, spec: &Spec) -> Tensor {
    let zeros = || Tensor::zeros_of(spec);
    dys[k].clone().unwrap_or_else(zeros)
}

fn vjp_of(ctx: &RuleContext, dys: &Derivatives) -> Derivatives {
    let Op::Flow(flow) = ctx.op else { unreachable!("the row of control flow") };
    let at = line();
    match &**flow {
        Flow::Scan(scan) => vjp_scan(scan, ctx, dys, at),
        Flow::Cond { yes, no } => vjp_cond(yes, no, ctx, dys, at),
        Flow::While { test, body, shared } => {
            let specs = output_specs(body);
            let state = floats(&specs).into_iter();
            let cotangents = state.map(|k| cotangent_of(dys, k, &specs[k]).contiguous()).collect();
            let l = WhileLoop { test, iteration: body, shared: *shared };
            mode::with_line(at, || vjp_while(&l, ctx, cotangents))
        }
    }
}

fn vjp_scan(scan: &Scan, ctx: &RuleContext, dys: &Derivatives, at: Line) -> Derivatives {
    let own = scan.body.outputs.len() - scan.kept;
    if dys[own..].iter().any(Option::is_some) {
        return vjp_with_kept(scan, ctx, dys, at);
    }
    let halves = split(scan, at);
    let (inputs, outputs) = (input_specs(&scan.body), output_specs(&scan.body));
    let (fixed, carried) = (scan.shared, scan.shared + scan.carry);
    let mut operands: Vec<Tensor> = (0..fixed).map(|i| ctx.x(i).clone()).collect();
    operands.extend_from_slice(&halves.constants);
    let shared = operands.len();
    operands
        .extend(floats(&outputs[..scan.carry]).into_iter().map(|k| cotangent(dys, k, ctx.y(k))));
    let hoisted = |i: &usize| halves.products.iter().any(|p| p.operand == *i);
    let summed: Vec<usize> = floats(&inputs[..fixed]).into_iter().filter(|i| !hoisted(i)).collect();
    operands.extend(summed.iter().map(|&i| ctx.x(i).zeros_like_splat()));
    let carry = operands.len() - shared;
    operands.extend((carried..inputs.len()).map(|i| ctx.x(i).clone()));
    operands.extend((own..outputs.len()).map(|k| ctx.y(k).clone()));
    let ys = floats(&outputs[scan.carry..own]).into_iter().map(|k| k + scan.carry);
    operands.extend(ys.map(|k| cotangent(dys, k, ctx.y(k))));
    let back = Scan {
        body: halves.backward.clone(),
        length: scan.length,
        reverse: !scan.reverse,
        shared,
        carry,
        kept: 0,
    };
    let made = apply_flow(Flow::Scan(back), &operands.iter().collect::<Vec<_>>(), at);

    // Given in the order: carry, shared, rows, and what products after the loop are made of.
    let mut out: Derivatives = SmallVec::from_elem(None, inputs.len());
    let order = floats(&inputs[fixed..carried]).into_iter().map(|i| i + fixed);
    let order = order.chain(summed);
    let order = order.chain(floats(&inputs[carried..]).into_iter().map(|i| i + carried));
    for (i, g) in order.zip(&made) {
        out[i] = Some(g.clone());
    }
    let factor = |factor: &Factor| {
        let stack = match factor.stack {
            IterationStack::Given(at) => &operands[shared + carry + at],
            IterationStack::Made(at) => &made[carry + at],
        };
        let see = |x: BatchedValue, view: &View| {
            batch(&Op::View(view.clone()), &[x], scan.length).swap_remove(0)
        };
        factor.views.iter().fold(BatchedValue::batched(stack.clone()), see).value
    };
    for DeferredProduct { operand, factors: [a, b] } in &halves.products {
        let (a, b) = (factor(a), factor(b));
        let (m, n, side) = (a.shape()[1], b.shape()[2], scan.length * a.shape()[2]);
        let a = a.permute([1, 0, 2]).reshape([m, side]);
        let b = b.reshape([side, n]);
        // The gradient lies as its operand does: a weight's, of which the loop took a transpose,
        // needs no copy.
        out[*operand] = Some(match ctx.x(*operand).0.layout.strides[..] {
            [1, columns] if columns > 1 => b.t().matmul(&a.t()).t(),
            _ => a.matmul(&b),
        });
    }
    out
}

/// The gradient where what was kept for a backward pass has a cotangent: that pass is itself being
/// differentiated. To this one the kept values are results like others, and what it needs of the
/// iterations is not among them: so the iterations are recomputed.
fn vjp_with_kept(scan: &Scan, ctx: &RuleContext, dys: &Derivatives, at: Line) -> Derivatives {
    let whole = Op::Flow(Arc::new(Flow::Scan(Scan { kept: 0, ..scan.clone() })));
    let inputs: Vec<Tensor> = (0..scan.body.inputs.len()).map(|i| ctx.x(i).clone()).collect();
    let float_in = floats(&input_specs(&scan.body));
    let point: Vec<Tensor> = float_in.iter().map(|&i| inputs[i].clone()).collect();
    let float_out = floats(&output_specs(&scan.body));
    let (_, pullback) = vjp(
        |point: &Vec<Tensor>| {
            let mut all = inputs.clone();
            float_in.iter().zip(point).for_each(|(&i, p)| all[i] = p.clone());
            let made = crate::apply::apply_all(whole.clone(), &all.iter().collect::<Vec<_>>());
            float_out.iter().map(|&k| made[k].clone()).collect::<Vec<Tensor>>()
        },
        &point,
    );
    let cotangents: Vec<Tensor> = float_out.iter().map(|&k| cotangent(dys, k, ctx.y(k))).collect();
    let mut out: Derivatives = SmallVec::from_elem(None, inputs.len());
    for (&i, g) in float_in.iter().zip(mode::with_line(at, || pullback(&cotangents))) {
        out[i] = Some(g);
    }
    out
}

fn vjp_cond(
    yes: &Program,
    no: &Program,
    ctx: &RuleContext,
    dys: &Derivatives,
    at: Line,
) -> Derivatives {
    let pullback = |program: &Program| {
        let mut both = joint(program, "cond", at);
        both.program.outputs.drain(..program.outputs.len());
        both
    };
    let (mut yes_back, mut no_back) = (pullback(yes), pullback(no));
    share_constants(&mut yes_back, &mut no_back);
    let (inputs, outputs) = (input_specs(yes), output_specs(yes));
    let mut operands: Vec<Tensor> = (0..=inputs.len()).map(|i| ctx.x(i).clone()).collect();
    operands.extend(floats(&outputs).into_iter().map(|k| cotangent_of(dys, k, &outputs[k])));
    operands.extend(yes_back.constants);
    let flow = Flow::Cond { yes: yes_back.program, no: no_back.program };
    let made = apply_flow(flow, &operands.iter().collect::<Vec<_>>(), at);
    let mut out: Derivatives = SmallVec::from_elem(None, inputs.len() + 1);
    for (i, g) in floats(&inputs).into_iter().zip(made) {
        out[i + 1] = Some(g);
    }
    out
}

/// Gives two programs the constants of both, as their last inputs.
pub(crate) fn share_constants(a: &mut TracedProgram, b: &mut TracedProgram) {
    let spare = |t: &mut TracedProgram, like: &[Tensor]| -> Vec<Var> {
        like.iter().map(|x| t.program.fresh(x.spec().clone())).collect()
    };
    let (own_a, own_b) = (a.constants.clone(), b.constants.clone());
    let more = spare(a, &own_b);
    a.program.inputs.extend(more);
    let more = spare(b, &own_a);
    let at = b.program.inputs.len() - own_b.len();
    b.program.inputs.splice(at..at, more);
    let all = [own_a, own_b].concat();
    a.constants.clone_from(&all);
    b.constants = all;
}

/// A program on values and tangents.
struct Pushed {
    /// Inputs: its own in groups, each followed by the tangents of those in it that have one, and
    /// constants last. Outputs: its own, then tangents.
    iteration: TracedProgram,
    /// Which of its own inputs have a tangent. Constants have none, rather than one of zeros: times
    /// an infinite slope (that of a power by its exponent, where the base is negative) that would
    /// be NaN.
    moving: Vec<bool>,
    /// Which of its own outputs have one.
    moved: Vec<bool>,
}

impl Pushed {
    /// A program whose inputs are in groups that end at `cuts`.
    fn new(
        program: &Program,
        moving: Vec<bool>,
        cuts: &[usize],
        name: &'static str,
        at: Line,
    ) -> Pushed {
        let inputs = input_specs(program);
        let along: Vec<usize> = (0..inputs.len()).filter(|&i| moving[i]).collect();
        let specs: Vec<_> =
            inputs.iter().cloned().chain(along.iter().map(|&i| inputs[i].clone())).collect();
        let mut moved = Vec::new();
        let (_, recorded) = body(name, &specs, at, |args| {
            let (x, tangents) = args.split_at(inputs.len());
            let point: Vec<Tensor> = along.iter().map(|&i| x[i].clone()).collect();
            let run = |point: &Vec<Tensor>| {
                let mut all = x.to_vec();
                along.iter().zip(point).for_each(|(&i, p)| all[i] = p.clone());
                evaluate(program, &all)
            };
            let (ys, ts) = pushforward(run, &point, &tangents.to_vec(), at);
            moved = ts.iter().map(Option::is_some).collect();
            let zeros = |y: &Tensor| Tensor::zeros_of(y.spec());
            let ts = ys.iter().zip(ts).map(|(y, t)| t.unwrap_or_else(|| zeros(y)));
            ys.iter().cloned().chain(ts).collect::<Vec<Tensor>>()
        });
        let mut iteration = traced(recorded);
        let (given, constants) = iteration
            .program
            .inputs
            .split_at(iteration.program.inputs.len() - iteration.constants.len());
        let (own, dual) = given.split_at(inputs.len());
        let (mut grouped, mut next, mut from) = (Vec::new(), dual.iter(), 0);
        for &cut in cuts {
            grouped.extend(&own[from..cut]);
            let count = moving[from..cut].iter().filter(|m| **m).count();
            grouped.extend(next.by_ref().take(count));
            from = cut;
        }
        grouped.extend(constants);
        iteration.program.inputs = grouped;
        Pushed { iteration, moving, moved }
    }

    /// One iteration of a loop whose state are the inputs from `from` on. A state without a tangent
    /// at first may have one after an iteration.
    fn iteration(
        program: &Program,
        moving: Vec<bool>,
        (from, state): (usize, usize),
        cuts: &[usize],
        flow: (&'static str, Line),
    ) -> Pushed {
        let mut pushed = Pushed::new(program, moving, cuts, flow.0, flow.1);
        loop {
            let late = |i: &usize| pushed.moved[*i] && !pushed.moving[from + i];
            let late: Vec<usize> = (0..state).filter(late).collect();
            if late.is_empty() {
                break;
            }
            let mut moving = pushed.moving;
            late.iter().for_each(|i| moving[from + i] = true);
            pushed = Pushed::new(program, moving, cuts, flow.0, flow.1);
        }
        (0..state).for_each(|i| pushed.moved[i] = pushed.moving[from + i]);
        pushed
    }

    /// Keeps the tangents of these outputs only.
    fn give(&mut self, moved: &[bool]) {
        let mut at = 0;
        let own = moved.len();
        self.iteration.program.outputs.retain(|_| {
            at += 1;
            at <= own || moved[at - 1 - own]
        });
        self.moved = moved.to_vec();
    }

    /// How many of these inputs have a tangent.
    fn count(&self, range: Range<usize>) -> usize {
        self.moving[range].iter().filter(|m| **m).count()
    }

    /// Those of these inputs that have a tangent.
    fn those(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        range.filter(|&i| self.moving[i])
    }
}

/// A construct that also computes tangents, for the forward mode of one that does not.
struct WithTangents {
    flow: Flow,
    operands: Vec<Tensor>,
    /// Which of the results of the original have a tangent.
    moved: Vec<bool>,
    /// Where those are among the results.
    places: Vec<usize>,
}

fn jvp_of(ctx: &RuleContext, tangents: &Derivatives) -> Derivatives {
    let Op::Flow(flow) = ctx.op else { unreachable!("the row of control flow") };
    let operands = JvpOperands { ctx, tangents, name: flow.name(), at: line() };
    let WithTangents { flow, operands, moved, places } = match &**flow {
        Flow::Cond { yes, no } => operands.cond(yes, no),
        Flow::While { test, body, shared } => operands.while_loop(test, body, *shared),
        Flow::Scan(scan) => operands.scan(scan),
    };
    let made = apply_flow(flow, &operands.iter().collect::<Vec<_>>(), line());
    let mut places = places.into_iter();
    let tangent = |&moves: &bool| moves.then(|| places.next()).flatten().map(|k| made[k].clone());
    moved.iter().map(tangent).collect()
}

/// What a construct is applied to in forward mode.
struct JvpOperands<'a> {
    ctx: &'a RuleContext<'a>,
    tangents: &'a Derivatives,
    name: &'static str,
    at: Line,
}

impl JvpOperands<'_> {
    fn values(&self, range: Range<usize>) -> impl Iterator<Item = Tensor> {
        range.map(|i| self.ctx.x(i).clone())
    }

    fn tangent(&self, i: usize) -> Tensor {
        self.tangents[i].clone().unwrap_or_else(|| self.ctx.x(i).zeros_like_splat())
    }

    /// Which operands from this one on have a tangent.
    fn moving(&self, from: usize) -> Vec<bool> {
        let moves = |i: usize| self.tangents[i].is_some() && self.ctx.in_spec(i).dtype.is_float();
        (from..self.tangents.len()).map(moves).collect()
    }

    /// The constants of a loop, then its operands between these bounds, the values and the tangents
    /// of each group together.
    fn grouped(&self, pushed: &Pushed, bounds: &[usize]) -> Vec<Tensor> {
        let mut operands = pushed.iteration.constants.clone();
        let mut start = 0;
        for &end in bounds {
            operands.extend(self.values(start..end));
            operands.extend(pushed.those(start..end).map(|i| self.tangent(i)));
            start = end;
        }
        operands
    }

    /// The iteration of a loop, where `moved` of its results have tangents.
    fn pushed(&self, body: &Program, carry: (usize, usize), bounds: &[usize]) -> Pushed {
        let mut pushed =
            Pushed::iteration(body, self.moving(0), carry, bounds, (self.name, self.at));
        let moved = pushed.moved.clone();
        pushed.give(&moved);
        // For loops the constants are shared operands: the first of all.
        let iteration = &mut pushed.iteration;
        iteration.program.inputs.rotate_right(iteration.constants.len());
        pushed
    }

    fn cond(&self, yes: &Program, no: &Program) -> WithTangents {
        let n = self.tangents.len();
        let push =
            |branch: &Program| Pushed::new(branch, self.moving(1), &[n - 1], self.name, self.at);
        let (mut first, mut second) = (push(yes), push(no));
        let moved: Vec<bool> =
            first.moved.iter().zip(&second.moved).map(|(a, b)| *a || *b).collect();
        first.give(&moved);
        second.give(&moved);
        let along: Vec<Tensor> = first.those(0..n - 1).map(|i| self.tangent(i + 1)).collect();
        let (mut first, mut second) = (first.iteration, second.iteration);
        share_constants(&mut first, &mut second);
        let operands = self.values(0..n).chain(along).chain(first.constants).collect();
        let flow = Flow::Cond { yes: first.program, no: second.program };
        let places = (moved.len()..flow.results()).collect();
        WithTangents { flow, operands, moved, places }
    }

    fn while_loop(&self, test: &Program, body: &Program, k: usize) -> WithTangents {
        let (n, specs) = (self.tangents.len(), input_specs(body));
        let pushed = self.pushed(body, (k, n - k), &[k, n]);
        let mut test = test.clone();
        let mut fresh = |i: usize| test.fresh(specs[i].clone());
        let spare: Vec<Var> = pushed.those(0..k).map(&mut fresh).collect();
        let more: Vec<Var> = pushed.those(k..n).map(&mut fresh).collect();
        let constants = &pushed.iteration.constants;
        let mut inputs: Vec<Var> = constants.iter().map(|x| test.fresh(x.spec().clone())).collect();
        inputs.extend(&test.inputs[..k]);
        inputs.extend(spare);
        inputs.extend(&test.inputs[k..]);
        inputs.extend(more);
        test.inputs = inputs;
        let shared = constants.len() + k + pushed.count(0..k);
        let operands = self.grouped(&pushed, &[k, n]);
        let flow = Flow::While { test, body: pushed.iteration.program, shared };
        let places = (pushed.moved.len()..flow.results()).collect();
        WithTangents { flow, operands, moved: pushed.moved, places }
    }

    fn scan(&self, scan: &Scan) -> WithTangents {
        let (k, c, n) = (scan.shared, scan.shared + scan.carry, self.tangents.len());
        let mut pushed = self.pushed(&scan.body, (k, scan.carry), &[k, c, n]);
        // Outputs come as values then tangents: the carry's must come together.
        let (own, carried) = (pushed.moved.len(), pushed.count(k..c));
        let given = &mut pushed.iteration.program.outputs;
        let mut order = given[..scan.carry].to_vec();
        order.extend(&given[own..own + carried]);
        order.extend(&given[scan.carry..own]);
        order.extend(&given[own + carried..]);
        *given = order;
        let all = given.len();
        let shared = pushed.iteration.constants.len() + k + pushed.count(0..k);
        let carry = scan.carry + carried;
        let operands = self.grouped(&pushed, &[k, c, n]);
        let places = (scan.carry..carry).chain(carry + own - scan.carry..all).collect();
        let body = pushed.iteration.program;
        let flow = Flow::Scan(Scan { body, shared, carry, kept: 0, ..scan.clone() });
        WithTangents { flow, operands, moved: pushed.moved, places }
    }
}
