//! Loops over scratch lines.

use crate::buffer::Buffer;
use crate::elem::{Compute, Elem};
use crate::operand::Sink;
use crate::par;
use crate::pointwise::{fence, stream, streams};
use crate::simd::{Isa, math32, math64};
use std::any::TypeId;
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Sub};

/// Partial sums of a line; scratch lines are multiples of this long.
pub(crate) const LANES: usize = 32;
/// Elements of a line that are summed before the sum is added to the total.
const PIECE: usize = 128 * LANES;
/// Elements of a line between two prefetches of as many elements of the next line.
const STEP: usize = 4 * LANES;

/// The compute types of floats.
pub(crate) trait ComputeFloat:
    Compute + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    fn real(v: f64) -> Self;
    fn exp<I: Isa>(self) -> Self;
    /// `exp` of an argument that is not positive. It takes fewer steps, and returns zero instead of
    /// a subnormal.
    fn exp_down<I: Isa>(self) -> Self;
    fn log<I: Isa>(self) -> Self;
    fn sqrt(self) -> Self;
    fn fma<I: Isa>(self, b: Self, c: Self) -> Self;
    fn finite(self) -> bool;
}

impl ComputeFloat for f32 {
    #[inline(always)]
    fn real(v: f64) -> f32 {
        v as f32
    }
    #[inline(always)]
    fn exp<I: Isa>(self) -> f32 {
        math32::exp::<I>(self)
    }
    #[inline(always)]
    fn exp_down<I: Isa>(self) -> f32 {
        const ROUND: f32 = 12_582_912.0; // 1.5·2^23: adding it rounds to an integer
        let t = self.fma::<I>(std::f32::consts::LOG2_E, ROUND);
        let k = t - ROUND;
        // ln 2 in two parts, of which the first has few enough bits for an exact product.
        let r = k.fma::<I>(2.121_944_4e-4, k.fma::<I>(-0.693_359_4, self));
        // exp(r) − 1 − r, over r², fitted so that the relative error of exp(r) is least: 4e-9.
        let mut p = 1.381_443_3e-3f32;
        for c in [8.368_797e-3, 4.166_839_6e-2, 1.666_652e-1, 0.499_999_94, 1.0, 1.0] {
            p = p.fma::<I>(r, c);
        }
        // Adds k to the exponent; below the normal range that would overflow into the sign.
        let scaled = f32::from_bits(p.to_bits().wrapping_add(t.to_bits() << 23));
        let scaled = if self < -87.33 { 0.0 } else { scaled };
        // NaN stays NaN, and +∞ stays +∞: it occurs in a line that is not shifted.
        if self <= 0.0 { scaled } else { self }
    }
    #[inline(always)]
    fn log<I: Isa>(self) -> f32 {
        math32::log::<I>(self)
    }
    #[inline(always)]
    fn sqrt(self) -> f32 {
        self.sqrt()
    }
    #[inline(always)]
    fn fma<I: Isa>(self, b: f32, c: f32) -> f32 {
        I::fma32(self, b, c)
    }
    #[inline(always)]
    fn finite(self) -> bool {
        self.is_finite()
    }
}

impl ComputeFloat for f64 {
    #[inline(always)]
    fn real(v: f64) -> f64 {
        v
    }
    #[inline(always)]
    fn exp<I: Isa>(self) -> f64 {
        math64::exp::<I>(self)
    }
    #[inline(always)]
    fn exp_down<I: Isa>(self) -> f64 {
        math64::exp::<I>(self)
    }
    #[inline(always)]
    fn log<I: Isa>(self) -> f64 {
        math64::log::<I>(self)
    }
    #[inline(always)]
    fn sqrt(self) -> f64 {
        self.sqrt()
    }
    #[inline(always)]
    fn fma<I: Isa>(self, b: f64, c: f64) -> f64 {
        I::fma64(self, b, c)
    }
    #[inline(always)]
    fn finite(self) -> bool {
        self.is_finite()
    }
}

