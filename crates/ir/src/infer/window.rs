//! Convolution and pooling.

use crate::window::{Conv, Frame, Pool, Pooling, Role, Window};
use crate::{DType, Error, Result, Shape, Spec};

pub(super) fn conv(conv: &Conv, of: [&Spec; 2]) -> Result<Spec> {
    let mut result = image(conv, of)?;
    if conv.last {
        result.shape[1..].rotate_left(1);
    }
    Ok(result)
}

/// The result with the channels before the spatial axes.
fn image(conv: &Conv, [a, b]: [&Spec; 2]) -> Result<Spec> {
    let (op, rank) = (conv.role.name(), conv.windows.len());
    let wrong = |message: String| Err(Error::shape(op, message).on([a, b]));
    if !a.dtype.is_float() || a.dtype != b.dtype {
        let message = format!("takes two operands of one float dtype, not {a} and {b}");
        return Err(Error::dtype(op, message).on([a, b]));
    }
    if !(1..=3).contains(&rank) {
        return wrong(format!("takes 1 to 3 spatial axes, not {rank}"));
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
            let message =
                format!("{channels} channels are not divisible by {groups} groups: {a}, {b}");
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
                return wrong(format!("{groups} groups of {b} exceed the addressable size"));
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

/// The kernel's spatial lengths are those of the windows.
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
        let message =
            || format!("{} do not fit an axis of length {len}: {a}, {b}", describe_window(window));
        window.count(len).ok_or_else(|| Error::shape(op, message()).on([a, b]))
    });
    each.collect()
}

fn agree(op: &'static str, wanted: &[usize], given: &[usize], a: &Spec, b: &Spec) -> Result<()> {
    if wanted == given {
        return Ok(());
    }
    let message = format!("the output must have spatial shape {wanted:?}, not {given:?}: {a}, {b}");
    Err(Error::shape(op, message).on([a, b]))
}

fn describe_window(w: &Window) -> String {
    let Window { size, stride, dilation, before, after } = w;
    format!(
        "windows of {size} (stride {stride}, dilation {dilation}, padding {before} and {after})"
    )
}

fn describe_frame(frame: &Frame) -> String {
    match frame {
        Frame::Sliding(window) => describe_window(window),
        Frame::Even(count) => format!("{count} output positions"),
    }
}

/// Some kinds take positions beside the array.
pub(super) fn pool(pool: &Pool, x: &Spec, places: Option<&Spec>) -> Result<Spec> {
    let (op, rank) = (pool.kind.name(), pool.frames.len());
    if !(1..=3).contains(&rank) || x.shape.len() < rank {
        let message = format!("works on the last 1 to 3 axes, not {rank} of {x}");
        return Err(Error::shape(op, message).on([x]));
    }
    let (lead, last) = x.shape.split_at(x.shape.len() - rank);
    let spread = match &pool.kind {
        Pooling::Sum | Pooling::ArgMax | Pooling::Take => None,
        Pooling::Spread(lengths) | Pooling::Give(lengths) => Some(lengths),
    };
    let compares = matches!(pool.kind, Pooling::ArgMax | Pooling::Take);
    if !x.dtype.is_float() && (!compares || x.dtype == DType::Bool) {
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
            let frame = describe_frame(frame);
            let message = format!("{frame} do not fit an axis of length {len}: {x}");
            return Err(Error::shape(op, message).on([x]));
        };
        let void = || match frame {
            Frame::Sliding(window) => some_void(window, count, len),
            Frame::Even(_) => count > 0 && len == 0,
        };
        if pool.kind == Pooling::ArgMax && void() {
            let frame = describe_frame(frame);
            let message = format!(
                "{frame} without any element of an axis of length {len} have no maximum: {x}"
            );
            return Err(Error::shape(op, message).on([x]));
        }
        counts.push(count);
    }
    let result = if spread.is_some() { lengths } else { &counts };
    if spread.is_some() && counts[..] != *last {
        let message =
            format!("the last axes of {x} must be the output positions, {:?}", &counts[..]);
        return Err(Error::shape(op, message).on([x]));
    }
    if let Some(places) = places {
        let pieces: Shape = lead.iter().chain(counts.iter()).copied().collect();
        if places.dtype != DType::I64 || places.shape != pieces {
            let message = format!("needs positions i64{:?}, not {places}: {x}", &pieces[..]);
            return Err(Error::shape(op, message).on([x, places]));
        }
    }
    let shape: Shape = lead.iter().chain(result.iter()).copied().collect();
    let dtype = if pool.kind == Pooling::ArgMax { DType::I64 } else { x.dtype };
    Ok(x.with_shape(shape).with_dtype(dtype))
}

