//! Converts what users write (negative axes, `-1` in a reshape, open ranges) to attributes of ops.

use crate::shape::{Axes, Shape, broadcast_shapes, normalize_axis};
use crate::{Error, Result, Span, Spec};

/// One axis; negative counts from the end. A 0-d operand has axis 0, as a vector of one element.
pub fn axis(op: &'static str, axis: isize, x: &Spec) -> Result<usize> {
    normalize_axis(axis, x.shape.len())
        .ok_or_else(|| Error::argument(op, format!("axis {axis} is out of range for {x}")).on([x]))
}

/// Several axes, none twice, in ascending order.
pub fn axes(op: &'static str, list: &[isize], x: &Spec) -> Result<Axes> {
    let mut out = Axes::new();
    for &a in list {
        let i = axis(op, a, x)?;
        if out.contains(&i) {
            return Err(Error::argument(op, format!("axis {a} is named twice for {x}")).on([x]));
        }
        out.push(i);
    }
    out.retain(|i| *i < x.shape.len());
    out.sort_unstable();
    Ok(out)
}

/// An order of all axes.
pub fn order(op: &'static str, list: &[isize], x: &Spec) -> Result<Axes> {
    if list.len() != x.shape.len() {
        let message = format!("{list:?} must contain each axis of {x} once");
        return Err(Error::argument(op, message).on([x]));
    }
    list.iter().map(|&a| axis(op, a, x)).collect()
}

/// A shape in which one length may be `-1`: it is inferred.
pub fn reshape(list: &[isize], x: &Spec) -> Result<Shape> {
    let unfit = |why: String| Error::shape("reshape", why).on([x]);
    let lengths = list.iter().filter(|&&n| n >= 0).map(|&n| n as usize);
    let known: usize = lengths.fold(1, |p: usize, n| p.saturating_mul(n));
    let holes = list.iter().filter(|&&n| n < 0).count();
    if holes > 1 || list.iter().any(|&n| n < -1) {
        return Err(unfit(format!("{list:?} may hold one -1 and no other negative length")));
    }
    if holes == 1 && (known == 0 || !x.len().is_multiple_of(known)) {
        return Err(unfit(format!("the {} elements of {x} do not fill {list:?}", x.len())));
    }
    Ok(list.iter().map(|&n| if n < 0 { x.len() / known } else { n as usize }).collect())
}

/// The shape to which two operands broadcast.
pub fn broadcast(op: &'static str, a: &Spec, b: &Spec) -> Result<Shape> {
    broadcast_shapes(&a.shape, &b.shape)
        .ok_or_else(|| Error::shape(op, format!("shapes do not broadcast: {a} and {b}")).on([a, b]))
}

/// An index into an axis of `len`; negative counts from the end.
pub fn index(op: &'static str, i: isize, axis: usize, x: &Spec) -> Result<usize> {
    let len = x.shape[axis];
    let from_front = if i < 0 { i + len as isize } else { i };
    if (0..len as isize).contains(&from_front) {
        return Ok(from_front as usize);
    }
    let message = format!("index {i} is out of range for axis {axis} of {x}");
    Err(Error::argument(op, message).on([x]))
}

/// `start..stop` every `step` on an axis of length `len`, by Python's rules: negative bounds count
/// from the end, bounds outside are clamped. A negative step gives a span to be flipped.
pub fn span(
    op: &'static str,
    start: Option<isize>,
    stop: Option<isize>,
    step: isize,
    len: usize,
) -> Result<(Span, bool)> {
    if step == 0 {
        return Err(Error::argument(op, "a step of 0 is not allowed"));
    }
    let n = len as isize;
    let from_front = |i: isize| if i < 0 { i.saturating_add(n) } else { i };
    if step > 0 {
        let first = start.map_or(0, from_front).clamp(0, n);
        let last = stop.map_or(n, from_front).clamp(first, n);
        // The gap between the last two may overflow: no `step - 1` is added.
        let count = if last == first { 0 } else { (last - first - 1) / step + 1 };
        return Ok((
            Span { start: first as usize, len: count as usize, step: step as usize },
            false,
        ));
    }
    // Downwards: the elements first, first+step, … above `last`; spanned from the lowest, then
    // flipped.
    let first = start.map_or(n - 1, from_front).clamp(-1, n - 1);
    let last = stop.map_or(-1, from_front).clamp(-1, first);
    let count = if first == last { 0 } else { (first - last - 1) / step.saturating_neg() + 1 };
    let lowest = if count > 1 { first + (count - 1) * step } else { first };
    Ok((
        Span { start: lowest.max(0) as usize, len: count as usize, step: step.unsigned_abs() },
        true,
    ))
}
