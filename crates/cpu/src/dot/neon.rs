//! Tiles of AArch64: 12 × 2 vectors, which are 24 accumulators, as under AVX-512.

use super::{Kernels, Tile, Vector};
use super::{chains, direct, half, packed};
use std::arch::aarch64::*;

pub(crate) type Base32 = float32x4_t;
pub(crate) type Base64 = float64x2_t;

/// Implements [`Vector`] by naming the intrinsics. There are no masks: parts of a vector go through
/// the stack.
macro_rules! vector {
    ($v:ty, $t:ty, $n:literal, $splat:ident $load:ident $store:ident $fma:ident $add:ident) => {
        // SAFETY: NEON is part of the target.
        unsafe impl Vector for $v {
            type T = $t;
            type Mask = usize;
            const N: usize = $n;
            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: as the trait says.
                unsafe { $splat(0.0) }
            }
            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                // SAFETY: as the trait says.
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self {
                // SAFETY: as the trait says.
                unsafe { $load(p) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $t) {
                // SAFETY: as the trait says.
                unsafe { $store(p, self) }
            }
            #[inline(always)]
            unsafe fn fma(self, a: Self, b: Self) -> Self {
                // SAFETY: as the trait says.
                unsafe { $fma(self, a, b) }
            }
            #[inline(always)]
            unsafe fn add(self, b: Self) -> Self {
                // SAFETY: as the trait says.
                unsafe { $add(self, b) }
            }
            #[inline(always)]
            unsafe fn mask(n: usize) -> usize {
                n.min($n)
            }
            #[inline(always)]
            unsafe fn load_masked(p: *const $t, m: usize) -> Self {
                let mut part = [0.0; $n];
                for (i, x) in part.iter_mut().enumerate().take(m) {
                    // SAFETY: the caller has `m` elements there.
                    *x = unsafe { *p.add(i) };
                }
                // SAFETY: the array is a vector long.
                unsafe { $load(part.as_ptr()) }
            }
            #[inline(always)]
            unsafe fn store_masked(self, p: *mut $t, m: usize) {
                let mut part = [0.0; $n];
                // SAFETY: the array is a vector long.
                unsafe { $store(part.as_mut_ptr(), self) };
                for (i, &x) in part.iter().enumerate().take(m) {
                    // SAFETY: the caller has `m` elements there.
                    unsafe { *p.add(i) = x };
                }
            }
        }
    };
}
vector!(float32x4_t, f32, 4, vdupq_n_f32 vld1q_f32 vst1q_f32 vfmaq_f32 vaddq_f32);
vector!(float64x2_t, f64, 2, vdupq_n_f64 vld1q_f64 vst1q_f64 vfmaq_f64 vaddq_f64);

kernels!(F32_BASE, f32_base, Base32, f32, inline(never),
    rows 12: [1 2 3 4 5 6 7 8 9 10 11 12], direct [1 2 3 4 5 6]);
kernels!(F64_BASE, f64_base, Base64, f64, inline(never),
    rows 12: [1 2 3 4 5 6 7 8 9 10 11 12], direct [1 2 3 4 5 6]);
