//! Views: the resulting shape, and a check that every index is in bounds.

use crate::shape::Shape;
use crate::{Error, Layout, Result, Spec, View, diagonal_len};

pub(super) fn view(view: &View, [x]: [&Spec; 1]) -> Result<Spec> {
    Ok(x.with_shape(view_shape(view, x)?))
}

/// The shape of a view of `x`.
pub fn view_shape(view: &View, x: &Spec) -> Result<Shape> {
    let op = view.name();
    let rank = x.shape.len();
    let axis = |axis: usize| super::check_axis(op, axis, x);
    let unfit = |message: String| Err(Error::shape(op, message).on([x]));
    let mut out = x.shape.clone();
    match view {
        View::Reshape(shape) => {
            let wanted: usize = shape.iter().fold(1, |p: usize, &n| p.saturating_mul(n));
            if wanted != x.len() || !super::fits_memory(shape) {
                return unfit(format!("{x} has {} elements, {shape:?} needs {wanted}", x.len()));
            }
            out = shape.clone();
        }
        View::Permute(order) => {
            let mut seen = order.clone();
            seen.sort_unstable();
            if !seen.iter().copied().eq(0..rank) {
                return unfit(format!("{order:?} is not an order of the {rank} axes of {x}"));
            }
            out = order.iter().map(|&i| x.shape[i]).collect();
        }
        View::Broadcast(shape) => {
            let fits = shape.len() >= rank
                && x.shape.iter().rev().zip(shape.iter().rev()).all(|(&n, &m)| n == m || n == 1);
            if !fits {
                return unfit(format!("{x} does not broadcast to {shape:?}"));
            }
            out = shape.clone();
        }
        View::Slice(spans) => {
            if spans.len() > rank {
                return unfit(format!("{} ranges for {x}, which has {rank} axes", spans.len()));
            }
            for (i, s) in spans.iter().enumerate() {
                let reach = s
                    .len
                    .saturating_sub(1)
                    .checked_mul(s.step)
                    .and_then(|r| r.checked_add(s.start));
                let inside = reach.is_some_and(|last| last < x.shape[i]);
                if s.step == 0 || (s.len > 0 && !inside) {
                    return unfit(format!("the range of axis {i} reaches outside {x}"));
                }
                out[i] = s.len;
            }
        }
        View::Flip(axes) => axes.iter().try_for_each(|&i| axis(i))?,
        View::Diagonal { offset, a, b } => {
            axis(*a)?;
            axis(*b)?;
            if a == b {
                return unfit(format!("the two axes are the same ({a}) for {x}"));
            }
            let len = diagonal_len(x.shape[*a], x.shape[*b], *offset);
            out.remove(*a.max(b));
            out.remove(*a.min(b));
            out.push(len);
        }
        View::Unfold { axis: i, size, step } => {
            axis(*i)?;
            if *step == 0 || *size > x.shape[*i] {
                return unfit(format!("windows of {size} every {step} do not fit axis {i} of {x}"));
            }
            out[*i] = (x.shape[*i] - size) / step + 1;
            out.push(*size);
        }
    }
    Ok(out)
}

pub(super) fn put(views: &[View], [base, source]: [&Spec; 2]) -> Result<Spec> {
    let (mut seen, mut lies) = (base.clone(), Layout::dense(base.shape.clone()));
    for v in views {
        seen = view(v, [&seen])?;
        // A view that certainly repeats an element cannot be written through.
        lies = match lies.view(v) {
            Some(lies) if !lies.overlaps() => lies,
            Some(_) => {
                let message =
                    format!("cannot write through {}: several indices share an element", v.name());
                return Err(Error::argument("put", message).on([base, source]));
            }
            None => {
                let message = format!("cannot write through {}: it would be a copy", v.name());
                return Err(Error::argument("put", message).on([base, source]));
            }
        };
    }
    if seen != *source {
        let message = format!("the part has spec {seen}, the replacement {source}");
        return Err(Error::shape("put", message).on([base, source]));
    }
    Ok(base.clone())
}
