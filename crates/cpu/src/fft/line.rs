//! Transforms of one line: in one piece, as the columns and rows of a matrix, or as a convolution.

use super::FftScratch;
use super::lanes::{Gather, Lanes};
use super::passes::{BLOCK, PassInput, PassRun, Passes, Rows, TransformTarget, W};
use super::plan::{FftAlgorithm, LinePlan, root};
use super::radix::mul;
use super::real::{Store, block, eight};
use super::shuffle::LaneShuffle;
use crate::par::{self, Shared};
use crate::simd::{Float, Isa, SimdTask, vectorised};

/// Bytes of lanes that are transformed together, if a matrix does not fit.
const CHUNK: usize = 128;
/// Bytes of a matrix whose columns are transformed at once.
const WHOLE: usize = 64 << 10;

impl<T: LaneShuffle> LinePlan<T> {
    /// Elements of each of the two spaces that [`LinePlan::pairs`] needs.
    pub(super) fn space(&self) -> usize {
        match &self.way {
            FftAlgorithm::Direct(_) => 2 * self.n,
            FftAlgorithm::Split(twist) => twist.space(),
            FftAlgorithm::Chirp(chirp) => chirp.inner.space(),
        }
    }

    /// Transforms a line of pairs, whose second parts are multiplied by `sign`, to pairs.
    ///
    /// # Safety
    /// `x` has `n` pairs, `a` and `b` are [`LinePlan::space`] elements, and `to` has space for
    /// `count` pairs, the first ones of the result; all are apart.
    pub(super) unsafe fn pairs(
        &self,
        x: *const T,
        signs: [T; 2],
        [a, b]: [*mut T; 2],
        to: *mut T,
        count: usize,
    ) {
        match &self.way {
            FftAlgorithm::Direct(passes) if count == self.n => {
                let to = TransformTarget::Pairs(to, signs[1]);
                vectorised(PassRun { passes, from: PassInput::Line(x, signs[0]), a, b, to });
            }
            FftAlgorithm::Split(twist) => {
                let to = Shared(to);
                twist.line(x, signs[0], a, LineOutput::Pairs { to, count, sign: signs[1] });
            }
            FftAlgorithm::Direct(_) | FftAlgorithm::Chirp(_) => {
                // SAFETY: guaranteed by the caller.
                let from = unsafe { self.planes(x, signs[0], [a, b]) };
                vectorised(Store { from, n: self.n, to, count, sign: signs[1] });
            }
        }
    }

    /// Transforms a line of pairs, whose second parts are multiplied by `sign`, to a plane of real
    /// parts and one of imaginary parts after it, in one of the spaces.
    ///
    /// # Safety
    /// As for [`LinePlan::pairs`].
    pub(super) unsafe fn planes(&self, x: *const T, sign: T, [a, b]: [*mut T; 2]) -> *mut T {
        match &self.way {
            FftAlgorithm::Direct(passes) => {
                let to = TransformTarget::Planes(self.n);
                vectorised(PassRun { passes, from: PassInput::Line(x, sign), a, b, to });
                passes.end(a, b)
            }
            FftAlgorithm::Split(twist) => {
                twist.line(x, sign, a, LineOutput::Planes(Shared(b)));
                b
            }
            // SAFETY: guaranteed by the caller.
            FftAlgorithm::Chirp(chirp) => unsafe { chirp.line(x, sign, a, b) },
        }
    }
}

/// `n[0] · n[1]` elements as a matrix of `n[0]` rows: its columns are transformed, multiplied by
/// roots, and its rows are transformed.
pub(super) struct Twist<T> {
    n: [usize; 2],
    passes: [Passes<T>; 2],
    /// The root that an element is multiplied by is a product of two, of the first row of its
    /// block of rows and of its row in that: a table of all would be as large as the line.
    /// For each block of columns and each block of rows a block of roots.
    block_roots: Vec<T>,
    /// For each block of columns and each of [`W`] rows a block of roots.
    row_roots: Vec<T>,
}

impl<T: LaneShuffle> Twist<T> {
    pub(super) fn of(n: [usize; 2], passes: [Passes<T>; 2]) -> Twist<T> {
        let (row_blocks, column_blocks) = (n[0].div_ceil(W), n[1].div_ceil(W));
        let table = |rows: usize, step: usize| {
            let mut roots = vec![T::default(); column_blocks * rows * BLOCK];
            for k in 0..rows {
                for j in 0..n[1] {
                    let at = (j / W * rows + k) * BLOCK + j % W;
                    let w = root(k * step * j, n[0] * n[1]);
                    (roots[at], roots[at + W]) = (T::of_f64(w.0), T::of_f64(w.1));
                }
            }
            roots
        };
        Twist { n, passes, block_roots: table(row_blocks, W), row_roots: table(W, 1) }
    }

