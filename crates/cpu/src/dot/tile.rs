//! The innermost loops of matrix multiplication: a small tile of C kept in registers.
//!
//! A tile is `M` rows by `W` vectors. For each step of k, `W` vectors of B are loaded, and each of
//! the `M` elements of A is spread over a vector and multiplied in. With 12 × 2 vectors of AVX-512
//! that is 24 accumulators, enough to hide the latency of the multiply-add, and 14 loads for 24
//! multiply-adds, so the loads are hidden too.
//!
//! Three layers, as everywhere in this crate: [`Vector`] wraps the intrinsics, `tile` is the
//! algorithm, and the `#[target_feature]` functions at the end are the trampolines that
//! [`Kernels::get`] picks between once.

use crate::simd::{by_level, level};

/// A register of floats, with the few operations a tile needs.
///
/// # Safety
/// The methods need the instruction set of the implementing type.
pub(crate) unsafe trait Vector: Copy {
    type T: Copy;
    type Mask: Copy;
    const N: usize;
    unsafe fn zero() -> Self;
    unsafe fn splat(x: Self::T) -> Self;
    unsafe fn load(p: *const Self::T) -> Self;
    unsafe fn store(self, p: *mut Self::T);
    /// `a * b + self`
    unsafe fn fma(self, a: Self, b: Self) -> Self;
    unsafe fn add(self, b: Self) -> Self;
    /// A mask of the first `n` lanes (all of them when `n` is larger).
    unsafe fn mask(n: usize) -> Self::Mask;
    /// Lanes outside the mask are not touched and read as zero.
    unsafe fn load_masked(p: *const Self::T, m: Self::Mask) -> Self;
    /// Lanes outside the mask are not touched.
    unsafe fn store_masked(self, p: *mut Self::T, m: Self::Mask);
}

/// The operands of a tile. Strides are in elements.
pub(crate) struct Tile<T> {
    pub k: usize,
    pub a: *const T,
    pub a_row: isize,
    pub a_step: isize,
    pub b: *const T,
    pub b_step: isize,
    pub c: *mut T,
    pub c_row: isize,
    /// Columns of C to write, at most the width of the tile.
    pub cols: usize,
    /// Accumulate into C instead of overwriting it.
    pub add: bool,
}

pub(crate) type TileFn<T> = unsafe fn(&Tile<T>);

/// The tiles of one instruction set.
pub(crate) struct Kernels<T: 'static> {
    /// Full tile height; panels of packed A are this tall.
    pub rows: usize,
    /// Full tile width; panels of packed B are this wide.
    pub cols: usize,
    /// For packed operands: `[rows - 1][vectors - 1]`.
    pub packed: &'static [[TileFn<T>; 2]],
    /// For unpacked A and rows of B of full width, as those of a packed panel: `[rows - 1]`.
    pub half: &'static [TileFn<T>],
    /// For unpacked operands (B with adjacent columns): `[rows - 1]`, always of full width.
    pub direct: &'static [TileFn<T>],
    /// `k` steps of [`CHAINS`] sums in registers, each multiplied by `a` and increased by `b`.
    pub chains: TileFn<T>,
}

/// Independent multiply-adds of a step of [`Kernels::chains`]: more than a processor has under way,
/// and no more than there are registers.
pub(crate) const CHAINS: usize = 12;

/// What a processor can do at most: multiply-adds that wait for nothing but the one before.
#[inline(always)]
unsafe fn chains<V: Vector>(t: &Tile<V::T>) {
    // SAFETY: the caller has a vector at `a` and at `b`, and `CHAINS` of them at `c`.
    unsafe {
        let (x, y) = (V::load(t.a), V::load(t.b));
        let mut acc = [V::zero(); CHAINS];
        for _ in 0..t.k {
            acc.iter_mut().for_each(|sum| *sum = y.fma(*sum, x));
        }
        acc.iter().enumerate().for_each(|(i, sum)| sum.store(t.c.add(i * V::N)));
    }
}

/// Packed operands: `a` is `R` rows per step, `b` `2 * N` columns per step, padded with zeros.
#[inline(always)]
unsafe fn packed<V: Vector, const R: usize, const M: usize, const W: usize>(t: &Tile<V::T>) {
    // SAFETY: the caller has `k` packed steps of both operands and `M` rows of C.
    unsafe {
        let mut acc = [[V::zero(); W]; M];
        let (mut a, mut b) = (t.a, t.b);
        for _ in 0..t.k {
            let mut bs = [V::zero(); W];
            for (w, bv) in bs.iter_mut().enumerate() {
                *bv = V::load(b.add(w * V::N));
            }
            for (i, row) in acc.iter_mut().enumerate() {
                let x = V::splat(*a.add(i));
                for (sum, &bv) in row.iter_mut().zip(&bs) {
                    *sum = sum.fma(x, bv);
                }
            }
            a = a.add(R);
            b = b.add(2 * V::N);
        }
        finish(t, &acc);
    }
}

