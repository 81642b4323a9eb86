//! Collectives: examples are exchanged together, in one call.

use super::{BatchedValue, BatchedValues, Batching, one, operands, with};
use crate::apply::apply;
use crate::{Op, Tensor};
use pullback_ir::{Collective, CollectiveOp, View};
use smallvec::smallvec;
use std::sync::Arc;

pub(super) fn batching(op: &CollectiveOp, n: usize) -> Batching {
    match &op.collective {
        Collective::AllReduce(_) | Collective::Broadcast { .. } => Batching::Pointwise,
        // Workers' parts are along the first axis of an example.
        Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => {
            Batching::ByHand(parts)
        }
        Collective::Send { .. } => Batching::ByHand(send),
        Collective::Recv { from, spec } => {
            let spec = spec.with_shape(with(n, &spec.shape));
            let all = op.with(Collective::Recv { from: *from, spec });
            Batching::Axes(Op::Collective(Arc::new(all)))
        }
        // It has no operand that could be batched.
        Collective::Barrier => Batching::Pointwise,
    }
}

fn parts(op: &Op, examples: &[BatchedValue], _: usize) -> BatchedValues {
    let [x] = operands(examples);
    let made = apply(op.clone(), &[&exchanged(&x.value)]);
    smallvec![BatchedValue::batched(exchanged(&made))]
}

/// The axis of examples and that of parts in each other's place.
fn exchanged(x: &Tensor) -> Tensor {
    x.move_axis(0, 1)
}

/// The result of one example is empty, and so is that of all.
fn send(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let [x] = operands(examples);
    let sent = apply(op.clone(), &[&x.value]);
    one(Op::View(View::Reshape(with(n, &[0]))), &[&sent])
}
