//! Pooling: windows ("pieces") of the last axes, each reduced to one value.
//!
//! The positions of the pieces of an axis are computed once, as a table. Along the last axis the
//! table is inverted: for the first element of every piece, the second, and so on, the runs of
//! pieces whose elements are evenly spaced. What remains are loops over a whole row of results at a
//! time, which the compiler vectorises.
//!
//! Tasks are whole images (the last axes of one index of the axes before them), so that what
//! overlapping pieces add to one element is added in one order, whatever the number of threads.

use crate::dot::scratch;
use crate::elem::{Elem, with_elem};
use crate::operand::{Sink, Source};
use crate::par::{self, Shared};
use crate::simd::{by_level, level};
use crate::walk::Walk;
use half::{bf16, f16};
use pullback_ir::{DType, Pool, Pooling};

/// Elements that are worth a task.
const GRAIN: usize = 1 << 14;

/// A piece of an axis: its first position, how many, and the distance between them.
type AxisPiece = (usize, usize, usize);

/// Adjacent pieces of the last axis with one element each, evenly spaced.
#[derive(Clone, Copy)]
struct PieceRun {
    /// The first piece, and how many.
    piece: usize,
    count: usize,
    /// The position of the first one's element, and the distance to the next one's.
    first: usize,
    step: isize,
}

/// Element 0 of every piece that has one, then element 1, ….
fn runs(pieces: &[AxisPiece]) -> Vec<PieceRun> {
    let mut runs: Vec<PieceRun> = Vec::new();
    for t in 0..pieces.iter().map(|p| p.1).max().unwrap_or(0) {
        let from = runs.len();
        for (piece, &(start, count, step)) in pieces.iter().enumerate() {
            if t >= count {
                continue;
            }
            let at = start + t * step;
            let joined = runs[from..].last_mut().is_some_and(|run| run.join(piece, at));
            if !joined {
                runs.push(PieceRun { piece, count: 1, first: at, step: 1 });
            }
        }
    }
    runs
}

impl PieceRun {
    /// Appends a piece with an element at `at`, if it is the next and evenly spaced; the second
    /// piece sets the spacing.
    fn join(&mut self, piece: usize, at: usize) -> bool {
        if self.count == 1 {
            self.step = at as isize - self.first as isize;
        }
        let even = at as isize == self.first as isize + self.count as isize * self.step;
        let joins = even && self.piece + self.count == piece;
        self.count += usize::from(joins);
        joins
    }
}

/// Three spatial axes; missing ones have length 1 and one piece.
struct Frames {
    /// Lengths of the side that is divided into pieces.
    lengths: [usize; 3],
    pieces: [Vec<AxisPiece>; 3],
    /// Those of the last axis, inverted.
    runs: Vec<PieceRun>,
}

pub(crate) fn pool(pool: &Pool, x: Source, out: Sink) {
    if out.is_empty() {
        return;
    }
    let rank = pool.frames.len();
    let lead = x.shape.len() - rank;
    let whole = match &pool.kind {
        Pooling::Sum | Pooling::ArgMax => &x.shape[lead..],
        Pooling::Spread(lengths) => lengths,
    };
    let mut lengths = [1; 3];
    lengths[3 - rank..].copy_from_slice(whole);
    let mut pieces = [vec![(0, 1, 1)], vec![(0, 1, 1)], vec![(0, 1, 1)]];
    for (i, frame) in pool.frames.iter().enumerate() {
        let count = frame.count(whole[i]).unwrap_or(0);
        pieces[3 - rank + i] = (0..count).map(|o| frame.piece(o, whole[i])).collect();
    }
    let runs = runs(&pieces[2]);
    let frames = Frames { lengths, pieces, runs };
    let mut strides = [0; 3];
    strides[3 - rank..].copy_from_slice(&x.strides[lead..]);
    let images = Walk::new(&x.shape[..lead], [&x.strides[..lead]]);
    let job = PoolTask { frames, strides, images, x, out };
    match pool.kind {
        Pooling::ArgMax => with_elem!(x.dtype, T => job.argmax::<T>()),
        Pooling::Sum => match x.dtype {
            DType::F64 => job.sum::<f64, f64>(),
            DType::F32 => job.sum::<f32, f32>(),
            DType::BF16 => job.sum::<bf16, f32>(),
            DType::F16 => job.sum::<f16, f32>(),
            DType::I64 | DType::I32 | DType::U8 | DType::Bool => {
                unreachable!("`infer` rejects dtypes other than floats")
            }
        },
        Pooling::Spread(_) => match x.dtype {
            DType::F64 => job.spread::<f64, f64>(),
            DType::F32 => job.spread::<f32, f32>(),
            DType::BF16 => job.spread::<bf16, f32>(),
            DType::F16 => job.spread::<f16, f32>(),
            DType::I64 | DType::I32 | DType::U8 | DType::Bool => {
                unreachable!("`infer` rejects dtypes other than floats")
            }
        },
    }
}

