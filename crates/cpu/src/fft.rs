//! Fourier transforms of lines: the elements along the transformed axis.
//!
//! # One kernel
//!
//! Everything is made of one kernel (`passes.rs`): a complex transform of `n` rows of lanes, which
//! treats all lanes alike. It is a product of passes, one per factor (radix) of `n`. A pass of
//! radix `r` combines rows that are `n/r` apart, multiplies by roots of one, and writes the `r`
//! results next to each other; the next pass sees them as rows of `r` times as many lanes, with
//! `n/r` rows left to transform. So the order is right after the last pass, without a reversal of
//! digits (Stockham's form), and lanes never mix: loops over them are vectorised without a shuffle.
//! Lanes come in blocks, eight real parts and then eight imaginary ones, which are one or two
//! registers each; a row has one address, not two.
//!
//! What is a lane depends on the lines (`fft.rs`):
//!
//! - **Side by side**: lines that are short, or whose elements are far apart, are lanes, 8 or 16 at
//!   a time. Lines next to each other in memory are read and written as they are.
//! - **Alone**: of a long contiguous line the first pass, always of radix 8, takes eight positions
//!   for lanes and transposes its results, eight by eight; from then on a row is a block. All of a
//!   line of a thousand stays in the first-level cache.
//! - **Split** (`line.rs`): a line that is too long for the cache, or not a multiple of 8, is a
//!   matrix `a × b`. Its columns are lines side by side; the results are multiplied by roots and
//!   transposed, block by block; then the rows are lines side by side, and their results are in the
//!   right order. Columns and rows are shared by threads.
//! - **Chirp**: a length with a prime factor above 31 is a convolution of a longer, convenient
//!   length (Bluestein).
//!
//! Which of alone, split and chirp it is, and all radices and roots, depend on the length alone.
//! The order of arithmetic is the same whether a line is a lane or alone, so a line has the same
//! bits in any batch, layout and number of threads.
//!
//! # Real lines
//!
//! A real line of even length is read as pairs, which are a complex line of half the length
//! (`real.rs`); one of odd length is a complex line. An inverse transform is a transform of
//! conjugates: imaginary parts are multiplied by a sign where they are read and written.
//!
//! # Roots
//!
//! Roots of one are computed in f64, from an angle below an eighth of the circle, and rounded: each
//! is accurate, and symmetric ones are exactly symmetric. Those between the columns and the rows of
//! a split line are products of two such. Tables cost more than a transform, so plans are cached
//! (`plan.rs`).
//!
//! Everything is scalar code that the compiler vectorises, except pairs to blocks and back, and
//! transpositions (`shuffle.rs`).

mod lanes;
mod line;
mod passes;
mod plan;
mod radix;
mod real;
mod shuffle;
#[cfg(test)]
mod tests;

use crate::buffer::Buffer;
use crate::operand::{Sink, Source};
use crate::par;
use crate::simd::vectorised;
use crate::walk::Walk;
use lanes::{Gather, Lanes, Scatter};
use passes::{BLOCK, PassInput, PassRun, Passes, Rows, TransformTarget, W};
use plan::{FftElem, LinePlan};
use pullback_ir::{DType, Fft, Shape, Strides, dense_strides};
use real::{OnRows, SpectrumStep, on_line};
use shuffle::LaneShuffle;

/// Fewest elements per task.
const TASK: usize = 1 << 13;
/// Lines that are read together if elements are not contiguous: at least a cache line of pairs.
const BUNDLE: usize = 16;
/// Longest line of which [`BUNDLE`] are transformed side by side.
const SHORT: usize = 512;
/// Longest line of which [`W`] are, if lines are not contiguous.
const MEDIUM: usize = 4096;

/// Most bytes of a line that are prefetched.
const AHEAD: usize = 16 << 10;

pub(crate) fn fft(f: Fft, x: Source, out: Sink) {
    match out.dtype {
        DType::F64 => typed::<f64>(f, x, out),
        DType::F32 => typed::<f32>(f, x, out),
        other => unreachable!("`infer` accepts only f32 and f64, not {other}"),
    }
}

