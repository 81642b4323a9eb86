//! Linear systems and inverses, as functions.

use super::factor::{fitting_pivots, lu_parts, singular, singular_values};
use super::{demand, gathered_rows, identity, matrices, refuse, square, together, triangular};
use crate::apply::apply;
use crate::ops::linalg::derivatives::permutation;
use crate::{DType, Error, Op, Tensor, trace};
use pullback_ir::Linalg;

/// A⁻¹·B from the factors of A: factorised without recording, differentiated as a function of A and
/// B.
#[track_caller]
fn solve_with(a: &Tensor, lu: &Tensor, pivots: &Tensor, b: &Tensor) -> Tensor {
    apply(Op::Linalg(Linalg::LuSolve { transpose: false }), &[a, lu, pivots, b])
}

/// Whether `b` holds vectors: one axis, or one less than `a` and its batches (PyTorch's rule).
fn are_vectors(a: &Tensor, b: &Tensor) -> bool {
    b.rank() == 1 || (b.rank() + 1 == a.rank() && *b.shape() == a.shape()[..a.rank() - 1])
}

#[track_caller]
fn solved(op: &'static str, a: &Tensor, b: &Tensor, left: bool) -> (Tensor, Tensor) {
    square(op, a);
    super::floats(op, b);
    let vectors = are_vectors(a, b);
    if vectors && !left {
        let message =
            format!("{} holds vectors, which are solved for from the left only", b.spec());
        return refuse(a, Error::argument(op, message).on([a.spec(), b.spec()]));
    }
    let columns = if vectors { b.unsqueeze(-1) } else { b.clone() };
    // X·A = B is Aᵀ·Xᵀ = Bᵀ.
    let (matrix, columns) = if left { (a.clone(), columns) } else { (a.t(), columns.t()) };
    let (lu, pivots, info) = lu_parts(op, &matrix.detach());
    let (matrix, columns) = together(op, &matrix, &columns);
    if matrix.shape()[matrix.rank() - 1] != columns.shape()[columns.rank() - 2] {
        let message =
            format!("{} and {} do not form linear systems (rows differ)", a.spec(), b.spec());
        return refuse(a, Error::shape(op, message).on([a.spec(), b.spec()]));
    }
    let mut batch = matrix.shape()[..matrix.rank() - 1].to_vec();
    let x = solve_with(&matrix, &lu.expand(matrix.shape()), &pivots.expand(&batch[..]), &columns);
    batch.pop();
    let x = if left { x } else { x.t() };
    (if vectors { x.squeeze_axis(-1) } else { x }, info)
}

/// The X with A·X = B (or X·A = B, if not `left`), for matrices B or vectors b. A is square and
/// invertible.
///
/// Derivative: dB = A⁻ᵀ·dX, dA = −dB·Xᵀ.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[2.0, 0.0], [1.0, 4.0]]);
/// assert_eq!(linalg::solve(&a, &Tensor::from([2.0, 9.0])).to_vec::<f64>(), [1.0, 2.0]);
/// ```
///
/// # Panics
/// If a matrix is singular.
#[track_caller]
#[must_use]
pub fn solve(a: &Tensor, b: &Tensor) -> Tensor {
    let (x, info) = solved("solve", a, b, true);
    demand("solve", a, &info, singular);
    x
}

/// [`solve`] with the side chosen, and without an error: also the place (from 1) of the first zero
/// pivot, or 0 (i32).
///
/// Derivative: that of [`solve`].
///
/// ```
/// use pullback::{Tensor, linalg};
/// let singular = Tensor::from([[1.0, 1.0], [1.0, 1.0]]);
/// let (_, info) = linalg::solve_ex(&singular, &Tensor::from([1.0, 2.0]), true);
/// assert_eq!(info.item::<i32>(), 2);
/// ```
///
/// # Panics
/// If A is not square, B does not fit it, or the dtypes are not one of `f32` and `f64`.
#[track_caller]
#[must_use]
pub fn solve_ex(a: &Tensor, b: &Tensor, left: bool) -> (Tensor, Tensor) {
    solved("solve_ex", a, b, left)
}

