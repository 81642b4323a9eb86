//! Padding, concatenation and partial overwriting: copies into a part of a dense result.
//!
//! Each is "the result seen through some strides := a source", so all use one strided copy, and
//! nothing here depends on values.

use crate::operand::{Sink, Source};
use crate::{par, pointwise};
use pullback_ir::{Layout, Padding, Shape, Strides, View, dense_strides};
use std::ops::Range;

/// `x` with zeros around its elements and between them.
pub(crate) fn pad(padding: &[Padding], x: Source<'_>, out: Sink<'_>) {
    if padding.iter().all(|p| *p == Padding::default()) {
        return pointwise::copy(x, out);
    }
    let mut strides = dense_strides(out.shape);
    let mut start = 0;
    for (stride, p) in strides.iter_mut().zip(padding) {
        start += p.before * *stride as usize;
        *stride *= p.between as isize + 1;
    }
    let around =
        Layout { shape: Shape::from_slice(x.shape), strides: strides.clone(), offset: start };
    for range in outside(&around, out) {
        let ptr = out.ptr.wrapping_add(range.start * out.dtype.size());
        zero(Sink { ptr, shape: &[range.len()], dtype: out.dtype });
    }
    copy_part(x, out, start, &strides);
}

/// The sources one after the other along `axis`.
pub(crate) fn cat(axis: usize, xs: &[Source<'_>], out: Sink<'_>) {
    /// Fewest bytes that are worth a thread.
    const TASK: usize = 32 << 10;
    /// Bytes of the result that all sources write before the next band. Many narrow sources write
    /// to each cache line: copied one source after the other over the whole result, every line
    /// would be loaded and written back once for each of them.
    const BAND: usize = 32 << 10;
    let strides = dense_strides(out.shape);
    // Whether the only axes longer than one are the rows and that of the sources.
    let flat = out.shape.iter().enumerate().all(|(d, &n)| d == 0 || d == axis || n == 1);
    let narrow = |x: &Source<'_>| axis > 0 && flat && x.shape[axis] == 1;
    let band = |rows: Range<usize>| {
        let (mut start, mut left) = (0, xs);
        while let [x, rest @ ..] = left {
            let columns = left.iter().take_while(|x| narrow(x)).count();
            if columns > 1 {
                let (columns, rest) = left.split_at(columns);
                interleave(columns, rows.clone(), out, start);
                (start, left) = (start + columns.len(), rest);
                continue;
            }
            let mut shape = Shape::from_slice(x.shape);
            let (mut ptr, mut to) = (x.ptr, start);
            // Except along the axis of concatenation, a source has the rows of the result.
            if axis > 0 {
                shape[0] = rows.len();
                let before = rows.start as isize * x.strides[0] * x.dtype.size() as isize;
                ptr = ptr.wrapping_offset(before);
                to += rows.start * strides[0] as usize;
            }
            copy_part(Source { ptr, shape: &shape, ..*x }, out, to, &strides);
            start += x.shape[axis] * strides[axis] as usize;
            left = rest;
        }
    };
    let (rows, bytes) = (out.shape[0], out.len() * out.dtype.size());
    let together = if axis == 0 { rows } else { BAND / (bytes / rows.max(1)).max(1) };
    let part = |rows: Range<usize>| {
        let mut start = rows.start;
        while start < rows.end {
            let end = rows.end.min(start + together.max(1));
            band(start..end);
            start = end;
        }
    };
    let parts = if axis == 0 { 1 } else { par::threads().min(bytes / TASK).clamp(1, rows.max(1)) };
    par::for_each(parts, |t| part(rows * t / parts..rows * (t + 1) / parts));
}

/// Interleaves columns, in some rows of the result, from a column on.
fn interleave(xs: &[Source<'_>], rows: Range<usize>, out: Sink<'_>, start: usize) {
    /// Columns at a time: a cache line of f64.
    const SOME: usize = 8;
    fn all<T: Copy>(xs: &[Source<'_>], rows: Range<usize>, out: Sink<'_>, start: usize) {
        let width = out.len() / out.shape[0];
        for (n, xs) in xs.chunks(SOME).enumerate() {
            let to = out.ptr.cast::<T>().wrapping_add(start + n * SOME);
            let mut from = [(xs[0].ptr.cast::<T>(), 0); SOME];
            for (from, x) in from.iter_mut().zip(xs) {
                *from = (x.ptr.cast::<T>(), x.strides[0]);
            }
            for r in rows.clone() {
                let read = |(from, stride): (*const T, isize)| {
                    // SAFETY: the source has the row. (The placeholder for a missing one is a first
                    // element.)
                    unsafe { from.offset(r as isize * stride).read() }
                };
                // SAFETY: the result has these columns in the row, and the rows are this task's
                // alone.
                unsafe {
                    let to = to.add(r * width);
                    match xs.len() {
                        SOME => to.cast::<[T; SOME]>().write(from.map(read)),
                        n => (0..n).for_each(|k| to.add(k).write(read(from[k]))),
                    }
                }
            }
        }
    }
    match out.dtype.size() {
        8 => all::<u64>(xs, rows, out, start),
        4 => all::<u32>(xs, rows, out, start),
        2 => all::<u16>(xs, rows, out, start),
        _ => all::<u8>(xs, rows, out, start),
    }
}

/// Several independent copies. Each thread takes the same part of each, so that sources it wrote
/// are still in its cache.
pub(crate) fn copies(all: &[(Source<'_>, Sink<'_>)]) {
    /// Fewest bytes that are worth a thread.
    const TASK: usize = 8 << 10;
    let bytes: usize = all.iter().map(|(_, to)| to.len() * to.dtype.size()).sum();
    let parts = par::threads().min(bytes / TASK).max(1);
    par::for_each(parts, |t| {
        for &(from, to) in all {
            let size = to.dtype.size();
            let (len, rows) = (to.len(), to.shape.first().map_or(1, |&n| n));
            if parts == 1 || (!from.is_dense() && rows < parts) {
                if t == 0 {
                    pointwise::copy(from, to);
                }
                continue;
            }
            // Whole cache lines of a dense source, whole rows of any other.
            let (count, each) = if from.is_dense() { (len, 1) } else { (rows, len / rows) };
            let cut = |t: usize| match each {
                1 if t < parts => (count * t / parts) & !63,
                _ => count * t / parts,
            };
            let (first, end) = (cut(t), cut(t + 1));
            let mut shape = Shape::from_slice(to.shape);
            let mut strides = Strides::from_slice(from.strides);
            if from.is_dense() {
                (shape, strides) = (Shape::from_slice(&[len]), Strides::from_slice(&[1]));
            }
            shape[0] = end - first;
            let offset = first as isize * strides[0] * size as isize;
            let ptr = from.ptr.wrapping_offset(offset);
            let from = Source { ptr, shape: &shape, strides: &strides, dtype: from.dtype };
            if !from.is_empty() {
                let ptr = to.ptr.wrapping_add(first * each * size);
                pointwise::copy(from, Sink { ptr, shape: &shape, dtype: to.dtype });
            }
        }
    });
}

/// `base` with the part seen through the chain of views replaced by `source`.
pub(crate) fn put(views: &[View], base: Source<'_>, source: Source<'_>, out: Sink<'_>) {
    let mut part = Layout::dense(Shape::from_slice(out.shape));
    for view in views {
        match part.view(view) {
            Some(next) => part = next,
            None => {
                unreachable!("`infer` rejects a chain of views that would need a copy: {view:?}")
            }
        }
    }
    let still = base.strides.iter().all(|&s| s == 0);
    if !still && !base.is_dense() {
        pointwise::copy(base, out);
        return copy_part(source, out, part.offset, &part.strides);
    }
    for range in outside(&part, out) {
        let size = out.dtype.size();
        let (shape, strides) = ([range.len()], [isize::from(!still)]);
        let from = base.ptr.wrapping_add(if still { 0 } else { range.start * size });
        let base = Source { ptr: from, shape: &shape, strides: &strides, dtype: base.dtype };
        let ptr = out.ptr.wrapping_add(range.start * size);
        pointwise::copy(base, Sink { ptr, shape: &shape, dtype: out.dtype });
    }
    copy_part(source, out, part.offset, &part.strides);
}

/// The elements of a result outside a part, if the part is contiguous; otherwise all.
fn outside(part: &Layout, out: Sink<'_>) -> [Range<usize>; 2] {
    let (start, end) = match part.is_dense() && !part.is_empty() {
        true => (part.offset, part.offset + part.len()),
        false => (out.len(), out.len()),
    };
    [0..start, end..out.len()]
}

/// Writes `x` into the part of `out` that starts at element `start` and has these strides, unless
/// it is there already: a plan may compute a piece in place ([`pullback_ir::pass::plan::piece`]).
fn copy_part(x: Source<'_>, out: Sink<'_>, start: usize, strides: &Strides) {
    let to = out.ptr.wrapping_add(start * out.dtype.size());
    let mut axes = x.shape.iter().zip(x.strides.iter().zip(strides));
    let there = x.ptr == to && axes.all(|(&n, (from, to))| n == 1 || from == to);
    if !x.is_empty() && !there {
        pointwise::copy_to(x, to, strides);
    }
}

/// Zero is all bits zero in every dtype.
pub(crate) fn zero(out: Sink<'_>) {
    const TASK: usize = 1 << 18;
    let bytes = out.len() * out.dtype.size();
    par::for_each(bytes.div_ceil(TASK), |task| {
        let start = task * TASK;
        // SAFETY: the range lies inside the sink and is this task's alone.
        unsafe { std::ptr::write_bytes({ out }.ptr.add(start), 0, TASK.min(bytes - start)) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use pullback_ir::{DType, Span};
    use smallvec::smallvec;

    fn source<'a>(v: &'a [f32], at: usize, shape: &'a [usize], strides: &'a [isize]) -> Source<'a> {
        Source { ptr: v[at..].as_ptr().cast(), shape, strides, dtype: DType::F32 }
    }

    fn filled(shape: &[usize], f: impl Fn(Sink)) -> Vec<f32> {
        let mut v = vec![f32::NAN; shape.iter().product()];
        f(Sink { ptr: v.as_mut_ptr().cast(), shape, dtype: DType::F32 });
        v
    }

    fn counting(n: usize) -> Vec<f32> {
        (1..=n).map(|i| i as f32).collect()
    }

    #[test]
    fn pads_around_and_between() {
        let v = counting(6);
        let padding = [
            Padding { before: 1, after: 0, between: 0 },
            Padding { before: 1, after: 2, between: 1 },
        ];
        let got = filled(&[3, 8], |out| pad(&padding, source(&v, 0, &[2, 3], &[3, 1]), out));
        #[rustfmt::skip]
        assert_eq!(got, [
            0., 0., 0., 0., 0., 0., 0., 0.,
            0., 1., 0., 2., 0., 3., 0., 0.,
            0., 4., 0., 5., 0., 6., 0., 0.,
        ]);
        // A flipped, transposed source.
        let got = filled(&[3, 8], |out| pad(&padding, source(&v, 5, &[2, 3], &[-1, -2]), out));
        #[rustfmt::skip]
        assert_eq!(got, [
            0., 0., 0., 0., 0., 0., 0., 0.,
            0., 6., 0., 4., 0., 2., 0., 0.,
            0., 5., 0., 3., 0., 1., 0., 0.,
        ]);
        // No elements, no axis, no padding.
        let all = [Padding { before: 2, after: 1, between: 3 }];
        assert_eq!(filled(&[3], |out| pad(&all, source(&v, 0, &[0], &[1]), out)), [0.0; 3]);
        assert_eq!(filled(&[], |out| pad(&[], source(&v, 3, &[], &[]), out)), [4.0]);
        let none = [Padding::default()];
        assert_eq!(filled(&[3], |out| pad(&none, source(&v, 0, &[3], &[2]), out)), [1., 3., 5.]);
    }

    #[test]
    fn concatenates_along_any_axis() {
        let v = counting(12);
        let a = source(&v, 0, &[2, 3], &[3, 1]);
        let b = source(&v, 6, &[2, 2], &[1, 2]);
        let none = source(&v, 0, &[2, 0], &[1, 1]);
        let got = filled(&[2, 5], |out| cat(1, &[a, none, b], out));
        assert_eq!(got, [1., 2., 3., 7., 9., 4., 5., 6., 8., 10.]);
        let wide = source(&v, 11, &[1, 3], &[0, 0]);
        let got = filled(&[3, 3], |out| cat(0, &[a, wide], out));
        assert_eq!(got, [1., 2., 3., 4., 5., 6., 12., 12., 12.]);
    }

    #[test]
    fn puts_through_a_chain_of_views() {
        let v = counting(12);
        let base = source(&v, 0, &[3, 4], &[4, 1]);
        let views = [
            View::Permute([1, 0].into()),
            View::Slice(smallvec![
                Span { start: 1, len: 2, step: 2 },
                Span { start: 0, len: 3, step: 1 }
            ]),
            View::Flip([1].into()),
        ];
        let new = [-1f32, -2., -3., -4., -5., -6.];
        let got = filled(&[3, 4], |out| put(&views, base, source(&new, 0, &[2, 3], &[3, 1]), out));
        assert_eq!(got, [1., -3., 3., -6., 5., -2., 7., -5., 9., -1., 11., -4.]);
        let got = filled(&[3, 4], |out| put(&[], base, source(&new, 0, &[3, 4], &[0, 0]), out));
        assert_eq!(got, [-1.0; 12]);
    }

    #[test]
    fn what_is_around_a_piece_is_written_once_and_right() {
        let v = counting(12);
        let new = [-1f32, -2., -3., -4.];
        // The piece at the front, in the middle, at the end and everywhere; the base dense, one
        // number for all, strided, and the memory of the result.
        for (start, len) in [(0, 2), (1, 2), (2, 2), (0, 4), (1, 0)] {
            let views = [View::Slice(smallvec![Span { start, len, step: 1 }])];
            let x = source(&new, 0, std::slice::from_ref(&len), &[1]);
            for (strides, base) in
                [([1], [1., 2., 3., 4.]), ([0], [1.; 4]), ([3], [1., 4., 7., 10.])]
            {
                let mut want = base;
                want[start..start + len].copy_from_slice(&new[..len]);
                let got = filled(&[4], |out| put(&views, source(&v, 0, &[4], &strides), x, out));
                assert_eq!(got, want);
            }
            let got = filled(&[4], |out| {
                let numbers = [5f32, 6., 7., 8.];
                // SAFETY: a sink of four numbers.
                unsafe { out.ptr.cast::<[f32; 4]>().write(numbers) };
                let base = Source { ptr: out.ptr, shape: &[4], strides: &[1], dtype: DType::F32 };
                put(&views, base, x, out);
            });
            let kept = |i: usize| {
                if (start..start + len).contains(&i) { new[i - start] } else { 5.0 + i as f32 }
            };
            assert_eq!(got, [0, 1, 2, 3].map(kept));
            let around = [Padding { before: start, after: 4 - start - len, between: 0 }];
            let zeros =
                |i: usize| if (start..start + len).contains(&i) { new[i - start] } else { 0.0 };
            assert_eq!(filled(&[4], |out| pad(&around, x, out)), [0, 1, 2, 3].map(zeros));
        }
        // Whole rows.
        let rows = [Padding { before: 1, after: 1, between: 0 }, Padding::default()];
        let got = filled(&[3, 4], |out| pad(&rows, source(&v, 0, &[1, 4], &[4, 1]), out));
        assert_eq!(got, [0., 0., 0., 0., 1., 2., 3., 4., 0., 0., 0., 0.]);
    }

    #[test]
    fn large_and_threaded() {
        let (rows, columns) = (513, 301);
        let v = counting(rows * columns);
        let x = source(&v, 0, &[513, 301], &[301, 1]);
        let padding = [
            Padding { before: 1, after: 2, between: 0 },
            Padding { before: 0, after: 3, between: 1 },
        ];
        for threads in [1, 2, 8] {
            par::with_threads(threads, || {
                let wide = 2 * columns - 1 + 3;
                let got = filled(&[rows + 3, wide], |out| pad(&padding, x, out));
                for (i, &g) in got.iter().enumerate() {
                    let (r, c) = (i / wide, i % wide);
                    let inside = (1..=rows).contains(&r) && c % 2 == 0 && c < 2 * columns;
                    assert_eq!(g, if inside { v[(r - 1) * columns + c / 2] } else { 0.0 });
                }
                let got = filled(&[rows, 2 * columns], |out| cat(1, &[x, x], out));
                assert!(got.iter().enumerate().all(|(i, &g)| {
                    let (r, c) = (i / (2 * columns), i % (2 * columns));
                    g == v[r * columns + c % columns]
                }));
            });
        }
    }

    /// Many narrow sources interleaved, more rows than a band has: dense, strided, repeated, wider
    /// than one column.
    #[test]
    fn concatenates_columns() {
        let rows = 3001;
        let v = counting(4 * rows);
        let shapes = [[rows, 1], [rows, 2]];
        let sources = [
            source(&v, 0, &shapes[0], &[1, 1]),
            source(&v, 3, &shapes[0], &[4, 1]),
            source(&v, 7, &shapes[0], &[0, 0]),
            source(&v, 1, &shapes[1], &[4, 2]),
            source(&v, 4 * rows - 1, &shapes[0], &[-1, 1]),
        ];
        for threads in [1, 3] {
            let got = par::with_threads(threads, || {
                filled(&[rows, 60], |out| cat(1, &sources.repeat(10), out))
            });
            for (i, row) in got.chunks(6).enumerate() {
                let r = i / 10;
                let last = v[4 * rows - 1 - r];
                assert_eq!(row, [v[r], v[3 + 4 * r], v[7], v[1 + 4 * r], v[3 + 4 * r], last]);
            }
        }
    }

    #[test]
    fn copies_in_shares() {
        let v = counting(100 * 301);
        // Dense, transposed, flipped with few rows, one element, nothing.
        let sources = [
            source(&v, 0, &[100, 301], &[301, 1]),
            source(&v, 0, &[301, 100], &[1, 301]),
            source(&v, 601, &[2, 301], &[-301, -1]),
            source(&v, 7, &[], &[]),
            source(&v, 0, &[0, 5], &[5, 1]),
        ];
        let alone = sources.map(|x| filled(x.shape, |out| pointwise::copy(x, out)));
        for threads in [1, 2, 3, 8] {
            let mut made = sources.map(|x| vec![f32::NAN; x.len()]);
            let sinks: Vec<Sink> = (made.iter_mut().zip(&sources))
                .map(|(v, x)| Sink { ptr: v.as_mut_ptr().cast(), shape: x.shape, dtype: x.dtype })
                .collect();
            let all: Vec<(Source, Sink)> = sources.into_iter().zip(sinks).collect();
            par::with_threads(threads, || copies(&all));
            assert_eq!(made, alone);
        }
    }
}
