//! Layer norm and cross-entropy.

use super::{BatchedValue, BatchedValues, join, one, operands, part};
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

/// A weight and bias that all examples share are passed to the kernel; others scale and shift its
/// result.
pub(crate) fn layer_norm(op: &Op, examples: &[BatchedValue], _: usize) -> BatchedValues {
    let Op::Fused(Fused::LayerNorm(eps)) = *op else { unreachable!("called for LayerNorm") };
    let [x, w, b] = operands(examples);
    if !w.batched && !b.batched {
        return one(op.clone(), &[&x.value, &w.value, &b.value]);
    }
    let rank = x.shape().len();
    let unit = normalised(eps, &x.value.wide(), w.shape());
    let y = unit * w.wide().with_rank(rank) + b.wide().with_rank(rank);
    smallvec![BatchedValue::batched(y.cast(x.value.dtype()))]
}

/// dx is a function of dy·w, from the kernel. The sums of dw and db are per example: with u the
/// normalised x, dw = Σ dy·u and db = Σ dy.
pub(crate) fn layer_norm_vjp(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let Op::Fused(Fused::LayerNormVjp(eps)) = *op else { unreachable!("called for LayerNormVjp") };
    let [x, w, dy] = operands(examples);
    let (dtype, rank) = (x.value.dtype(), x.shape().len());
    let dx = match w.batched {
        false => apply_all(op.clone(), &[&x.spread(n), &w.value, &dy.spread(n)]).into_first(),
        true => {
            let g = dy.value.wide() * w.wide().with_rank(rank);
            let one = g.new_splat(Scalar::from(1.0), w.shape(), g.dtype());
            apply_all(op.clone(), &[&x.wide().spread(n), &one, &g]).into_first().cast(dtype)
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
        BatchedValue { value: sum.cast(dtype), batched }
    };
    let unit = normalised(eps, &x.value.wide(), w.shape());
    let wide = dy.value.wide();
    let dw = sum(&wide * unit, x.batched || dy.batched);
    smallvec![BatchedValue::batched(dx), dw, sum(wide, dy.batched)]
}

/// The rows of all examples.
pub(crate) fn cross_entropy(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    rows(op, examples, n)
}

/// The rows of all examples; where only `dy` is batched, what it multiplies is the same for all.
pub(crate) fn cross_entropy_vjp(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let [logits, classes, dy] = operands(examples);
    if logits.batched || classes.batched {
        return rows(op, examples, n);
    }
    let wide = logits.value.wide();
    let one = wide.new_splat(Scalar::from(1.0), dy.shape(), wide.dtype());
    let mut results = apply_all(op.clone(), &[&wide, &classes.value, &one]).into_iter();
    let gradient = |slope: Tensor| {
        let dx = slope * dy.value.wide().unsqueeze(-1);
        BatchedValue::batched(dx.cast(logits.value.dtype()))
    };
    let dx = results.next().map(gradient);
    let losses = results.map(|value| BatchedValue { value, batched: false });
    dx.into_iter().chain(losses).collect()
}

fn rows(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let count = examples[0].shape()[0];
    let joined: Vec<Tensor> = examples.iter().map(|x| join(&x.spread(n), 0)).collect();
    let results = apply_all(op.clone(), &joined.iter().collect::<Vec<_>>());
    let each = |y: Tensor| BatchedValue::batched(part(&y, 0, n, count));
    results.into_iter().map(each).collect()
}