/// The X with A·X = B (or X·A = B, if not `left`) for a triangular A, of which only that triangle
/// is read. With `unitriangular` its diagonal counts as ones. A zero on the diagonal gives
/// infinities, not an error.
///
/// Derivative: dB = A⁻ᵀ·dX, dA = −triangle(dB·Xᵀ).
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[2.0, 0.0], [1.0, 4.0]]);
/// let x = linalg::solve_triangular(&a, &Tensor::from([[2.0], [9.0]]), false, true, false);
/// assert_eq!(x.to_vec::<f64>(), [1.0, 2.0]);
/// ```
///
/// # Panics
/// If A is not square, B does not fit it, or the dtypes are not one of `f32` and `f64`.
#[track_caller]
#[must_use]
pub fn solve_triangular(
    a: &Tensor,
    b: &Tensor,
    upper: bool,
    left: bool,
    unitriangular: bool,
) -> Tensor {
    let op = "solve_triangular";
    square(op, a);
    let (a, b) = together(op, a, b);
    let n = a.shape()[a.rank() - 1];
    if n != b.shape()[b.rank() - if left { 2 } else { 1 }] {
        let message =
            format!("{} and {} do not form linear systems (sizes differ)", a.spec(), b.spec());
        return refuse(&a, Error::shape(op, message).on([a.spec(), b.spec()]));
    }
    match left {
        true => triangular(&a, &b, upper, unitriangular),
        false => super::right_solve(&a, &b, upper, unitriangular),
    }
}

/// The X with A·X = B, or Aᵀ·X = B, for a triangular A: an older form of [`solve_triangular`].
///
/// Derivative: that of [`solve_triangular`].
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[2.0, 1.0], [0.0, 4.0]]);
/// // Aᵀ·X = B, with an upper triangle A.
/// let x = linalg::triangular_solve(&Tensor::from([[2.0], [9.0]]), &a, true, true, false);
/// assert_eq!(x.to_vec::<f64>(), [1.0, 2.0]);
/// ```
///
/// # Panics
/// If A is not square, B does not fit it, or the dtypes are not one of `f32` and `f64`.
#[track_caller]
#[must_use]
pub fn triangular_solve(
    b: &Tensor,
    a: &Tensor,
    upper: bool,
    transpose: bool,
    unitriangular: bool,
) -> Tensor {
    match transpose {
        true => solve_triangular(&a.t(), b, !upper, true, unitriangular),
        false => solve_triangular(a, b, upper, true, unitriangular),
    }
}

/// One triangle of a factor, lower; derivatives pass to the whole.
#[track_caller]
fn lower_factor(l: &Tensor, upper: bool) -> Tensor {
    let l = if upper { l.t() } else { l.clone() };
    &l + (l.tril(0) - &l).detach()
}

/// The X with L·Lᵀ·X = B, from a factor of [`cholesky`](super::cholesky): L, or U = Lᵀ if `upper`.
///
/// Derivative: dB = A⁻¹·dX, dL = −(dB·Xᵀ + X·dBᵀ)·L with A = L·Lᵀ.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let l = Tensor::from([[2.0, 0.0], [1.0, 1.0]]);
/// let x = linalg::cholesky_solve(&Tensor::from([[4.0], [4.0]]), &l, false);
/// assert_eq!(x.to_vec::<f64>(), [0.0, 2.0]);
/// ```
///
/// # Panics
/// If A is not square, B does not fit it, or the dtypes are not one of `f32` and `f64`.
#[track_caller]
#[must_use]
pub fn cholesky_solve(b: &Tensor, l: &Tensor, upper: bool) -> Tensor {
    cholesky_solved("cholesky_solve", b, l, upper)
}

