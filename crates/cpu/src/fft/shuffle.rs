//! What moves elements between lanes: pairs to blocks and back, and transpositions.
//!
//! These are the only loops that are not left to the vectoriser, which makes twice as many shuffles
//! of them.

use super::passes::{BLOCK, W};
use crate::simd::{Float, Isa};

/// Moves of elements between lanes.
pub(super) trait LaneShuffle: Float {
    /// The first and then the second parts of pairs.
    fn deinterleave<I: Isa>(pairs: &[Self; BLOCK], block: &mut [Self; BLOCK]);
    /// Pairs from first and second parts.
    fn interleave<I: Isa>(re: &[Self; W], im: &[Self; W], pairs: &mut [Self; BLOCK]);
    /// Transposes a square of `W` rows, which are `BLOCK` elements apart on both sides.
    ///
    /// # Safety
    /// There are such squares, which do not overlap.
    unsafe fn transpose<I: Isa>(x: *const Self, y: *mut Self);
}

/// Whether the processor has 256-bit vectors: so it is at every level above the baseline.
#[cfg(target_arch = "x86_64")]
const fn wide<I: Isa>() -> bool {
    I::FMA
}

macro_rules! shuffle {
    ($t:ident) => {
        impl LaneShuffle for $t {
            #[inline(always)]
            fn deinterleave<I: Isa>(pairs: &[$t; BLOCK], block: &mut [$t; BLOCK]) {
                #[cfg(target_arch = "x86_64")]
                if wide::<I>() {
                    // SAFETY: the processor has AVX.
                    return unsafe { $t::deinterleave(pairs, block) };
                }
                for q in 0..W {
                    (block[q], block[W + q]) = (pairs[2 * q], pairs[2 * q + 1]);
                }
            }

            #[inline(always)]
            fn interleave<I: Isa>(re: &[$t; W], im: &[$t; W], pairs: &mut [$t; BLOCK]) {
                #[cfg(target_arch = "x86_64")]
                if wide::<I>() {
                    // SAFETY: the processor has AVX.
                    return unsafe { $t::interleave(re, im, pairs) };
                }
                for q in 0..W {
                    (pairs[2 * q], pairs[2 * q + 1]) = (re[q], im[q]);
                }
            }

            #[inline(always)]
            unsafe fn transpose<I: Isa>(x: *const $t, y: *mut $t) {
                #[cfg(target_arch = "x86_64")]
                if wide::<I>() {
                    // SAFETY: guaranteed by the caller; the processor has AVX.
                    return unsafe { $t::transpose(x, y) };
                }
                for i in 0..W {
                    for j in 0..W {
                        // SAFETY: guaranteed by the caller.
                        unsafe { *y.add(j * BLOCK + i) = *x.add(i * BLOCK + j) };
                    }
                }
            }
        }
    };
}

shuffle!(f32);
shuffle!(f64);

#[cfg(target_arch = "x86_64")]
mod f32 {
    use super::{BLOCK, W};
    use std::arch::x86_64::*;

