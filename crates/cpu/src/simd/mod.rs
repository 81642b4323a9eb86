//! Vector code by autovectorisation. Only matrix tiles (`dot/tile.rs`), transpositions of Fourier
//! transforms (`fft/shuffle.rs`) and transforms of convolutions (`conv/transforms.rs`) name
//! intrinsics.
//!
//! The mathematics is written once, on scalars, as `#[inline(always)]` functions that have no
//! branches: where a formula has cases, all of them are computed and one is selected. A loop over
//! such a function inside a `#[target_feature]` function becomes full-width vector code by the
//! compiler's own vectoriser. So there are three layers:
//!
//! - **functions** ([`math32`], [`math64`]): one element in, one out, generic over [`Isa`];
//! - **loops** ([`Map1`], [`Map2`], [`Map3`]): one type per operation computes an element; one
//!   generic loop per number of operands does the rest;
//! - **trampolines**: provided methods of [`Map1`] and its siblings compile that loop once per
//!   instruction set, and [`kernel1`] returns a pointer to the one this process runs, chosen by
//!   [`level()`] once. Kernels that are more than such a loop implement [`SimdTask`].
//!
//! What [`Isa`] is for: whether `a * b + c` is fused changes the bits, and a fused multiply-add on
//! a machine without one is a slow library call. So functions call `I::fma32`, which is fused
//! exactly where the hardware has the instruction. One process always uses one level, so its
//! results never depend on the position of an element in a tensor, on the length of the tensor or
//! on threads: the loop's remainder is the same scalar code, compiled with the same features.
//! Different levels agree within the accuracy stated on each function.
//!
//! Loops take slices whose length is a multiple of [`BLOCK`], so that no remainder loop ever runs;
//! [`Kernel1::run`] and its siblings pad the last few elements on the stack. Source and destination
//! never overlap here: an in-place operation reads a copy of its source tile. (If they may overlap,
//! the vectoriser guards the loop by a test and falls back to scalar code, some ten times slower.)

mod float;
mod level;
pub(crate) mod math32;
pub(crate) mod math64;
#[cfg(test)]
pub(crate) mod tests;
mod work;

pub(crate) use float::Float;
pub use level::instruction_set;
pub(crate) use level::{Level, by_level, has_bf16_products, level};
pub(crate) use work::{SimdTask, vectorised};

use std::mem::MaybeUninit;

/// Loops run over multiples of this many elements.
pub(crate) const BLOCK: usize = 16;
const _: () = assert!(BLOCK == 16, "`copy_few` knows the digits of what is less");

/// What the functions need to know about the instruction set they are compiled for.
pub(crate) trait Isa {
    /// Whether there is a fused multiply-add.
    const FMA: bool;

    /// `a · b + c`, rounded once where the hardware can.
    #[inline(always)]
    fn fma32(a: f32, b: f32, c: f32) -> f32 {
        if Self::FMA { a.mul_add(b, c) } else { a * b + c }
    }

    /// `a · b + c`, rounded once where the hardware can.
    #[inline(always)]
    fn fma64(a: f64, b: f64, c: f64) -> f64 {
        if Self::FMA { a.mul_add(b, c) } else { a * b + c }
    }
}

/// The baseline of the target.
pub(crate) struct Baseline;

impl Isa for Baseline {
    const FMA: bool = cfg!(target_arch = "aarch64");
}

/// Any level with a fused multiply-add.
#[cfg(any(target_arch = "x86_64", test))]
pub(crate) struct FusedMultiplyAdd;

#[cfg(any(target_arch = "x86_64", test))]
impl Isa for FusedMultiplyAdd {
    const FMA: bool = true;
}