#[track_caller]
fn cholesky_solved(op: &'static str, b: &Tensor, l: &Tensor, upper: bool) -> Tensor {
    let n = square(op, l);
    let (l, b) = together(op, l, b);
    if b.shape()[b.rank() - 2] != n {
        let message =
            format!("{} and {} do not form linear systems (rows differ)", l.spec(), b.spec());
        return refuse(&l, Error::shape(op, message).on([l.spec(), b.spec()]));
    }
    let l = lower_factor(&l, upper);
    // L·Lᵀ = (L·D⁻¹)·(D·Lᵀ) with D the diagonal of L: factors without exchanges.
    let fixed = l.detach();
    let d = fixed.diagonal();
    let lu = (&fixed / d.unsqueeze(-2)).tril(-1) + (fixed.t() * d.unsqueeze(-1)).triu(0);
    let pivots = (lu.new_iota(n) + 1).cast(DType::I32).expand(&lu.shape()[..lu.rank() - 1]);
    solve_with(&l.product(&l.t()), &lu, &pivots, &b)
}

/// (L·Lᵀ)⁻¹ from a factor of [`cholesky`](super::cholesky): L, or U = Lᵀ if `upper`.
///
/// Derivative: dL = −Y·(dY + dYᵀ)·Y·L.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let l = linalg::cholesky(&Tensor::from([[4.0, 0.0], [0.0, 16.0]]), false);
/// assert_eq!(linalg::cholesky_inverse(&l, false).to_vec::<f64>(), [0.25, 0.0, 0.0, 0.0625]);
/// ```
///
/// # Panics
/// If the matrix is not square, or its dtype is not `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn cholesky_inverse(l: &Tensor, upper: bool) -> Tensor {
    let n = square("cholesky_inverse", l);
    cholesky_solved("cholesky_inverse", &identity(l, n), l, upper)
}

/// The X with A·X = B (or X·A = B, if not `left`; Aᵀ instead of A, if `adjoint`) from the factors
/// of [`lu_factor`](super::lu_factor).
///
/// Derivative: of its formula, two triangular solves.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let (lu, pivots) = linalg::lu_factor(&Tensor::from([[0.0, 2.0], [4.0, 0.0]]));
/// let x = linalg::lu_solve(&lu, &pivots, &Tensor::from([[2.0], [12.0]]), true, false);
/// assert_eq!(x.to_vec::<f64>(), [3.0, 1.0]);
/// ```
///
/// # Panics
/// If the factors are not square, pivots or B do not fit them, or the dtypes are not one of `f32`
/// and `f64`.
#[track_caller]
#[must_use]
pub fn lu_solve(lu: &Tensor, pivots: &Tensor, b: &Tensor, left: bool, adjoint: bool) -> Tensor {
    let op = "lu_solve";
    let n = square(op, lu);
    fitting_pivots(op, lu, pivots, n);
    if !left {
        return lu_solve(lu, pivots, &b.t(), true, !adjoint).t();
    }
    let (lu, b) = together(op, lu, b);
    if b.shape()[b.rank() - 2] != n {
        let message =
            format!("{} and {} do not form linear systems (rows differ)", lu.spec(), b.spec());
        return refuse(&lu, Error::shape(op, message).on([lu.spec(), b.spec()]));
    }
    let order = permutation(&pivots.cast(DType::I32), n).expand(&lu.shape()[..lu.rank() - 1]);
    match adjoint {
        false => {
            let y = triangular(&lu, &gathered_rows(&b, &order), false, true);
            triangular(&lu, &y, true, false)
        }
        true => {
            let y = triangular(&lu.t(), &b, false, false);
            gathered_rows(&triangular(&lu.t(), &y, true, true), &order.argsort(-1, false))
        }
    }
}

