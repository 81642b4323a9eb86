//! Moving elements unchanged: materialising a view, writing through one, filling.
//!
//! Only the size of an element matters. Four methods, by the strides of source and destination
//! after collapsing their axes together:
//!
//! - rows that are dense in both are copied whole;
//! - where the destination runs along one axis and the source along another (a transpose), squares
//!   with the side of a cache line are moved through the stack: every line of the source is read
//!   once, whole, and every line of the destination is written once, whole. (Moving an element at a
//!   time would access each line many times, and when the distance between lines is a power of two,
//!   they evict one another in the meantime.)
//! - rows of a few elements are moved by loops over the two innermost axes, as finding the next run
//!   would take longer than to move one;
//! - anything else is copied run by run.

use super::tiles::load_plain;
use crate::elem::{Elem, with_elem};
use crate::operand::{Sink, Source};
use crate::par;
use crate::walk::{CollapsedAxis, Run, Walk};
use pullback_ir::{Scalar, dense_strides};
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// Bytes along the side of the squares that a transpose moves.
const LINE: usize = 64;
/// Bytes that one task moves.
const TASK: usize = 256 << 10;

/// Up to this many bytes are copied directly, without choosing a method.
const SMALL: usize = 4 << 10;

/// `out = x`, dense.
pub(crate) fn copy(x: Source, out: Sink) {
    if x.is_dense() {
        let bytes = x.len() * x.dtype.size();
        if x.ptr == out.ptr {
            return;
        }
        // Loops copy small states in every iteration.
        if bytes <= SMALL {
            // SAFETY: both are dense, have as many bytes, and do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(x.ptr, out.ptr, bytes) };
            return;
        }
    }
    copy_to(x, out.ptr, &dense_strides(x.shape));
}

/// Writes `x` to the elements at `to` with the given strides, which reach no element twice and do
/// not overlap `x`.
pub(crate) fn copy_to(x: Source, to: *mut u8, strides: &[isize]) {
    match x.dtype.size() {
        8 => move_all::<u64>(x, to, strides),
        4 => move_all::<u32>(x, to, strides),
        2 => move_all::<u16>(x, to, strides),
        _ => move_all::<u8>(x, to, strides),
    }
}

/// The same value everywhere.
pub(crate) fn fill(value: Scalar, out: Sink) {
    /// Writes a value over all elements, on several threads when there are many.
    fn all<T: Elem>(value: T, out: Sink) {
        let to = SharedDestination(out.ptr.cast::<T>());
        let n = out.len();
        let each = TASK / size_of::<T>();
        let part = |range: std::ops::Range<usize>| {
            let to = &to;
            for i in range {
                // SAFETY: inside the sink; tasks have disjoint ranges.
                unsafe { to.0.add(i).write(value) };
            }
        };
        if n <= 2 * each {
            return part(0..n);
        }
        par::for_each(n.div_ceil(each), |t| part(t * each..n.min((t + 1) * each)));
    }
    with_elem!(out.dtype, T => all::<T>(T::of(value), out));
}

/// A destination that several threads write disjoint parts of.
struct SharedDestination<T>(*mut T);
// SAFETY: each task writes its own elements.
unsafe impl<T> Sync for SharedDestination<T> {}

/// Moves all elements of one size.
fn move_all<T: Copy + Send + Sync>(x: Source, to: *mut u8, strides: &[isize]) {
    let walk = Walk::new(x.shape, [x.strides, strides]);
    if walk.len() == 0 {
        return;
    }
    let from = SharedSource(x.ptr.cast::<T>());
    let to = SharedDestination(to.cast::<T>());
    let each = TASK / size_of::<T>();
    let inner = walk.inner();
    // Transposes: the destination runs along the innermost axis, the source along another.
    let dense = |d: &usize| walk.axes()[*d].strides[0].abs() == 1 && walk.axes()[*d].len >= 8;
    let across = (1..walk.axes().len()).find(dense);
    let crosses = !matches!(inner.strides[0], 0 | 1) && inner.len >= 8 && walk.len() >= 256;
    if crosses && let Some(across) = across {
        return transpose(&walk, across, &from, &to);
    }
    if inner.len <= SHORT && walk.axes().len() > 1 && walk.axes()[1].len >= 8 {
        return match inner.len {
            2 => short_rows::<T, 2>(&walk, &from, &to),
            3 => short_rows::<T, 3>(&walk, &from, &to),
            4 => short_rows::<T, 4>(&walk, &from, &to),
            _ => short_rows::<T, 0>(&walk, &from, &to),
        };
    }
    let row = inner.len * size_of::<T>();
    if inner.strides == [1, 1] && walk.axes().len() > 1 && (LEAST_ROW..=MOST_ROW).contains(&row) {
        // Threads share planes: a large plane is cut into runs, below.
        let plane = inner.len * walk.axes()[1].len;
        if walk.len() <= 2 * each || plane <= each {
            return dense_rows(&walk, &from, &to);
        }
    }
    let part = |range| {
        let (from, to) = (&from, &to);
        // SAFETY: the walk stays inside both; tasks have disjoint ranges, and the destination
        // reaches no element twice.
        walk.for_range(range, |run| unsafe { move_run(run, from.0, to.0) });
    };
    if walk.len() <= 2 * each {
        return part(0..walk.len());
    }
    par::for_each(walk.len().div_ceil(each), |t| part(t * each..walk.len().min((t + 1) * each)));
}

