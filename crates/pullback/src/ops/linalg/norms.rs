//! Logarithms of determinants, norms, condition numbers and ranks.

use super::derivatives::pair;
use super::det::{det, parity};
use super::factor::{eigenvalues, singular_alone};
use super::solve::{inverse, threshold};
use super::{floats, matrices, refuse, square};
use crate::{DType, Error, IntoAxes, Tensor};
use pullback_ir::Linalg;
use pullback_ir::infer::args;

/// The sign of the determinant and the logarithm of its size: 0 and −∞ where it is 0.
///
/// Derivative: dA = dy·A⁻ᵀ for the logarithm; the sign is constant.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let (sign, log) = linalg::slogdet(&Tensor::from([[0.0, 2.0], [3.0, 0.0]]));
/// assert_eq!(sign.item::<f64>(), -1.0);
/// assert!((log.item::<f64>() - 6f64.ln()).abs() < 1e-15);
/// ```
///
/// # Panics
/// If the matrix is not square, or its dtype is not `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn slogdet(a: &Tensor) -> (Tensor, Tensor) {
    square("slogdet", a);
    let (lu, pivots) = pair(Linalg::Lu, a);
    let diagonal = lu.diagonal();
    let sign = diagonal.detach().sign().prod_over(-1) * parity(&pivots, a.dtype());
    (sign, diagonal.abs().log().sum_over(-1))
}

/// The logarithm of the determinant: NaN where that is negative.
///
/// Derivative: dA = dy·A⁻ᵀ.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let y = linalg::logdet(&Tensor::from([[2.0, 0.0], [0.0, 3.0]]));
/// assert!((y.item::<f64>() - 6f64.ln()).abs() < 1e-15);
/// ```
///
/// # Panics
/// If the matrix is not square, or its dtype is not `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn logdet(a: &Tensor) -> Tensor {
    square("logdet", a);
    let (sign, log) = slogdet(a);
    sign.lt(0.0).select_or(f64::NAN, log)
}

/// Which norm of a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MatrixNorm {
    /// √Σ a²
    Frobenius,
    /// The sum of the singular values.
    Nuclear,
    /// 2 and −2: the largest and the smallest singular value; 1 and −1: the largest and smallest
    /// sum of a column's sizes; ∞ and −∞: of a row's.
    Order(f64),
}

impl From<f64> for MatrixNorm {
    fn from(order: f64) -> MatrixNorm {
        MatrixNorm::Order(order)
    }
}

/// A norm over two axes, the rows and the columns; `keep` leaves them with length 1.
///
/// Derivative: of its formula; of singular values, U·diag(ds)·Vᵀ.
///
/// ```
/// use pullback::linalg::{MatrixNorm, matrix_norm};
/// use pullback::Tensor;
/// let a = Tensor::from([[1.0, -2.0], [3.0, 4.0]]);
/// assert_eq!(matrix_norm(&a, MatrixNorm::Order(1.0), [-2, -1], false).item::<f64>(), 6.0);
/// ```
///
/// # Panics
/// If there are fewer than two axes, the two are the same or out of range, or the order is none of
/// a matrix.
#[track_caller]
#[must_use]
pub fn matrix_norm(a: &Tensor, kind: MatrixNorm, axes: [isize; 2], keep: bool) -> Tensor {
    let op = "matrix_norm";
    if a.rank() < 2 {
        let message = format!("takes matrices, not {}", a.spec());
        return refuse(a, Error::shape(op, message).on([a.spec()]));
    }
    let list = a.checked(args::axes(op, &axes, a.spec()));
    debug_assert_eq!(list.len(), 2);
    let (rows, columns) = (a.axis(op, axes[0]), a.axis(op, axes[1]));
    let x = a.real();
    let mut order: Vec<usize> = (0..x.rank()).filter(|&i| i != rows && i != columns).collect();
    order.extend([rows, columns]);
    // Functions, not closures: a closure would lose the caller's line.
    let norm = match kind {
        MatrixNorm::Frobenius => x.vector_norm(2.0, vec![rows as isize, columns as isize]),
        MatrixNorm::Nuclear => singular_alone(op, &x.permute(order)).sum_over(-1),
        MatrixNorm::Order(p) if p.abs() == 1.0 => {
            extreme(&x.permute(order).abs().sum_over(-2), p > 0.0)
        }
        MatrixNorm::Order(p) if p.abs() == 2.0 => {
            extreme(&singular_alone(op, &x.permute(order)), p > 0.0)
        }
        MatrixNorm::Order(p) if p.is_infinite() => {
            extreme(&x.permute(order).abs().sum_over(-1), p > 0.0)
        }
        MatrixNorm::Order(p) => {
            let message =
                format!("matrices have norms of order 1, 2 and ∞ (and their negatives), not {p}");
            return refuse(a, Error::argument(op, message).on([a.spec()]));
        }
    };
    if keep { a.kept(op, &axes, norm) } else { norm }
}