/// A⁻¹ of a square matrix.
///
/// Derivative: dA = −Yᵀ·dY·Yᵀ.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let y = linalg::inv(&Tensor::from([[2.0, 0.0], [0.0, 4.0]]));
/// assert_eq!(y.to_vec::<f64>(), [0.5, 0.0, 0.0, 0.25]);
/// ```
///
/// # Panics
/// If a matrix is singular.
#[track_caller]
#[must_use]
pub fn inv(a: &Tensor) -> Tensor {
    let (x, info) = inverse("inv", a);
    demand("inv", a, &info, singular);
    x
}

/// [`inv`] without an error: also the place (from 1) of the first zero pivot, or 0 (i32).
///
/// Derivative: that of [`inv`].
///
/// ```
/// use pullback::{Tensor, linalg};
/// let (_, info) = linalg::inv_ex(&Tensor::from([[1.0, 1.0], [1.0, 1.0]]));
/// assert_eq!(info.item::<i32>(), 2);
/// ```
///
/// # Panics
/// If the matrix is not square, or its dtype is not `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn inv_ex(a: &Tensor) -> (Tensor, Tensor) {
    inverse("inv_ex", a)
}

#[track_caller]
pub(super) fn inverse(op: &'static str, a: &Tensor) -> (Tensor, Tensor) {
    let n = square(op, a);
    let (lu, pivots, info) = lu_parts(op, &a.detach());
    (solve_with(a, &lu, &pivots, &identity(a, n)), info)
}

/// The default of `rtol`: the larger side times machine epsilon.
fn default_rtol(a: &Tensor) -> f64 {
    let (m, n) = (a.shape()[a.rank() - 2], a.shape()[a.rank() - 1]);
    let eps = if a.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    m.max(n) as f64 * eps
}

/// What singular values must exceed to count: max(atol, rtol · the largest). `rtol` is by default
/// the larger side times machine epsilon, unless an `atol` is given.
#[track_caller]
pub(super) fn threshold(
    a: &Tensor,
    largest: &Tensor,
    atol: Option<&Tensor>,
    rtol: Option<&Tensor>,
) -> Tensor {
    let zero = || a.new_zeros(());
    let given = |t: &Tensor| t.detach().cast(a.dtype());
    let default = || zero() + default_rtol(a);
    let relative = match (rtol, atol) {
        (Some(r), _) => given(r),
        (None, Some(a)) => a.gt(0.0).select(zero(), default()),
        (None, None) => default(),
    };
    let absolute = atol.map_or_else(zero, given);
    absolute.maximum(&(relative * largest.detach()))
}

/// The pseudoinverse A⁺: of the singular values at most max(atol, rtol·s₁), nothing is kept.
/// Tolerances are numbers or one per matrix; `rtol` is by default the larger side times machine
/// epsilon, or 0 if `atol` is positive. With `hermitian`, A is symmetric and its lower triangle is
/// read.
///
/// Derivative: dA⁺ = −A⁺·dA·A⁺ + A⁺·A⁺ᵀ·dAᵀ·(I − A·A⁺) + (I − A⁺·A)·dAᵀ·A⁺ᵀ·A⁺, the one along which
/// the rank stays.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[1.0], [1.0]]);
/// let y = linalg::pinv(&a, None, None, false);
/// assert!((y - 0.5).abs().max().item::<f64>() < 1e-15);
/// ```
///
/// # Panics
/// If the operand is not a matrix (a square one with `hermitian`), or its dtype is not `f32` or
/// `f64`.
#[track_caller]
#[must_use]
pub fn pinv(a: &Tensor, atol: Option<&Tensor>, rtol: Option<&Tensor>, hermitian: bool) -> Tensor {
    if hermitian {
        square("pinv", a);
        let lower = a.tril(0) + a.tril(-1).t();
        // Derivatives are those of a symmetric matrix, the value is that of the triangle.
        let even = (a + a.t()) * 0.5;
        return pseudoinverse("pinv", &(&even + (lower - &even).detach()), atol, rtol).0;
    }
    pseudoinverse("pinv", a, atol, rtol).0
}

