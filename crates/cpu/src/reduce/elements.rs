//! The elements of a reduction's operand, folded in their compute type.
//!
//! The loops are compiled for the compute types. Elements of a narrow type are widened first, a
//! block or a few rows at a time, so that they stay in L1; they are then folded in the order in
//! which a loop over the narrow type would fold them, so the bits do not depend on how.

use super::{Fold, fold_lines, fold_rows, fold_run};
use crate::elem::{Compute, Elem, with_elem};
use crate::operand::Source;
use crate::simd::{Isa, Level, SimdTask, vectorised};

/// Rows that the loop over columns folds at the same time.
pub(super) const TOGETHER: usize = 8;

/// Elements of the lines of floats that are folded in one call; longer ones take one each.
const SHORT: usize = 1024;

/// Writes so many elements, a stride apart, in the compute type `A`.
type Widen<A> = unsafe fn(*const u8, isize, usize, *mut A);

/// The elements of an operand whose compute type is `A`.
#[derive(Clone, Copy)]
pub(super) struct Elements<A> {
    ptr: *const u8,
    /// Bytes of an element.
    size: isize,
    /// `None` if the elements are of type `A`.
    widen: Option<Widen<A>>,
}

// SAFETY: only read through, inside a kernel call.
unsafe impl<A> Send for Elements<A> {}
// SAFETY: as above.
unsafe impl<A> Sync for Elements<A> {}

impl<A: Compute> Elements<A> {
    pub(super) fn of(x: &Source) -> Elements<A> {
        debug_assert_eq!(x.dtype.compute(), A::DTYPE);
        let widen =
            (x.dtype != A::DTYPE).then(|| with_elem!(x.dtype, S => widen::<S, A> as Widen<A>));
        Elements { ptr: x.ptr, size: x.dtype.size() as isize, widen }
    }

    /// Space for so many widened elements; none where nothing is widened.
    pub(super) fn space(&self, len: usize) -> Vec<A> {
        vec![A::default(); if self.widen.is_some() { len } else { 0 }]
    }

    #[inline(always)]
    fn at(&self, offset: isize) -> *const u8 {
        self.ptr.wrapping_offset(offset * self.size)
    }

    /// Folds `len` elements, `stride` apart. `wide` has space for them.
    ///
    /// # Safety
    /// They are inside the operand; this machine supports the level.
    #[inline(always)]
    pub(super) unsafe fn fold<K: Fold<A>>(
        &self,
        level: Level,
        offset: isize,
        stride: isize,
        len: usize,
        wide: &mut [A],
    ) -> A {
        let x = self.at(offset);
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.widen {
                None => fold_run::<A, K>(level, x.cast(), stride, len, stride == 1),
                Some(widen) => {
                    widen(x, stride, len, wide[..len].as_mut_ptr());
                    fold_run::<A, K>(level, wide.as_ptr(), 1, len, stride == 1)
                }
            }
        }
    }

    /// Folds each of some lines of `len` elements: `steps[0]` apart, their elements `steps[1]`.
    /// `wide` has space for one.
    ///
    /// # Safety
    /// They are inside the operand; this machine supports the level.
    pub(super) unsafe fn fold_lines<K: Fold<A>>(
        &self,
        level: Level,
        offset: isize,
        steps: [isize; 2],
        len: usize,
        found: &mut [A],
        wide: &mut [A],
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if const { A::DTYPE.is_float() } && self.widen.is_none() && len <= SHORT {
                return fold_lines::<A, K>(level, self.at(offset).cast(), steps, len, found);
            }
            for (i, found) in found.iter_mut().enumerate() {
                *found = self.fold::<K>(level, offset + i as isize * steps[0], steps[1], len, wide);
            }
        }
    }

    /// Folds `rows` rows, `row` apart, into `sums`; the elements of a row are `step` apart. `wide`
    /// has space for [`TOGETHER`] rows.
    ///
    /// # Safety
    /// They are inside the operand; this machine supports the level.
    #[allow(clippy::too_many_arguments)]
    pub(super) unsafe fn fold_rows<K: Fold<A>>(
        &self,
        level: Level,
        offset: isize,
        row: isize,
        rows: usize,
        step: isize,
        sums: &mut [A],
        wide: &mut [A],
    ) {
        let width = sums.len();
        // SAFETY: guaranteed by the caller.
        unsafe {
            let Some(widen) = self.widen else {
                return fold_rows::<A, K>(level, self.at(offset).cast(), row, rows, step, sums);
            };
            // As many rows as the loop takes at the same time.
            let group = if step == 1 { TOGETHER } else { 1 };
            for first in (0..rows).step_by(group) {
                let count = group.min(rows - first);
                for (i, to) in wide.chunks_exact_mut(width).take(count).enumerate() {
                    let from = self.at(offset + (first + i) as isize * row);
                    widen(from, step, width, to.as_mut_ptr());
                }
                fold_rows::<A, K>(level, wide.as_ptr(), width as isize, count, 1, sums);
            }
        }
    }
}

/// # Safety
/// There are `len` elements of type `S` at `x`, `stride` apart, and space for them; `A` is the
/// compute type of `S`.
unsafe fn widen<S: Elem, A: Compute>(x: *const u8, stride: isize, len: usize, to: *mut A) {
    // Decided at compile time.
    assert!(S::Compute::DTYPE == A::DTYPE);
    vectorised(Widened::<S> { x: x.cast(), stride, len, to: to.cast() });
}

struct Widened<S: Elem> {
    x: *const S,
    stride: isize,
    len: usize,
    to: *mut S::Compute,
}

impl<S: Elem> SimdTask for Widened<S> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        // SAFETY: `widen` was promised so many elements and so much space.
        unsafe {
            if self.stride == 1 {
                for i in 0..self.len {
                    *self.to.add(i) = (*self.x.add(i)).load();
                }
            } else {
                for i in 0..self.len {
                    *self.to.add(i) = (*self.x.offset(i as isize * self.stride)).load();
                }
            }
        }
    }
}
