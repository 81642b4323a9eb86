//! Matrix products.

use super::{Lane, Lanes, all, apply_spread, join, joins_in_place, operands, part};
use crate::apply::apply;
use crate::{Op, Tensor};
use smallvec::smallvec;

/// A matrix that all examples share is met by all of their rows in one product; if it is the left
/// one, by the rows of transposes: (A·B)ᵀ = Bᵀ·Aᵀ.
///
/// Only where those rows follow each other in memory: a copy that brought them together takes
/// longer than the products of the examples one by one, between which the shared matrix stays in
/// the caches.
pub(super) fn dot(op: &Op, lanes: &[Lane], n: usize) -> Lanes {
    let [a, b] = operands(lanes);
    let rows = a.shape().len() - 2;
    let y = if !b.batched && joins_in_place(&a.value, rows) {
        product(&a.value, &b.value, n)
    } else if !a.batched && joins_in_place(&b.value.t(), rows) {
        product(&b.value.t(), &a.value.t(), n).t()
    } else {
        return all(apply_spread(op.clone(), lanes, n));
    };
    smallvec![Lane::batched(y)]
}

/// `[n, b…, m, k] · [b…, k, p]` as `[b…, n·m, k] · [b…, k, p]`.
fn product(a: &Tensor, b: &Tensor, n: usize) -> Tensor {
    let rows = b.rank() - 2;
    let y = apply(Op::Dot, &[&join(a, rows), b]);
    part(&y, rows, n, a.shape()[rows + 1])
}
