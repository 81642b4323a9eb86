//! Matrix products.

use super::{Lane, Lanes, all, apply_spread, join, operands, part};
use crate::apply::apply;
use crate::{Op, Tensor};
use smallvec::smallvec;

/// Where putting the examples' rows after each other takes a copy, it pays from this many columns on.
const WORTH_A_COPY: usize = 8;

/// A factor that all examples share is met by all of their rows in one product; if it is the left one, by the rows of
/// transposes: (A·B)ᵀ = Bᵀ·Aᵀ.
pub(super) fn dot(op: &Op, lanes: &[Lane], n: usize) -> Lanes {
    let [a, b] = operands(lanes);
    let single = a.shape().len() == 2;
    // The rows of a matrix follow each other; those of its transpose only if there is one row or one column.
    let thin = |x: &Lane| x.shape().iter().rev().take(2).any(|&len| len == 1);
    let columns = b.shape()[b.shape().len() - 1];
    let rows = a.shape()[a.shape().len() - 2];
    let y = if !b.batched && (single || columns >= WORTH_A_COPY) {
        product(&a.value, &b.value, n)
    } else if !a.batched && ((single && thin(b)) || rows >= WORTH_A_COPY) {
        product(&b.value.t(), &a.value.t(), n).t()
    } else {
        return all(apply_spread(op.clone(), lanes, n));
    };
    smallvec![Lane::batched(y)]
}

/// `[n, b…, m, k] · [b…, k, p]` as `[b…, n·m, k] · [b…, k, p]`.
fn product(a: &Tensor, b: &Tensor, n: usize) -> Tensor {
    let axis = b.rank() - 2;
    let y = apply(Op::Dot, &[&join(a, axis), b]);
    part(&y, axis, n, a.shape()[axis + 1])
}