/// A unpacked, `b` with `2 * N` columns that can be read.
#[inline(always)]
unsafe fn half<V: Vector, const M: usize>(t: &Tile<V::T>) {
    // SAFETY: the caller has `M` rows and `k` steps of A, `k` steps of B and `M` rows of C.
    unsafe {
        let mut acc = [[V::zero(); 2]; M];
        // Every third row has its own pointer; the two after it are a scaled index away, so the
        // rows need few registers.
        let mut bases: [*const V::T; 4] =
            std::array::from_fn(|g| t.a.wrapping_offset(3 * g as isize * t.a_row));
        let mut b = t.b;
        for _ in 0..t.k {
            let bs = [V::load(b), V::load(b.add(V::N))];
            for (i, row) in acc.iter_mut().enumerate() {
                let x = V::splat(*bases[i / 3].offset((i % 3) as isize * t.a_row));
                row[0] = row[0].fma(x, bs[0]);
                row[1] = row[1].fma(x, bs[1]);
            }
            bases.iter_mut().for_each(|a| *a = a.wrapping_offset(t.a_step));
            b = b.wrapping_offset(t.b_step);
        }
        finish(t, &acc);
    }
}

/// Unpacked operands; columns beyond `cols` are not read.
#[inline(always)]
unsafe fn direct<V: Vector, const M: usize>(t: &Tile<V::T>) {
    // SAFETY: the caller has `M` rows and `k` steps of A, and `cols` adjacent columns of B and C.
    unsafe {
        let mut acc = [[V::zero(); 2]; M];
        let masks = [V::mask(t.cols), V::mask(t.cols.saturating_sub(V::N))];
        let (mut a, mut b) = (t.a, t.b);
        if t.cols == 2 * V::N {
            // Without masks, which take registers.
            for _ in 0..t.k {
                let bs = [V::load(b), V::load(b.wrapping_add(V::N))];
                for (i, row) in acc.iter_mut().enumerate() {
                    let x = V::splat(*a.offset(i as isize * t.a_row));
                    row[0] = row[0].fma(x, bs[0]);
                    row[1] = row[1].fma(x, bs[1]);
                }
                a = a.wrapping_offset(t.a_step);
                b = b.wrapping_offset(t.b_step);
            }
        } else if t.cols > V::N {
            for _ in 0..t.k {
                let bs = [V::load(b), V::load_masked(b.wrapping_add(V::N), masks[1])];
                for (i, row) in acc.iter_mut().enumerate() {
                    let x = V::splat(*a.offset(i as isize * t.a_row));
                    row[0] = row[0].fma(x, bs[0]);
                    row[1] = row[1].fma(x, bs[1]);
                }
                a = a.wrapping_offset(t.a_step);
                b = b.wrapping_offset(t.b_step);
            }
        } else {
            for _ in 0..t.k {
                let bv = V::load_masked(b, masks[0]);
                for (i, row) in acc.iter_mut().enumerate() {
                    let x = V::splat(*a.offset(i as isize * t.a_row));
                    row[0] = row[0].fma(x, bv);
                }
                a = a.wrapping_offset(t.a_step);
                b = b.wrapping_offset(t.b_step);
            }
        }
        finish(t, &acc);
    }
}

/// Writes a tile to C, or adds it.
#[inline(always)]
unsafe fn finish<V: Vector, const M: usize, const W: usize>(t: &Tile<V::T>, acc: &[[V; W]; M]) {
    // SAFETY: the caller has `M` rows of `cols` columns of C.
    unsafe {
        for (i, row) in acc.iter().enumerate() {
            let c = t.c.offset(i as isize * t.c_row);
            if t.cols == W * V::N {
                for (w, &sum) in row.iter().enumerate() {
                    let c = c.add(w * V::N);
                    let sum = if t.add { V::load(c).add(sum) } else { sum };
                    sum.store(c);
                }
            } else {
                for (w, &sum) in row.iter().enumerate() {
                    if t.cols <= w * V::N {
                        break;
                    }
                    let mask = V::mask(t.cols - w * V::N);
                    let c = c.add(w * V::N);
                    let sum = if t.add { V::load_masked(c, mask).add(sum) } else { sum };
                    sum.store_masked(c, mask);
                }
            }
        }
    }
}

