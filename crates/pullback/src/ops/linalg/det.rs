//! Determinants. A determinant is a polynomial of the elements, and so are its derivatives; the
//! fast formula for them divides by pivots, and is inaccurate where a pivot is nearly 0. There the
//! polynomial itself is differentiated.

use super::factor::{lu_parts, singular_values};
use super::square;
use crate::{DType, Tensor, custom_vjp, fori_loop, grad, kinks, trace};

/// Matrices up to this size always have the polynomial differentiated, where they are nearly
/// singular: it costs n⁴, which is little for them.
const SMALL_MATRIX: usize = 8;

/// The determinant of a square matrix.
///
/// Derivative: dA = dy·y·A⁻ᵀ, the matrix of cofactors. Where A is singular or nearly so (a pivot is
/// below √ε of the largest; up to 8 rows, below ⁴√ε), through its singular values, which divides by
/// nothing, and derivatives of higher order are those of the polynomial, at n⁴. A compiled or
/// batched program decides which of the two when it runs.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let y = linalg::det(&Tensor::from([[1.0, 2.0], [3.0, 4.0]]));
/// assert!((y.item::<f64>() + 2.0).abs() < 1e-12);
/// ```
///
/// # Panics
/// If the matrix is not square, or its dtype is not `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn det(a: &Tensor) -> Tensor {
    let n = square("det", a);
    // What is traced as a body may be differentiated where it is replayed.
    let differentiated = a.is_tracked() || a.carries_tangents() || trace::in_body();
    if n == 0 || a.is_empty() || !differentiated {
        return regular_det(a);
    }
    let singular = kinks::uncounted_part(|| nearly_singular(&a.detach(), n));
    let at = singular.unsqueeze(-1).unsqueeze(-1);
    // Each formula is given only the matrices that it has a derivative for, so that neither affects
    // the other: not matrices of a batch, and not examples of a `vmap`, which takes both branches.
    let eye = a.new_eye(n, n, a.dtype());
    let plain = |a: &Tensor| regular_det(&at.select(&eye, a));
    let mixed = |a: &Tensor| {
        singular.select(singular_det(&at.select(a, &eye), n), regular_det(&at.select(&eye, a)))
    };
    kinks::uncounted_part(|| crate::cond(&singular.max(), mixed, plain, a))
}

/// Whether second derivatives through the factors would lose more than half of the digits or, where
/// the polynomial would take long, all of them: they are differences of numbers that grow with the
/// square of the condition.
#[track_caller]
fn nearly_singular(a: &Tensor, n: usize) -> Tensor {
    let (lu, _, _) = lu_parts("det", a);
    let sizes = lu.diagonal().abs();
    let (low, high) = (sizes.min_over(-1), sizes.max_over(-1));
    let epsilon = if a.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let part = epsilon.powf(if n <= SMALL_MATRIX { 0.25 } else { 0.5 });
    low.le(&(&high * part)).logical_and(high.lt(f64::INFINITY))
}

/// ±1, the determinant of the row exchanges of the pivots.
pub(super) fn parity(pivots: &Tensor, dtype: DType) -> Tensor {
    let n = pivots.shape()[pivots.rank() - 1];
    let moved = pivots.cast(DType::I64).ne(&(pivots.new_iota(n) + 1));
    let odd = moved.cast(DType::I64).sum_over(-1).remainder(2);
    1.0 - odd.cast(dtype) * 2.0
}

/// By way of the factors: the derivative divides by pivots.
#[track_caller]
fn regular_det(a: &Tensor) -> Tensor {
    let (lu, pivots, _) = lu_parts("det", a);
    lu.diagonal().prod_over(-1) * parity(&pivots, a.dtype())
}

/// The value through the factors, with derivatives that divide by nothing.
#[track_caller]
fn singular_det(a: &Tensor, n: usize) -> Tensor {
    if n <= SMALL_MATRIX {
        let y = polynomial(a, n);
        return regular_det(&a.detach()) + (&y - y.detach());
    }
    // The polynomial is for the second derivative; the first derivative does not compute it.
    let backward = move |a: &Tensor, dy: &Tensor| dy.unsqueeze(-1).unsqueeze(-1) * cofactors(a, n);
    custom_vjp("det", |a: &Tensor| (regular_det(a), a.clone()), backward).trusted().call(a)
}

/// The derivative of the determinant, by products of singular values; its own derivative is that of
/// the polynomial.
fn cofactors(a: &Tensor, n: usize) -> Tensor {
    let forward = |a: &Tensor| {
        let (u, s, vh) = singular_values("det", a, true);
        let others = grad(|s: &Tensor| s.prod_over(-1).sum())(&s);
        let sign = (regular_det(&u) * regular_det(&vh)).sign();
        let scaled = u * (others * sign.unsqueeze(-1)).unsqueeze(-2);
        (scaled.matmul(&vh), a.clone())
    };
    let backward = move |a: &Tensor, dy: &Tensor| {
        let slope = grad(|a: &Tensor| polynomial(a, n).sum());
        grad(|a: &Tensor| (slope(a) * dy).sum())(a)
    };
    custom_vjp("cofactors", forward, backward).trusted().call(a)
}

/// By n − 1 products of matrices and no division (R. S. Bird, 2011). It is taken of Uᵀ·A·V, with
/// the singular vectors of the point as constants: that is diagonal there, without negative
/// numbers, so nothing cancels in the value or the cofactors.
#[track_caller]
fn polynomial(a: &Tensor, n: usize) -> Tensor {
    let (u, _, vh) = singular_values("det", &a.detach(), true);
    let sign = (regular_det(&u) * regular_det(&vh)).sign();
    let turned = u.transpose(-1, -2).matmul(a).matmul(&vh.transpose(-1, -2));
    let above = a.new_ones([n, n]).triu(1);
    let eye = a.new_eye(n, n, a.dtype());
    let step = |x: &Tensor| {
        let after = above.matmul(&x.diagonal().unsqueeze(-1));
        (x * &above - after * &eye).matmul(&turned)
    };
    let last = match n <= SMALL_MATRIX {
        true => (1..n).fold(turned.clone(), |x, _| step(&x)),
        false => fori_loop(1, n as i64, |_, x: &Tensor| step(x), &turned),
    };
    let first = last.select_at(-1, 0).select_at(-1, 0);
    if n % 2 == 1 { first * sign } else { first * -sign }
}
