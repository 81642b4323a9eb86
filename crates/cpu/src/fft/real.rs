//! Real lines of an even length `n` as complex ones of half the length `h`.
//!
//! The pairs of a line are its even and odd elements, `z[j] = x[2j] + i·x[2j+1]`. As both are real,
//! their transforms can be separated again by symmetry, and combined to that of the line:
//! `X[k] = (Z[k] + Z*[h-k])/2 - i/2·w^k·(Z[k] - Z*[h-k])`. The way back is the same in reverse.

use super::passes::{BLOCK, W};
use super::radix::C;
use super::shuffle::LaneShuffle;
use crate::par;
use crate::simd::{Float, Isa, SimdTask, vectorised};
use std::ops::Range;

/// Elements of a spectrum that are computed before they are made pairs.
const RUN: usize = 64;
/// Elements of a long line that a task computes.
const PIECE: usize = 1 << 14;

/// `X[k]` from `Z[k]`, `Z[h-k]` and `u = -i/2·w^k`.
#[inline(always)]
fn separate<T: Float, I: Isa>(z: C<T>, y: C<T>, u: C<T>) -> C<T> {
    let half = T::of_f64(0.5);
    let (re, im) = (z.0 - y.0, z.1 + y.1);
    (
        T::fma::<I>(re, u.0, T::fma::<I>(-im, u.1, half * (z.0 + y.0))),
        T::fma::<I>(re, u.1, T::fma::<I>(im, u.0, half * (z.1 - y.1))),
    )
}

/// The conjugate of `2·Z[k]` from `X[k]`, `X[h-k]` and `u = -i/2·w^k`.
#[inline(always)]
fn combine<T: Float, I: Isa>(x: C<T>, y: C<T>, u: C<T>) -> C<T> {
    let (re, im) = (x.0 - y.0, x.1 + y.1);
    let (re, im) = (re + re, im + im);
    (
        T::fma::<I>(re, u.0, T::fma::<I>(im, u.1, x.0 + y.0)),
        T::fma::<I>(re, u.1, T::fma::<I>(-im, u.0, y.1 - x.1)),
    )
}

/// What is done to a spectrum before or after the transform.
#[derive(Clone, Copy)]
pub(super) enum SpectrumStep<'a, T> {
    /// `h` elements to the `h + 1` of a real line, with the roots for it.
    Separate(&'a [T]),
    /// `h + 1` elements of a spectrum to `h` conjugates, with the roots for it.
    Combine(&'a [T]),
    /// The elements of a spectrum up to the middle to the conjugates of all, of an odd number.
    Extend,
}

/// That, for rows of `s` blocks. `h` is the number of rows before, or after, `Separate`'s or
/// `Combine`'s; for `Extend` the number of rows after it.
pub(super) struct OnRows<'a, T> {
    pub(super) part: SpectrumStep<'a, T>,
    pub(super) h: usize,
    pub(super) s: usize,
    pub(super) from: *const T,
    pub(super) to: *mut T,
}

