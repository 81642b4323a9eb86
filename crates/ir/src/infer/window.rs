//! Convolution and pooling.

use crate::window::{Conv, Frame, Pool, Pooling, Role, Window};
use crate::{DType, Error, Result, Shape, Spec};

pub(super) fn conv(conv: &Conv, [a, b]: [&Spec; 2]) -> Result<Spec> {
    let (op, rank) = (conv.role.name(), conv.windows.len());
    let wrong = |message: String| Err(Error::shape(op, message).on([a, b]));
    if !a.dtype.is_float() || a.dtype != b.dtype {
        let message = format!("takes two operands of one float dtype, not {a} and {b}");
        return Err(Error::dtype(op, message).on([a, b]));
    }
    if !(1..=3).contains(&rank) {
        return wrong(format!("slides along 1 to 3 axes, not {rank}"));
    }
    if a.shape.len() != rank + 2 || b.shape.len() != rank + 2 {
        return wrong(format!(
            "takes two operands of rank {} (batch, channels, {rank} spatial), not {a} and {b}",
            rank + 2
        ));
    }
    let groups = conv.groups;
    // Channels of the side that the groups divide, and of one group.
    let share = |channels: usize| match groups > 0 && channels.is_multiple_of(groups) {
        true => Ok(channels / groups),
        false => {
            let message = format!("{channels} channels do not fall into {groups} groups: {a}, {b}");
            Err(Error::shape(op, message).on([a, b]))
        }
    };
    match &conv.role {
        Role::Forward => {
            let (inner, outer) = (share(a.shape[1])?, b.shape[0]);
            share(outer)?;
            if b.shape[1] != inner {
                return wrong(channels(inner, a, b));
            }
            kernel_is(op, conv, a, b)?;
            let lengths = counts(op, &conv.windows, &a.shape[2..], a, b)?;
            Ok(a.with_shape(shape(a.shape[0], outer, lengths)))
        }
        Role::Input(lengths) => {
            share(a.shape[1])?;
            if b.shape[0] != a.shape[1] {
                return wrong(channels(a.shape[1], a, b));
            }
            kernel_is(op, conv, a, b)?;
            if lengths.len() != rank {
                return wrong(format!("{} lengths for {rank} spatial axes", lengths.len()));
            }
            agree(op, &counts(op, &conv.windows, lengths, a, b)?, &a.shape[2..], a, b)?;
            let Some(inner) = b.shape[1].checked_mul(groups) else {
                return wrong(format!("{groups} groups of {b} are more than any memory holds"));
            };
            Ok(a.with_shape(shape(a.shape[0], inner, lengths.clone())))
        }
        Role::Filter => {
            let (inner, outer) = (share(a.shape[1])?, b.shape[1]);
            share(outer)?;
            if a.shape[0] != b.shape[0] {
                return wrong(format!("batches differ: {a} and {b}"));
            }
            agree(op, &counts(op, &conv.windows, &a.shape[2..], a, b)?, &b.shape[2..], a, b)?;
            let sizes = conv.windows.iter().map(|w| w.size).collect();
            Ok(a.with_shape(shape(outer, inner, sizes)))
        }
    }
}

fn shape(first: usize, second: usize, rest: Shape) -> Shape {
    [first, second].into_iter().chain(rest).collect()
}

fn channels(wanted: usize, a: &Spec, b: &Spec) -> String {
    format!("the kernel {b} does not fit the {wanted} channels of a group of {a}")
}

/// The kernel's own lengths are those of the windows.
fn kernel_is(op: &'static str, conv: &Conv, a: &Spec, w: &Spec) -> Result<()> {
    let sizes: Shape = conv.windows.iter().map(|w| w.size).collect();
    if w.shape[2..] == sizes[..] {
        return Ok(());
    }
    Err(Error::shape(op, format!("the kernel {w} is not {:?} long", &sizes[..])).on([a, w]))
}

/// How many windows there are on axes of these lengths.
fn counts(
    op: &'static str,
    windows: &[Window],
    lengths: &[usize],
    a: &Spec,
    b: &Spec,
) -> Result<Shape> {
    let each = windows.iter().zip(lengths).map(|(window, &len)| {
        let message = || format!("{} do not fit an axis of length {len}: {a}, {b}", told(window));
        window.count(len).ok_or_else(|| Error::shape(op, message()).on([a, b]))
    });
    each.collect()
}

fn agree(op: &'static str, wanted: &[usize], given: &[usize], a: &Spec, b: &Spec) -> Result<()> {
    if wanted == given {
        return Ok(());
    }
    Err(Error::shape(op, format!("has {wanted:?} windows, not {given:?}: {a}, {b}")).on([a, b]))
}

fn told(w: &Window) -> String {
    let Window { size, stride, dilation, before, after } = w;
    format!(
        "windows of {size} (stride {stride}, dilation {dilation}, padding {before} and {after})"
    )
}

pub(super) fn pool(pool: &Pool, [x]: [&Spec; 1]) -> Result<Spec> {
    let (op, rank) = (pool.kind.name(), pool.frames.len());
    if !(1..=3).contains(&rank) || x.shape.len() < rank {
        let message = format!("works on the last 1 to 3 axes, not {rank} of {x}");
        return Err(Error::shape(op, message).on([x]));
    }
    let (lead, last) = x.shape.split_at(x.shape.len() - rank);
    let spread = match &pool.kind {
        Pooling::Sum | Pooling::ArgMax => None,
        Pooling::Spread(lengths) => Some(lengths),
    };
    if !x.dtype.is_float() && (pool.kind != Pooling::ArgMax || x.dtype == DType::Bool) {
        return Err(Error::dtype(op, format!("takes floats, not {x}")).on([x]));
    }
    let lengths = spread.map_or(last, |lengths| lengths);
    if lengths.len() != rank {
        let message = format!("{} lengths for {rank} spatial axes", lengths.len());
        return Err(Error::shape(op, message).on([x]));
    }
    let mut counts = Shape::new();
    for (frame, &len) in pool.frames.iter().zip(lengths) {
        let Some(count) = frame.count(len) else {
            let message = format!("pieces {frame} do not fit an axis of length {len}: {x}");
            return Err(Error::shape(op, message).on([x]));
        };
        // The ends first: where both hold something, an empty piece between them is found early.
        let void = |o| frame.piece(o, len).1 == 0;
        let ends = count > 0 && (void(0) || void(count - 1));
        let between = matches!(frame, Frame::Sliding(_)) && (0..count).any(void);
        if pool.kind == Pooling::ArgMax && (ends || between) {
            let message = format!(
                "pieces {frame} without any element of an axis of length {len} have no maximum: {x}"
            );
            return Err(Error::shape(op, message).on([x]));
        }
        counts.push(count);
    }
    let result = if spread.is_some() { lengths } else { &counts };
    if spread.is_some() && counts[..] != *last {
        let message = format!("has {:?} pieces, not those of {x}", &counts[..]);
        return Err(Error::shape(op, message).on([x]));
    }
    let shape: Shape = lead.iter().chain(result.iter()).copied().collect();
    let dtype = if pool.kind == Pooling::ArgMax { DType::I64 } else { x.dtype };
    Ok(x.with_shape(shape).with_dtype(dtype))
}
