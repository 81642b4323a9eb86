//! Reductions, cumulative reductions and sorting.

use super::{Specs, check_axis};
use crate::{Cumulation, DType, Error, Extreme, Reduction, Result, Shape, Spec};
use smallvec::smallvec;

pub(super) fn reduce(kind: Reduction, axes: &[usize], [x]: [&Spec; 1]) -> Result<Spec> {
    let op = kind.name();
    for (i, &axis) in axes.iter().enumerate() {
        check_axis(op, axis, x)?;
        if axes[..i].contains(&axis) {
            return Err(Error::argument(op, format!("axis {axis} is named twice for {x}")).on([x]));
        }
    }
    let kept = |(i, &n): (usize, &usize)| (!axes.contains(&i)).then_some(n);
    let shape: Shape = x.shape.iter().enumerate().filter_map(kept).collect();
    let dtype = match kind {
        Reduction::Max | Reduction::Min => {
            // An empty maximum has no value, except on bool (any of no elements is false).
            if x.dtype != DType::Bool
                && axes.iter().any(|&i| x.shape[i] == 0)
                && !shape.contains(&0)
            {
                return Err(
                    Error::shape(op, format!("an axis of length 0 has no {op}: {x}")).on([x])
                );
            }
            x.dtype
        }
        Reduction::Sum | Reduction::Prod if !x.dtype.is_float() => DType::I64,
        Reduction::Sum | Reduction::Prod => x.dtype,
    };
    Ok(Spec { shape, dtype, device: x.device })
}

pub(super) fn arg_reduce(kind: Extreme, axis: usize, [x]: [&Spec; 1]) -> Result<Spec> {
    let op = kind.name();
    check_axis(op, axis, x)?;
    let mut shape = x.shape.clone();
    if shape.remove(axis) == 0 && !shape.contains(&0) {
        return Err(Error::shape(op, format!("an axis of length 0 has no {op}: {x}")).on([x]));
    }
    Ok(x.with_shape(shape).with_dtype(DType::I64))
}

pub(super) fn cumulate(kind: Cumulation, axis: usize, [x]: [&Spec; 1]) -> Result<Spec> {
    let op = kind.name();
    check_axis(op, axis, x)?;
    match kind {
        Cumulation::Sum | Cumulation::Prod if !x.dtype.is_float() => Ok(x.with_dtype(DType::I64)),
        Cumulation::Max | Cumulation::Min if x.dtype == DType::Bool => {
            Err(Error::dtype(op, "does not take bool").on([x]))
        }
        Cumulation::LogSumExp if !x.dtype.is_float() => {
            Err(Error::dtype(op, format!("does not take {}", x.dtype)).on([x]))
        }
        Cumulation::Sum
        | Cumulation::Prod
        | Cumulation::Max
        | Cumulation::Min
        | Cumulation::LogSumExp => Ok(x.clone()),
    }
}

pub(super) fn ranks(axis: usize, from: usize, count: usize, [x]: [&Spec; 1]) -> Result<Specs> {
    check_axis("ranks", axis, x)?;
    let mut shape = x.shape.clone();
    if from.checked_add(count).is_none_or(|end| end > shape[axis]) {
        let message =
            format!("cannot take {count} elements of sorted axis {axis} of {x}, from {from} on");
        return Err(Error::argument("ranks", message).on([x]));
    }
    shape[axis] = count;
    let part = x.with_shape(shape);
    Ok(smallvec![part.clone(), part.with_dtype(DType::I64)])
}

pub(super) fn sort(axis: usize, [x]: [&Spec; 1]) -> Result<Specs> {
    check_axis("sort", axis, x)?;
    Ok(smallvec![x.clone(), x.with_dtype(DType::I64)])
}