/// A⁺, the rank and the singular values.
///
/// With A = U·S·Vᵀ at the point of evaluation and U, S, V held fixed, every matrix near A of the
/// same rank is B·M⁻¹·C with B = A·V·S⁻¹, C = S⁻¹·Uᵀ·A and M = S⁻¹·Uᵀ·A·V·S⁻¹, so A⁺ = C⁺·M·B⁺. At
/// the point, B and Cᵀ have orthonormal columns: the inverses in B⁺ = (BᵀB)⁻¹·Bᵀ are of the
/// identity, nothing is lost, and derivatives of every order are those along which the rank stays.
#[track_caller]
fn pseudoinverse(
    op: &'static str,
    a: &Tensor,
    atol: Option<&Tensor>,
    rtol: Option<&Tensor>,
) -> (Tensor, Tensor, Tensor) {
    let (m, n) = matrices(op, a);
    let (u, s, vh) = singular_values(op, &a.detach(), false);
    let k = m.min(n);
    if k == 0 {
        let mut shape = a.shape()[..a.rank() - 2].to_vec();
        let rank = a.new_zeros_with(&shape[..], DType::I64);
        shape.extend([n, m]);
        return (a.t().reshape(shape), rank, s);
    }
    let limit = threshold(a, &s.max_over(-1), atol, rtol).unsqueeze(-1);
    let kept = s.gt(&limit);
    let weight = kept.select(s.recip(), s.zeros_like());
    let dropped = 1.0 - kept.cast(a.dtype());
    let (left, right) = (u * weight.unsqueeze(-2), vh.t() * weight.unsqueeze(-2));
    let b = a.product(&right);
    let c = left.t().product(a);
    let middle = left.t().product(&b);
    let rest = dropped.diag_embed(0, -2, -1);
    let invert = |x: &Tensor| {
        let gram = x.t().product(x) + &rest;
        let (lu, pivots, _) = lu_parts(op, &gram.detach());
        solve_with(&gram, &lu, &pivots, &x.t())
    };
    let y = invert(&c.t()).t().product(&middle).product(&invert(&b));
    (y, kept.cast(DType::I64).sum_over(-1), s)
}

/// What [`lstsq`] gives.
#[derive(Clone, Debug)]
pub struct Lstsq {
    /// The X that makes |A·X − B| smallest, and among those the one with the smallest |X|.
    pub solution: Tensor,
    /// Σ(A·X − B)² of each column, where every A has full rank and more rows than columns; else, or
    /// where the solution is empty, of shape `[0]`. Inside a trace and on other devices than the
    /// CPU, where reading the ranks would wait, the columns of an A of lower rank have NaN.
    pub residuals: Tensor,
    /// The rank of each A (i64).
    pub rank: Tensor,
    /// The singular values of each A.
    pub singular_values: Tensor,
}