/// A source that several threads read.
struct SharedSource<T>(*const T);
// SAFETY: it is only read.
unsafe impl<T> Sync for SharedSource<T> {}

/// Moves one run.
///
/// # Safety
/// The run lies inside both operands.
#[inline]
unsafe fn move_run<T: Copy>(run: Run<2>, from: *const T, to: *mut T) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (from, to) = (from.offset(run.offsets[0]), to.offset(run.offsets[1]));
        if run.strides[1] == 1 {
            return load_plain(from.cast(), run.strides[0], run.len, to);
        }
        for i in 0..run.len as isize {
            to.offset(i * run.strides[1]).write(from.offset(i * run.strides[0]).read());
        }
    }
}

/// Bytes of the rows that are copied by [`dense_rows`]: for longer ones a call does not matter.
const LEAST_ROW: usize = 32;
const MOST_ROW: usize = 512;

/// Moves rows that are dense in both operands, by loops over the two innermost axes, without a call
/// for each.
fn dense_rows<T: Copy + Send + Sync>(
    walk: &Walk<2>,
    from: &SharedSource<T>,
    to: &SharedDestination<T>,
) {
    /// What is moved at a time. The last part of a row may overlap the one before.
    type CopyChunk = [u8; 32];
    const PART: usize = size_of::<CopyChunk>();
    let (inner, next) = (walk.axes()[0], walk.axes()[1]);
    let planes = others(walk, 1);
    let bytes = inner.len * size_of::<T>();
    let task = |plane: usize| {
        let offsets = planes.offsets(plane);
        for j in 0..next.len as isize {
            let at = |k: usize| offsets[k] + j * next.strides[k];
            // SAFETY: rows of this plane lie inside both operands, which do not overlap, and are
            // this task's alone. They have at least one part.
            unsafe {
                let from = from.0.offset(at(0)).cast::<u8>();
                let to = to.0.offset(at(1)).cast::<u8>();
                let part = |at: usize| {
                    let part = from.add(at).cast::<MaybeUninit<CopyChunk>>().read_unaligned();
                    to.add(at).cast::<MaybeUninit<CopyChunk>>().write_unaligned(part);
                };
                let mut done = 0;
                while done + PART <= bytes {
                    part(done);
                    done += PART;
                }
                if done < bytes {
                    part(bytes - PART);
                }
            }
        }
    };
    if walk.len() * size_of::<T>() <= 2 * TASK {
        return (0..planes.len()).for_each(task);
    }
    let each = (TASK / (bytes * next.len)).max(1);
    let tasks = planes.len();
    par::for_each(tasks.div_ceil(each), |t| (t * each..tasks.min((t + 1) * each)).for_each(task));
}

/// Most elements of a short row.
pub(super) const SHORT: usize = 8;

/// Moves rows of `N` elements, or of any number if that is 0.
fn short_rows<T: Copy + Send + Sync, const N: usize>(
    walk: &Walk<2>,
    from: &SharedSource<T>,
    to: &SharedDestination<T>,
) {
    let (inner, next) = (walk.axes()[0], walk.axes()[1]);
    let planes = others(walk, 1);
    let width = (TASK / size_of::<T>() / inner.len).max(1);
    let bands = next.len.div_ceil(width);
    let task = |index: usize| {
        let offsets = planes.offsets(index / bands);
        let first = index % bands * width;
        let row = if N > 0 { N } else { inner.len };
        let at = |k: usize| offsets[k] + first as isize * next.strides[k];
        // SAFETY: rows of this plane lie inside both operands, and are this task's alone.
        unsafe {
            let (from, to) = (from.0.offset(at(0)), to.0.offset(at(1)));
            for j in 0..width.min(next.len - first) as isize {
                let from = from.offset(j * next.strides[0]);
                let to = to.offset(j * next.strides[1]);
                for i in 0..row as isize {
                    to.offset(i * inner.strides[1]).write(from.offset(i * inner.strides[0]).read());
                }
            }
        }
    };
    let tasks = planes.len() * bands;
    if walk.len() * size_of::<T>() <= 2 * TASK {
        return (0..tasks).for_each(task);
    }
    let each = (TASK / size_of::<T>() / (inner.len * next.len)).max(1);
    par::for_each(tasks.div_ceil(each), |t| (t * each..tasks.min((t + 1) * each)).for_each(task));
}

