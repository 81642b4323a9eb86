//! How many multiply-adds this machine does at most: what products are measured by.

use super::tile::{CHAINS, Tile, Tiled};
use crate::par;
use pullback_ir::Stopwatch;

/// Floats of the widest vector of any instruction set.
const WIDEST: usize = 16;
/// Steps of a run: about a millisecond.
const STEPS: usize = 1 << 20;
/// Runs, of which the fastest counts.
const RUNS: usize = 40;

/// Operations a second, in f32, of multiply-adds in registers (each a multiplication and an
/// addition), by as many threads and with the instruction set that kernels use.
///
/// ```
/// assert!(pullback_cpu::multiply_add_rate() > 1e8);
/// ```
pub fn multiply_add_rate() -> f64 {
    let kernels = f32::kernels();
    let chains = |_| {
        // Sums tend to 1: neither large nor denormal numbers.
        let (half, mut sums) = ([0.5f32; WIDEST], [0f32; CHAINS * WIDEST]);
        let (k, a, b, c) = (STEPS, half.as_ptr(), half.as_ptr(), sums.as_mut_ptr());
        let (a_row, a_step, b_step, c_row) = (0, 0, 0, 0);
        let tile = Tile { k, a, a_row, a_step, b, b_step, c, c_row, cols: 0, add: false };
        // SAFETY: there is the widest vector at `a` and `b`, and one for each sum at `c`.
        unsafe { (kernels.chains)(&tile) };
        std::hint::black_box(sums);
    };
    let threads = par::threads();
    let run = |_| {
        let start = Stopwatch::start();
        par::for_each(threads, chains);
        start.elapsed().as_secs_f64()
    };
    let best = (0..RUNS).map(run).fold(f64::INFINITY, f64::min);
    // Tiles are two vectors wide.
    let operations = 2 * CHAINS * (kernels.cols / 2) * STEPS * threads;
    operations as f64 / best
}

/// Copies as kernels do whose results are larger than a cache: stores go past it where the
/// processor can do that.
///
/// # Panics
/// If the lengths differ.
pub fn stream(from: &[u64], to: &mut [u64]) {
    assert_eq!(from.len(), to.len(), "a copy has two sides of one length");
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        let start = to.as_ptr().align_offset(64).min(to.len());
        let lines = (to.len() - start) / 8;
        // What is not a whole line, at both ends.
        let end = start + 8 * lines;
        to[..start].copy_from_slice(&from[..start]);
        to[end..].copy_from_slice(&from[end..]);
        let (from, to) = (from[start..end].as_ptr(), to[start..end].as_mut_ptr());
        for line in 0..lines {
            // SAFETY: SSE2 is part of the target; the line is inside both slices, and aligned.
            unsafe {
                let (from, to) = (from.add(8 * line), to.add(8 * line));
                let line: [__m128i; 4] =
                    std::array::from_fn(|i| _mm_loadu_si128(from.add(2 * i).cast()));
                line.into_iter()
                    .enumerate()
                    .for_each(|(i, v)| _mm_stream_si128(to.add(2 * i).cast(), v));
            }
        }
        // SAFETY: part of the target.
        unsafe { _mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}