/// Scratch of the compute type, aligned for the widest vectors: an unaligned line costs twice as
/// much, as every vector then straddles two cache lines.
///
/// It comes from the pool, so that running a program again allocates nothing.
pub(crate) struct AlignedScratch<C> {
    memory: Buffer,
    len: usize,
    of: PhantomData<C>,
}

impl<C: ComputeFloat> AlignedScratch<C> {
    /// Space for `len` elements, rounded up to 16, all `value`.
    pub(crate) fn new(len: usize, value: C) -> AlignedScratch<C> {
        let len = len.next_multiple_of(16);
        let mut memory = match Buffer::alloc(len * size_of::<C>()) {
            Ok(memory) => memory,
            Err(error) => panic!("scratch: {error}"),
        };
        let ptr = memory.as_mut_ptr().cast::<C>();
        for i in 0..len {
            // SAFETY: inside the buffer.
            unsafe { ptr.add(i).write(value) };
        }
        AlignedScratch { memory, len, of: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn as_mut(&mut self) -> &mut [C] {
        // SAFETY: as many elements were written when the buffer was made, which is aligned for any.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast(), self.len) }
    }
}

/// The length of a scratch line for `n` elements.
pub(crate) fn padded(n: usize) -> usize {
    n.next_multiple_of(LANES)
}

/// Reads `to.len()` elements, `stride` apart.
///
/// # Safety
/// They can be read.
#[inline(always)]
pub(crate) unsafe fn load<E: Elem>(from: *const E, stride: isize, to: &mut [E::Compute]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match stride {
            1 => {
                let from = std::slice::from_raw_parts(from, to.len());
                for (to, from) in to.iter_mut().zip(from) {
                    *to = from.load();
                }
            }
            0 => to.fill((*from).load()),
            _ => {
                for (i, to) in to.iter_mut().enumerate() {
                    *to = (*from.offset(i as isize * stride)).load();
                }
            }
        }
    }
}

/// A line as a slice of the compute type: the line itself if it is one, otherwise a copy in
/// `scratch`, whose padding is unchanged.
///
/// # Safety
/// The line can be read, and is not written while the slice lives.
#[inline(always)]
pub(crate) unsafe fn view<E: Elem>(
    from: *const E,
    stride: isize,
    n: usize,
    scratch: &mut [E::Compute],
) -> &[E::Compute] {
    // SAFETY: guaranteed by the caller; the cast is from a type to itself.
    unsafe {
        if stride == 1 && is_whole::<E>(n) {
            return std::slice::from_raw_parts(from.cast(), n);
        }
        load(from, stride, &mut scratch[..n]);
    }
    scratch
}

/// Whether a contiguous line of `n` elements can be used without a copy.
#[inline(always)]
pub(crate) fn is_whole<E: Elem>(n: usize) -> bool {
    n.is_multiple_of(LANES) && TypeId::of::<E>() == TypeId::of::<E::Compute>()
}

/// Writes the elements of `from`, `stride` apart.
///
/// # Safety
/// There is space for them, and nothing else uses it.
#[inline(always)]
pub(crate) unsafe fn store<E: Elem>(from: &[E::Compute], to: *mut E, stride: usize) {
    // SAFETY: guaranteed by the caller; a sink may be uninitialised, and is only written.
    unsafe {
        if stride == 1 {
            for (i, &v) in from.iter().enumerate() {
                to.add(i).write(E::store(v));
            }
        } else {
            for (i, &v) in from.iter().enumerate() {
                to.add(i * stride).write(E::store(v));
            }
        }
    }
}

/// The next line, prefetched while this one is processed: the hardware prefetcher stops at the end
/// of a page.
#[derive(Clone, Copy)]
pub(crate) struct Prefetch {
    start: *const u8,
    /// Bytes of an element; zero prefetches nothing.
    size: usize,
}

impl Prefetch {
    /// Nothing is prefetched.
    pub(crate) const NONE: Prefetch = Prefetch { start: std::ptr::null(), size: 0 };

    /// A line of contiguous elements.
    #[inline(always)]
    pub(crate) fn new<E>(start: *const E) -> Prefetch {
        Prefetch { start: start.cast(), size: size_of::<E>() }
    }