fn typed<T: FftElem>(f: Fft, x: Source, out: Sink) {
    if out.is_empty() {
        return;
    }
    let one = T::of_f64(1.0);
    match f {
        Fft::Complex { axis, inverse } => {
            let n = x.shape[axis];
            let sign = if inverse { -one } else { one };
            let (from, to, starts) = sides(axis, x, LineElements::Pairs, out, LineElements::Pairs);
            let plan = T::plan(n);
            TransformJob { plan: &plan, from, to, signs: [sign, sign], before: None, after: None }
                .run(&starts);
        }
        Fft::Real(axis) => {
            let n = x.shape[axis];
            let even = n.is_multiple_of(2);
            let kind = if even { LineElements::Halves } else { LineElements::Reals };
            let (from, to, starts) = sides(axis, x, kind, out, LineElements::Pairs);
            let signs = [one, one];
            if even {
                let halves = T::half_plan(n);
                let after = Some(SpectrumStep::Separate(&halves.roots));
                TransformJob { plan: &halves.plan, from, to, signs, before: None, after }
                    .run(&starts);
            } else {
                let plan = T::plan(n);
                TransformJob { plan: &plan, from, to, signs, before: None, after: None }
                    .run(&starts);
            }
        }
        Fft::Hermitian { axis, len } => {
            let even = len.is_multiple_of(2);
            let kind = if even { LineElements::Halves } else { LineElements::Reals };
            let (from, to, starts) = sides(axis, x, LineElements::Pairs, out, kind);
            // Conjugates are transformed, which the parts before make.
            let signs = [one, -one];
            if even {
                let halves = T::half_plan(len);
                let before = Some(SpectrumStep::Combine(&halves.roots));
                TransformJob { plan: &halves.plan, from, to, signs, before, after: None }
                    .run(&starts);
            } else {
                let (plan, before) = (T::plan(len), Some(SpectrumStep::Extend));
                TransformJob { plan: &plan, from, to, signs, before, after: None }.run(&starts);
            }
        }
    }
}

/// What the elements of a line are.
#[derive(Clone, Copy, PartialEq)]
enum LineElements {
    /// Pairs on the last axis.
    Pairs,
    /// Reals, an even number, of which two neighbours are a pair.
    Halves,
    /// Reals.
    Reals,
}

/// An operand or result along the transformed axis, as pairs.
#[derive(Clone, Copy)]
struct Side<T> {
    ptr: *mut T,
    /// Pairs of a line.
    rows: usize,
    /// Stride along the line, in elements.
    step: isize,
    /// Stride between the two parts of a pair; `None` if there are only first parts.
    pair: Option<isize>,
}

// SAFETY: sides are made from operands, which may be shared; tasks write disjoint lines.
unsafe impl<T> Send for Side<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Side<T> {}

/// Both sides, and where each line starts in them.
fn sides<T>(
    axis: usize,
    x: Source,
    x_kind: LineElements,
    out: Sink,
    out_kind: LineElements,
) -> (Side<T>, Side<T>, Walk<2>) {
    let strides = dense_strides(out.shape);
    let side = |ptr: *mut u8, shape: &[usize], strides: &[isize], kind: LineElements| {
        let (n, step) = (shape[axis], strides[axis]);
        let (rows, step, pair) = match kind {
            LineElements::Pairs => (n, step, Some(strides[shape.len() - 1])),
            LineElements::Halves => (n / 2, 2 * step, Some(step)),
            LineElements::Reals => (n, step, None),
        };
        Side { ptr: ptr.cast(), rows, step, pair }
    };
    let from = side(x.ptr.cast_mut(), x.shape, x.strides, x_kind);
    let to = side(out.ptr, out.shape, &strides, out_kind);
    let rank = x.shape.len() - usize::from(x_kind == LineElements::Pairs);
    let (mut shape, mut a, mut b) = (Shape::new(), Strides::new(), Strides::new());
    for i in (0..rank).filter(|&i| i != axis) {
        shape.push(x.shape[i]);
        a.push(x.strides[i]);
        b.push(strides[i]);
    }
    (from, to, Walk::new(&shape, [&a, &b]))
}

