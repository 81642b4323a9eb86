//! Copies between operands and blocks of lanes.

use super::passes::{BLOCK, W};
use super::shuffle::LaneShuffle;
use crate::simd::{Float, Isa, SimdTask};

/// Bytes between rows from which they are prefetched.
const FAR: usize = 2048;
/// By how many rows.
const AHEAD: isize = 8;

/// Asks for the cache line at an address, which need not exist.
#[inline(always)]
fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is no access.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Up to [`W`] lines beside each other in an operand: `rows` pairs each.
#[derive(Clone, Copy)]
pub(super) struct Lanes<T> {
    pub(super) ptr: *mut T,
    /// Where each line starts, in elements.
    pub(super) starts: [isize; W],
    /// Lines that exist.
    pub(super) count: usize,
    pub(super) rows: usize,
    /// Elements from a pair to the next of the line.
    pub(super) step: isize,
    /// Elements from the first of a pair to the second; `None` if there are only first ones.
    pub(super) pair: Option<isize>,
    /// What the second ones are multiplied by.
    pub(super) sign: T,
}

impl<T> Lanes<T> {
    /// Distance of neighbouring lines, if they are all there and equally far apart.
    fn distance(&self) -> Option<isize> {
        let d = self.starts[1] - self.starts[0];
        let mut even = self.count == W;
        for l in 1..W {
            even &= self.starts[l] - self.starts[l - 1] == d;
        }
        even.then_some(d)
    }
}

/// Reads lines into blocks, `row` elements apart. Lanes without a line are zero.
pub(super) struct Gather<T>(pub(super) Lanes<T>, pub(super) *mut T, pub(super) usize);

impl<T: LaneShuffle> SimdTask for Gather<T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Gather(lanes, to, row) = self;
        let start = lanes.ptr.wrapping_offset(lanes.starts[0]).cast_const();
        let distance = lanes.distance();
        // Rows on pages of their own: the hardware does not foresee them.
        let far = lanes.step.unsigned_abs() * size_of::<T>() >= FAR;
        for j in 0..lanes.rows {
            let along = j as isize * lanes.step;
            let at = start.wrapping_offset(along);
            if far {
                prefetch(at.wrapping_offset(AHEAD * lanes.step));
            }
            // SAFETY: inside the operand and the space of the caller, which do not overlap.
            unsafe {
                let block = &mut *to.add(j * row).cast::<[T; BLOCK]>();
                match (distance, lanes.pair) {
                    (Some(2), Some(1)) => {
                        T::deinterleave::<I>(&*at.cast(), block);
                        flip(block, lanes.sign);
                    }
                    (Some(1), Some(pair)) => {
                        copy(&*at.cast(), &*at.offset(pair).cast(), block, lanes.sign);
                    }
                    _ => {
                        *block = [T::default(); BLOCK];
                        for l in 0..lanes.count {
                            let at = lanes.ptr.offset(lanes.starts[l] + along);
                            block[l] = *at;
                            if let Some(pair) = lanes.pair {
                                block[W + l] = lanes.sign * *at.offset(pair);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Writes blocks, `row` elements apart, to lines.
pub(super) struct Scatter<T>(pub(super) Lanes<T>, pub(super) *const T, pub(super) usize);

impl<T: LaneShuffle> SimdTask for Scatter<T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Scatter(lanes, from, row) = self;
        let start = lanes.ptr.wrapping_offset(lanes.starts[0]);
        let distance = lanes.distance();
        for j in 0..lanes.rows {
            let along = j as isize * lanes.step;
            let at = start.wrapping_offset(along);
            // SAFETY: inside the sink, whose lines belong to the caller, and the caller's blocks.
            unsafe {
                let block = &*from.add(j * row).cast::<[T; BLOCK]>();
                match (distance, lanes.pair) {
                    (Some(2), Some(1)) => {
                        let mut block = *block;
                        flip(&mut block, lanes.sign);
                        let (re, im) = (block.as_ptr().cast(), block.as_ptr().add(W).cast());
                        T::interleave::<I>(&*re, &*im, &mut *at.cast());
                    }
                    _ => {
                        for l in 0..lanes.count {
                            let at = lanes.ptr.offset(lanes.starts[l] + along);
                            *at = block[l];
                            if let Some(pair) = lanes.pair {
                                *at.offset(pair) = lanes.sign * block[W + l];
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Multiplies the imaginary parts by a sign.
#[inline(always)]
fn flip<T: Float>(block: &mut [T; BLOCK], sign: T) {
    for x in &mut block[W..] {
        *x = sign * *x;
    }
}

/// Real and imaginary parts to a block.
#[inline(always)]
fn copy<T: Float>(re: &[T; W], im: &[T; W], y: &mut [T; BLOCK], sign: T) {
    for q in 0..W {
        (y[q], y[W + q]) = (re[q], sign * im[q]);
    }
}
