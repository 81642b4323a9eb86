//! Factorisations, as functions.

use super::derivatives::{pair, permutation};
use super::{
    QrMode, demand, first_of, floats, identity, matrices, refuse, solve_triangular, square,
};
use crate::apply::{apply, apply_all};
use crate::{DType, Error, Op, Tensor};
use pullback_ir::Linalg;

/// The triangular factor of a symmetric positive definite matrix: the lower L with L·Lᵀ = A, or the
/// upper U with Uᵀ·U = A. Only that triangle of A is read.
///
/// Derivative: dA = sym(L⁻ᵀ·Φ(Lᵀ·dL)·L⁻¹), with Φ the lower triangle with half the diagonal; A is
/// taken as symmetric.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[4.0, 2.0], [2.0, 5.0]]);
/// assert_eq!(linalg::cholesky(&a, false).to_vec::<f64>(), [2.0, 0.0, 1.0, 2.0]);
/// ```
///
/// # Panics
/// If a matrix is not positive definite.
#[track_caller]
#[must_use]
pub fn cholesky(a: &Tensor, upper: bool) -> Tensor {
    let (l, info) = factor("cholesky", a, upper);
    demand("cholesky", a, &info, not_positive);
    l
}

fn not_positive(k: i32) -> String {
    format!("is not positive definite: its leading minor of order {k} is not positive")
}

/// [`cholesky`] without an error: also the order of the first leading minor that is not positive,
/// or 0 (i32). The factor is NaN from there on.
///
/// Derivative: that of [`cholesky`].
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[4.0, 2.0], [2.0, 0.0]]);
/// // The leading minor of order 2 is negative.
/// assert_eq!(linalg::cholesky_ex(&a, false).1.item::<i32>(), 2);
/// ```
///
/// # Panics
/// If the matrix is not square, or its dtype is not `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn cholesky_ex(a: &Tensor, upper: bool) -> (Tensor, Tensor) {
    factor("cholesky_ex", a, upper)
}

#[track_caller]
fn factor(op: &'static str, a: &Tensor, upper: bool) -> (Tensor, Tensor) {
    square(op, a);
    let read = if upper { a.t() } else { a.clone() };
    let l = apply(Op::Linalg(Linalg::Cholesky), &[&read]);
    let info = first_of(&l.detach().diagonal().is_nan());
    (if upper { l.t() } else { l }, info)
}

/// L and U in one matrix (the ones on L's diagonal are left out), and the pivots: row i was
/// exchanged with row `pivots[i] − 1`, one after the other (i32). P·L·U = A for any m × n.
///
/// Derivative: dA = P·L⁻ᵀ·(tril(Lᵀ·dL, −1) + triu(dU·Uᵀ))·U⁻ᵀ for a square A, and its extension to
/// the parts outside the square.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[1.0, 2.0], [4.0, 4.0]]);
/// let (lu, pivots) = linalg::lu_factor(&a);
/// assert_eq!(lu.to_vec::<f64>(), [4.0, 4.0, 0.25, 1.0]);
/// assert_eq!(pivots.to_vec::<i32>(), [2, 2]);
/// ```
///
/// # Panics
/// If a matrix is singular, so that U has a zero on its diagonal.
#[track_caller]
#[must_use]
pub fn lu_factor(a: &Tensor) -> (Tensor, Tensor) {
    let (lu, pivots, info) = lu_parts("lu_factor", a);
    demand("lu_factor", a, &info, singular);
    (lu, pivots)
}

pub(super) fn singular(k: i32) -> String {
    format!("is singular: U has a zero at place {k} of its diagonal")
}

/// [`lu_factor`] without an error: also the place (from 1) of the first zero on the diagonal of U,
/// or 0 (i32).
///
/// Derivative: that of [`lu_factor`].
///
/// ```
/// use pullback::{Tensor, linalg};
/// let (_, _, info) = linalg::lu_factor_ex(&Tensor::from([[1.0, 1.0], [1.0, 1.0]]));
/// assert_eq!(info.item::<i32>(), 2);
/// ```
///
/// # Panics
/// If the operand is not a matrix, or its dtype is not `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn lu_factor_ex(a: &Tensor) -> (Tensor, Tensor, Tensor) {
    lu_parts("lu_factor_ex", a)
}

#[track_caller]
pub(super) fn lu_parts(op: &'static str, a: &Tensor) -> (Tensor, Tensor, Tensor) {
    matrices(op, a);
    let (lu, pivots) = pair(Linalg::Lu, a);
    let info = first_of(&lu.detach().diagonal().eq(0.0));
    (lu, pivots, info)
}