/// Generates the trampolines and the table of one instruction set. For example
/// `kernels!(F32_AVX2, __m256, f32, "avx2,fma", rows 6: [1 2 3 4 5 6], direct [1 2 3 4])` makes a
/// module with `#[target_feature(enable = "avx2,fma")]` versions of `packed` and `direct`, and the
/// static `F32_AVX2` that lists `packed::<1, 1>`, `packed::<1, 2>`, `packed::<2, 1>`, ….
macro_rules! kernels {
    ($table:ident, $module:ident, $vector:ty, $t:ty, $feature:meta, rows $rows:literal: [$($m:literal)*], direct [$($d:literal)*]) => {
        mod $module {
            use super::*;
            #[$feature]
            unsafe fn packed<const M: usize, const W: usize>(t: &Tile<$t>) {
                // SAFETY: passed on.
                unsafe { super::packed::<$vector, $rows, M, W>(t) }
            }
            #[$feature]
            unsafe fn direct<const M: usize>(t: &Tile<$t>) {
                // SAFETY: passed on.
                unsafe { super::direct::<$vector, M>(t) }
            }
            #[$feature]
            unsafe fn chains(t: &Tile<$t>) {
                // SAFETY: passed on.
                unsafe { super::chains::<$vector>(t) }
            }
            #[$feature]
            unsafe fn half<const M: usize>(t: &Tile<$t>) {
                // SAFETY: passed on.
                unsafe { super::half::<$vector, M>(t) }
            }
            pub static $table: Kernels<$t> = Kernels {
                rows: $rows,
                cols: 2 * <$vector as Vector>::N,
                packed: &[$([packed::<$m, 1>, packed::<$m, 2>]),*],
                half: &[$(half::<$m>),*],
                direct: &[$(direct::<$d>),*],
                chains,
            };
        }
        pub(super) use $module::$table;
    };
}

#[cfg(not(target_arch = "aarch64"))]
mod base {
    use super::{Kernels, Plain, Tile, Vector};
    use super::{chains, direct, half, packed};

    pub(crate) type Base32 = Plain<f32>;
    pub(crate) type Base64 = Plain<f64>;

    kernels!(F32_BASE, f32_base, Base32, f32, inline(never), rows 4: [1 2 3 4], direct [1 2 3 4]);
    kernels!(F64_BASE, f64_base, Base64, f64, inline(never), rows 4: [1 2 3 4], direct [1 2 3 4]);
}

/// Every AArch64 has NEON: 32 registers, as under AVX-512, of 128 bits.
#[cfg(target_arch = "aarch64")]
#[path = "neon.rs"]
mod base;

/// The vectors that the target always has.
pub(crate) use base::{Base32, Base64};
use base::{F32_BASE, F64_BASE};

#[cfg(target_arch = "x86_64")]
use x86::{F32_AVX2, F32_AVX512, F64_AVX2, F64_AVX512};

/// The element types that have tiles.
pub(crate) trait Tiled: Copy + Send + Sync + 'static {
    fn kernels() -> &'static Kernels<Self>;
}

macro_rules! tiled {
    ($t:ty, $plain:ident, $avx2:ident, $avx512:ident) => {
        impl Tiled for $t {
            #[inline]
            fn kernels() -> &'static Kernels<$t> {
                by_level!(level(), avx512: &$avx512, avx2: &$avx2, baseline: &$plain)
            }
        }
    };
}
tiled!(f32, F32_BASE, F32_AVX2, F32_AVX512);
tiled!(f64, F64_BASE, F64_AVX2, F64_AVX512);

/// Four lanes in plain Rust, for machines without the instruction sets below.
#[cfg(not(target_arch = "aarch64"))]
#[derive(Clone, Copy)]
pub(crate) struct Plain<T>([T; 4]);

