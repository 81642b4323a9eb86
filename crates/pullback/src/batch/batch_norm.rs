//! Batch norm: each channel is normalised by itself, so the channels of all examples are channels
//! of one batch.

use super::{Lane, Lanes, join, operands, part};
use crate::apply::apply_all;
use crate::{Op, Scalar, Tensor};
use pullback_ir::{Axes, Reduction};
use smallvec::{SmallVec, smallvec};

/// One value per channel, to broadcast against `[n, c, …]` or examples of it.
fn spread(each: &Lane, rank: usize) -> Tensor {
    let mut value = each.value.wide();
    for _ in 2..rank {
        value = value.unsqueeze(-1);
    }
    // The axis of images.
    if each.batched { value.unsqueeze(1) } else { value }
}

fn ones(like: &Lane, x: &Tensor) -> Tensor {
    x.new_splat(Scalar::from(1.0), like.shape(), x.dtype())
}

/// The op on the channels of all examples.
fn channels(op: &Op, lanes: &[Lane], n: usize) -> SmallVec<[Tensor; 3]> {
    let of_channels = |rank: usize| usize::from(rank > 1);
    let join_channels = |x: &Lane| join(&x.spread(n), of_channels(x.shape().len()));
    let joined: SmallVec<[Tensor; 5]> = lanes.iter().map(join_channels).collect();
    let count = lanes[0].shape()[1];
    let outs = apply_all(op.clone(), &joined.iter().collect::<SmallVec<[&Tensor; 5]>>());
    outs.iter().map(|y| part(y, of_channels(y.rank()), n, count)).collect()
}

pub(crate) fn batch_norm(op: &Op, lanes: &[Lane], n: usize) -> Lanes {
    let [x, w, b] = operands(lanes);
    if x.batched {
        return channels(op, lanes, n).into_iter().map(Lane::batched).collect();
    }
    // One batch, which many weights multiply and shift.
    let (wide, rank) = (x.value.wide(), x.shape().len());
    let one = ones(w, &wide);
    let mut outs = apply_all(op.clone(), &[&wide, &one, &one.zeros_like_splat()]);
    let y = &outs[0] * spread(w, rank) + spread(b, rank);
    let [variance, mean] = [outs.pop(), outs.pop()].map(|s| s.expect("three results"));
    let y = Lane::batched(y.cast(x.value.dtype()));
    smallvec![y, Lane::shared(mean), Lane::shared(variance)]
}

pub(crate) fn batch_norm_vjp(op: &Op, lanes: &[Lane], n: usize) -> Lanes {
    let [x, w, mean, variance, dy] = operands(lanes);
    let dtype = x.value.dtype();
    if [x, mean, variance, dy].iter().all(|lane| !lane.batched) {
        // One gradient, which many weights multiply; those of the weights do not depend on them.
        let [x, mean, variance, dy] = [x, mean, variance, dy].map(|lane| lane.value.wide());
        let outs = apply_all(op.clone(), &[&x, &ones(w, &x), &mean, &variance, &dy]);
        let dx = &outs[0] * spread(w, x.rank());
        return smallvec![
            Lane::batched(dx.cast(dtype)),
            Lane::shared(outs[1].cast(dtype)),
            Lane::shared(outs[2].cast(dtype)),
        ];
    }
    let mut outs: Lanes = channels(op, lanes, n).into_iter().map(Lane::batched).collect();
    if !dy.batched {
        let axes: Axes = (0..dy.value.rank()).filter(|&axis| axis != 1).collect();
        let sum = crate::apply::apply(Op::Reduce(Reduction::Sum, axes), &[&dy.value.wide()]);
        outs[2] = Lane::shared(sum.cast(dtype));
    }
    outs
}
