//! Padding and concatenation.

use crate::{DType, Error, Padding, Result, Spec};

pub(super) fn pad(padding: &[Padding], [x]: [&Spec; 1]) -> Result<Spec> {
    if padding.len() != x.shape.len() {
        let message =
            format!("{} paddings for {x}, which has {} axes", padding.len(), x.shape.len());
        return Err(Error::shape("pad", message).on([x]));
    }
    let mut shape = crate::Shape::new();
    for (&n, p) in x.shape.iter().zip(padding) {
        let between = n.saturating_sub(1).checked_mul(p.between);
        let total =
            between.and_then(|b| n.checked_add(b)?.checked_add(p.before)?.checked_add(p.after));
        let Some(total) = total else {
            return Err(Error::shape(
                "pad",
                format!("{x} padded by {p:?} exceeds the addressable size"),
            )
            .on([x]));
        };
        shape.push(total);
    }
    Ok(x.with_shape(shape))
}

pub(super) fn cat(axis: usize, inputs: &[&Spec]) -> Result<Spec> {
    let Some(first) = inputs.first() else {
        return Err(Error::argument("cat", "needs at least one operand"));
    };
    super::check_axis("cat", axis, first)?;
    let mut out = (*first).clone();
    out.shape[axis] = 0;
    for (i, x) in inputs.iter().enumerate() {
        let fits = x.shape.len() == first.shape.len()
            && x.shape.iter().zip(&first.shape).enumerate().all(|(j, (a, b))| j == axis || a == b);
        if !fits {
            let message = format!("operand {i}, {x}, does not fit {first} along axis {axis}");
            return Err(Error::shape("cat", message).on(inputs.iter().copied()));
        }
        same_dtype(first.dtype, x)?;
        out.shape[axis] = out.shape[axis].saturating_add(x.shape[axis]);
    }
    Ok(out)
}

fn same_dtype(dtype: DType, x: &Spec) -> Result<()> {
    if x.dtype == dtype {
        return Ok(());
    }
    Err(Error::dtype("cat", format!("dtypes differ: {dtype} and {}", x.dtype)).on([x]))
}
