//! Matrix products.

use crate::{DType, Error, Result, Spec};

pub(super) fn dot([a, b]: [&Spec; 2]) -> Result<Spec> {
    let rank = a.shape.len();
    if a.dtype != b.dtype || a.dtype == DType::Bool {
        let message = format!("needs two operands of one numeric dtype: {a} · {b}");
        return Err(Error::dtype("matmul", message).on([a, b]));
    }
    if rank < 2 || b.shape.len() != rank {
        return Err(
            Error::shape("matmul", format!("needs two stacks of matrices: {a} · {b}")).on([a, b])
        );
    }
    if a.shape[..rank - 2] != b.shape[..rank - 2] {
        return Err(
            Error::shape("matmul", format!("batch dimensions differ: {a} · {b}")).on([a, b])
        );
    }
    let (k, l) = (a.shape[rank - 1], b.shape[rank - 2]);
    if k != l {
        let message = format!("inner dimensions differ: {a} · {b} ({k} ≠ {l})");
        return Err(Error::shape("matmul", message).on([a, b]));
    }
    let mut out = a.clone();
    out.shape[rank - 1] = b.shape[rank - 1];
    Ok(out)
}