/// The provided methods of a map trait that compile its loop for each instruction set:
/// `variants!(loop1(x: &[Self::X]))` expands to
///
/// ```text
/// #[target_feature(enable = "avx2,fma")]
/// unsafe fn avx2(x: &[Self::X], y: &mut [MaybeUninit<Self::Y>]) { loop1::<Self, FusedMultiplyAdd>(x, y) }
/// … the same for avx512 and for the baseline …
/// ```
///
/// They are methods for the reason given in `work.rs`: each is compiled in the module of its table.
macro_rules! variants {
    ($loop:ident($($x:ident: $t:ty),*)) => {
        /// # Safety
        /// None; it is `unsafe` so that all variants have one type.
        unsafe fn baseline($($x: $t,)* y: &mut [MaybeUninit<Self::Y>]) {
            $loop::<Self, Baseline>($($x,)* y)
        }
        /// # Safety
        /// The processor has these features.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2($($x: $t,)* y: &mut [MaybeUninit<Self::Y>]) {
            $loop::<Self, FusedMultiplyAdd>($($x,)* y)
        }
        /// # Safety
        /// The processor has these features.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn avx512($($x: $t,)* y: &mut [MaybeUninit<Self::Y>]) {
            $loop::<Self, FusedMultiplyAdd>($($x,)* y)
        }
    };
}

/// A function of one element.
pub(crate) trait Map1: Sized {
    /// What it reads.
    type X: Copy + Default;
    /// What it returns.
    type Y: Copy + Default;
    /// Whether some arguments need [`Map1::slow`].
    const RARE: bool = false;
    /// The function, free of branches.
    fn map<I: Isa>(x: Self::X) -> Self::Y;
    /// Whether `map` is not accurate enough at `x`.
    #[inline(always)]
    fn rare(_: Self::X) -> bool {
        false
    }
    /// The function where `rare` is true; it may branch and call.
    fn slow(_: Self::X) -> Self::Y {
        Self::Y::default()
    }

    variants!(loop1(x: &[Self::X]));
}

/// A function of two elements.
pub(crate) trait Map2: Sized {
    /// What it reads first.
    type A: Copy + Default;
    /// What it reads second.
    type B: Copy + Default;
    /// What it returns.
    type Y: Copy + Default;
    /// Whether some arguments need [`Map2::slow`].
    const RARE: bool = false;
    /// The function, free of branches.
    fn map<I: Isa>(a: Self::A, b: Self::B) -> Self::Y;
    /// Whether `map` is not accurate enough there.
    #[inline(always)]
    fn rare(_: Self::A, _: Self::B) -> bool {
        false
    }
    /// The function where `rare` is true; it may branch and call.
    fn slow(_: Self::A, _: Self::B) -> Self::Y {
        Self::Y::default()
    }

    variants!(loop2(a: &[Self::A], b: &[Self::B]));
}

/// A function of three elements.
pub(crate) trait Map3: Sized {
    /// What it reads first.
    type A: Copy + Default;
    /// What it reads second.
    type B: Copy + Default;
    /// What it reads third.
    type C: Copy + Default;
    /// What it returns.
    type Y: Copy + Default;
    /// The function, free of branches.
    fn map<I: Isa>(a: Self::A, b: Self::B, c: Self::C) -> Self::Y;

    variants!(loop3(a: &[Self::A], b: &[Self::B], c: &[Self::C]));
}

/// The compiled loop of a [`Map1`]. Safe to call only on a machine that has its level.
pub(crate) struct Kernel1<X, Y>(unsafe fn(&[X], &mut [MaybeUninit<Y>]));
/// The compiled loop of a [`Map2`].
pub(crate) struct Kernel2<A, B, Y>(unsafe fn(&[A], &[B], &mut [MaybeUninit<Y>]));
/// The compiled loop of a [`Map3`].
#[allow(clippy::type_complexity)]
pub(crate) struct Kernel3<A, B, C, Y>(unsafe fn(&[A], &[B], &[C], &mut [MaybeUninit<Y>]));

#[inline(always)]
fn loop1<K: Map1, I: Isa>(x: &[K::X], y: &mut [MaybeUninit<K::Y>]) {
    let n = x.len() & !(BLOCK - 1);
    let (x, y) = (&x[..n], &mut y[..n]);
    for i in 0..n {
        y[i].write(K::map::<I>(x[i]));
    }
    if K::RARE && x.iter().fold(false, |any, &v| any | K::rare(v)) {
        for (y, &x) in y.iter_mut().zip(x) {
            if K::rare(x) {
                y.write(K::slow(x));
            }
        }
    }
}

