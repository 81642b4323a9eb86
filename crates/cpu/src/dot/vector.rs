//! A matrix times a vector. Each element of the matrix is used once, so these are memory-bound:
//! what matters is to read the matrix in memory order.

use super::pack::Matrix;
use super::tile::Tiled;
use super::{GRAIN, Shared, even, scratch};
use crate::par;
use crate::simd::{self, Baseline, by_level, level};

/// Rows that are scaled and added in one pass over the sums.
const TOGETHER: usize = 8;
/// Sums kept in L1 while rows are added to them.
const STRIPE: usize = 512;
/// Independent partial sums of a dot product: four registers of the widest vectors.
const LANES: usize = 64;

/// Element types with vector kernels.
pub(super) trait DotElem: Copy + Default + Send + Sync + 'static {
    /// # Safety
    /// `x` and `y` have `len` elements.
    unsafe fn dot(len: usize, x: *const Self, y: *const Self) -> Self;
    /// Adds `scales[i] · row_i` to the sums.
    ///
    /// # Safety
    /// Each of the rows, `stride` apart, and the sums have `len` elements.
    unsafe fn add_scaled(
        len: usize,
        scales: &[Self],
        rows: *const Self,
        stride: isize,
        sums: *mut Self,
    );
    fn mul_add(self, a: Self, b: Self) -> Self;
}