#[track_caller]
fn extreme(x: &Tensor, large: bool) -> Tensor {
    if large { x.max_over(-1) } else { x.min_over(-1) }
}

/// The norm of order `p` of the elements along some axes: [`Tensor::vector_norm`], with the axes
/// kept at length 1 if `keep`.
///
/// Derivative: of its formula; 0 at the origin.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let x = Tensor::from([[3.0, -4.0], [0.0, 2.0]]);
/// assert_eq!(linalg::vector_norm(&x, 1.0, 1, false).to_vec::<f64>(), [7.0, 2.0]);
/// assert_eq!(linalg::vector_norm(&x, 1.0, 1, true).shape(), [2, 1]);
/// ```
///
/// # Panics
/// If an axis is out of range or named twice, or `p` is ±∞ and an axis is empty.
#[track_caller]
#[must_use]
pub fn vector_norm(x: &Tensor, p: f64, axes: impl IntoAxes, keep: bool) -> Tensor {
    if keep { x.vector_norm_keep(p, axes) } else { x.vector_norm(p, axes) }
}

/// A norm of vectors (one axis) or matrices (two axes). Without an order it is the root of the sum
/// of squares over the axes, or over all; without axes, an order is that of a vector or a matrix.
///
/// Derivative: that of [`vector_norm`] or [`matrix_norm`].
///
/// ```
/// use pullback::{Tensor, linalg};
/// let x = Tensor::from([[3.0, 0.0], [0.0, 4.0]]);
/// assert_eq!(linalg::norm(&x, None, None, false).item::<f64>(), 5.0);
/// assert_eq!(linalg::norm(&x, Some(1.0.into()), None, false).item::<f64>(), 4.0);
/// assert_eq!(linalg::norm(&x, None, Some(&[1]), false).to_vec::<f64>(), [3.0, 4.0]);
/// ```
///
/// # Panics
/// If the axes are out of range, or an order is given for more than two of them.
#[track_caller]
#[must_use]
pub fn norm(x: &Tensor, order: Option<MatrixNorm>, axes: Option<&[isize]>, keep: bool) -> Tensor {
    let all = || (0..x.rank() as isize).collect::<Vec<isize>>();
    let Some(order) = order else {
        return vector_norm(x, 2.0, axes.map_or_else(all, <[isize]>::to_vec), keep);
    };
    let axes = axes.map_or_else(all, <[isize]>::to_vec);
    match (&axes[..], order) {
        (&[rows, columns], _) => matrix_norm(x, order, [rows, columns], keep),
        ([] | [_], MatrixNorm::Order(p)) => vector_norm(x, p, axes, keep),
        _ => {
            let message = format!(
                "{order:?} is a norm of one or two axes, not of {} ({})",
                axes.len(),
                x.spec()
            );
            refuse(x, Error::argument("norm", message).on([x.spec()]))
        }
    }
}