impl<T: LaneShuffle> Side<T> {
    /// Whether a line is pairs one after the other.
    fn contiguous(&self) -> bool {
        self.step == 2 && self.pair == Some(1)
    }

    /// Whether elements of a line are near each other.
    fn near(&self) -> bool {
        self.step.unsigned_abs() <= 2
    }

    fn lanes(&self, starts: &[[isize; 2]], side: usize, sign: T) -> Lanes<T> {
        let mut list = [0; W];
        for (to, from) in list.iter_mut().zip(starts) {
            *to = from[side];
        }
        let Side { ptr, rows, step, pair } = *self;
        Lanes { ptr, starts: list, count: starts.len(), rows, step, pair, sign }
    }

    /// Copies a bundle of lines to or from pairs one after the other, one line after the other.
    fn stage(&self, starts: &[[isize; 2]], side: usize, pairs: &mut [T]) {
        let write = side == 1;
        let mut one = |line: usize, j: usize| {
            let at = self.ptr.wrapping_offset(starts[line][side] + j as isize * self.step);
            let pair = &mut pairs[2 * (line * self.rows + j)..][..2];
            // SAFETY: inside the operand, whose layout was checked, or inside the sink, where the
            // line belongs to this task.
            unsafe {
                match (self.pair, write) {
                    (Some(by), false) => (pair[0], pair[1]) = (*at, *at.offset(by)),
                    (None, false) => (pair[0], pair[1]) = (*at, T::default()),
                    (Some(by), true) => (*at, *at.offset(by)) = (pair[0], pair[1]),
                    (None, true) => *at = pair[0],
                }
            }
        };
        if self.near() {
            (0..starts.len()).for_each(|line| (0..self.rows).for_each(|j| one(line, j)));
        } else {
            (0..self.rows).for_each(|j| (0..starts.len()).for_each(|line| one(line, j)));
        }
    }
}

/// Scratch for a task, not to be read before it is written.
struct FftScratch<V> {
    buffer: Buffer,
    len: usize,
    kind: std::marker::PhantomData<V>,
}

impl<V: Copy> FftScratch<V> {
    fn of(len: usize) -> FftScratch<V> {
        match Buffer::alloc(len * size_of::<V>()) {
            Ok(buffer) => FftScratch { buffer, len, kind: std::marker::PhantomData },
            Err(error) => panic!("fft: {error}"),
        }
    }

    fn ptr(&mut self) -> *mut V {
        self.buffer.as_mut_ptr().cast()
    }

    fn slice(&mut self) -> &mut [V] {
        // SAFETY: the buffer has space for them and is owned by this; floats have no invalid bits,
        // and are written before they are read.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.as_mut_ptr().cast(), self.len) }
    }
}

/// Asks for a line that is read soon: a transform begins with steps too long for the hardware to
/// foresee.
fn prefetch<T>(line: *const T, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..(len * size_of::<T>()).min(AHEAD)).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is no access.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast::<i8>().wrapping_add(at)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (line, len, AHEAD);
}

/// The transform of all lines.
struct TransformJob<'a, T> {
    plan: &'a LinePlan<T>,
    from: Side<T>,
    to: Side<T>,
    /// What imaginary parts are multiplied by, before and after.
    signs: [T; 2],
    before: Option<SpectrumStep<'a, T>>,
    after: Option<SpectrumStep<'a, T>>,
}

