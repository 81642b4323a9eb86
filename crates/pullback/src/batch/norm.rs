//! Layer norm and cross-entropy.

use super::{Lane, Lanes, join, one, operands, part};
use crate::apply::{apply, apply_all};
use crate::{Op, Scalar, Tensor};
use pullback_ir::{Axes, Fused, Real, Reduction};
use smallvec::smallvec;

/// The normalised x, in the compute type: a layer norm with the weight 1 and the bias 0, shaped as
/// `like`.
fn normalised(eps: Real, x: &Tensor, like: &[usize]) -> Tensor {
    let [one, zero] = [1.0, 0.0].map(|v| x.new_splat(Scalar::from(v), like, x.dtype()));
    apply(Op::Fused(Fused::LayerNorm(eps)), &[x, &one, &zero])
}

/// A weight and bias that all examples share are the kernel's; others multiply and shift what it
/// gives.
pub(crate) fn layer_norm(op: &Op, lanes: &[Lane], _: usize) -> Lanes {
    let Op::Fused(Fused::LayerNorm(eps)) = *op else { unreachable!("called for LayerNorm") };
    let [x, w, b] = operands(lanes);
    if !w.batched && !b.batched {
        return one(op.clone(), &[&x.value, &w.value, &b.value]);
    }
    let rank = x.shape().len();
    let unit = normalised(eps, &x.value.wide(), w.shape());
    let y = unit * w.wide().beside(rank) + b.wide().beside(rank);
    smallvec![Lane::batched(y.cast(x.value.dtype()))]
}

/// dx is a function of dy·w, and the kernel's. The sums of dw and db are each example's own: with u
/// the normalised x, dw = Σ dy·u and db = Σ dy.
pub(crate) fn layer_norm_vjp(op: &Op, lanes: &[Lane], n: usize) -> Lanes {
    let Op::Fused(Fused::LayerNormVjp(eps)) = *op else { unreachable!("called for LayerNormVjp") };
    let [x, w, dy] = operands(lanes);
    let (dtype, rank) = (x.value.dtype(), x.shape().len());
    let dx = match w.batched {
        false => apply_all(op.clone(), &[&x.spread(n), &w.value, &dy.spread(n)]).swap_remove(0),
        true => {
            let g = dy.value.wide() * w.wide().beside(rank);
            let one = g.new_splat(Scalar::from(1.0), w.shape(), g.dtype());
            apply_all(op.clone(), &[&x.wide().spread(n), &one, &g]).swap_remove(0).cast(dtype)
        }
    };
    // Over the axes in front of those of the weight.
    let sum = |value: Tensor, batched: bool| {
        let first = usize::from(batched);
        let axes: Axes = (first..first + rank - w.shape().len()).collect();
        let sum = match axes.is_empty() {
            true => value,
            false => apply(Op::Reduce(Reduction::Sum, axes), &[&value]),
        };
        Lane { value: sum.cast(dtype), batched }
    };
    let unit = normalised(eps, &x.value.wide(), w.shape());
    let wide = dy.value.wide();
    let dw = sum(&wide * unit, x.batched || dy.batched);
    smallvec![Lane::batched(dx), dw, sum(wide, dy.batched)]
}

/// The rows of all examples.
pub(crate) fn cross_entropy(op: &Op, lanes: &[Lane], n: usize) -> Lanes {
    rows(op, lanes, n)
}

/// The rows of all examples; where only `dy` is batched, what it multiplies is the same for all.
pub(crate) fn cross_entropy_vjp(op: &Op, lanes: &[Lane], n: usize) -> Lanes {
    let [logits, classes, dy] = operands(lanes);
    if logits.batched || classes.batched {
        return rows(op, lanes, n);
    }
    let wide = logits.value.wide();
    let one = wide.new_splat(Scalar::from(1.0), dy.shape(), wide.dtype());
    let slope = apply(op.clone(), &[&wide, &classes.value, &one]);
    let dx = slope * dy.value.wide().unsqueeze(-1);
    smallvec![Lane::batched(dx.cast(logits.value.dtype()))]
}

fn rows(op: &Op, lanes: &[Lane], n: usize) -> Lanes {
    let count = lanes[0].shape()[0];
    let joined: Vec<Tensor> = lanes.iter().map(|x| join(&x.spread(n), 0)).collect();
    let y = apply(op.clone(), &joined.iter().collect::<Vec<_>>());
    smallvec![Lane::batched(part(&y, 0, n, count))]
}