/// Least squares: the X that makes |A·X − B| smallest, A⁺·B. Singular values at most `rcond` times
/// the largest count as zero (by default the larger side times machine epsilon).
///
/// Derivative: that of A⁺·B, see [`pinv`].
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]);
/// let line = linalg::lstsq(&a, &Tensor::from([[1.0], [3.0], [5.0]]), None).solution;
/// assert!((line.at((1, 0)).item::<f64>() - 2.0).abs() < 1e-12);
/// ```
///
/// # Panics
/// If the rows of A and B differ in number, or the dtypes are not one of `f32` and `f64`.
#[track_caller]
#[must_use]
pub fn lstsq(a: &Tensor, b: &Tensor, rcond: Option<f64>) -> Lstsq {
    let op = "lstsq";
    matrices(op, a);
    super::floats(op, b);
    let vectors = are_vectors(a, b) && b.rank() + 1 == a.rank();
    let columns = if vectors { b.unsqueeze(-1) } else { b.clone() };
    let (a, columns) = together(op, a, &columns);
    let (m, n) = (a.shape()[a.rank() - 2], a.shape()[a.rank() - 1]);
    if columns.shape()[columns.rank() - 2] != m {
        let message =
            format!("{} and {} do not form linear systems (rows differ)", a.spec(), b.spec());
        return refuse(&a, Error::shape(op, message).on([a.spec(), b.spec()]));
    }
    let rcond = rcond.map(|r| a.new_tensor(r));
    let (inverse, rank, singular_values) = pseudoinverse(op, &a, None, rcond.as_ref());
    let solution = inverse.product(&columns);
    // PyTorch has none either where there is no system, no unknown or no column.
    let sums = || (a.product(&solution) - &columns).square().sum_over(-2);
    let residuals = if m <= n || solution.is_empty() {
        a.new_zeros([0])
    } else if !trace::on_host(&rank) {
        rank.eq(n as i64).unsqueeze(-1).select(sums(), f64::NAN)
    } else if rank.eq(n as i64).all().item::<bool>() {
        sums()
    } else {
        a.new_zeros([0])
    };
    let solution = if vectors { solution.squeeze_axis(-1) } else { solution };
    Lstsq { solution, residuals, rank, singular_values }
}

/// The inverse of the map from the last axes to the first `ind` ones: `tensordot(tensorinv(a), a)`
/// over `ind` axes is the identity.
///
/// Derivative: that of [`inv`].
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::eye(6).reshape([2, 3, 6]);
/// assert_eq!(linalg::tensorinv(&a, 2).shape(), [6, 2, 3]);
/// ```
///
/// # Panics
/// If the first `ind` axes do not have as many elements as the others, or the map is singular.
#[track_caller]
#[must_use]
pub fn tensorinv(a: &Tensor, ind: usize) -> Tensor {
    let (first, last) = a.shape().split_at(ind.min(a.rank()));
    let (rows, columns): (usize, usize) = (first.iter().product(), last.iter().product());
    if ind == 0 || ind > a.rank() || rows != columns {
        let message = format!(
            "the first {ind} axes of {} do not have as many elements as the others",
            a.spec()
        );
        return refuse(a, Error::shape("tensorinv", message).on([a.spec()]));
    }
    inv(&a.reshape([rows, columns])).reshape([last, first].concat())
}

/// The X with `tensordot(a, x)` = b over all axes of x; `dims` of a are moved to its end first.
///
/// Derivative: that of [`solve`].
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::eye(6).reshape([2, 3, 6]);
/// let x = linalg::tensorsolve(&a, &Tensor::ones([2, 3]), None);
/// assert_eq!(x.to_vec::<f32>(), [1.0; 6]);
/// ```
///
/// # Panics
/// If an axis is out of range, the shapes do not form a square system, or it is singular.
#[track_caller]
#[must_use]
pub fn tensorsolve(a: &Tensor, b: &Tensor, dims: Option<&[isize]>) -> Tensor {
    let moved = match dims {
        None => a.clone(),
        Some(dims) => {
            let mut last: Vec<usize> = Vec::with_capacity(dims.len());
            for &d in dims {
                last.push(a.axis("tensorsolve", d));
            }
            let first = (0..a.rank()).filter(|i| !last.contains(i));
            a.permute(first.chain(last.iter().copied()).collect::<Vec<usize>>())
        }
    };
    let rest = &moved.shape()[b.rank().min(moved.rank())..];
    let n: usize = rest.iter().product();
    if n != b.len() || n * n != moved.len() {
        let message = format!("{} does not map {rest:?} to {}", a.spec(), b.spec());
        return refuse(a, Error::shape("tensorsolve", message).on([a.spec(), b.spec()]));
    }
    solve(&moved.reshape([n, n]), &b.reshape([n])).reshape(rest)
}