/// The factors P, L and U with P·L·U = A, for any m × n: a permutation, a lower triangle with ones
/// on its diagonal, an upper triangle.
///
/// Derivative: that of [`lu_factor`], for L and U; P is constant.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[1.0, 2.0], [4.0, 4.0]]);
/// let (p, l, u) = linalg::lu(&a);
/// assert_eq!(p.matmul(&l).matmul(&u).to_vec::<f64>(), a.to_vec::<f64>());
/// ```
///
/// # Panics
/// If the operand is not a matrix, or its dtype is not `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn lu(a: &Tensor) -> (Tensor, Tensor, Tensor) {
    let (lu, pivots, _) = lu_parts("lu", a);
    lu_unpack(&lu, &pivots)
}

/// One pivot for each element of the diagonal, or an error.
#[track_caller]
pub(super) fn fitting_pivots(op: &'static str, lu: &Tensor, pivots: &Tensor, k: usize) {
    if pivots.shape().last() != Some(&k) {
        let message = format!("{} takes {k} pivots, not {}", lu.spec(), pivots.spec());
        refuse::<()>(lu, Error::shape(op, message).on([lu.spec(), pivots.spec()]));
    }
}

/// P, L and U from what [`lu_factor`] gives.
///
/// Derivative: of its formula; P is constant.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[1.0, 2.0], [4.0, 4.0]]);
/// let (lu, pivots) = linalg::lu_factor(&a);
/// let (p, l, u) = linalg::lu_unpack(&lu, &pivots);
/// assert_eq!(l.to_vec::<f64>(), [1.0, 0.0, 0.25, 1.0]);
/// assert_eq!(p.matmul(&l).matmul(&u).to_vec::<f64>(), a.to_vec::<f64>());
/// ```
///
/// # Panics
/// If there are not as many pivots as rows or columns, whichever are fewer.
#[track_caller]
#[must_use]
pub fn lu_unpack(lu: &Tensor, pivots: &Tensor) -> (Tensor, Tensor, Tensor) {
    let (m, n) = matrices("lu_unpack", lu);
    let k = m.min(n);
    fitting_pivots("lu_unpack", lu, pivots, k);
    let order = permutation(&pivots.cast(DType::I32), m);
    // Row i of L·U is row order[i] of A, so P has its ones there.
    let mut shape = order.shape().to_vec();
    shape.push(m);
    let p = order.unsqueeze(-2).expand(shape).eq(lu.new_iota(m).unsqueeze(1)).cast(lu.dtype());
    let left = lu.narrow(-1, 0, k);
    let l = left.tril(-1) + lu.new_eye(m, k, lu.dtype());
    (p, l, lu.narrow(-2, 0, k).triu(0))
}

/// Q with orthonormal columns and the upper triangular R with Q·R = A. Signs are those of
/// Householder's method: a diagonal element of R is mostly of the other sign than what it was made
/// from.
///
/// Derivative: dA = (dQ + Q·M)·R⁻ᵀ with M the upper triangle of dR·Rᵀ − Qᵀ·dQ and its mirror image;
/// for more columns than rows, that of the square part and of R₂ = Qᵀ·A₂. A complete Q of a matrix
/// with more rows than columns has none.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[3.0, 1.0], [4.0, 2.0]]);
/// let (q, r) = linalg::qr(&a, linalg::QrMode::Reduced);
/// assert!((r.at((0, 0)).item::<f64>() + 5.0).abs() < 1e-12);
/// assert!((q.matmul(&r) - a).abs().max().item::<f64>() < 1e-12);
/// ```
///
/// # Panics
/// If the operand is not a matrix, or its dtype is not `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn qr(a: &Tensor, mode: QrMode) -> (Tensor, Tensor) {
    matrices("qr", a);
    let (q, r) = pair(Linalg::Qr { complete: mode == QrMode::Complete }, a);
    match mode {
        QrMode::R => (a.new_zeros([0]), r),
        QrMode::Reduced | QrMode::Complete => (q, r),
    }
}

#[track_caller]
fn converged(op: &'static str, a: &Tensor, values: &Tensor) {
    if values.is_empty() {
        return;
    }
    let info = first_of(&values.detach().is_nan());
    demand(op, a, &info, |_| "holds a value that is not finite, or nothing converged".to_string());
}