#[cfg(not(target_arch = "aarch64"))]
macro_rules! plain {
    ($t:ty) => {
        // SAFETY: needs no instruction set.
        unsafe impl Vector for Plain<$t> {
            type T = $t;
            type Mask = usize;
            const N: usize = 4;
            #[inline(always)]
            unsafe fn zero() -> Self {
                Plain([0.0; 4])
            }
            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                Plain([x; 4])
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self {
                // SAFETY: the caller has four elements there.
                Plain(unsafe { p.cast::<[$t; 4]>().read() })
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $t) {
                // SAFETY: the caller has four elements there.
                unsafe { p.cast::<[$t; 4]>().write(self.0) }
            }
            #[inline(always)]
            unsafe fn fma(self, a: Self, b: Self) -> Self {
                Plain(std::array::from_fn(|i| a.0[i] * b.0[i] + self.0[i]))
            }
            #[inline(always)]
            unsafe fn add(self, b: Self) -> Self {
                Plain(std::array::from_fn(|i| self.0[i] + b.0[i]))
            }
            #[inline(always)]
            unsafe fn mask(n: usize) -> usize {
                n.min(4)
            }
            #[inline(always)]
            unsafe fn load_masked(p: *const $t, m: usize) -> Self {
                let mut v = [0.0; 4];
                for (i, x) in v.iter_mut().enumerate().take(m) {
                    // SAFETY: the caller has `m` elements there.
                    *x = unsafe { *p.add(i) };
                }
                Plain(v)
            }
            #[inline(always)]
            unsafe fn store_masked(self, p: *mut $t, m: usize) {
                for (i, &x) in self.0.iter().enumerate().take(m) {
                    // SAFETY: the caller has `m` elements there.
                    unsafe { *p.add(i) = x };
                }
            }
        }
    };
}
#[cfg(not(target_arch = "aarch64"))]
plain!(f32);
#[cfg(not(target_arch = "aarch64"))]
plain!(f64);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Kernels, Tile, Vector};
    use super::{chains, direct, half, packed};
    use std::arch::x86_64::*;

    /// Implements [`Vector`] by naming the intrinsics.
    macro_rules! vector {
        ($v:ty, $t:ty, $n:literal, $mask:ty, $make_mask:expr, $zero:ident $splat:ident $load:ident $store:ident $fma:ident $add:ident, $maskload:expr, $maskstore:expr) => {
            // SAFETY: every method needs the instruction set of `$v`, as the trait says.
            unsafe impl Vector for $v {
                type T = $t;
                type Mask = $mask;
                const N: usize = $n;
                #[inline(always)]
                unsafe fn zero() -> Self {
                    // SAFETY: as the trait says.
                    unsafe { $zero() }
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
                    unsafe { $fma(a, b, self) }
                }
                #[inline(always)]
                unsafe fn add(self, b: Self) -> Self {
                    // SAFETY: as the trait says.
                    unsafe { $add(self, b) }
                }
                #[inline(always)]
                unsafe fn mask(n: usize) -> $mask {
                    $make_mask(n.min($n))
                }
                #[inline(always)]
                unsafe fn load_masked(p: *const $t, m: $mask) -> Self {
                    // SAFETY: as the trait says.
                    unsafe { $maskload(p, m) }
                }
                #[inline(always)]
                unsafe fn store_masked(self, p: *mut $t, m: $mask) {
                    // SAFETY: as the trait says.
                    unsafe { $maskstore(p, m, self) }
                }
            }
        };
    }

    /// A window over this gives `n` lanes of ones and then zeros.
    static LANES32: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    static LANES64: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];

    #[inline(always)]
    fn lanes32(n: usize) -> __m256i {
        // SAFETY: `n` is at most 8, so eight elements follow; the caller has checked for AVX.
        unsafe { _mm256_loadu_si256(LANES32.as_ptr().add(8 - n).cast()) }
    }

    #[inline(always)]
    fn lanes64(n: usize) -> __m256i {
        // SAFETY: `n` is at most 4, so four elements follow; the caller has checked for AVX.
        unsafe { _mm256_loadu_si256(LANES64.as_ptr().add(4 - n).cast()) }
    }

    vector!(__m512, f32, 16, __mmask16, |n| ((1u32 << n) - 1) as u16,
        _mm512_setzero_ps _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps _mm512_add_ps,
        |p, m| _mm512_maskz_loadu_ps(m, p), |p, m, v| _mm512_mask_storeu_ps(p, m, v));
    vector!(__m512d, f64, 8, __mmask8, |n| ((1u32 << n) - 1) as u8,
        _mm512_setzero_pd _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_fmadd_pd _mm512_add_pd,
        |p, m| _mm512_maskz_loadu_pd(m, p), |p, m, v| _mm512_mask_storeu_pd(p, m, v));
    vector!(__m256, f32, 8, __m256i, lanes32,
        _mm256_setzero_ps _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps _mm256_add_ps,
        |p, m| _mm256_maskload_ps(p, m), |p, m, v| _mm256_maskstore_ps(p, m, v));
    vector!(__m256d, f64, 4, __m256i, lanes64,
        _mm256_setzero_pd _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_fmadd_pd _mm256_add_pd,
        |p, m| _mm256_maskload_pd(p, m), |p, m, v| _mm256_maskstore_pd(p, m, v));

    kernels!(F32_AVX512, f32_avx512, __m512, f32, target_feature(enable = "avx512f"),
        rows 12: [1 2 3 4 5 6 7 8 9 10 11 12], direct [1 2 3 4 5 6]);
    kernels!(F64_AVX512, f64_avx512, __m512d, f64, target_feature(enable = "avx512f"),
        rows 12: [1 2 3 4 5 6 7 8 9 10 11 12], direct [1 2 3 4 5 6]);
    kernels!(F32_AVX2, f32_avx2, __m256, f32, target_feature(enable = "avx2,fma"),
        rows 6: [1 2 3 4 5 6], direct [1 2 3 4 5 6]);
    kernels!(F64_AVX2, f64_avx2, __m256d, f64, target_feature(enable = "avx2,fma"),
        rows 6: [1 2 3 4 5 6], direct [1 2 3 4 5 6]);
}