struct PoolTask<'a> {
    frames: Frames,
    strides: [isize; 3],
    images: Walk<1>,
    x: Source<'a>,
    out: Sink<'a>,
}

impl PoolTask<'_> {
    /// Calls `f` for each image with its number and its first element.
    fn each<S>(&self, f: impl Fn(usize, *const S) + Sync) {
        let count = self.images.len();
        let size: usize = self.frames.lengths.iter().product();
        let each = (GRAIN / size.max(1)).max(1);
        let x = Shared(self.x.ptr.cast_mut().cast::<S>());
        par::for_each(count.div_ceil(each), |task| {
            for image in task * each..count.min((task + 1) * each) {
                let [offset] = self.images.offsets(image);
                f(image, x.at(0).wrapping_offset(offset).cast_const());
            }
        });
    }

    /// Calls `f` for each row of pieces of an image, in order, with its number and its pieces of
    /// the first two axes.
    fn rows(&self, mut f: impl FnMut(usize, [AxisPiece; 2])) {
        let [depth, height, _] = &self.frames.pieces;
        for (i, &d) in depth.iter().enumerate() {
            for (j, &h) in height.iter().enumerate() {
                f(i * height.len() + j, [d, h]);
            }
        }
    }

    /// Pieces of an image, and of a row.
    fn counts(&self) -> (usize, usize) {
        let [d, h, w] = self.frames.pieces.each_ref().map(Vec::len);
        (d * h * w, w)
    }

    fn sum<S: Elem<Compute = C>, C: Copy + Default + std::ops::AddAssign>(&self) {
        let out = Shared(self.out.ptr.cast::<S>());
        let [sd, sh, sw] = self.strides;
        let (count, width) = self.counts();
        self.each::<S>(|image, x| {
            let mut sums = vec![C::default(); width];
            self.rows(|row, [d, h]| {
                sums.fill(C::default());
                for (i, j) in pairs(d, h) {
                    let line = x.wrapping_offset(i as isize * sd + j as isize * sh);
                    for run in &self.frames.runs {
                        let from = line.wrapping_offset(run.first as isize * sw);
                        let sums = &mut sums[run.piece..run.piece + run.count];
                        // SAFETY: pieces are inside their axes.
                        unsafe { add::<S, C>(from, run.step * sw, sums) };
                    }
                }
                let to = image * count + row * width;
                // SAFETY: the results of an image are one task's.
                sums.iter()
                    .enumerate()
                    .for_each(|(k, &v)| unsafe { *out.at(to + k) = S::store(v) });
            });
        });
    }

    fn argmax<S: Elem>(&self)
    where
        S::Compute: Least,
    {
        let out = Shared(self.out.ptr.cast::<i64>());
        let [sd, sh, sw] = self.strides;
        let [_, height, length] = self.frames.lengths;
        let (count, width) = self.counts();
        self.each::<S>(|image, x| {
            let mut best = vec![S::Compute::LEAST; width];
            self.rows(|row, [d, h]| {
                best.fill(S::Compute::LEAST);
                let to = image * count + row * width;
                // SAFETY: the results of an image are one task's, and written before they are read.
                let places = unsafe {
                    let first = (d.0 * height + h.0) * length;
                    for (k, piece) in self.frames.pieces[2].iter().enumerate() {
                        // If no element is larger than the least value, the first one is the
                        // largest.
                        *out.at(to + k) = (first + piece.0) as i64;
                    }
                    std::slice::from_raw_parts_mut(out.at(to), width)
                };
                for (i, j) in pairs(d, h) {
                    let line = x.wrapping_offset(i as isize * sd + j as isize * sh);
                    for run in &self.frames.runs {
                        let range = run.piece..run.piece + run.count;
                        let taken = Taken {
                            x: line.wrapping_offset(run.first as isize * sw),
                            stride: run.step * sw,
                            place: ((i * height + j) * length + run.first) as i64,
                            step: run.step as i64,
                        };
                        // SAFETY: pieces are inside their axes; this machine supports the level.
                        unsafe { taken.best(&mut best[range.clone()], &mut places[range]) };
                    }
                }
            });
        });
    }

    fn spread<S: Elem<Compute = C>, C: Copy + Default + std::ops::AddAssign>(&self) {
        let out = Shared(self.out.ptr.cast::<S>());
        let [sd, sh, sw] = self.strides;
        let [_, height, width] = self.frames.lengths;
        let rows = self.frames.pieces[1].len();
        let size: usize = self.frames.lengths.iter().product();
        self.each::<S>(|image, x| {
            let (_sums, sums) = scratch::<C>(size);
            // SAFETY: pieces are inside their axes; the scratch and the elements of an image are
            // one task's.
            unsafe {
                (0..size).for_each(|i| *sums.at(i) = C::default());
                self.rows(|row, [d, h]| {
                    let line = (row / rows) as isize * sd + (row % rows) as isize * sh;
                    for (i, j) in pairs(d, h) {
                        let to = (i * height + j) * width;
                        for run in &self.frames.runs {
                            let from = x.wrapping_offset(line + run.piece as isize * sw);
                            let to = sums.at(to + run.first);
                            for k in 0..run.count as isize {
                                *to.offset(k * run.step) += (*from.offset(k * sw)).load();
                            }
                        }
                    }
                });
                (0..size).for_each(|i| *out.at(image * size + i) = S::store(*sums.at(i)));
            }
        });
    }
}

