//! Recording an op on the tape.

use super::saved::Saved;
use super::{History, Node, SavedList};
use crate::apply::{OperandState, Operands};
use crate::backend::{Latch, Pooled};
use crate::cut::{Cut, CutReason};
use crate::hooks::Hooks;
use crate::rule::{Grad, Val};
use crate::sequence::take_number;
use crate::tangents::Tangents;
use crate::{Tensor, forward, mode};
use pullback_ir::infer::Specs;
use pullback_ir::{Line, Op, ResultMemory};
use smallvec::SmallVec;

/// Puts the results of an op on the tape and gives them their tangents.
pub(crate) fn record(
    op: &Op,
    row: &Grad,
    inputs: &[&Tensor],
    operands: &mut Operands,
    outs: &mut [Tensor],
    at: Line,
) {
    let (recording, dual) =
        (mode::is_grad_enabled(), operands.iter().any(|o| !o.tangents.is_empty()));
    let reaches = |i: usize, x: &Tensor| x.dtype().is_float() && row.reaches(i);
    // Rows that ask which operands are tracked have at most four.
    let (mut tracked, mut any) = ([false; 4], false);
    for (i, (x, o)) in inputs.iter().zip(operands.iter()).enumerate() {
        let on = o.history.is_tracked() && reaches(i, x);
        any |= on;
        if let Some(slot) = tracked.get_mut(i) {
            *slot = on;
        }
    }
    let why = if recording { CutReason::Constant } else { CutReason::NoGrad };
    let cut =
        |operands: &Operands| Cut::between(why, op.name(), at, operands.iter().map(|o| &o.history));
    let floats = outs.iter().filter(|y| y.dtype().is_float()).count();
    if !(any && recording && floats > 0) {
        let off = |o: &OperandState| o.cut || (!recording && o.history.is_tracked());
        let severed = op.memory() == ResultMemory::Operand && operands.iter().any(off);
        outs.iter().for_each(|y| y.set_cut(cut(operands), severed));
        if dual {
            forward::push(op, row, inputs, operands, outs, at);
        }
        return;
    }
    // What the edges take is needed again only where there are tangents or constant results.
    let again = dual || floats < outs.len();
    // Made in its block and filled there: a node is long, and nothing of it is moved.
    let mut node = Pooled::make(|| Node {
        seq: take_number(),
        op: Op::Copy,
        at,
        inputs: SmallVec::new_const(),
        in_specs: Box::default(),
        out_specs: Specs::new_const(),
        saved: Latch::new(Some(SavedList::new_const())),
        hooks: Hooks::default(),
    });
    let Some(fresh) = Pooled::get_mut(&mut node) else { unreachable!("it has one reference") };
    // What was there owns nothing, and need not be dropped.
    std::mem::forget(std::mem::replace(&mut fresh.op, op.clone()));
    if let Some(saved) = fresh.saved.get_mut() {
        keep(row, (op, at), inputs, operands, outs, &tracked, saved);
    }
    for (i, (x, o)) in inputs.iter().zip(operands.iter_mut()).enumerate() {
        fresh.inputs.push(match &mut o.history {
            history if history.is_tracked() && !reaches(i, x) => {
                Cut::between(CutReason::Constant, op.name(), at, [&*history].into_iter())
            }
            history if again => history.clone(),
            history => std::mem::take(history),
        });
    }
    if !op.has_operands_like_its_result() {
        fresh.in_specs = inputs.iter().map(|x| x.spec().clone()).collect();
    }
    outs.iter().for_each(|y| fresh.out_specs.push(y.spec().clone()));
    // Nearly always one result, to which the node is moved.
    match outs {
        [y] => y.set_history(History::Node(node, 0)),
        _ => outs.iter_mut().enumerate().for_each(|(k, y)| {
            y.set_history(match y.dtype().is_float() {
                true => History::Node(node.clone(), k as u32),
                false => cut(operands),
            });
        }),
    }
    if dual {
        forward::push(op, row, inputs, operands, outs, at);
    }
}

/// The values that the row wants for backward.
fn keep(
    row: &Grad,
    saver: (&Op, Line),
    inputs: &[&Tensor],
    operands: &Operands,
    outs: &[Tensor],
    tracked: &[bool],
    saved: &mut SavedList,
) {
    for (i, (x, o)) in inputs.iter().zip(operands).enumerate() {
        if row.keeps(Val::In(i), tracked) {
            saved.push(Saved::pack(Val::In(i), x, &o.tangents, saver, &o.history));
        }
    }
    for (k, y) in outs.iter().enumerate() {
        if row.keeps(Val::Out(k), tracked) {
            saved.push(Saved::pack(Val::Out(k), y, &Tangents::new(), saver, &History::None));
        }
    }
}