impl<T: LaneShuffle> SimdTask for OnRows<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let (h, row) = (self.h, self.s * BLOCK);
        let count = if matches!(self.part, SpectrumStep::Separate(_)) { h + 1 } else { h };
        for k in 0..count {
            // The rows that are read, and the roots.
            let (i, j, u) = match self.part {
                SpectrumStep::Separate(u) => (k % h, (h - k) % h, (u[k], u[h + 1 + k])),
                SpectrumStep::Combine(u) => (k, h - k, (u[k], u[h + 1 + k])),
                SpectrumStep::Extend => (k.min(h - k), 0, (T::default(), T::default())),
            };
            for block in 0..self.s {
                // SAFETY: rows inside the spaces of the caller, which do not overlap.
                unsafe {
                    let at = |k: usize| &*self.from.add(k * row + block * BLOCK).cast();
                    let to = &mut *self.to.add(k * row + block * BLOCK).cast();
                    let end = k == 0 || k == h;
                    match self.part {
                        SpectrumStep::Separate(_) if end => {
                            let sign = if k == 0 { T::of_f64(1.0) } else { T::of_f64(-1.0) };
                            ends::<T, I>(at(i), to, sign);
                        }
                        SpectrumStep::Separate(_) => separates::<T, I>(at(i), at(j), u, to),
                        SpectrumStep::Combine(_) if end => joins(at(0), at(h), to),
                        SpectrumStep::Combine(_) => combines::<T, I>(at(i), at(j), u, to),
                        SpectrumStep::Extend => {
                            let sign = [T::of_f64(0.0), T::of_f64(-1.0), T::of_f64(1.0)]
                                [if end { 0 } else { 1 + usize::from(2 * k > h) }];
                            signs(at(i), to, sign);
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn separates<T: Float, I: Isa>(x: &[T; BLOCK], y: &[T; BLOCK], u: C<T>, to: &mut [T; BLOCK]) {
    for q in 0..W {
        (to[q], to[W + q]) = separate::<T, I>((x[q], x[W + q]), (y[q], y[W + q]), u);
    }
}

#[inline(always)]
fn combines<T: Float, I: Isa>(x: &[T; BLOCK], y: &[T; BLOCK], u: C<T>, to: &mut [T; BLOCK]) {
    for q in 0..W {
        (to[q], to[W + q]) = combine::<T, I>((x[q], x[W + q]), (y[q], y[W + q]), u);
    }
}

#[inline(always)]
fn ends<T: Float, I: Isa>(x: &[T; BLOCK], to: &mut [T; BLOCK], sign: T) {
    for q in 0..W {
        (to[q], to[W + q]) = (T::fma::<I>(sign, x[W + q], x[q]), T::default());
    }
}

#[inline(always)]
fn joins<T: Float>(x: &[T; BLOCK], y: &[T; BLOCK], to: &mut [T; BLOCK]) {
    for q in 0..W {
        (to[q], to[W + q]) = (x[q] + y[q], y[q] - x[q]);
    }
}

#[inline(always)]
fn signs<T: Float>(x: &[T; BLOCK], to: &mut [T; BLOCK], sign: T) {
    let zero = T::of_f64(0.0);
    let keep = sign != zero;
    for q in 0..W {
        (to[q], to[W + q]) = (x[q], if keep { sign * x[W + q] } else { zero });
    }
}

/// The same for one line, to pairs: `Separate` from planes, `h` apart, the others from pairs.
/// Pieces of a long line are shared by threads.
///
/// # Safety
/// `from` and `to` have the elements of the part for this `h`, and do not overlap.
pub(super) unsafe fn on_line<T: LaneShuffle>(
    part: SpectrumStep<'_, T>,
    h: usize,
    from: *const T,
    to: *mut T,
) {
    if h < 2 * PIECE || matches!(part, SpectrumStep::Extend) {
        return vectorised(OnLine { part, h, from, to, range: 0..h });
    }
    let (from, to) = (par::Shared(from.cast_mut()), par::Shared(to));
    par::for_each(h.div_ceil(PIECE), |i| {
        let range = i * PIECE..h.min((i + 1) * PIECE);
        vectorised(OnLine { part, h, from: from.at(0), to: to.at(0), range });
    });
}

/// Some elements of a line: each is computed by itself.
struct OnLine<'a, T> {
    part: SpectrumStep<'a, T>,
    h: usize,
    from: *const T,
    to: *mut T,
    /// Which of the `h` elements are written. All, for `Extend`.
    range: Range<usize>,
}

impl<T: LaneShuffle> SimdTask for OnLine<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let (h, Range { start, end }) = (self.h, self.range);
        // The element in the middle is written with the last ones.
        let (before, elements) = match self.part {
            SpectrumStep::Separate(_) => (2 * h, start..end + usize::from(end == h)),
            SpectrumStep::Combine(_) => (2 * h + 2, start..end),
            SpectrumStep::Extend => (h + 1, 0..h),
        };
        // SAFETY: the spaces of the caller, which do not overlap.
        let (x, y) = unsafe {
            let x = std::slice::from_raw_parts(self.from, before);
            let to = self.to.add(2 * elements.start);
            (x, std::slice::from_raw_parts_mut(to, 2 * elements.len()))
        };
        let zero = T::default();
        match self.part {
            SpectrumStep::Separate(u) => {
                let (re, im) = x.split_at(h);
                if start == 0 {
                    (y[0], y[1]) = (re[0] + im[0], zero);
                }
                if end == h {
                    let at = 2 * (h - start);
                    (y[at], y[at + 1]) = (re[0] - im[0], zero);
                }
                let y = &mut y[..2 * (end - start)];
                separate_line::<T, I>(re, im, &u[..h], &u[h + 1..][..h], start, y);
            }
            SpectrumStep::Combine(u) => {
                if start == 0 {
                    (y[0], y[1]) = (x[0] + x[2 * h], x[2 * h] - x[0]);
                }
                combine_line::<T, I>(x, &u[..h], &u[h + 1..][..h], start, y);
            }
            SpectrumStep::Extend => {
                (y[0], y[1]) = (x[0], zero);
                for k in 1..h / 2 + 1 {
                    (y[2 * k], y[2 * k + 1]) = (x[2 * k], -x[2 * k + 1]);
                    (y[2 * (h - k)], y[2 * (h - k) + 1]) = (x[2 * k], x[2 * k + 1]);
                }
            }
        }
    }
}

#[inline(always)]
fn separate_line<T: LaneShuffle, I: Isa>(
    re: &[T],
    im: &[T],
    ur: &[T],
    ui: &[T],
    start: usize,
    y: &mut [T],
) {
    let (h, end) = (re.len(), start + y.len() / 2);
    let (im, ur, ui) = (&im[..h], &ur[..h], &ui[..h]);
    // Some blocks at a time: a loop over one block is unrolled before it is vectorised.
    let (mut a, mut b) = ([T::default(); RUN], [T::default(); RUN]);
    let mut k = start.max(1);
    while k + W <= end {
        let len = ((end - k) & !(W - 1)).min(RUN);
        let (up, down) = (k..k + len, h - k + 1 - len..h - k + 1);
        separate_run::<T, I>(
            (&re[up.clone()], &im[up.clone()]),
            (&re[down.clone()], &im[down]),
            (&ur[up.clone()], &ui[up]),
            &mut a[..len],
            &mut b[..len],
        );
        for j in (0..len).step_by(W) {
            T::interleave::<I>(
                eight(&a[j..]),
                eight(&b[j..]),
                block(&mut y[2 * (k - start + j)..]),
            );
        }
        k += len;
    }
    for k in k..end {
        let (other, at) = ((re[h - k], im[h - k]), 2 * (k - start));
        (y[at], y[at + 1]) = separate::<T, I>((re[k], im[k]), other, (ur[k], ui[k]));
    }
}

/// `z` upwards, `y` downwards.
#[inline(always)]
fn separate_run<T: Float, I: Isa>(
    z: (&[T], &[T]),
    y: (&[T], &[T]),
    u: (&[T], &[T]),
    re: &mut [T],
    im: &mut [T],
) {
    let n = re.len() & !(W - 1);
    let (zr, zi, yr, yi) = (&z.0[..n], &z.1[..n], &y.0[..n], &y.1[..n]);
    let (ur, ui, re, im) = (&u.0[..n], &u.1[..n], &mut re[..n], &mut im[..n]);
    for q in 0..n {
        let other = (yr[n - 1 - q], yi[n - 1 - q]);
        (re[q], im[q]) = separate::<T, I>((zr[q], zi[q]), other, (ur[q], ui[q]));
    }
}

#[inline(always)]
fn combine_line<T: LaneShuffle, I: Isa>(x: &[T], ur: &[T], ui: &[T], start: usize, y: &mut [T]) {
    let (h, end) = (ur.len(), start + y.len() / 2);
    let (x, ui) = (&x[..2 * h + 2], &ui[..h]);
    let mut k = start.max(1);
    while k + W <= end {
        let (mut a, mut b) = ([T::default(); W], [T::default(); W]);
        let (mut up, mut down) = ([T::default(); BLOCK], [T::default(); BLOCK]);
        T::deinterleave::<I>(read(&x[2 * k..]), &mut up);
        T::deinterleave::<I>(read(&x[2 * (h - k + 1 - W)..]), &mut down);
        let (ur, ui) = (eight(&ur[k..]), eight(&ui[k..]));
        for q in 0..W {
            let other = (down[W - 1 - q], down[BLOCK - 1 - q]);
            (a[q], b[q]) = combine::<T, I>((up[q], up[W + q]), other, (ur[q], ui[q]));
        }
        T::interleave::<I>(&a, &b, block(&mut y[2 * (k - start)..]));
        k += W;
    }
    for k in k..end {
        let other = (x[2 * (h - k)], x[2 * (h - k) + 1]);
        let v = combine::<T, I>((x[2 * k], x[2 * k + 1]), other, (ur[k], ui[k]));
        (y[2 * (k - start)], y[2 * (k - start) + 1]) = v;
    }
}

/// The first block of a longer slice.
#[inline(always)]
pub(super) fn block<T>(x: &mut [T]) -> &mut [T; BLOCK] {
    // SAFETY: that many elements, whose number the slice checks.
    unsafe { &mut *x[..BLOCK].as_mut_ptr().cast() }
}

/// The first block of a longer slice.
#[inline(always)]
fn read<T>(x: &[T]) -> &[T; BLOCK] {
    // SAFETY: as above.
    unsafe { &*x[..BLOCK].as_ptr().cast() }
}

/// The first elements of a longer slice.
#[inline(always)]
pub(super) fn eight<T>(x: &[T]) -> &[T; W] {
    // SAFETY: as above.
    unsafe { &*x[..W].as_ptr().cast() }
}

/// Planes, `n` apart, to `count` pairs, whose second parts are multiplied by `sign`.
pub(super) struct Store<T> {
    pub(super) from: *const T,
    pub(super) n: usize,
    pub(super) to: *mut T,
    pub(super) count: usize,
    pub(super) sign: T,
}

impl<T: LaneShuffle> SimdTask for Store<T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        // SAFETY: the spaces of the caller, which do not overlap.
        unsafe {
            let re = std::slice::from_raw_parts(self.from, self.count);
            let im = std::slice::from_raw_parts(self.from.add(self.n), self.count);
            let to = std::slice::from_raw_parts_mut(self.to, 2 * self.count);
            store::<T, I>(re, im, to, self.sign);
        }
    }
}

#[inline(always)]
fn store<T: LaneShuffle, I: Isa>(re: &[T], im: &[T], to: &mut [T], sign: T) {
    let n = re.len();
    let (im, to) = (&im[..n], &mut to[..2 * n]);
    let mut k = 0;
    while k + W <= n {
        let (mut a, mut b) = ([T::default(); W], [T::default(); W]);
        let (x, z) = (eight(&re[k..]), eight(&im[k..]));
        for q in 0..W {
            (a[q], b[q]) = (x[q], sign * z[q]);
        }
        T::interleave::<I>(&a, &b, block(&mut to[2 * k..]));
        k += W;
    }
    for k in k..n {
        (to[2 * k], to[2 * k + 1]) = (re[k], sign * im[k]);
    }
}
