//! Gather and scatter along an axis.

use super::{check_axis, check_index};
use crate::{Combine, DType, Error, Result, Spec};

pub(super) fn gather(axis: usize, [x, index]: [&Spec; 2]) -> Result<Spec> {
    check_axis("gather", axis, x)?;
    check_index("gather", index)?;
    covers("gather", axis, x, index)?;
    Ok(x.with_shape(index.shape.clone()))
}

pub(super) fn scatter(
    axis: usize,
    combine: Combine,
    [base, index, source]: [&Spec; 3],
) -> Result<Spec> {
    let all = [base, index, source];
    check_axis("scatter", axis, base)?;
    check_index("scatter", index)?;
    covers("scatter", axis, base, index)?;
    if source.shape != index.shape {
        return Err(Error::shape(
            "scatter",
            format!("the source {source} must have the shape of the index {index}"),
        )
        .on(all));
    }
    if source.dtype != base.dtype {
        return Err(Error::dtype("scatter", format!("dtypes differ: {base} and {source}")).on(all));
    }
    if base.dtype == DType::Bool && combine != Combine::Set {
        return Err(Error::dtype(
            "scatter",
            "elements of bool can only be overwritten, not summed or multiplied",
        )
        .on(all));
    }
    Ok(base.clone())
}

/// `index` has the rank of `x` and is nowhere longer, except along `axis`.
fn covers(op: &'static str, axis: usize, x: &Spec, index: &Spec) -> Result<()> {
    let fits = index.shape.len() == x.shape.len()
        && index.shape.iter().zip(&x.shape).enumerate().all(|(i, (n, m))| i == axis || n <= m);
    if fits {
        return Ok(());
    }
    Err(Error::shape(op, format!("the index {index} does not fit {x} along axis {axis}"))
        .on([x, index]))
}
