//! A tile of C in registers, from pairs of bf16 (`vdpbf16ps`).
//!
//! As in [`crate::dot::tile`]: up to 12 rows by 2 vectors, 24 sums. A step is two elements of k: a
//! vector of B has the pair of 16 columns, and the pair of a row of A is spread over a vector.

use half::bf16;
use std::arch::x86_64::*;

/// Rows of a whole tile.
pub(super) const ROWS: usize = 12;
/// Columns of a whole tile.
pub(super) const COLS: usize = 2 * LANES;
/// Columns of a vector.
const LANES: usize = 16;

/// The operands of a tile. Strides are in elements of bf16 or f32.
pub(super) struct PairTile {
    /// Steps of k, in elements of A.
    pub k: usize,
    /// A panel (pairs of `ROWS` rows in each step), or rows in place, whose `k` elements are
    /// adjacent.
    pub a: *const bf16,
    pub a_row: isize,
    /// A panel: the pairs of `COLS` columns in each step.
    pub b: *const u32,
    /// Sums of other steps, which are added if `add`.
    pub partial: *mut f32,
    pub partial_row: usize,
    pub add: bool,
    /// Where the result is rounded to; sums go to `partial` where this is null.
    pub out: *mut bf16,
    pub out_row: usize,
    /// Columns of C, at most `COLS`.
    pub cols: usize,
}

type PairTileFn = unsafe fn(&PairTile);

/// Tiles of 1 to `ROWS` rows and of one or two vectors: `[rows - 1][vectors - 1]`.
pub(super) struct Tiles {
    pub packed: [[PairTileFn; 2]; ROWS],
    pub in_place: [[PairTileFn; 2]; ROWS],
}

macro_rules! tiles {
    ($($m:literal)*) => {
        pub(super) static TILES: Tiles = Tiles {
            packed: [$([tile::<$m, 1, true>, tile::<$m, 2, true>]),*],
            in_place: [$([tile::<$m, 1, false>, tile::<$m, 2, false>]),*],
        };
    };
}
tiles!(1 2 3 4 5 6 7 8 9 10 11 12);

/// # Safety
/// The operands are as [`PairTile`] says, with `M` rows; the processor has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn tile<const M: usize, const W: usize, const PACKED: bool>(t: &PairTile) {
    // SAFETY: all offsets are inside what the caller has.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); W]; M];
        let mut b = t.b.cast::<__m512i>();
        if PACKED {
            let mut a = t.a.cast::<i32>();
            for _ in 0..t.k.div_ceil(2) {
                step(&mut acc, b, |i| a.add(i).read_unaligned());
                a = a.add(ROWS);
                b = b.add(2);
            }
        } else {
            // Every third row has its own pointer, so the rows need few registers.
            let mut bases: [*const bf16; 4] =
                std::array::from_fn(|g| t.a.wrapping_offset(3 * g as isize * t.a_row));
            let row = |bases: &[*const bf16; 4], i: usize| {
                bases[i / 3].wrapping_offset((i % 3) as isize * t.a_row)
            };
            for _ in 0..t.k / 2 {
                step(&mut acc, b, |i| row(&bases, i).cast::<i32>().read_unaligned());
                bases.iter_mut().for_each(|a| *a = a.wrapping_add(2));
                b = b.add(2);
            }
            if t.k % 2 == 1 {
                // The other half of the pair is zero, and not read.
                step(&mut acc, b, |i| i32::from(row(&bases, i).cast::<u16>().read()));
            }
        }
        finish(t, &acc);
    }
}

/// Two elements of k: a vector of B for each sum, and the pair of each row of A. (Inlined wherever
/// it is called, as the sums are in registers; what has target features of its own need not be.)
///
/// # Safety
/// `W` vectors of `b` can be read; the processor has the instructions.
#[inline(always)]
unsafe fn step<const M: usize, const W: usize>(
    acc: &mut [[__m512; W]; M],
    b: *const __m512i,
    pair: impl Fn(usize) -> i32,
) {
    // SAFETY: passed on.
    unsafe {
        let mut bs = [_mm512_setzero_si512(); W];
        for (w, x) in bs.iter_mut().enumerate() {
            *x = b.add(w).read_unaligned();
        }
        for (i, row) in acc.iter_mut().enumerate() {
            let x = bf16s(_mm512_set1_epi32(pair(i)));
            for (sum, &b) in row.iter_mut().zip(&bs) {
                *sum = _mm512_dpbf16_ps(*sum, x, bf16s(b));
            }
        }
    }
}

#[inline(always)]
fn bf16s(x: __m512i) -> __m512bh {
    // SAFETY: both are 512 bits, and all bits are values of both.
    unsafe { std::mem::transmute(x) }
}

/// Rounds the sums into the result, or keeps them.
///
/// # Safety
/// As of [`tile`].
#[inline(always)]
unsafe fn finish<const M: usize, const W: usize>(t: &PairTile, acc: &[[__m512; W]; M]) {
    for (i, row) in acc.iter().enumerate() {
        for (w, &sum) in row.iter().enumerate() {
            let Some(cols) = t.cols.checked_sub(w * LANES) else { break };
            let mask = ((1u32 << cols.min(LANES)) - 1) as u16;
            // SAFETY: the caller has `cols` columns of each row; the mask names no others.
            unsafe {
                let partial = t.partial.wrapping_add(i * t.partial_row + w * LANES);
                let sum = match t.add {
                    true => _mm512_add_ps(_mm512_maskz_loadu_ps(mask, partial), sum),
                    false => sum,
                };
                if t.out.is_null() {
                    _mm512_mask_storeu_ps(partial, mask, sum);
                } else {
                    let rounded: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(sum));
                    let out = t.out.wrapping_add(i * t.out_row + w * LANES);
                    _mm256_mask_storeu_epi16(out.cast(), mask, rounded);
                }
            }
        }
    }
}
