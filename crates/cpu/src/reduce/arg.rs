//! Argmax and argmin.

use super::{BLOCK, Fold, GRAIN, Max, Min, RESULTS, Shared, StridedAxes, fold_run, walk};
use crate::elem::{Elem, with_elem};
use crate::operand::{Sink, Source};
use crate::par;
use crate::simd::{Level, level};
use crate::widen::{is_narrow, widened};
use pullback_ir::Extreme;

/// The index along `axis` of the first extreme element, as `i64`; the first NaN, if there is one.
pub(crate) fn arg_reduce(kind: Extreme, axis: usize, x: Source, out: Sink) {
    if out.is_empty() || x.shape[axis] == 0 {
        return;
    }
    if is_narrow(x.dtype) {
        return widened("argmax", x, |x| arg_reduce(kind, axis, x, out));
    }
    with_elem!(compute x.dtype, T => match kind {
        Extreme::Max => arg::<T, Max>(axis, x, out),
        Extreme::Min => arg::<T, Min>(axis, x, out),
    });
}

/// Whether an element replaces the best so far. NaN beats all but NaN.
#[inline(always)]
#[allow(clippy::eq_op)] // unequal to itself: NaN
fn takes<A: Copy + PartialEq, K: Fold<A>>(new: A, best: A) -> bool {
    K::beats(new, best) | ((new != new) & (best == best))
}

fn arg<S: Elem, K: Fold<S::Compute>>(axis: usize, x: Source, out: Sink) {
    let (len, step) = (x.shape[axis], x.strides[axis]);
    let kept: StridedAxes =
        (0..x.shape.len()).filter(|&d| d != axis).map(|d| (x.shape[d], x.strides[d])).collect();
    let kept = walk(&kept);
    let inner = kept.inner();
    let results = Shared(out.ptr.cast::<i64>());
    let first = Shared(x.ptr.cast_mut().cast::<S>());
    let start_of = |result: usize| {
        let first = &first;
        first.0.wrapping_offset(kept.offsets(result)[0]).cast_const()
    };
    let (count, level) = (kept.len(), level());
    if inner.len > 1 && inner.strides[0].unsigned_abs() < step.unsigned_abs() {
        // Blocks of results together, row by row: long ones, so that memory is read in long runs.
        let per_line = inner.len.div_ceil(RESULTS);
        let tasks = count / inner.len * per_line;
        let group = GRAIN.div_ceil(len * RESULTS.min(inner.len));
        par::for_each(tasks.div_ceil(group), |task| {
            let mut best = [S::Compute::default(); RESULTS];
            let results = &results;
            for block in task * group..tasks.min((task + 1) * group) {
                let along = block % per_line * RESULTS;
                let from = block / per_line * inner.len + along;
                let width = RESULTS.min(inner.len - along);
                let start = start_of(from);
                // SAFETY: these rows are inside the source and these results are this task's; this
                // machine supports the level.
                unsafe {
                    let index = results.0.add(from);
                    let best = &mut best[..width];
                    arg_rows::<S, K>(level, start, step, len, inner.strides[0], best, index);
                }
            }
        });
        return;
    }
    let group = GRAIN.div_ceil(len);
    par::for_each(count.div_ceil(group), |task| {
        for i in task * group..count.min((task + 1) * group) {
            let start = start_of(i);
            // SAFETY: inside the source.
            let at = |p: usize| unsafe { (*start.wrapping_offset(p as isize * step)).load() };
            // The extreme block by block, then its position in the first block that contains it.
            let (mut best, mut from) = (at(0), 0);
            for first in (0..len).step_by(BLOCK) {
                let size = BLOCK.min(len - first);
                let start = start.wrapping_offset(first as isize * step);
                // SAFETY: inside the source.
                let value = unsafe { fold_run::<S, K>(level, start, step, size, step == 1) };
                if takes::<S::Compute, K>(value, best) {
                    (best, from) = (value, first);
                }
            }
            #[allow(clippy::eq_op)] // unequal to itself: NaN
            let is_it = |&p: &usize| at(p) == best || (at(p) != at(p) && best != best);
            let found = (from..len).find(is_it);
            let results = &results;
            // SAFETY: this result is this task's.
            unsafe { *results.0.add(i) = found.unwrap_or(0) as i64 };
        }
    });
}

/// The extremes of as many columns as `best` has slots: the rows are `row` apart, and the columns
/// `step`.
#[inline(always)]
unsafe fn rows_body<S: Elem, K: Fold<S::Compute>>(
    x: *const S,
    row: isize,
    rows: usize,
    step: isize,
    best: &mut [S::Compute],
    index: *mut i64,
) {
    let (width, best) = (best.len(), best.as_mut_ptr());
    // SAFETY: the caller has so many rows and columns, and space for as many indices.
    unsafe {
        for j in 0..width {
            *best.add(j) = (*x.offset(j as isize * step)).load();
            *index.add(j) = 0;
        }
        let mut r = 1;
        while r < rows {
            let x = x.wrapping_offset(r as isize * row);
            if step == 1 && rows - r >= 4 {
                // Four rows for each comparison with the best so far.
                for j in 0..width {
                    let (mut top, mut at) = (*best.add(j), *index.add(j));
                    for i in 0..4 {
                        let new = (*x.offset(i * row).add(j)).load();
                        let take = takes::<S::Compute, K>(new, top);
                        top = if take { new } else { top };
                        at = if take { (r as i64) + i as i64 } else { at };
                    }
                    *best.add(j) = top;
                    *index.add(j) = at;
                }
                r += 4;
            } else {
                for j in 0..width {
                    let new = (*x.offset(j as isize * step)).load();
                    let take = takes::<S::Compute, K>(new, *best.add(j));
                    *best.add(j) = if take { new } else { *best.add(j) };
                    *index.add(j) = if take { r as i64 } else { *index.add(j) };
                }
                r += 1;
            }
        }
    }
}

per_level!(arg_rows = rows_body(x: *const S, row: isize, rows: usize, step: isize, best: &mut [S::Compute], index: *mut i64) -> ());
