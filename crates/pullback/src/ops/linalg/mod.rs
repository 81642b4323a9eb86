//! Linear algebra: factorisations of matrices, linear systems, norms, functions of matrices.
//!
//! Matrices are the last two axes; all axes before them are batches, and broadcast between operands
//! as in `matmul`. Operands are `f32` or `f64`: factorisations with 8 or 11 bits of precision are
//! too inaccurate, and are refused.
//!
//! Where a matrix is singular or not positive definite, the function raises an error that names the
//! batch element; the `_ex` variants give a tensor of `info` numbers instead (0: success).
//!
//! ```
//! use pullback::{Tensor, linalg};
//! let a = Tensor::from([[3.0, 1.0], [1.0, 2.0]]);
//! let x = linalg::solve(&a, &Tensor::from([9.0, 8.0]));
//! assert!((x.at(0).item::<f64>() - 2.0).abs() < 1e-12);
//! ```

mod derivatives;
mod det;
mod factor;
mod function;
mod norms;
mod solve;

pub use det::det;
pub use factor::{
    cholesky, cholesky_ex, eigh, eigvalsh, householder_product, lu, lu_factor, lu_factor_ex,
    lu_unpack, ormqr, qr, svd, svdvals,
};
pub use function::{matrix_exp, matrix_power, matrix_sqrth, multi_dot, polar, vander};
pub use norms::{MatrixNorm, cond, logdet, matrix_norm, matrix_rank, norm, slogdet, vector_norm};
pub use solve::{
    Lstsq, cholesky_inverse, cholesky_solve, inv, inv_ex, lstsq, lu_solve, pinv, solve, solve_ex,
    solve_triangular, tensorinv, tensorsolve, triangular_solve,
};

pub(crate) use derivatives::row;

use crate::apply::apply;
use crate::backend::with_host_bytes;
use crate::{DType, Error, Op, Shape, Tensor, trace};
use pullback_ir::{Linalg, broadcast_shapes};

/// How the factors of QR are sized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QrMode {
    /// Q is m × k and R is k × n, with k the smaller of m and n.
    Reduced,
    /// Q is m × m and R is m × n.
    Complete,
    /// Only R, k × n; Q is empty.
    R,
}

#[track_caller]
fn refuse<T>(x: &Tensor, error: Error) -> T {
    x.checked(Err(error))
}

/// Matrices in f32 or f64, or an error.
#[track_caller]
fn matrices(op: &'static str, a: &Tensor) -> (usize, usize) {
    if a.rank() < 2 {
        let message = format!("takes matrices, not {}", a.spec());
        return refuse(a, Error::shape(op, message).on([a.spec()]));
    }
    floats(op, a);
    (a.shape()[a.rank() - 2], a.shape()[a.rank() - 1])
}

#[track_caller]
fn floats(op: &'static str, a: &Tensor) {
    if !matches!(a.reduced_dtype(), DType::F32 | DType::F64) || !a.dtype().is_float() {
        let message = format!("takes f32 or f64, not {}", a.spec());
        let error = Error::dtype(op, message).on([a.spec()]);
        refuse::<()>(a, if a.dtype().is_float() { error.hint("cast to f32 first") } else { error });
    }
}

#[track_caller]
fn square(op: &'static str, a: &Tensor) -> usize {
    let (m, n) = matrices(op, a);
    if m != n {
        let message = format!("takes square matrices, not {} ({m} ≠ {n})", a.spec());
        return refuse(a, Error::shape(op, message).on([a.spec()]));
    }
    n
}

/// Two stacks of matrices with one dtype and the same batches.
#[track_caller]
fn together(op: &'static str, a: &Tensor, b: &Tensor) -> (Tensor, Tensor) {
    matrices(op, a);
    matrices(op, b);
    if a.dtype() != b.dtype() {
        let message = format!("takes operands of one dtype, not {} and {}", a.spec(), b.spec());
        return refuse(a, Error::dtype(op, message).on([a.spec(), b.spec()]));
    }
    let lead = |x: &Tensor| x.shape()[..x.rank() - 2].to_vec();
    let Some(batch) = broadcast_shapes(&lead(a), &lead(b)) else {
        let message = format!("batch dimensions do not broadcast: {} and {}", a.spec(), b.spec());
        return refuse(a, Error::shape(op, message).on([a.spec(), b.spec()]));
    };
    (stacked(a, &batch), stacked(b, &batch))
}

