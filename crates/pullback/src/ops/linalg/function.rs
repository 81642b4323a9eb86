//! Functions of matrices, and products of several.

use super::factor::{eigen, singular_values};
use super::{MatrixNorm, identity, inv, matrices, matrix_norm, refuse, solve, square};
use crate::{DType, Error, Tensor, fail, mode, while_loop};
use pullback_ir::Line;

/// The coefficients of the diagonal Padé approximant of eˣ of degree 13, and up to which norm it is
/// exact to the last digit of f64.
const PADE: [f64; 14] = [
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
];
const EXACT: f64 = 5.37;

/// The matrix exponential Σ Aᵏ/k!, by scaling, a Padé approximant and squaring. A matrix that is
/// not finite gives NaN, and leaves the others of its batch as they are.
///
/// Derivative: of these steps, to rounding ∫ e^(tAᵀ)·dy·e^((1−t)Aᵀ) dt.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let y = linalg::matrix_exp(&Tensor::from([[0.0, 1.0], [0.0, 0.0]]));
/// assert!((y - Tensor::from([[1.0, 1.0], [0.0, 1.0]])).abs().max().item::<f64>() < 1e-15);
/// ```
///
/// # Panics
/// If the matrix is not square, or its dtype is not `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn matrix_exp(a: &Tensor) -> Tensor {
    let n = square("matrix_exp", a);
    if a.is_empty() {
        return a.deep_clone();
    }
    if n == 1 {
        return a.exp();
    }
    // Each matrix is halved as often as its own norm requires: with the norm of the largest, the
    // others would lose digits.
    let sizes = matrix_norm(&a.detach(), MatrixNorm::Order(1.0), [-2, -1], true).cast(DType::F64);
    let finite = sizes.is_finite();
    let halvings = (&sizes / EXACT).log2().ceil().clamp_min(0.0);
    let halvings = finite.select(&halvings, 0.0);
    // All of a matrix that is not finite is NaN: no pivot of it can be 0, which `solve` would
    // refuse.
    let scales = finite.select((-&halvings).exp2(), f64::NAN);
    let one = identity(a, n);
    let x = a * scales.cast(a.dtype());
    let x2 = x.product(&x);
    let x4 = x2.product(&x2);
    let x6 = x4.product(&x2);
    let [b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13] = PADE.map(|b| b / PADE[0]);
    let odd = x6.product(&(&x6 * b13 + &x4 * b11 + &x2 * b9))
        + &x6 * b7
        + &x4 * b5
        + &x2 * b3
        + &one * b1;
    let odd = x.product(&odd);
    let even = x6.product(&(&x6 * b12 + &x4 * b10 + &x2 * b8))
        + &x6 * b6
        + &x4 * b4
        + &x2 * b2
        + &one * b0;
    let y = solve(&(&even - &odd), &(even + odd));
    let (_, y) = while_loop(
        |(left, _): &(Tensor, Tensor)| left.gt(0.0).any(),
        |(left, y)| {
            // Finished matrices are not squared again, so that neither they nor their derivatives
            // overflow.
            let open = left.gt(0.0);
            let rest = y.only(&open);
            (left - 1.0, open.select(rest.product(&rest), y))
        },
        &(halvings, y),
    );
    y
}

/// Aⁿ for any integer n, by squaring; of negative n, that of the inverse.
///
/// Derivative: of its formula, Σ (Aᵀ)ᵏ·dy·(Aᵀ)ⁿ⁻¹⁻ᵏ.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[1.0, 1.0], [1.0, 0.0]]);
/// assert_eq!(linalg::matrix_power(&a, 10).to_vec::<f64>(), [89.0, 55.0, 55.0, 34.0]);
/// ```
///
/// # Panics
/// If the matrix is not square, or `n` is negative and it is singular.
#[track_caller]
#[must_use]
pub fn matrix_power(a: &Tensor, n: i64) -> Tensor {
    if a.rank() < 2 || a.shape()[a.rank() - 1] != a.shape()[a.rank() - 2] {
        let message = format!("takes square matrices, not {}", a.spec());
        return refuse(a, Error::shape("matrix_power", message).on([a.spec()]));
    }
    let mut power = if n < 0 { inv(a) } else { a.clone() };
    let (mut left, mut result) = (n.unsigned_abs(), None::<Tensor>);
    if left == 0 {
        return identity(a, a.shape()[a.rank() - 1]);
    }
    loop {
        if left & 1 == 1 {
            result = Some(match result {
                None => power.clone(),
                Some(so_far) => so_far.product(&power),
            });
        }
        left >>= 1;
        match (left, result) {
            (0, Some(result)) => return result.unaliased_with(&[a]),
            (_, so_far) => result = so_far,
        }
        power = power.product(&power);
    }
}