/// A walk over all axes but the innermost and another one.
fn others(walk: &Walk<2>, but: usize) -> Walk<2> {
    let kept = walk.axes().iter().enumerate().filter(|&(d, _)| d != 0 && d != but);
    let others: SmallVec<[&CollapsedAxis<2>; 4]> = kept.map(|(_, a)| a).rev().collect();
    let shape: SmallVec<[usize; 4]> = others.iter().map(|a| a.len).collect();
    let strides: [SmallVec<[isize; 4]>; 2] =
        [0, 1].map(|k| others.iter().map(|a| a.strides[k]).collect());
    Walk::new(&shape, [&strides[0], &strides[1]])
}

/// Moves squares of the plane spanned by the innermost axis and the axis `across`.
fn transpose<T: Copy + Send + Sync>(
    walk: &Walk<2>,
    across: usize,
    from: &SharedSource<T>,
    to: &SharedDestination<T>,
) {
    let (inner, mut across_axis) = (walk.axes()[0], walk.axes()[across]);
    // The other axes, traversed one plane at a time.
    let planes = others(walk, across);
    // A source that runs backwards is read from its other end.
    let mut starts = [0; 2];
    if across_axis.strides[0] < 0 {
        for (start, stride) in starts.iter_mut().zip(&mut across_axis.strides) {
            *start = (across_axis.len as isize - 1) * *stride;
            *stride = -*stride;
        }
    }
    let side = const { LINE / size_of::<T>() };
    // A band is a few lines wide, so that neighbouring lines of the source are read one after the
    // other.
    let width = 4 * side;
    let bands = across_axis.len.div_ceil(width);
    let steps = (inner.strides[0], inner.strides[1], across_axis.strides[1]);
    let task = |index: usize| {
        let offsets = planes.offsets(index / bands);
        let j0 = index % bands * width;
        for i0 in (0..inner.len).step_by(side) {
            let columns = side.min(inner.len - i0);
            for j in (j0..across_axis.len.min(j0 + width)).step_by(side) {
                let rows = side.min(across_axis.len - j);
                let at = |k: usize| {
                    offsets[k]
                        + starts[k]
                        + i0 as isize * inner.strides[k]
                        + j as isize * across_axis.strides[k]
                };
                // SAFETY: the square lies inside both operands, and is this task's alone.
                unsafe {
                    let (from, to) = (from.0.offset(at(0)), to.0.offset(at(1)));
                    // The usual square has lengths that the compiler knows.
                    let whole = (rows, columns) == (side, side) && steps.1 == 1;
                    match side {
                        64 if whole => whole_square::<T, 64>(from, to, steps),
                        32 if whole => whole_square::<T, 32>(from, to, steps),
                        16 if whole => whole_square::<T, 16>(from, to, steps),
                        8 if whole => whole_square::<T, 8>(from, to, steps),
                        _ => square(from, to, rows, columns, steps),
                    }
                }
            }
        }
    };
    let tasks = planes.len() * bands;
    if walk.len() * size_of::<T>() <= 2 * TASK {
        return (0..tasks).for_each(task);
    }
    // Several bands at a time, so that a task is worth scheduling.
    let each = (TASK / (4 * LINE * inner.len)).max(1);
    par::for_each(tasks.div_ceil(each), |t| (t * each..tasks.min((t + 1) * each)).for_each(task));
}

/// Moves one square of side `S` to a destination that is dense along the columns.
///
/// # Safety
/// As for [`square`].
#[inline(never)]
unsafe fn whole_square<T: Copy, const S: usize>(
    from: *const T,
    to: *mut T,
    steps: (isize, isize, isize),
) {
    let mut held = [[MaybeUninit::<T>::uninit(); S]; S];
    // SAFETY: guaranteed by the caller; `held` is filled before it is read.
    unsafe {
        #[allow(clippy::needless_range_loop)] // it indexes columns
        for i in 0..S {
            let row = from.offset(i as isize * steps.0).cast::<[T; S]>().read_unaligned();
            for j in 0..S {
                held[j][i].write(row[j]);
            }
        }
        for (j, row) in held.iter().enumerate() {
            std::ptr::copy_nonoverlapping(
                row.as_ptr().cast::<T>(),
                to.offset(j as isize * steps.2),
                S,
            );
        }
    }
}

/// Moves one square: `rows` along the axis on which the source is dense, `columns` along the
/// innermost axis of the destination. `steps` are the source's and the destination's strides along
/// the columns, and the destination's along the rows.
///
/// # Safety
/// All of it lies inside both operands, and neither side is longer than a line.
#[inline(always)]
unsafe fn square<T: Copy>(
    from: *const T,
    to: *mut T,
    rows: usize,
    columns: usize,
    steps: (isize, isize, isize),
) {
    // Space for a square of any element size.
    let mut held = [MaybeUninit::<T>::uninit(); LINE * LINE];
    // SAFETY: guaranteed by the caller; what is read from `held` was written before.
    unsafe {
        for i in 0..columns {
            let from = from.offset(i as isize * steps.0);
            for j in 0..rows {
                held[j * columns + i].write(from.add(j).read());
            }
        }
        for j in 0..rows {
            let to = to.offset(j as isize * steps.2);
            for i in 0..columns {
                to.offset(i as isize * steps.1).write(held[j * columns + i].assume_init());
            }
        }
    }
}