    /// Prefetches the elements `at..at + STEP`.
    #[inline(always)]
    fn fetch(self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        for byte in (0..STEP * self.size).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint may name any address; SSE is part of the target.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(self.start.wrapping_add(at * self.size + byte).cast())
            };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (at, self.start, self.size);
    }
}

/// Lines of a result. A large one is written to scratch and streamed past the caches.
pub(crate) struct Results<E: Elem> {
    out: *mut E,
    n: usize,
    scratch: Option<AlignedScratch<E::Compute>>,
}

impl<E: Elem<Compute: ComputeFloat>> Results<E> {
    /// Contiguous lines of `n` elements in `out`; `streamed` is what [`is_streamed`] returns.
    #[inline(always)]
    pub(crate) fn new(out: *mut E, n: usize, streamed: bool) -> Results<E> {
        let scratch = streamed.then(|| AlignedScratch::new(n, E::Compute::default()));
        Results { out, n, scratch }
    }

    /// Where to write line `i`.
    #[inline(always)]
    pub(crate) fn start(&mut self, i: usize) -> *mut E {
        match &mut self.scratch {
            // Its elements are at least as large.
            Some(scratch) => scratch.as_mut().as_mut_ptr().cast(),
            None => self.out.wrapping_add(i * self.n),
        }
    }

    /// Finishes line `i` after it is written.
    ///
    /// # Safety
    /// The line is written at [`Results::start`], inside the result, and belongs to this task
    /// alone.
    #[inline(always)]
    pub(crate) unsafe fn end(&mut self, i: usize) {
        if let Some(scratch) = &mut self.scratch {
            let (from, bytes) = (scratch.as_mut().as_ptr().cast(), self.n * size_of::<E>());
            // SAFETY: both have as many bytes, and begin at multiples of 16 (see `is_streamed`);
            // the fence comes when all lines are done.
            unsafe { stream(from, self.out.add(i * self.n).cast(), bytes) };
        }
    }
}

impl<E: Elem> Drop for Results<E> {
    fn drop(&mut self) {
        if self.scratch.is_some() {
            fence();
        }
    }
}

/// Whether the lines of a result, of `n` elements each, are streamed past the caches: if the result
/// is large and its lines are not, as each is computed in scratch first.
pub(crate) fn is_streamed(out: Sink<'_>, n: usize) -> bool {
    let bytes = n * out.dtype.size();
    bytes.is_multiple_of(16) && bytes <= 1 << 16 && streams(out)
}

/// Lines of `n` elements per task: enough to be worth scheduling, and more if there are many lines,
/// as memory is read faster in long runs.
pub(crate) fn share(count: usize, n: usize) -> usize {
    let elements = (count * n / (16 * par::threads())).clamp(1 << 14, 1 << 17);
    (elements / n.max(1)).max(1)
}

/// The sum of the partial sums, in a fixed order.
#[inline(always)]
pub(crate) fn total<C: ComputeFloat>(lanes: [C; LANES]) -> C {
    // Through memory: a compiler that sees how they are added up forms vectors of two for it, and
    // uses that width in the loop that computed them too.
    let mut lanes = std::hint::black_box(lanes);
    let mut half = LANES / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] = lanes[j] + lanes[j + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// The sum of a scratch line, in two levels so that the error does not grow with its length.
#[inline(always)]
pub(crate) fn sum<C: ComputeFloat>(a: &[C]) -> C {
    let mut all = C::default();
    for a in a.chunks(PIECE) {
        let mut lanes = [C::default(); LANES];
        for a in a.chunks_exact(LANES) {
            for j in 0..LANES {
                lanes[j] = lanes[j] + a[j];
            }
        }
        all = all + total(lanes);
    }
    all
}

/// The inner product of two scratch lines, in two levels.
#[inline(always)]
pub(crate) fn dot<C: ComputeFloat, I: Isa>(a: &[C], b: &[C]) -> C {
    let mut all = C::default();
    for (a, b) in a.chunks(PIECE).zip(b.chunks(PIECE)) {
        let mut lanes = [C::default(); LANES];
        for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
            for j in 0..LANES {
                lanes[j] = a[j].fma::<I>(b[j], lanes[j]);
            }
        }
        all = all + total(lanes);
    }
    all
}