    /// Four elements at `a` and four at `b`.
    #[target_feature(enable = "avx")]
    #[inline]
    unsafe fn halves(a: *const f32, b: *const f32) -> __m256 {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a)), _mm_loadu_ps(b), 1) }
    }

    #[target_feature(enable = "avx")]
    #[inline]
    pub(super) fn deinterleave(pairs: &[f32; BLOCK], block: &mut [f32; BLOCK]) {
        let (x, y) = (pairs.as_ptr(), block.as_mut_ptr());
        // SAFETY: inside the arrays.
        unsafe {
            let (a, b) = (halves(x, x.add(8)), halves(x.add(4), x.add(12)));
            _mm256_storeu_ps(y, _mm256_shuffle_ps(a, b, 0x88));
            _mm256_storeu_ps(y.add(W), _mm256_shuffle_ps(a, b, 0xdd));
        }
    }

    #[target_feature(enable = "avx")]
    #[inline]
    pub(super) fn interleave(re: &[f32; W], im: &[f32; W], pairs: &mut [f32; BLOCK]) {
        let to = pairs.as_mut_ptr();
        // SAFETY: inside the arrays.
        unsafe {
            let (a, b) = (_mm256_loadu_ps(re.as_ptr()), _mm256_loadu_ps(im.as_ptr()));
            let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            _mm256_storeu_ps(to, _mm256_permute2f128_ps(low, high, 0x20));
            _mm256_storeu_ps(to.add(8), _mm256_permute2f128_ps(low, high, 0x31));
        }
    }

    /// # Safety
    /// As for the function of `LaneShuffle`.
    #[target_feature(enable = "avx")]
    #[inline]
    pub(super) unsafe fn transpose(x: *const f32, y: *mut f32) {
        for half in 0..2 {
            // Four columns of all rows: four rows of the result.
            // SAFETY: guaranteed by the caller.
            unsafe {
                let row = |i: usize| {
                    let at = x.add(i * BLOCK + 4 * half);
                    halves(at, at.add(4 * BLOCK))
                };
                let (a, b, c, d) = (row(0), row(1), row(2), row(3));
                let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
                let (ef, gh) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
                let y = y.add(4 * half * BLOCK);
                _mm256_storeu_ps(y, _mm256_shuffle_ps(ab, cd, 0x44));
                _mm256_storeu_ps(y.add(BLOCK), _mm256_shuffle_ps(ab, cd, 0xee));
                _mm256_storeu_ps(y.add(2 * BLOCK), _mm256_shuffle_ps(ef, gh, 0x44));
                _mm256_storeu_ps(y.add(3 * BLOCK), _mm256_shuffle_ps(ef, gh, 0xee));
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod f64 {
    use super::{BLOCK, W};
    use std::arch::x86_64::*;

    /// Two elements at `a` and two at `b`.
    #[target_feature(enable = "avx")]
    #[inline]
    unsafe fn halves(a: *const f64, b: *const f64) -> __m256d {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(a)), _mm_loadu_pd(b), 1) }
    }

    #[target_feature(enable = "avx")]
    #[inline]
    pub(super) fn deinterleave(pairs: &[f64; BLOCK], block: &mut [f64; BLOCK]) {
        for half in 0..2 {
            // SAFETY: inside the arrays.
            unsafe {
                let (x, y) = (pairs.as_ptr().add(8 * half), block.as_mut_ptr().add(4 * half));
                let (a, b) = (halves(x, x.add(4)), halves(x.add(2), x.add(6)));
                _mm256_storeu_pd(y, _mm256_unpacklo_pd(a, b));
                _mm256_storeu_pd(y.add(W), _mm256_unpackhi_pd(a, b));
            }
        }
    }

    #[target_feature(enable = "avx")]
    #[inline]
    pub(super) fn interleave(re: &[f64; W], im: &[f64; W], pairs: &mut [f64; BLOCK]) {
        for half in 0..2 {
            // SAFETY: inside the arrays.
            unsafe {
                let to = pairs.as_mut_ptr().add(8 * half);
                let a = _mm256_loadu_pd(re.as_ptr().add(4 * half));
                let b = _mm256_loadu_pd(im.as_ptr().add(4 * half));
                let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
                // Halves are stored apart: whole ones would be made by slower shuffles.
                _mm_storeu_pd(to, _mm256_castpd256_pd128(low));
                _mm_storeu_pd(to.add(2), _mm256_castpd256_pd128(high));
                _mm_storeu_pd(to.add(4), _mm256_extractf128_pd(low, 1));
                _mm_storeu_pd(to.add(6), _mm256_extractf128_pd(high, 1));
            }
        }
    }

    /// # Safety
    /// As for the function of `LaneShuffle`.
    #[target_feature(enable = "avx")]
    #[inline]
    pub(super) unsafe fn transpose(x: *const f64, y: *mut f64) {
        for part in 0..8 {
            // Two columns of four rows: half of two rows of the result.
            let (i, j) = (4 * (part % 2), 2 * (part / 2));
            // SAFETY: guaranteed by the caller.
            unsafe {
                let at = x.add(i * BLOCK + j);
                let a = halves(at, at.add(2 * BLOCK));
                let b = halves(at.add(BLOCK), at.add(3 * BLOCK));
                let y = y.add(j * BLOCK + i);
                _mm256_storeu_pd(y, _mm256_unpacklo_pd(a, b));
                _mm256_storeu_pd(y.add(BLOCK), _mm256_unpackhi_pd(a, b));
            }
        }
    }
}