/// The matrices of `x` in these batches.
#[track_caller]
fn stacked(x: &Tensor, batch: &[usize]) -> Tensor {
    let mut shape = Shape::from_slice(batch);
    shape.extend_from_slice(&x.shape()[x.rank() - 2..]);
    x.expand_to(&shape)
}

/// A⁻¹·B for a triangular A.
#[track_caller]
fn triangular(a: &Tensor, b: &Tensor, upper: bool, unit: bool) -> Tensor {
    apply(Op::Linalg(Linalg::TriangularSolve { upper, unit }), &[a, b])
}

/// B·A⁻¹ for a triangular A.
#[track_caller]
fn right_solve(a: &Tensor, b: &Tensor, upper: bool, unit: bool) -> Tensor {
    triangular(&a.t(), &b.t(), !upper, unit).t()
}

/// The rows of each matrix in an order of its own.
#[track_caller]
fn gathered_rows(a: &Tensor, order: &Tensor) -> Tensor {
    let columns = a.shape()[a.rank() - 1];
    let mut shape = order.shape().to_vec();
    shape.push(columns);
    a.gather(-2, &order.unsqueeze(-1).expand(shape))
}

/// The identity, as often as the batches of `a` say.
#[track_caller]
fn identity(a: &Tensor, n: usize) -> Tensor {
    let mut shape = Shape::from_slice(&a.shape()[..a.rank() - 2]);
    shape.extend_from_slice(&[n, n]);
    a.new_eye(n, n, a.dtype()).expand_to(&shape)
}

/// 1 + the place of the first truth along the last axis, as i32; 0 where there is none: LAPACK's
/// `info`.
fn first_of(hits: &Tensor) -> Tensor {
    let n = hits.shape()[hits.rank() - 1];
    let shape = hits.shape()[..hits.rank() - 1].to_vec();
    if n == 0 {
        return hits.new_zeros_with(shape, DType::I32);
    }
    if trace::on_host(hits) {
        // One loop: the ops below take longer than a small factorisation.
        let first = |row: &[u8]| row.iter().position(|&hit| hit != 0).map_or(0, |k| k as i32 + 1);
        let all = |bytes: &[u8]| bytes.chunks_exact(n).map(first).collect::<Vec<i32>>();
        if let Some(found) = with_host_bytes(&hits.contiguous(), all) {
            return hits.new_from_vec(found, shape);
        }
    }
    let place = hits.select(hits.new_iota(n) + 1, hits.new_tensor(i64::MAX)).min_over(-1);
    place.eq(i64::MAX).select(place.new_tensor(0i64), &place).cast(DType::I32)
}

/// Raises an error where an `info` is not 0, which names the matrix: `why` says what the number
/// means.
#[track_caller]
fn demand(op: &'static str, a: &Tensor, info: &Tensor, why: impl Fn(i32) -> String) {
    // A program continues with NaN or a zero pivot, as the kernels do.
    if !trace::on_host(info) {
        return;
    }
    let list = info.to_vec::<i32>();
    let Some(i) = list.iter().position(|&v| v != 0) else { return };
    let place = match info.rank() {
        0 => "the matrix".to_string(),
        _ => {
            let mut rest = i;
            let mut index: Vec<usize> = Vec::new();
            for &n in info.shape().iter().rev() {
                index.push(rest % n);
                rest /= n;
            }
            index.reverse();
            format!("matrix {index:?} of the batch")
        }
    };
    let message = format!("{place} {}", why(list[i]));
    refuse::<()>(a, Error::argument(op, message).on([a.spec()]));
}