/// The condition number |A|·|A⁻¹| in a norm; without one, the ratio of the largest to the smallest
/// singular value. Infinite where A is singular, 0 where it has no elements.
///
/// Derivative: of its formula.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[4.0, 0.0], [0.0, 2.0]]);
/// assert!((linalg::cond(&a, None).item::<f64>() - 2.0).abs() < 1e-12);
/// ```
///
/// # Panics
/// If the operand is not a matrix (a square one, unless the norm is that of singular values), or
/// its dtype is not `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn cond(a: &Tensor, kind: Option<MatrixNorm>) -> Tensor {
    let op = "cond";
    matrices(op, a);
    if !matches!(kind, None | Some(MatrixNorm::Order(2.0 | -2.0))) {
        square(op, a);
    }
    if a.is_empty() {
        return a.new_zeros(&a.shape()[..a.rank() - 2]);
    }
    match kind {
        None | Some(MatrixNorm::Order(2.0 | -2.0)) => {
            let s = singular_alone(op, a);
            let (high, low) = (s.max_over(-1), s.min_over(-1));
            if kind == Some(MatrixNorm::Order(-2.0)) { low / high } else { high / low }
        }
        Some(kind) => {
            let (inverted, info) = inverse(op, a);
            let product = matrix_norm(a, kind, [-2, -1], false)
                * matrix_norm(&inverted, kind, [-2, -1], false);
            info.ne(0).select_or(f64::INFINITY, product)
        }
    }
}

/// How many singular values exceed max(atol, rtol·s₁), as i64; with `hermitian`, eigenvalues by
/// their size. Tolerances as in [`pinv`](super::pinv).
///
/// Derivative: zero, it is a count.
///
/// ```
/// use pullback::{Tensor, linalg};
/// assert_eq!(linalg::matrix_rank(&Tensor::ones([3, 2]), None, None, false).item::<i64>(), 1);
/// ```
///
/// # Panics
/// If the operand is not a matrix (a square one with `hermitian`) of floats.
#[track_caller]
#[must_use]
pub fn matrix_rank(
    a: &Tensor,
    atol: Option<&Tensor>,
    rtol: Option<&Tensor>,
    hermitian: bool,
) -> Tensor {
    let op = "matrix_rank";
    let (m, n) = matrices(op, a);
    floats(op, a);
    let x = a.detach();
    if m.min(n) == 0 {
        return a.new_zeros_with(&a.shape()[..a.rank() - 2], DType::I64);
    }
    let s = match hermitian {
        true => eigenvalues(op, &x, false).abs(),
        false => singular_alone(op, &x),
    };
    let limit = threshold(a, &s.max_over(-1), atol, rtol).unsqueeze(-1);
    s.gt(&limit).cast(DType::I64).sum_over(-1)
}

impl Tensor {
    /// The inverse of a square matrix: [`linalg::inv`](crate::linalg::inv).
    ///
    /// Derivative: dA = −Yᵀ·dY·Yᵀ.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([[2.0, 0.0], [0.0, 4.0]]).inv();
    /// assert_eq!(y.to_vec::<f64>(), [0.5, 0.0, 0.0, 0.25]);
    /// ```
    ///
    /// # Panics
    /// If the matrix is singular or not square, or its dtype is not `f32` or `f64`.
    #[track_caller]
    #[must_use]
    #[doc(alias = "inverse")]
    pub fn inv(&self) -> Tensor {
        super::inv(self)
    }

    /// The determinant of a square matrix: [`linalg::det`](crate::linalg::det).
    ///
    /// Derivative: dA = dy·y·A⁻ᵀ.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([[1.0, 2.0], [3.0, 4.0]]).det();
    /// assert!((y.item::<f64>() + 2.0).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// If the matrix is not square, or its dtype is not `f32` or `f64`.
    #[track_caller]
    #[must_use]
    pub fn det(&self) -> Tensor {
        det(self)
    }
}