/// The larger; the second if the first is NaN.
#[inline(always)]
pub(crate) fn larger<C: ComputeFloat>(a: C, b: C) -> C {
    if a > b { a } else { b }
}

/// The largest of a scratch line; NaN is ignored.
#[inline(always)]
pub(crate) fn largest<C: ComputeFloat>(a: &[C]) -> C {
    let mut lanes = [C::real(f64::NEG_INFINITY); LANES];
    for a in a.chunks_exact(LANES) {
        for j in 0..LANES {
            lanes[j] = larger(a[j], lanes[j]);
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] = larger(lanes[j + half], lanes[j]);
        }
        half /= 2;
    }
    lanes[0]
}

/// The sum of the distances from `mean`, in two levels: the rounding error of the mean.
#[inline(always)]
pub(crate) fn distances<C: ComputeFloat>(a: &[C], mean: C) -> C {
    let mut all = C::default();
    for a in a.chunks(PIECE) {
        let mut lanes = [C::default(); LANES];
        for a in a.chunks_exact(LANES) {
            for j in 0..LANES {
                lanes[j] = lanes[j] + (a[j] - mean);
            }
        }
        all = all + total(lanes);
    }
    all
}

/// A mean corrected by the mean of the distances from it. The sum was rounded, so every element of
/// a constant line could differ from the mean; the distances are exact, so the corrected mean is
/// that constant.
#[inline(always)]
pub(crate) fn corrected_mean<C: ComputeFloat>(mean: C, off: C) -> C {
    // With infinities there is nothing to correct.
    if off.finite() { mean + off } else { mean }
}

/// The sum of the squared distances from `mean`, in two levels.
#[inline(always)]
pub(crate) fn squares<C: ComputeFloat, I: Isa>(a: &[C], mean: C) -> C {
    let mut all = C::default();
    for a in a.chunks(PIECE) {
        let mut lanes = [C::default(); LANES];
        for a in a.chunks_exact(LANES) {
            for j in 0..LANES {
                let d = a[j] - mean;
                lanes[j] = d.fma::<I>(d, lanes[j]);
            }
        }
        all = all + total(lanes);
    }
    all
}

/// `to = exp(a − shift)`; returns the sum.
#[inline(always)]
pub(crate) fn exp_sum<C: ComputeFloat, I: Isa>(
    a: &[C],
    shift: C,
    to: &mut [C],
    ahead: Prefetch,
) -> C {
    // Two loops: with the partial sums, the first would spill registers.
    for (k, (to, a)) in to.chunks_mut(STEP).zip(a.chunks(STEP)).enumerate() {
        ahead.fetch(k * STEP);
        for (to, &a) in to.iter_mut().zip(a) {
            *to = (a - shift).exp_down::<I>();
        }
    }
    sum(to)
}

/// The shift subtracted under the exponential, which keeps a log-sum-exp in range: the largest
/// value, or zero where that is infinite (or there is only NaN) and subtracting it would make a
/// NaN.
#[inline(always)]
pub(crate) fn shift<C: ComputeFloat>(largest: C) -> C {
    if largest.finite() { largest } else { C::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Baseline, FusedMultiplyAdd};

    #[test]
    fn the_short_exponential_is_accurate() {
        for i in 0..=1_000_000 {
            let x = -100.0 * i as f32 / 1e6;
            let want = f64::from(x).exp();
            let got = [x.exp_down::<Baseline>(), x.exp_down::<FusedMultiplyAdd>()];
            for got in got.map(f64::from) {
                let error = (got - want).abs();
                assert!(error <= 1.5e-7 * want || error < 1.2e-38, "exp({x}) = {got}");
            }
        }
        assert_eq!(f32::NEG_INFINITY.exp_down::<Baseline>(), 0.0);
        assert_eq!(f32::INFINITY.exp_down::<Baseline>(), f32::INFINITY);
        assert!(f32::NAN.exp_down::<Baseline>().is_nan());
        assert_eq!(0f32.exp_down::<FusedMultiplyAdd>(), 1.0);
    }
}