    fn space(&self) -> usize {
        let [rows, columns] = self.n;
        (rows.next_multiple_of(W) * columns * 2).max(2 * rows * columns)
    }

    /// Blocks of lanes that are transformed together.
    fn together(rows: usize, blocks: usize) -> usize {
        match rows * blocks * BLOCK * size_of::<T>() <= WHOLE {
            true => blocks,
            false => (CHUNK / (W * size_of::<T>())).clamp(1, blocks),
        }
    }

    /// From pairs at `x` to `out`, by way of `matrix`.
    fn line(&self, x: *const T, sign: T, matrix: *mut T, out: LineOutput<T>) {
        let [rows, columns] = self.n;
        let (row_blocks, column_blocks) = (rows.div_ceil(W), columns.div_ceil(W));
        let each = Self::together(rows, column_blocks);
        let (x, matrix) = (Shared(x.cast_mut()), Shared(matrix));
        par::for_each(column_blocks.div_ceil(each), |task| {
            let first = task * each;
            let s = each.min(column_blocks - first);
            let len = rows.next_multiple_of(W) * s * BLOCK;
            let mut scratch = FftScratch::<T>::of(2 * len);
            let a = scratch.ptr();
            let b = a.wrapping_add(len);
            for block in 0..s {
                let column = (first + block) * W;
                let mut starts = [0; W];
                for (l, start) in starts.iter_mut().enumerate() {
                    *start = 2 * (column + l) as isize;
                }
                let lanes = Lanes {
                    ptr: x.at(0),
                    starts,
                    count: W.min(columns - column),
                    rows,
                    step: 2 * columns as isize,
                    pair: Some(1),
                    sign,
                };
                vectorised(Gather(lanes, b.wrapping_add(block * BLOCK), s * BLOCK));
            }
            let (passes, from) = (&self.passes[0], PassInput::Rows(Rows::dense(b, s), s));
            vectorised(PassRun { passes, from, a, b, to: TransformTarget::Blocks });
            let end = passes.end(a, b);
            // SAFETY: the rows that fill the last block, inside the scratch.
            unsafe {
                let fill = (rows.next_multiple_of(W) - rows) * s * BLOCK;
                std::slice::from_raw_parts_mut(end.add(rows * s * BLOCK), fill).fill(T::default());
            }
            let blocks = (first, s);
            vectorised(TransposeColumns { twist: self, from: end, to: matrix.at(0), blocks });
        });
        let each = Self::together(columns, row_blocks);
        par::for_each(row_blocks.div_ceil(each), |task| {
            let first = task * each;
            let s = each.min(row_blocks - first);
            let len = columns * s * BLOCK;
            let mut scratch = FftScratch::<T>::of(2 * len);
            let a = scratch.ptr();
            let b = a.wrapping_add(len);
            let ptr = matrix.at(0).wrapping_add(first * BLOCK);
            let lines = Rows::blocks(ptr, row_blocks * BLOCK);
            let (passes, from) = (&self.passes[1], PassInput::Rows(lines, s));
            vectorised(PassRun { passes, from, a, b, to: TransformTarget::Blocks });
            let end = passes.end(a, b);
            vectorised(StoreRows { n: self.n, from: end, blocks: (first, s), out });
        });
    }
}

/// Where a line is written: each task of the rows writes its part, in one pass over memory.
#[derive(Clone, Copy)]
enum LineOutput<T> {
    /// A plane of real parts and one of imaginary parts after it.
    Planes(Shared<T>),
    /// The first `count` pairs, whose second parts are multiplied by `sign`.
    Pairs { to: Shared<T>, count: usize, sign: T },
}

/// Writes blocks of transformed rows, which are every `n[0]`th elements of the line.
struct StoreRows<T> {
    n: [usize; 2],
    from: *const T,
    /// The first block of rows, and how many.
    blocks: (usize, usize),
    out: LineOutput<T>,
}

