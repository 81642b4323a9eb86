//! Matrix products.

use super::{BatchedValue, BatchedValues, all, apply_spread, join, joins_in_place, operands, part};
use crate::apply::apply;
use crate::{Op, Tensor};
use smallvec::smallvec;

/// A matrix that all examples share multiplies the rows of all of them in one product; a left
/// operand, the rows of the transposes: (A·B)ᵀ = Bᵀ·Aᵀ.
///
/// Only where those rows follow each other in memory: a copy that makes them contiguous takes
/// longer than one product per example, during which the shared matrix stays in cache.
pub(super) fn dot(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let [a, b] = operands(examples);
    let rows = a.shape().len() - 2;
    let y = if !b.batched && joins_in_place(&a.value, rows) {
        product(&a.value, &b.value, n)
    } else if !a.batched && joins_in_place(&b.value.t(), rows) {
        product(&b.value.t(), &a.value.t(), n).t()
    } else {
        return all(apply_spread(op.clone(), examples, n));
    };
    smallvec![BatchedValue::batched(y)]
}

/// `[n, b…, m, k] · [b…, k, p]` as `[b…, n·m, k] · [b…, k, p]`.
fn product(a: &Tensor, b: &Tensor, n: usize) -> Tensor {
    let rows = b.rank() - 2;
    let y = apply(Op::Dot, &[&join(a, rows), b]);
    part(&y, rows, n, a.shape()[rows + 1])
}