#[inline(always)]
fn loop2<K: Map2, I: Isa>(a: &[K::A], b: &[K::B], y: &mut [MaybeUninit<K::Y>]) {
    let n = a.len() & !(BLOCK - 1);
    let (a, b, y) = (&a[..n], &b[..n], &mut y[..n]);
    for i in 0..n {
        y[i].write(K::map::<I>(a[i], b[i]));
    }
    if K::RARE && (0..n).fold(false, |any, i| any | K::rare(a[i], b[i])) {
        for i in 0..n {
            if K::rare(a[i], b[i]) {
                y[i].write(K::slow(a[i], b[i]));
            }
        }
    }
}

#[inline(always)]
fn loop3<K: Map3, I: Isa>(a: &[K::A], b: &[K::B], c: &[K::C], y: &mut [MaybeUninit<K::Y>]) {
    let n = a.len() & !(BLOCK - 1);
    let (a, b, c, y) = (&a[..n], &b[..n], &c[..n], &mut y[..n]);
    for i in 0..n {
        y[i].write(K::map::<I>(a[i], b[i], c[i]));
    }
}

/// The variant of a map's loop for a level.
macro_rules! variant {
    ($K:ident, $level:expr) => {
        by_level!($level, avx512: $K::avx512, avx2: $K::avx2, baseline: $K::baseline)
    };
}

/// The loop of `K` for a level, which this machine must have.
#[inline]
pub(crate) fn kernel1<K: Map1>(level: Level) -> Kernel1<K::X, K::Y> {
    Kernel1(variant!(K, level))
}

/// The loop of `K` for a level, which this machine must have.
#[inline]
pub(crate) fn kernel2<K: Map2>(level: Level) -> Kernel2<K::A, K::B, K::Y> {
    Kernel2(variant!(K, level))
}

/// The loop of `K` for a level, which this machine must have.
#[inline]
pub(crate) fn kernel3<K: Map3>(level: Level) -> Kernel3<K::A, K::B, K::C, K::Y> {
    Kernel3(variant!(K, level))
}

/// Copies fewer than a block of elements by their binary digits: a call of `memcpy` takes longer
/// than an op on a few numbers.
///
/// # Safety
/// `from` has `n` elements and `to` space for as many, which do not overlap; `n` is less than
/// `BLOCK`.
#[inline(always)]
unsafe fn copy_few<T: Copy>(from: *const T, to: *mut T, n: usize) {
    /// Copies `W` elements from position `at` on, and returns where they end.
    #[inline(always)]
    unsafe fn some<T: Copy, const W: usize>(from: *const T, to: *mut T, at: usize) -> usize {
        // SAFETY: the caller guarantees that many elements there.
        unsafe { to.add(at).cast::<[T; W]>().write(from.add(at).cast::<[T; W]>().read()) };
        at + W
    }
    let mut at = 0;
    // SAFETY: the digits of `n` add up to it. An array is aligned as its elements are.
    unsafe {
        if n & 8 != 0 {
            at = some::<T, 8>(from, to, at);
        }
        if n & 4 != 0 {
            at = some::<T, 4>(from, to, at);
        }
        if n & 2 != 0 {
            at = some::<T, 2>(from, to, at);
        }
        if n & 1 != 0 {
            some::<T, 1>(from, to, at);
        }
    }
}

/// The last few elements of an operand, padded to a block.
///
/// # Safety
/// `from` points at `n` elements, fewer than `BLOCK`.
#[inline(always)]
unsafe fn padded<T: Copy + Default>(from: *const T, n: usize) -> [T; BLOCK] {
    let mut block = [T::default(); BLOCK];
    // SAFETY: the caller guarantees n readable elements, fewer than the block has.
    unsafe { copy_few(from, block.as_mut_ptr(), n) };
    block
}