/// The product of several matrices, in the order that takes the fewest multiplications. The first
/// and the last may be vectors.
///
/// Derivative: of its formula.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let (a, b, c) = (Tensor::ones([2, 3]), Tensor::ones([3, 4]), Tensor::ones([4]));
/// assert_eq!(linalg::multi_dot(&[&a, &b, &c]).to_vec::<f32>(), [12.0, 12.0]);
/// ```
///
/// # Panics
/// If there is no matrix, or two neighbours do not fit.
#[track_caller]
#[must_use]
pub fn multi_dot(matrices: &[&Tensor]) -> Tensor {
    let op = "multi_dot";
    let Some((&first, &last)) = matrices.first().zip(matrices.last()) else {
        fail::raise(
            Error::argument(op, "takes at least one matrix").at(mode::user_line(Line::caller())),
        )
    };
    if matrices.len() == 1 {
        return first.deep_clone();
    }
    let count = matrices.len();
    let mut list: Vec<Tensor> = matrices.iter().map(|&x| x.clone()).collect();
    let (row, column) = (first.rank() == 1, last.rank() == 1);
    if row {
        list[0] = first.unsqueeze(0);
    }
    if column {
        list[count - 1] = last.unsqueeze(1);
    }
    for (i, x) in list.iter().enumerate() {
        if x.rank() != 2 || (i > 0 && list[i - 1].shape()[1] != x.shape()[0]) {
            let message = format!(
                "operand {i}, {}, does not continue a chain of matrices",
                matrices[i].spec()
            );
            return refuse(first, Error::shape(op, message).on(matrices.iter().map(|x| x.spec())));
        }
    }
    // cost[i][j]: of the product of i..=j, and where it is best cut.
    let side = |i: usize| if i == 0 { list[0].shape()[0] } else { list[i - 1].shape()[1] } as f64;
    let mut cost = vec![vec![(0.0f64, 0usize); count]; count];
    for length in 1..count {
        for i in 0..count - length {
            let j = i + length;
            let of =
                |k: usize| cost[i][k].0 + cost[k + 1][j].0 + side(i) * side(k + 1) * side(j + 1);
            let best = (i..j).map(|k| (of(k), k)).min_by(|a, b| a.0.total_cmp(&b.0));
            cost[i][j] = best.unwrap_or((0.0, i));
        }
    }
    let product = chain(&list, &cost, 0, count - 1);
    let product = if row { product.squeeze_axis(0) } else { product };
    if column { product.squeeze_axis(-1) } else { product }
}

#[track_caller]
fn chain(list: &[Tensor], cost: &[Vec<(f64, usize)>], i: usize, j: usize) -> Tensor {
    if i == j {
        return list[i].clone();
    }
    let k = cost[i][j].1;
    chain(list, cost, i, k).matmul(&chain(list, cost, k + 1, j))
}

/// The powers 0 to n − 1 of the elements of a vector, as a new last axis: a Vandermonde matrix. n
/// is by default the number of elements.
///
/// Derivative: of its formula.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let y = linalg::vander(&Tensor::from([2.0, 3.0]), Some(3));
/// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 4.0, 1.0, 3.0, 9.0]);
/// ```
///
/// # Panics
/// If the operand is 0-d.
#[track_caller]
#[must_use]
pub fn vander(x: &Tensor, n: Option<usize>) -> Tensor {
    let Some(&len) = x.shape().last() else {
        let message = format!("takes vectors, not {}", x.spec());
        return refuse(x, Error::shape("vander", message).on([x.spec()]));
    };
    let n = n.unwrap_or(len);
    if n <= 1 {
        return x.unsqueeze(-1).ones_like().narrow(-1, 0, n);
    }
    let mut shape = x.shape().to_vec();
    shape.push(n - 1);
    let powers = x.unsqueeze(-1).expand(shape).cumprod(-1);
    crate::cat(&[&x.unsqueeze(-1).ones_like(), &powers], -1)
}

/// The symmetric positive definite X with X·X = A, for a symmetric positive definite A, of which
/// the lower triangle is read.
///
/// Derivative: of V·diag(√w)·Vᵀ, see [`eigh`](super::eigh): not finite where eigenvalues repeat.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let x = linalg::matrix_sqrth(&Tensor::from([[5.0, 4.0], [4.0, 5.0]]));
/// let expected = Tensor::from([[2.0, 1.0], [1.0, 2.0]]);
/// assert!((x - expected).abs().max().item::<f64>() < 1e-12);
/// ```
///
/// # Panics
/// If a matrix is not square or holds a value that is not finite, or the dtype is not `f32` or
/// `f64`.
#[track_caller]
#[must_use]
pub fn matrix_sqrth(a: &Tensor) -> Tensor {
    let (w, v) = eigen("matrix_sqrth", a, false);
    (&v * w.sqrt().unsqueeze(-2)).product(&v.t())
}

/// The polar factors of a matrix with at least as many rows as columns: U with orthonormal columns
/// and the symmetric positive semidefinite H with U·H = A.
///
/// Derivative: of U·Vᵀ and V·diag(s)·Vᵀ, see [`svd`](super::svd): not finite where singular values
/// repeat.
///
/// ```
/// use pullback::{Tensor, linalg};
/// let a = Tensor::from([[0.0, -2.0], [3.0, 0.0]]);
/// let (u, h) = linalg::polar(&a);
/// assert!((h - Tensor::from([[3.0, 0.0], [0.0, 2.0]])).abs().max().item::<f64>() < 1e-12);
/// assert!((u - Tensor::from([[0.0, -1.0], [1.0, 0.0]])).abs().max().item::<f64>() < 1e-12);
/// ```
///
/// # Panics
/// If a matrix has more columns than rows or holds a value that is not finite, or the dtype is not
/// `f32` or `f64`.
#[track_caller]
#[must_use]
pub fn polar(a: &Tensor) -> (Tensor, Tensor) {
    let (m, n) = matrices("polar", a);
    if m < n {
        let message = format!("takes at least as many rows as columns, not {}", a.spec());
        return refuse(a, Error::shape("polar", message).on([a.spec()]));
    }
    let (u, s, vh) = singular_values("polar", a, false);
    (u.product(&vh), vh.t().product(&(s.unsqueeze(-1) * &vh)))
}