macro_rules! float {
    ($t:ty, $dot:ident, $add_scaled:ident) => {
        impl DotElem for $t {
            #[inline]
            unsafe fn dot(len: usize, x: *const $t, y: *const $t) -> $t {
                // SAFETY: passed on; the level is one that this machine has.
                unsafe {
                    by_level!(
                        level(),
                        avx512: $dot::avx512(len, x, y),
                        avx2: $dot::avx2(len, x, y),
                        baseline: $dot::body(len, x, y, <$t as simd::Float>::fma::<Baseline>),
                    )
                }
            }

            #[inline]
            unsafe fn add_scaled(
                len: usize,
                scales: &[$t],
                rows: *const $t,
                stride: isize,
                sums: *mut $t,
            ) {
                // SAFETY: passed on; the level is one that this machine has.
                unsafe {
                    by_level!(
                        level(),
                        avx512: $add_scaled::avx512(len, scales, rows, stride, sums),
                        avx2: $add_scaled::avx2(len, scales, rows, stride, sums),
                        baseline: {
                            let fma = <$t as simd::Float>::fma::<Baseline>;
                            $add_scaled::body(len, scales, rows, stride, sums, fma)
                        },
                    )
                }
            }

            #[inline(always)]
            fn mul_add(self, a: $t, b: $t) -> $t {
                self * a + b
            }
        }

        mod $dot {
            use super::LANES;

            #[inline(always)]
            pub(super) unsafe fn body(
                len: usize,
                x: *const $t,
                y: *const $t,
                fma: impl Fn($t, $t, $t) -> $t,
            ) -> $t {
                let mut sums = [0.0; LANES];
                let mut i = 0;
                while i + LANES <= len {
                    for (l, sum) in sums.iter_mut().enumerate() {
                        // SAFETY: below `len`.
                        *sum = unsafe { fma(*x.add(i + l), *y.add(i + l), *sum) };
                    }
                    i += LANES;
                }
                for (l, sum) in sums.iter_mut().enumerate().take(len - i) {
                    // SAFETY: below `len`.
                    *sum = unsafe { fma(*x.add(i + l), *y.add(i + l), *sum) };
                }
                let mut width = LANES;
                while width > 1 {
                    width /= 2;
                    for l in 0..width {
                        sums[l] += sums[l + width];
                    }
                }
                sums[0]
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f")]
            pub(super) unsafe fn avx512(len: usize, x: *const $t, y: *const $t) -> $t {
                // SAFETY: passed on.
                unsafe { body(len, x, y, |a, b, c| a.mul_add(b, c)) }
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            pub(super) unsafe fn avx2(len: usize, x: *const $t, y: *const $t) -> $t {
                // SAFETY: passed on.
                unsafe { body(len, x, y, |a, b, c| a.mul_add(b, c)) }
            }
        }

        mod $add_scaled {
            use super::TOGETHER;

            #[inline(always)]
            pub(super) unsafe fn body(
                len: usize,
                scales: &[$t],
                rows: *const $t,
                stride: isize,
                sums: *mut $t,
                fma: impl Fn($t, $t, $t) -> $t + Copy,
            ) {
                if let Ok(s) = <&[$t; TOGETHER]>::try_from(scales) {
                    for j in 0..len {
                        // SAFETY: below `len` in each row and in the sums.
                        unsafe {
                            let mut sum = *sums.add(j);
                            for (i, &s) in s.iter().enumerate() {
                                sum = fma(s, *rows.offset(i as isize * stride + j as isize), sum);
                            }
                            *sums.add(j) = sum;
                        }
                    }
                } else {
                    for (i, &s) in scales.iter().enumerate() {
                        for j in 0..len {
                            // SAFETY: below `len` in the row and in the sums.
                            unsafe {
                                let x = *rows.offset(i as isize * stride + j as isize);
                                *sums.add(j) = fma(s, x, *sums.add(j));
                            }
                        }
                    }
                }
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f")]
            pub(super) unsafe fn avx512(
                len: usize,
                scales: &[$t],
                rows: *const $t,
                stride: isize,
                sums: *mut $t,
            ) {
                // SAFETY: passed on.
                unsafe { body(len, scales, rows, stride, sums, |a, b, c| a.mul_add(b, c)) }
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            pub(super) unsafe fn avx2(
                len: usize,
                scales: &[$t],
                rows: *const $t,
                stride: isize,
                sums: *mut $t,
            ) {
                // SAFETY: passed on.
                unsafe { body(len, scales, rows, stride, sums, |a, b, c| a.mul_add(b, c)) }
            }
        }
    };
}
float!(f32, dot32, add_scaled32);
float!(f64, dot64, add_scaled64);

/// `y[i] = Σ_p a[i, p] · x[p]`; `x` has stride `step`, `y` is dense.
pub(super) fn multiply<C: Tiled + DotElem>(
    m: usize,
    k: usize,
    a: Matrix<C>,
    x: *const C,
    step: isize,
    y: Shared<C>,
) {
    // A dense copy of the vector, unless it is dense already.
    let (_x, x) = if step == 1 || k == 1 {
        (None, Shared(x.cast_mut()))
    } else {
        let (buffer, dense) = scratch::<C>(k);
        for p in 0..k {
            // SAFETY: both have `k` elements.
            unsafe { *dense.at(p) = *x.offset(p as isize * step) };
        }
        (Some(buffer), dense)
    };
    if a.row == 1 && m > 1 && a.col != 1 {
        // The columns are dense: add them up, each scaled.
        let stripe = if m * k <= GRAIN { m } else { even(m, STRIPE, 64) };
        par::for_each(m.div_ceil(stripe), |task| {
            let from = task * stripe;
            let len = stripe.min(m - from);
            // SAFETY: the stripe is inside the matrix, and its part of `y` is this task's.
            unsafe {
                std::ptr::write_bytes(y.at(from), 0, len);
                let mut p = 0;
                while p < k {
                    let count = if k - p >= TOGETHER { TOGETHER } else { 1 };
                    let scales = std::slice::from_raw_parts(x.at(p), count);
                    C::add_scaled(len, scales, a.at(from, p).ptr, a.col, y.at(from));
                    p += count;
                }
            }
        });
        return;
    }
    let group = GRAIN.div_ceil(k).min(m);
    par::for_each(m.div_ceil(group), |task| {
        for i in task * group..m.min((task + 1) * group) {
            // SAFETY: the row is inside the matrix, and this element of `y` is this task's.
            unsafe {
                *y.at(i) = if a.col == 1 || k == 1 {
                    C::dot(k, a.at(i, 0).ptr, x.at(0))
                } else {
                    (0..k).fold(C::default(), |sum, p| (*x.at(p)).mul_add(*a.at(i, p).ptr, sum))
                };
            }
        }
    });
}