/// Copies the first `n` results of a padded block out.
///
/// # Safety
/// `to` has space for `n` elements, fewer than `BLOCK`, and the block is filled.
#[inline(always)]
unsafe fn unpadded<T: Copy>(block: &[MaybeUninit<T>; BLOCK], to: *mut T, n: usize) {
    // SAFETY: the caller guarantees space for n elements.
    unsafe { copy_few(block.as_ptr().cast::<T>(), to, n) };
}

/// A slice over raw memory that a kernel may read.
///
/// # Safety
/// `n` elements at `p` are initialised and not written while the slice lives.
#[inline(always)]
unsafe fn readable<'a, T>(p: *const T, n: usize) -> &'a [T] {
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(p, n) }
}

/// A slice over raw memory that a kernel fills.
///
/// # Safety
/// `n` elements at `p` are writable and not accessed otherwise while the slice lives.
#[inline(always)]
unsafe fn fillable<'a, T>(p: *mut T, n: usize) -> &'a mut [MaybeUninit<T>] {
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts_mut(p.cast(), n) }
}

impl<X: Copy + Default, Y: Copy + Default> Kernel1<X, Y> {
    /// `y[i] = f(x[i])` for `n` elements.
    ///
    /// # Safety
    /// `x` has `n` readable elements, `y` has space for `n`, and the two do not overlap.
    #[inline]
    pub(crate) unsafe fn run(&self, x: *const X, y: *mut Y, n: usize) {
        let full = n & !(BLOCK - 1);
        // SAFETY: the ranges are those of the caller; the level was checked when this was made.
        unsafe {
            if full > 0 {
                (self.0)(readable(x, full), fillable(y, full));
            }
            if n > full {
                let tail = padded(x.add(full), n - full);
                let mut out = [MaybeUninit::uninit(); BLOCK];
                (self.0)(&tail, &mut out);
                unpadded(&out, y.add(full), n - full);
            }
        }
    }
}

impl<A: Copy + Default, B: Copy + Default, Y: Copy + Default> Kernel2<A, B, Y> {
    /// `y[i] = f(a[i], b[i])` for `n` elements.
    ///
    /// # Safety
    /// `a` and `b` have `n` readable elements, `y` has space for `n`, and overlaps neither.
    #[inline]
    pub(crate) unsafe fn run(&self, a: *const A, b: *const B, y: *mut Y, n: usize) {
        let full = n & !(BLOCK - 1);
        // SAFETY: as in `Kernel1::run`.
        unsafe {
            if full > 0 {
                (self.0)(readable(a, full), readable(b, full), fillable(y, full));
            }
            if n > full {
                let (ta, tb) = (padded(a.add(full), n - full), padded(b.add(full), n - full));
                let mut out = [MaybeUninit::uninit(); BLOCK];
                (self.0)(&ta, &tb, &mut out);
                unpadded(&out, y.add(full), n - full);
            }
        }
    }
}

impl<A: Copy + Default, B: Copy + Default, C: Copy + Default, Y: Copy + Default>
    Kernel3<A, B, C, Y>
{
    /// `y[i] = f(a[i], b[i], c[i])` for `n` elements.
    ///
    /// # Safety
    /// `a`, `b`, `c` have `n` readable elements, `y` has space for `n`, and overlaps none of them.
    #[inline]
    pub(crate) unsafe fn run(&self, a: *const A, b: *const B, c: *const C, y: *mut Y, n: usize) {
        let full = n & !(BLOCK - 1);
        // SAFETY: as in `Kernel1::run`.
        unsafe {
            if full > 0 {
                let (a, b, c) = (readable(a, full), readable(b, full), readable(c, full));
                (self.0)(a, b, c, fillable(y, full));
            }
            if n > full {
                let (ta, tb) = (padded(a.add(full), n - full), padded(b.add(full), n - full));
                let tc = padded(c.add(full), n - full);
                let mut out = [MaybeUninit::uninit(); BLOCK];
                (self.0)(&ta, &tb, &tc, &mut out);
                unpadded(&out, y.add(full), n - full);
            }
        }
    }
}