/// The eigenvalues w of a symmetric matrix, ascending, and orthonormal eigenvectors V (columns):
/// V·diag(w)·Vᵀ = A. Only the lower triangle is read, or the `upper` one.
///
/// Derivative: dA = sym(V·(diag(dw) + (Vᵀ·dV)/(wⱼ − wᵢ))·Vᵀ); A is taken as symmetric. Eigenvectors
/// are fixed up to sign; where eigenvalues repeat, the derivative of the vectors is not finite.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let (w, _) = linalg::eigh(&Tensor::from([[2.0, 1.0], [1.0, 2.0]]), false);
/// assert!((w.at(0).item::<f64>() - 1.0).abs() < 1e-12 && (w.at(1).item::<f64>() - 3.0).abs() < 1e-12);
/// ```
///
/// # Panics
/// If a matrix holds a value that is not finite.
#[track_caller]
#[must_use]
pub fn eigh(a: &Tensor, upper: bool) -> (Tensor, Tensor) {
    eigen("eigh", a, upper)
}

/// The eigenvalues of [`eigh`].
///
/// Derivative: dA = V·diag(dw)·Vᵀ, also where eigenvalues repeat.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let w = linalg::eigvalsh(&Tensor::from([[2.0, 1.0], [1.0, 2.0]]), false);
/// assert!((w - Tensor::from([1.0, 3.0])).abs().max().item::<f64>() < 1e-12);
/// ```
///
/// # Panics
/// If a matrix is not square or holds a value that is not finite, or the dtype is not `f32` or
/// `f64`.
#[track_caller]
#[must_use]
pub fn eigvalsh(a: &Tensor, upper: bool) -> Tensor {
    eigenvalues("eigvalsh", a, upper)
}

#[track_caller]
pub(super) fn eigen(op: &'static str, a: &Tensor, upper: bool) -> (Tensor, Tensor) {
    square(op, a);
    let (w, v) = pair(Linalg::Eigh, &if upper { a.t() } else { a.clone() });
    converged(op, a, &w);
    (w, v)
}

/// U, the singular values s, descending, and Vᵀ with U·diag(s)·Vᵀ = A. With `full_matrices` U is
/// m × m and Vᵀ is n × n, else they have as many columns and rows as there are singular values.
///
/// Derivative: dA = U·(diag(ds) + skew(Uᵀ·dU)/E·S + S·skew(Vᵀ·dV)/E)·Vᵀ with Eᵢⱼ = sⱼ² − sᵢ², and
/// (I − U·Uᵀ)·dU·S⁻¹·Vᵀ + U·S⁻¹·dVᵀ·(I − V·Vᵀ). Singular vectors are fixed up to a common sign;
/// where singular values repeat, the derivative of the vectors is not finite. Vectors without a
/// singular value (the last columns of a full U, the last rows of a full Vᵀ) are not unique:
/// backward drops their gradients, as PyTorch does, and forward mode rotates them by the least that
/// keeps them orthogonal. Only what does not depend on their choice has a derivative.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]]);
/// let (u, s, vh) = linalg::svd(&a, false);
/// assert_eq!((u.shape(), vh.shape()), (&[3, 2][..], &[2, 2][..]));
/// assert!((u.matmul(&(s.unsqueeze(1) * vh)) - a).abs().max().item::<f64>() < 1e-12);
/// ```
///
/// # Panics
/// If a matrix holds a value that is not finite.
#[track_caller]
#[must_use]
pub fn svd(a: &Tensor, full_matrices: bool) -> (Tensor, Tensor, Tensor) {
    singular_values("svd", a, full_matrices)
}

/// The singular values of [`svd`].
///
/// Derivative: dA = U·diag(ds)·Vᵀ, also where singular values repeat.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let s = linalg::svdvals(&Tensor::from([[0.0, 2.0], [3.0, 0.0]]));
/// assert!((s - Tensor::from([3.0, 2.0])).abs().max().item::<f64>() < 1e-12);
/// ```
///
/// # Panics
/// If a matrix holds a value that is not finite, or the dtype is not `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn svdvals(a: &Tensor) -> Tensor {
    singular_alone("svdvals", a)
}

/// The eigenvalues of [`eigen`] alone.
#[track_caller]
pub(super) fn eigenvalues(op: &'static str, a: &Tensor, upper: bool) -> Tensor {
    square(op, a);
    let lower = if upper { a.t() } else { a.clone() };
    let w = apply(Op::Linalg(Linalg::Spectrum { singular: false }), &[&lower]);
    converged(op, a, &w);
    w
}

/// The singular values of [`singular_values`] alone.
#[track_caller]
pub(super) fn singular_alone(op: &'static str, a: &Tensor) -> Tensor {
    matrices(op, a);
    let s = apply(Op::Linalg(Linalg::Spectrum { singular: true }), &[a]);
    converged(op, a, &s);
    s
}

#[track_caller]
pub(super) fn singular_values(
    op: &'static str,
    a: &Tensor,
    full: bool,
) -> (Tensor, Tensor, Tensor) {
    matrices(op, a);
    let mut outs = apply_all(Op::Linalg(Linalg::Svd { full }), &[a]);
    let (vh, s) = (outs.remove(2), outs.remove(1));
    converged(op, a, &s);
    (outs.remove(0), s, vh)
}

