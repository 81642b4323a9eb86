//! Fourier transforms.

use super::check_axis;
use crate::{DType, Error, Fft, Result, Spec};

pub(super) fn fft(f: Fft, [x]: [&Spec; 1]) -> Result<Spec> {
    let op = f.name();
    if !matches!(x.dtype, DType::F32 | DType::F64) {
        return Err(Error::dtype(op, format!("takes f32 or f64, not {}", x.dtype)).on([x]));
    }
    let mut shape = x.shape.clone();
    match f {
        Fft::Complex { axis, .. } => pairs(op, axis, x)?,
        Fft::Real(axis) => {
            check_axis(op, axis, x)?;
            let n = shape[axis];
            if n == 0 {
                return Err(Error::shape(op, format!("axis {axis} of {x} is empty")).on([x]));
            }
            shape[axis] = n / 2 + 1;
            shape.push(2);
        }
        Fft::Hermitian { axis, len } => {
            pairs(op, axis, x)?;
            if len == 0 || shape[axis] != len / 2 + 1 {
                let message = format!(
                    "axis {axis} of {x} has {} coefficients; a real result of length {len} needs {}",
                    shape[axis],
                    len / 2 + 1
                );
                return Err(Error::shape(op, message).on([x]));
            }
            shape[axis] = len;
            shape.remove(x.shape.len() - 1);
        }
    }
    Ok(x.with_shape(shape))
}

/// Complex numbers are pairs on the last axis, and the transform is along another one, not empty.
fn pairs(op: &'static str, axis: usize, x: &Spec) -> Result<()> {
    if x.shape.last() != Some(&2) {
        let message = format!("takes complex numbers, pairs on a last axis of 2, not {x}");
        return Err(Error::shape(op, message).on([x]));
    }
    if axis >= x.shape.len() - 1 {
        let message = format!("axis {axis} is out of range for the pairs of {x}");
        return Err(Error::argument(op, message).on([x]));
    }
    if x.shape[axis] == 0 {
        return Err(Error::shape(op, format!("axis {axis} of {x} is empty")).on([x]));
    }
    Ok(())
}