/// The positions of a piece of the first two axes, in row-major order.
fn pairs(d: AxisPiece, h: AxisPiece) -> impl Iterator<Item = (usize, usize)> {
    (0..d.1).flat_map(move |i| (0..h.1).map(move |j| (d.0 + i * d.2, h.0 + j * h.2)))
}

/// `sums[k] += x[k·stride]`
unsafe fn add<S: Elem<Compute = C>, C: std::ops::AddAssign>(
    x: *const S,
    stride: isize,
    sums: &mut [C],
) {
    for (k, sum) in sums.iter_mut().enumerate() {
        // SAFETY: the caller has as many elements as there are sums.
        *sum += unsafe { (*x.offset(k as isize * stride)).load() };
    }
}

/// The least value of a compute type.
trait Least: Copy + PartialOrd {
    const LEAST: Self;
}
impl Least for f64 {
    const LEAST: f64 = f64::NEG_INFINITY;
}
impl Least for f32 {
    const LEAST: f32 = f32::NEG_INFINITY;
}
impl Least for i64 {
    const LEAST: i64 = i64::MIN;
}

/// An element for each of some adjacent pieces, and their positions.
struct Taken<S> {
    x: *const S,
    stride: isize,
    place: i64,
    step: i64,
}

impl<S: Elem> Taken<S>
where
    S::Compute: Least,
{
    /// Replaces the best so far by larger elements and by NaN.
    unsafe fn best(&self, best: &mut [S::Compute], places: &mut [i64]) {
        // SAFETY: the caller has the elements; the machine supports the level.
        unsafe {
            by_level!(
                level(),
                avx512: self.best_avx512(best, places),
                avx2: self.best_avx2(best, places),
                baseline: self.best_plain(best, places),
            )
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn best_avx512(&self, best: &mut [S::Compute], places: &mut [i64]) {
        // SAFETY: passed on.
        unsafe { self.best_plain(best, places) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn best_avx2(&self, best: &mut [S::Compute], places: &mut [i64]) {
        // SAFETY: passed on.
        unsafe { self.best_plain(best, places) }
    }

    #[inline(always)]
    unsafe fn best_plain(&self, best: &mut [S::Compute], places: &mut [i64]) {
        for (k, (best, place)) in best.iter_mut().zip(places).enumerate() {
            // SAFETY: the caller has as many elements as there are pieces.
            let v = unsafe { (*self.x.offset(k as isize * self.stride)).load() };
            // Not equal to itself: NaN.
            #[allow(clippy::eq_op)]
            let wins = v > *best || v != v;
            *best = if wins { v } else { *best };
            *place = if wins { self.place + k as i64 * self.step } else { *place };
        }
    }
}