#[track_caller]
fn reflectors(op: &'static str, a: &Tensor, tau: &Tensor) -> (usize, usize, usize) {
    let (m, n) = matrices(op, a);
    floats(op, tau);
    let k = tau.shape().last().copied().unwrap_or(0);
    let fits =
        tau.rank() + 1 == a.rank() && tau.shape()[..tau.rank() - 1] == a.shape()[..a.rank() - 2];
    if !fits || n > m || k > n {
        let message = format!(
            "{} and {} are not reflectors: there are at most as many as columns, and at most as many columns as rows",
            a.spec(),
            tau.spec()
        );
        return refuse(a, Error::shape(op, message).on([a.spec(), tau.spec()]));
    }
    (m, n, k)
}

/// k reflections I − τᵢ·vᵢ·vᵢᵀ as one: their product is I − V·D·U⁻¹·Vᵀ, with the vectors as
/// columns of V (1 on the diagonal, what `a` holds below it), D = diag(τ), and U = I + S·D, where S
/// is VᵀV above its diagonal. So a few products do what k reflections would do one by one.
struct ReflectionProduct {
    v: Tensor,
    tau: Tensor,
    u: Tensor,
}

impl ReflectionProduct {
    #[track_caller]
    fn of(a: &Tensor, tau: &Tensor, m: usize, k: usize) -> ReflectionProduct {
        let v = a.narrow(-1, 0, k).tril(-1) + identity(a, m).narrow(-1, 0, k);
        // Its diagonal of ones is left to the solver.
        let u = v.t().product(&v).triu(1) * tau.unsqueeze(-2);
        ReflectionProduct { v, tau: tau.unsqueeze(-1), u }
    }

    /// The product of the reflections (or its transpose) times x.
    #[track_caller]
    fn times(&self, x: &Tensor, transpose: bool) -> Tensor {
        let along = self.v.t().product(x);
        let along = match transpose {
            false => &self.tau * solve_triangular(&self.u, &along, true, true, true),
            true => solve_triangular(&self.u.t(), &(&self.tau * along), false, true, true),
        };
        x - self.v.product(&along)
    }
}

/// The first n columns of the product of reflections I − τᵢ·vᵢ·vᵢᵀ, with vᵢ below the diagonal of
/// column i of `a` (as LAPACK's `geqrf` leaves them) and 1 on it.
///
/// Derivative: of its formula.
///
/// ```
/// use pullback::{Tensor, linalg};
/// // One reflection, with v = (1, 1) and τ = 1: it exchanges the axes and their signs.
/// let (a, tau) = (Tensor::from([[9.0, 9.0], [1.0, 9.0]]), Tensor::from([1.0]));
/// let q = linalg::householder_product(&a, &tau);
/// assert_eq!(q.to_vec::<f64>(), [0.0, -1.0, -1.0, 0.0]);
/// ```
///
/// # Panics
/// If `a` has more columns than rows, or `tau` more elements than `a` has columns.
#[track_caller]
#[must_use]
pub fn householder_product(a: &Tensor, tau: &Tensor) -> Tensor {
    let (m, n, k) = reflectors("householder_product", a, tau);
    ReflectionProduct::of(a, tau, m, k).times(&identity(a, m).narrow(-1, 0, n), false)
}

/// Q·C, Qᵀ·C, C·Q or C·Qᵀ with the m × m product Q of the reflections of [`householder_product`].
///
/// Derivative: of its formula.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let (a, tau) = (Tensor::from([[9.0, 9.0], [1.0, 9.0]]), Tensor::from([1.0]));
/// let c = Tensor::from([[1.0], [2.0]]);
/// let y = linalg::ormqr(&a, &tau, &c, true, false);
/// assert_eq!(y.to_vec::<f64>(), [-2.0, -1.0]);
/// ```
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
#[must_use]
pub fn ormqr(a: &Tensor, tau: &Tensor, other: &Tensor, left: bool, transpose: bool) -> Tensor {
    let (m, _, k) = reflectors("ormqr", a, tau);
    let (rows, columns) = matrices("ormqr", other);
    if (if left { rows } else { columns }) != m {
        let message = format!("{} does not fit reflections of {m} rows", other.spec());
        return refuse(a, Error::shape("ormqr", message).on([a.spec(), other.spec()]));
    }
    // C·Q = (Qᵀ·Cᵀ)ᵀ
    let q = ReflectionProduct::of(a, tau, m, k);
    match left {
        true => q.times(other, transpose),
        false => q.times(&other.t(), !transpose).t(),
    }
}
