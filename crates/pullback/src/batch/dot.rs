//! Matrix products.

use super::{Lane, Lanes, all, apply_spread, join, operands, part};
use crate::apply::apply;
use crate::{Op, Tensor};
use smallvec::smallvec;

/// A matrix that all examples share is met by all of their rows in one product; if it is the left one, by the rows of
/// transposes: (A·B)ᵀ = Bᵀ·Aᵀ.
///
/// Only where rows follow each other: a copy that brought them together would take longer than products of the examples by
/// themselves, between whose tiles a shared operand stays in the caches. The rows of a transpose follow each other if there
/// is one row or one column, as where a matrix is applied to vectors. Those of stacks never do.
pub(super) fn dot(op: &Op, lanes: &[Lane], n: usize) -> Lanes {
    let [a, b] = operands(lanes);
    let single = a.shape().len() == 2;
    let y = if single && !b.batched {
        product(&a.value, &b.value, n)
    } else if single && !a.batched && b.shape().contains(&1) {
        product(&b.value.t(), &a.value.t(), n).t()
    } else {
        return all(apply_spread(op.clone(), lanes, n));
    };
    smallvec![Lane::batched(y)]
}

/// `[n, m, k] · [k, p]` as `[n·m, k] · [k, p]`.
fn product(a: &Tensor, b: &Tensor, n: usize) -> Tensor {
    let y = apply(Op::Dot, &[&join(a, 0), b]);
    part(&y, 0, n, a.shape()[1])
}