/// Whether one of this many windows has no element of an axis of `len`. There may be too many to
/// enumerate.
fn some_void(window: &Window, count: usize, len: usize) -> bool {
    let void = |o: usize| window.inside(o, len).1 == 0;
    if count == 0 || void(0) || void(count - 1) {
        return count > 0;
    }
    // As the first and last windows are not void, no window starts after the axis, and each reaches
    // it. So only one that starts before it can be void, namely if it steps over it: if its
    // positions modulo the dilation are not on the axis.
    let (n, stride, d) = (len as i128, window.stride as i128, window.dilation as i128);
    let before = window.before as i128;
    let early = ((before.max(0) + stride - 1) / stride).min(count as i128);
    if early == 0 || d <= n {
        return false;
    }
    // ⌊(v + d − n) / d⌋ is more than ⌊v / d⌋ where v modulo d is not below n.
    let (first, step) = ((-before).rem_euclid(d), stride % d);
    floors(early, d, step, first + d - n) > floors(early, d, step, first)
}

/// The sum of `⌊(a·i + b) / m⌋` over `i < n`, in as many steps as Euclid's algorithm takes.
fn floors(mut n: i128, mut m: i128, mut a: i128, mut b: i128) -> i128 {
    let mut sum = 0;
    loop {
        sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
        (a, b) = (a % m, b % m);
        // The rest is the lattice points below a line; counted along the other axis, it is a sum of
        // the same kind.
        let top = a * n + b;
        if top < m {
            return sum;
        }
        (n, b) = (top / m, top % m);
        (m, a) = (a, m);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn void_windows_are_found() {
        let (mut some, mut none) = (0, 0);
        for i in 0..6 * 5 * 9 * 20 * 8 {
            let (size, stride, dilation) = (1 + i % 6, 1 + i / 6 % 5, 1 + i / 30 % 9);
            let (before, len) = ((i / 270 % 20) as isize - 2, i / 5400);
            for after in [-1, 0, 3, 12] {
                let window = Window { size, stride, dilation, before, after };
                let Some(count) = window.count(len) else { continue };
                let void = (0..count).any(|o| window.inside(o, len).1 == 0);
                assert_eq!(some_void(&window, count, len), void, "{window:?} on {len}");
                *(if void { &mut some } else { &mut none }) += 1;
            }
        }
        assert!(some > 1000 && none > 1000, "{some} and {none}");
    }

    #[test]
    fn there_may_be_very_many_windows() {
        let plain = Window { size: 2, stride: 1, dilation: 1, before: 0, after: 0 };
        let padded = Window { size: 2, dilation: 1 << 50, before: 1 << 50, ..plain };
        // The first and last windows are not void, and half of those between them are.
        let sparse = Window { size: 3, before: 1 << 51, after: (1 << 49) + 1, ..padded };
        let cases =
            [(plain, 1 << 50, false), (padded, (1 << 50) - 1, false), (sparse, 1 << 49, true)];
        for (window, len, void) in cases {
            assert!(window.count(len).is_some_and(|n| n >= 1 << 49), "{window:?}");
            let frames = vec![Frame::Sliding(window)];
            let x = Spec::cpu(DType::F32, &[0, len][..]);
            let given = pool(&Pool { kind: Pooling::ArgMax, frames }, &x, None);
            assert_eq!(given.is_err(), void, "{window:?}");
        }
    }
}
