//! Copying operands into panels of pairs.
//!
//! A panel is a strip of columns of B (or of rows of A), laid out step by step: for each two
//! elements of k the pairs of the panel's columns, the first element in the low half. What is
//! missing (a second element after an odd k, columns of the last panel) is zero.

use super::super::Shared;
use super::super::pack::Matrix;
use half::bf16;
use std::arch::x86_64::*;

/// Pairs of a vector.
const LANES: usize = 16;

/// Columns of B, or of Aᵀ, that are packed.
#[derive(Clone, Copy)]
pub(super) struct PairPacking {
    pub b: Matrix<bf16>,
    /// Columns.
    pub count: usize,
    /// Rows.
    pub k: usize,
    /// Columns of a panel: at most 32.
    pub width: usize,
    /// Pairs from the start of a panel to the start of the next.
    pub stride: usize,
    pub dst: Shared<u32>,
}

impl PairPacking {
    /// Columns of a task, as whole panels: a few lines of cache of each row.
    fn broad(&self) -> usize {
        192 / self.width * self.width
    }

    pub(super) fn tasks(&self) -> usize {
        self.count.div_ceil(self.broad())
    }

    /// Packs a few panels.
    pub(super) fn run(&self, task: usize) {
        let first = task * self.broad();
        let count = self.broad().min(self.count - first);
        let b = self.b.at(0, first);
        let dst = Shared(self.dst.at(first / self.width * self.stride));
        let part = PairPacking { b, count, dst, ..*self };
        // SAFETY: the panels lie inside the source and the destination; the processor has these
        // instructions, as its products of pairs need them.
        unsafe {
            if b.col == 1 {
                part.rows();
            } else if b.row == 1 {
                part.columns();
            } else {
                part.strided();
            }
        }
    }

    /// Where a panel begins that has this column, and how many columns it has.
    fn panel(&self, column: usize) -> (*mut u32, usize) {
        let dst = self.dst.at(column / self.width * self.stride);
        (dst, self.width.min(self.count - column))
    }

    /// Adjacent columns: two rows at a time, interleaved.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn rows(&self) {
        let lower = indices(|i| (i / 2 + 32 * (i % 2)) as u16);
        let upper = indices(|i| (16 + i / 2 + 32 * (i % 2)) as u16);
        for p in (0..self.k).step_by(2) {
            let (first, second) = (self.b.at(p, 0).ptr, self.b.at(p + 1, 0).ptr);
            for column in (0..self.count).step_by(self.width) {
                let (dst, cols) = self.panel(column);
                let dst = dst.wrapping_add(p / 2 * self.width).cast::<i32>();
                let mask = words(cols);
                // SAFETY: the masks name columns of the rows and pairs of the panel alone.
                unsafe {
                    let x = _mm512_maskz_loadu_epi16(mask, first.wrapping_add(column).cast());
                    let mask = if p + 1 < self.k { mask } else { 0 };
                    let y = _mm512_maskz_loadu_epi16(mask, second.wrapping_add(column).cast());
                    let low = _mm512_permutex2var_epi16(x, lower, y);
                    _mm512_mask_storeu_epi32(dst, pairs(self.width), low);
                    if self.width > LANES {
                        let high = _mm512_permutex2var_epi16(x, upper, y);
                        let mask = pairs(self.width - LANES);
                        _mm512_mask_storeu_epi32(dst.wrapping_add(LANES), mask, high);
                    }
                }
            }
        }
    }

    /// Adjacent rows: a pair is 32 adjacent bits of a column, so blocks of pairs are transposed.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn columns(&self) {
        for column in (0..self.count).step_by(self.width) {
            let (dst, cols) = self.panel(column);
            for half in (0..self.width).step_by(LANES) {
                let stored = pairs(self.width - half);
                for p in (0..self.k).step_by(2 * LANES) {
                    let mask = words(self.k - p);
                    let mut block = [_mm512_setzero_si512(); LANES];
                    for (j, x) in block.iter_mut().enumerate().take(cols.saturating_sub(half)) {
                        let from = self.b.at(p, column + half + j).ptr;
                        // SAFETY: the mask names elements of the column alone.
                        *x = unsafe { _mm512_maskz_loadu_epi16(mask, from.cast()) };
                    }
                    transpose(&mut block);
                    let steps = (self.k - p).div_ceil(2).min(LANES);
                    for (i, x) in block.iter().enumerate().take(steps) {
                        let to = dst.wrapping_add((p / 2 + i) * self.width + half);
                        // SAFETY: the mask names pairs of this step and panel alone.
                        unsafe { _mm512_mask_storeu_epi32(to.cast(), stored, *x) };
                    }
                }
            }
        }
    }

    /// Columns of any strides.
    unsafe fn strided(&self) {
        for column in (0..self.count).step_by(self.width) {
            let (dst, cols) = self.panel(column);
            for p in (0..self.k).step_by(2) {
                for j in 0..self.width {
                    let at = |p: usize| match p < self.k && j < cols {
                        // SAFETY: inside the matrix.
                        true => unsafe { u32::from((*self.b.at(p, column + j).ptr).to_bits()) },
                        false => 0,
                    };
                    // SAFETY: inside the panel.
                    unsafe { *dst.add(p / 2 * self.width + j) = at(p) | at(p + 1) << 16 };
                }
            }
        }
    }
}

/// The first `n` of 32 words.
fn words(n: usize) -> u32 {
    if n >= 32 { u32::MAX } else { (1 << n) - 1 }
}

/// The first `n` of 16 pairs.
fn pairs(n: usize) -> u16 {
    if n >= LANES { u16::MAX } else { (1 << n) - 1 }
}

#[target_feature(enable = "avx512f")]
fn indices(of: impl Fn(usize) -> u16) -> __m512i {
    let indices: [u16; 32] = std::array::from_fn(of);
    // SAFETY: both are 512 bits, and all bits are values of both.
    unsafe { std::mem::transmute(indices) }
}

/// Rows of 32-bit elements become columns.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(x: &mut [__m512i; LANES]) {
    // Pairs of rows, then pairs of those, in each quarter of a vector: afterwards row 4q + r has
    // in its quarter l the elements of column 4l + r from rows 4q to 4q + 3.
    let mut y = *x;
    for q in 0..4 {
        let [a, b, c, d] = [x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]];
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (ab2, cd2) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        y[4 * q] = _mm512_unpacklo_epi64(ab, cd);
        y[4 * q + 1] = _mm512_unpackhi_epi64(ab, cd);
        y[4 * q + 2] = _mm512_unpacklo_epi64(ab2, cd2);
        y[4 * q + 3] = _mm512_unpackhi_epi64(ab2, cd2);
    }
    // Then quarters: a transpose of four by four of them.
    for r in 0..4 {
        let low = _mm512_shuffle_i32x4::<0x44>(y[r], y[4 + r]);
        let high = _mm512_shuffle_i32x4::<0xee>(y[r], y[4 + r]);
        let low2 = _mm512_shuffle_i32x4::<0x44>(y[8 + r], y[12 + r]);
        let high2 = _mm512_shuffle_i32x4::<0xee>(y[8 + r], y[12 + r]);
        x[r] = _mm512_shuffle_i32x4::<0x88>(low, low2);
        x[4 + r] = _mm512_shuffle_i32x4::<0xdd>(low, low2);
        x[8 + r] = _mm512_shuffle_i32x4::<0x88>(high, high2);
        x[12 + r] = _mm512_shuffle_i32x4::<0xdd>(high, high2);
    }
}