impl<T: LaneShuffle> SimdTask for StoreRows<T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let ([rows, columns], (first, s)) = (self.n, self.blocks);
        for k in 0..columns {
            for block in 0..s {
                let row = (first + block) * W;
                let (at, lines) = (k * rows + row, W.min(rows - row));
                // SAFETY: the lines of this task, inside the planes or the pairs of the caller; the
                // scratch is neither.
                unsafe {
                    let from = self.from.add((k * s + block) * BLOCK);
                    match self.out {
                        LineOutput::Planes(to) if lines == W => {
                            let to = to.0.add(at);
                            *to.cast::<[T; W]>() = *from.cast();
                            *to.add(rows * columns).cast::<[T; W]>() = *from.add(W).cast();
                        }
                        LineOutput::Planes(to) => {
                            let to = to.0.add(at);
                            for q in 0..lines {
                                *to.add(q) = *from.add(q);
                                *to.add(rows * columns + q) = *from.add(W + q);
                            }
                        }
                        LineOutput::Pairs { to, count, sign } if lines == W && at + W <= count => {
                            let im = (*from.add(W).cast::<[T; W]>()).map(|v| sign * v);
                            let to = to.0.add(2 * at).cast();
                            T::interleave::<I>(&*from.cast(), &im, &mut *to);
                        }
                        LineOutput::Pairs { to, count, sign } => {
                            for q in 0..lines.min(count.saturating_sub(at)) {
                                let to = to.0.add(2 * (at + q));
                                (*to, *to.add(1)) = (*from.add(q), sign * *from.add(W + q));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Multiplies blocks of columns by roots and transposes them into the matrix of rows.
struct TransposeColumns<'a, T> {
    twist: &'a Twist<T>,
    from: *const T,
    to: *mut T,
    /// The first block of columns, and how many.
    blocks: (usize, usize),
}

impl<T: LaneShuffle> SimdTask for TransposeColumns<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let [rows, columns] = self.twist.n;
        let row_blocks = rows.div_ceil(W);
        let (first, s) = self.blocks;
        for row in 0..row_blocks {
            for block in 0..s {
                let mut tile = [[T::default(); BLOCK]; W];
                let mut transposed = tile;
                let column = first + block;
                // SAFETY: a block of eight rows inside the space of the caller, which has whole
                // blocks of rows, and as many roots; columns that exist, inside the matrix.
                unsafe {
                    let from = self.from.add((row * W * s + block) * BLOCK);
                    let block_roots = self.twist.block_roots.as_ptr();
                    let u = &*block_roots.add((column * row_blocks + row) * BLOCK).cast();
                    let row_roots = self.twist.row_roots.as_ptr().add(column * W * BLOCK);
                    for (k, to) in tile.iter_mut().enumerate() {
                        let (x, v) = (from.add(k * s * BLOCK), row_roots.add(k * BLOCK));
                        let mut w = [T::default(); BLOCK];
                        times::<T, I>(u, &*v.cast(), &mut w);
                        times::<T, I>(&*x.cast(), &w, to);
                    }
                    let (x, y) = (tile.as_ptr().cast::<T>(), transposed.as_mut_ptr().cast::<T>());
                    T::transpose::<I>(x, y);
                    T::transpose::<I>(x.add(W), y.add(W));
                    let count = W.min(columns - column * W);
                    for (q, block_of_row) in transposed.iter().enumerate().take(count) {
                        let to = self.to.add(((column * W + q) * row_blocks + row) * BLOCK);
                        *to.cast() = *block_of_row;
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn times<T: Float, I: Isa>(x: &[T; BLOCK], w: &[T; BLOCK], y: &mut [T; BLOCK]) {
    for q in 0..W {
        (y[q], y[W + q]) = mul::<T, I>((x[q], x[W + q]), (w[q], w[W + q]));
    }
}

/// A transform of any length as a convolution: `jk = (j² + k² - (j - k)²) / 2`.
pub(super) struct Chirp<T> {
    n: usize,
    pub(super) inner: Box<LinePlan<T>>,
    /// `exp(-πi·j²/n)`: real parts, then imaginary ones.
    chirp: Vec<T>,
    /// The transform of its conjugate, divided by the inner length.
    kernel: Vec<T>,
}

impl<T: LaneShuffle> Chirp<T> {
    pub(super) fn of(n: usize, inner: LinePlan<T>) -> Chirp<T> {
        let m = inner.n;
        let wave = |j: usize| root((j as u128 * j as u128 % (2 * n as u128)) as usize, 2 * n);
        let mut chirp = Vec::with_capacity(2 * n);
        (0..n).for_each(|j| chirp.push(T::of_f64(wave(j).0)));
        (0..n).for_each(|j| chirp.push(T::of_f64(wave(j).1)));
        let mut pairs = vec![T::default(); 2 * m];
        for j in 0..n {
            let (re, im) = wave(j);
            for at in [j, (m - j) % m] {
                pairs[2 * at] = T::of_f64(re / m as f64);
                pairs[2 * at + 1] = T::of_f64(-im / m as f64);
            }
        }
        let mut scratch = FftScratch::<T>::of(2 * inner.space());
        let a = scratch.ptr();
        // SAFETY: the line has m pairs, and the scratch two spaces.
        let kernel = unsafe {
            let b = a.add(inner.space());
            let planes = inner.planes(pairs.as_ptr(), T::of_f64(1.0), [a, b]);
            std::slice::from_raw_parts(planes, 2 * m).to_vec()
        };
        Chirp { n, inner: Box::new(inner), chirp, kernel }
    }

    /// # Safety
    /// As for [`LinePlan::pairs`].
    unsafe fn line(&self, x: *const T, sign: T, a: *mut T, b: *mut T) -> *mut T {
        let m = self.inner.n;
        let mut scratch = FftScratch::<T>::of(2 * m);
        let pairs = scratch.ptr();
        // SAFETY: guaranteed by the caller; the inner plan has the same spaces, and the planes that
        // it returns are in one of them.
        unsafe {
            vectorised(Multiply { chirp: self, step: ChirpProduct::In(x, sign), out: pairs });
            let y = self.inner.planes(pairs, T::of_f64(1.0), [a, b]);
            vectorised(Multiply { chirp: self, step: ChirpProduct::Between(y), out: pairs });
            let y = self.inner.planes(pairs, T::of_f64(1.0), [a, b]);
            let out = if y == a { b } else { a };
            vectorised(Multiply { chirp: self, step: ChirpProduct::Out(y), out });
            out
        }
    }
}

/// The products of a convolution.
struct Multiply<'a, T> {
    chirp: &'a Chirp<T>,
    step: ChirpProduct<T>,
    out: *mut T,
}

enum ChirpProduct<T> {
    /// Pairs times the chirp, padded.
    In(*const T, T),
    /// The conjugate of planes times the kernel, as pairs.
    Between(*const T),
    /// The conjugate of planes times the chirp, as planes.
    Out(*const T),
}

impl<T: LaneShuffle> SimdTask for Multiply<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let (n, m) = (self.chirp.n, self.chirp.inner.n);
        // SAFETY: the caller's pairs and planes; the output does not overlap them.
        unsafe {
            let read = |p: *const T, n: usize| std::slice::from_raw_parts(p, n);
            let out = std::slice::from_raw_parts_mut(self.out, 2 * m);
            let (re, im) = self.chirp.chirp.split_at(n);
            match self.step {
                ChirpProduct::In(x, sign) => {
                    enter::<T, I>(read(x, 2 * n), sign, re, im, &mut out[..2 * n]);
                    out[2 * n..].fill(T::default());
                }
                ChirpProduct::Between(y) => {
                    let (kr, ki) = self.chirp.kernel.split_at(m);
                    between::<T, I>(read(y, m), read(y.add(m), m), kr, ki, out);
                }
                ChirpProduct::Out(y) => {
                    let (or, oi) = out[..2 * n].split_at_mut(n);
                    leave::<T, I>(read(y, n), read(y.add(m), n), re, im, or, oi);
                }
            }
        }
    }
}

#[inline(always)]
fn enter<T: Float, I: Isa>(x: &[T], sign: T, re: &[T], im: &[T], out: &mut [T]) {
    let n = re.len();
    let (x, im, out) = (&x[..2 * n], &im[..n], &mut out[..2 * n]);
    for j in 0..n {
        let v = mul::<T, I>((x[2 * j], sign * x[2 * j + 1]), (re[j], im[j]));
        (out[2 * j], out[2 * j + 1]) = v;
    }
}

#[inline(always)]
fn between<T: LaneShuffle, I: Isa>(xr: &[T], xi: &[T], kr: &[T], ki: &[T], out: &mut [T]) {
    let n = xr.len();
    let (xi, kr, ki, out) = (&xi[..n], &kr[..n], &ki[..n], &mut out[..2 * n]);
    // Whole blocks, as the inner length is a multiple of 64.
    for j in (0..n).step_by(W) {
        let (mut a, mut b) = ([T::default(); W], [T::default(); W]);
        let (x, z) = ((eight(&xr[j..]), eight(&xi[j..])), (eight(&kr[j..]), eight(&ki[j..])));
        for q in 0..W {
            let v = mul::<T, I>((x.0[q], x.1[q]), (z.0[q], z.1[q]));
            (a[q], b[q]) = (v.0, -v.1);
        }
        T::interleave::<I>(&a, &b, block(&mut out[2 * j..]));
    }
}

#[inline(always)]
fn leave<T: Float, I: Isa>(xr: &[T], xi: &[T], wr: &[T], wi: &[T], or: &mut [T], oi: &mut [T]) {
    let n = xr.len();
    let (xi, wr, wi, or, oi) = (&xi[..n], &wr[..n], &wi[..n], &mut or[..n], &mut oi[..n]);
    for j in 0..n {
        (or[j], oi[j]) = mul::<T, I>((xr[j], -xi[j]), (wr[j], wi[j]));
    }
}