impl<T: LaneShuffle> TransformJob<'_, T> {
    fn run(&self, starts: &Walk<2>) {
        let (count, len) = (starts.len(), self.plan.n);
        let near = self.from.near() && self.to.near();
        // Short lines, and those whose elements are far apart, are transformed side by side.
        let passes = self
            .plan
            .side_by_side()
            .filter(|_| !self.plan.alone() || !near && len <= MEDIUM && count >= W / 2);
        let bundle = TASK.div_ceil(len).next_multiple_of(BUNDLE).min(count);
        // Long lines are worth a task each, if they are contiguous.
        let bundle = if near && len >= TASK { 1 } else { bundle };
        par::for_each(count.div_ceil(bundle), |task| {
            let range = task * bundle..count.min((task + 1) * bundle);
            let mut list = Vec::with_capacity(range.len());
            range.for_each(|i| list.push(starts.offsets(i)));
            match passes {
                Some(passes) => {
                    let width = if len <= SHORT { BUNDLE } else { W };
                    list.chunks(width).for_each(|lines| self.side_by_side(passes, lines));
                }
                None => self.one_by_one(&list),
            }
        });
    }

    /// Transforms lines that are lanes.
    fn side_by_side(&self, passes: &Passes<T>, starts: &[[isize; 2]]) {
        let s = starts.len().div_ceil(W);
        let row = s * BLOCK;
        let len = self.plan.n.max(self.from.rows).max(self.to.rows) * row;
        let mut scratch = FftScratch::<T>::of(2 * len);
        let a = scratch.ptr();
        let b = a.wrapping_add(len);
        let source = if self.before.is_some() { a } else { b };
        for (block, starts) in starts.chunks(W).enumerate() {
            let lanes = self.from.lanes(starts, 0, self.signs[0]);
            vectorised(Gather(lanes, source.wrapping_add(block * BLOCK), row));
        }
        let h = self.plan.n;
        if let Some(part) = self.before {
            vectorised(OnRows { part, h, s, from: a, to: b });
        }
        let from = PassInput::Rows(Rows::dense(b, s), s);
        vectorised(PassRun { passes, from, a, b, to: TransformTarget::Blocks });
        let mut end = passes.end(a, b);
        if let Some(part) = self.after {
            let to = if end == a { b } else { a };
            vectorised(OnRows { part, h, s, from: end, to });
            end = to;
        }
        for (block, starts) in starts.chunks(W).enumerate() {
            let lanes = self.to.lanes(starts, 1, self.signs[1]);
            vectorised(Scatter(lanes, end.wrapping_add(block * BLOCK), row));
        }
    }

    /// Transforms one line after the other.
    fn one_by_one(&self, starts: &[[isize; 2]]) {
        let (n, space) = (self.plan.n, self.plan.space());
        let [staged_in, staged_out] = [&self.from, &self.to].map(|side| !side.contiguous());
        let staged = |yes: bool, side: &Side<T>| {
            FftScratch::<T>::of(if yes { 2 * side.rows * starts.len() } else { 0 })
        };
        let mut input = staged(staged_in, &self.from);
        let mut output = staged(staged_out, &self.to);
        if staged_in {
            self.from.stage(starts, 0, input.slice());
        }
        let mut spaces = FftScratch::<T>::of(2 * space);
        let mut pairs = FftScratch::<T>::of(if self.before.is_some() { 2 * n } else { 0 });
        let a = spaces.ptr();
        let b = a.wrapping_add(space);
        for (i, start) in starts.iter().enumerate() {
            if let (false, Some(next)) = (staged_in, starts.get(i + 1)) {
                prefetch(self.from.ptr.wrapping_offset(next[0]), 2 * self.from.rows);
            }
            let mut x = match staged_in {
                true => input.ptr().wrapping_add(2 * i * self.from.rows),
                false => self.from.ptr.wrapping_offset(start[0]),
            };
            if let Some(part) = self.before {
                // SAFETY: a line of the operand or of the scratch, and space for its pairs.
                unsafe { on_line(part, n, x, pairs.ptr()) };
                x = pairs.ptr();
            }
            let to = match staged_out {
                true => output.ptr().wrapping_add(2 * i * self.to.rows),
                false => self.to.ptr.wrapping_offset(start[1]),
            };
            // SAFETY: a line of the operand or of the scratch, the spaces of the plan, and a line
            // of the sink, which belongs to this task, or of the scratch.
            unsafe {
                match self.after {
                    Some(part) => {
                        let from = self.plan.planes(x, self.signs[0], [a, b]);
                        on_line(part, n, from, to);
                    }
                    None => self.plan.pairs(x, self.signs, [a, b], to, self.to.rows),
                }
            }
        }
        if staged_out {
            self.to.stage(starts, 1, output.slice());
        }
    }
}
