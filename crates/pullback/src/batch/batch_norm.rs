//! Batch norm: each channel is normalised by itself, so the channels of all examples are channels
//! of one batch.

use super::{BatchedValue, BatchedValues, join, operands, part};
use crate::apply::apply_all;
use crate::{Op, Scalar, Tensor};
use pullback_ir::{Axes, Reduction};
use smallvec::{SmallVec, smallvec};

/// One value per channel, to broadcast against `[n, c, …]` or examples of it.
fn spread(each: &BatchedValue, rank: usize) -> Tensor {
    let mut value = each.value.wide();
    for _ in 2..rank {
        value = value.unsqueeze(-1);
    }
    // The axis of images.
    if each.batched { value.unsqueeze(1) } else { value }
}

fn ones(like: &BatchedValue, x: &Tensor) -> Tensor {
    x.new_splat(Scalar::from(1.0), like.shape(), x.dtype())
}

/// The op on the channels of all examples.
fn channels(op: &Op, examples: &[BatchedValue], n: usize) -> SmallVec<[Tensor; 3]> {
    let of_channels = |rank: usize| usize::from(rank > 1);
    let join_channels = |x: &BatchedValue| join(&x.spread(n), of_channels(x.shape().len()));
    let joined: SmallVec<[Tensor; 5]> = examples.iter().map(join_channels).collect();
    let count = examples[0].shape()[1];
    let outs = apply_all(op.clone(), &joined.iter().collect::<SmallVec<[&Tensor; 5]>>());
    outs.iter().map(|y| part(y, of_channels(y.rank()), n, count)).collect()
}

pub(crate) fn batch_norm(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let [x, w, b] = operands(examples);
    if x.batched {
        return channels(op, examples, n).into_iter().map(BatchedValue::batched).collect();
    }
    // One batch, which many weights multiply and shift.
    let (wide, rank) = (x.value.wide(), x.shape().len());
    let one = ones(w, &wide);
    let mut outs = apply_all(op.clone(), &[&wide, &one, &one.zeros_like_splat()]);
    let y = &outs[0] * spread(w, rank) + spread(b, rank);
    let [variance, mean] = [outs.remove(2), outs.remove(1)];
    let y = BatchedValue::batched(y.cast(x.value.dtype()));
    smallvec![y, BatchedValue::shared(mean), BatchedValue::shared(variance)]
}

pub(crate) fn batch_norm_vjp(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let [x, w, mean, variance, dy] = operands(examples);
    let (dtype, weights) = (x.value.dtype(), w.value.dtype());
    if [x, mean, variance, dy].iter().all(|example| !example.batched) {
        // One gradient, which many weights multiply; those of the weights do not depend on them.
        let [x, mean, variance, dy] = [x, mean, variance, dy].map(|example| example.value.wide());
        let outs = apply_all(op.clone(), &[&x, &ones(w, &x), &mean, &variance, &dy]);
        let dx = &outs[0] * spread(w, x.rank());
        return smallvec![
            BatchedValue::batched(dx.cast(dtype)),
            BatchedValue::shared(outs[1].cast(weights)),
            BatchedValue::shared(outs[2].cast(weights)),
        ];
    }
    let mut outs: BatchedValues =
        channels(op, examples, n).into_iter().map(BatchedValue::batched).collect();
    if !dy.batched {
        let axes: Axes = (0..dy.value.rank()).filter(|&axis| axis != 1).collect();
        let sum = crate::apply::apply(Op::Reduce(Reduction::Sum, axes), &[&dy.value.wide()]);
        outs[2] = BatchedValue::shared(sum.cast(weights));
    }
    outs
}
