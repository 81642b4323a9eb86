//! Pooling: windows ("pieces") of the last axes, each reduced to one value.
//!
//! The positions of the pieces of an axis are computed once, as a table. A row of results is
//! reduced in two steps. First the lines of its pieces become one line: loops over whole lines.
//! Then this line is reduced along the last axis, whose table is inverted: for the first element of
//! every piece, the second, and so on, the runs of pieces whose elements are evenly spaced. So
//! these too are loops over many results at a time, which the compiler vectorises. Where the pieces
//! are not evenly spaced (adaptive pooling), or there are only a few long ones, each is reduced
//! alone.
//!
//! Of equal elements the first in row-major order is the largest, and of several NaN the last. Two
//! steps meet elements in another order, so elements are compared together with their places.
//!
//! Tasks are whole images (the last axes of one index of the axes before them), so that what
//! overlapping pieces add to one element is added in one order, whatever the number of threads.

use crate::dot::scratch;
use crate::elem::{Elem, with_elem};
use crate::operand::{Sink, Source};
use crate::par::{self, Shared};
use crate::simd::{Isa, SimdTask, vectorised};
use crate::walk::Walk;
use crate::widen::{is_narrow, widened};
use alone::Band;
use half::{bf16, f16};
use pullback_ir::{DType, Pool, Pooling};
use squares::{LargestOfSquares, Squares};
use std::marker::PhantomData;

mod alone;
mod places;
mod squares;

/// Elements that are worth a task.
const GRAIN: usize = 1 << 14;
/// Fewest pieces that a run has on average, if pieces are reduced together.
const TOGETHER: usize = 4;
/// Elements of one piece that are reduced together.
const LANES: usize = 16;

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
    /// Whether these are the first elements of their pieces.
    opens: bool,
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
                runs.push(PieceRun { piece, count: 1, first: at, step: 1, opens: t == 0 });
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
    /// Those of the last axis, inverted; `None` if each is reduced alone.
    runs: Option<Vec<PieceRun>>,
}

/// `places` are the positions that some kinds take.
pub(crate) fn pool(pool: &Pool, x: Source, places: Option<Source>, out: Sink) {
    if out.is_empty() {
        return;
    }
    let rank = pool.frames.len();
    let lead = x.shape.len() - rank;
    let whole = match &pool.kind {
        Pooling::Sum | Pooling::ArgMax | Pooling::Take => &x.shape[lead..],
        Pooling::Spread(lengths) | Pooling::Give(lengths) => lengths,
    };
    // Of integers, and of images with more elements than an i32 counts, only the compute types have
    // a kernel.
    let huge = i32::try_from(whole.iter().product::<usize>()).is_err();
    if matches!(pool.kind, Pooling::ArgMax) && is_narrow(x.dtype) && (huge || !x.dtype.is_float()) {
        return widened("pool", x, |x| self::pool(pool, x, places, out));
    }
    let mut lengths = [1; 3];
    lengths[3 - rank..].copy_from_slice(whole);
    let mut pieces = [vec![(0, 1, 1)], vec![(0, 1, 1)], vec![(0, 1, 1)]];
    for (i, frame) in pool.frames.iter().enumerate() {
        let count = frame.count(whole[i]).unwrap_or(0);
        pieces[3 - rank + i] = (0..count).map(|o| frame.piece(o, whole[i])).collect();
    }
    let taps: usize = pieces[2].iter().map(|p| p.1).sum();
    let runs = Some(runs(&pieces[2])).filter(|runs| runs.len() * TOGETHER <= taps.max(TOGETHER));
    let frames = Frames { lengths, pieces, runs };
    let mut strides = [0; 3];
    strides[3 - rank..].copy_from_slice(&x.strides[lead..]);
    let images = Walk::new(&x.shape[..lead], [&x.strides[..lead]]);
    let job = PoolTask { frames, strides, images, x, out };
    let at_places = |job: &PoolTask, places: Source| {
        let mut steps = [0; 3];
        steps[3 - rank..].copy_from_slice(&places.strides[lead..]);
        let images = Walk::new(&places.shape[..lead], [&places.strides[..lead]]);
        places::run(pool, job, &places::Places { of: places, strides: steps, images });
    };
    match pool.kind {
        Pooling::Take | Pooling::Give(_) => places.into_iter().for_each(|p| at_places(&job, p)),
        Pooling::ArgMax if huge => with_elem!(compute x.dtype, T => job.argmax::<T, i64>()),
        Pooling::ArgMax if x.dtype == DType::I64 => job.argmax::<i64, i32>(),
        Pooling::ArgMax => with_elem!(float x.dtype, T => job.argmax::<T, i32>()),
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

    /// Pieces of an image, and of a row.
    fn counts(&self) -> (usize, usize) {
        let [d, h, w] = self.frames.pieces.each_ref().map(Vec::len);
        (d * h * w, w)
    }

    fn sum<S: Elem<Compute = C>, C: Number>(&self) {
        self.each::<S>(|image, x| vectorised(SumImage(Image { job: self, image, x })));
    }

    fn spread<S: Elem<Compute = C>, C: Number>(&self) {
        self.each::<S>(|image, x| vectorised(SpreadImage(Image { job: self, image, x })));
    }

    fn argmax<S: Elem<Compute: Least>, P: Place>(&self) {
        let squares = Squares::of(&self.frames).filter(|_| self.strides[2] == 1);
        self.each::<S>(|image, x| {
            if let Some(squares) = squares {
                let image = Image { job: self, image, x };
                return vectorised(LargestOfSquares(image, squares, PhantomData::<P>));
            }
            vectorised(ArgMaxImage(Image { job: self, image, x }, PhantomData::<P>));
        });
    }
}

/// One image of a task.
struct Image<'a, S> {
    job: &'a PoolTask<'a>,
    image: usize,
    /// Its first element.
    x: *const S,
}

/// What sums are computed in.
trait Number: Copy + Default + std::ops::AddAssign + std::ops::Add<Output = Self> {}
impl Number for f64 {}
impl Number for f32 {}

/// Calls a macro's body with a stride that the compiler knows, if it is a usual one.
macro_rules! with_stride {
    ($stride:expr, $s:ident => $body:expr) => {
        match $stride {
            1 => {
                let $s = 1;
                $body
            }
            2 => {
                let $s = 2;
                $body
            }
            $s => $body,
        }
    };
}

/// Sums over the pieces of one image.
struct SumImage<'a, S>(Image<'a, S>);

impl<S: Elem<Compute = C>, C: Number> SimdTask for SumImage<'_, S> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Image { job, image, x } = self.0;
        let frames = &job.frames;
        let [depth, height, width] = &frames.pieces;
        let [sd, sh, sw] = job.strides;
        let length = frames.lengths[2];
        let (count, _) = job.counts();
        let mut line = vec![C::default(); length];
        let mut sums = vec![C::default(); width.len()];
        let mut to = image * count;
        for d in depth {
            for h in height {
                line.fill(C::default());
                for i in 0..d.1 {
                    for j in 0..h.1 {
                        let at = (d.0 + i * d.2) as isize * sd + (h.0 + j * h.2) as isize * sh;
                        let x = x.wrapping_offset(at);
                        with_stride!(sw, s => for (k, sum) in line.iter_mut().enumerate() {
                            // SAFETY: pieces are inside their axes.
                            *sum += unsafe { (*x.offset(k as isize * s)).load() };
                        });
                    }
                }
                match &frames.runs {
                    Some(runs) => {
                        sums.fill(C::default());
                        for run in runs {
                            let from = line[run.first..].as_ptr();
                            let sums = &mut sums[run.piece..run.piece + run.count];
                            with_stride!(run.step, s => for (k, sum) in sums.iter_mut().enumerate() {
                                // SAFETY: pieces are inside the line.
                                *sum += unsafe { *from.offset(k as isize * s) };
                            });
                        }
                    }
                    None => {
                        for (sum, &(start, count, step)) in sums.iter_mut().zip(width) {
                            *sum = match step {
                                1 => total(&line[start..start + count]),
                                _ => (0..count)
                                    .fold(C::default(), |sum, t| sum + line[start + t * step]),
                            };
                        }
                    }
                }
                for (k, &sum) in sums.iter().enumerate() {
                    // SAFETY: the results of an image are one task's.
                    unsafe { *job.out.ptr.cast::<S>().add(to + k) = S::store(sum) };
                }
                to += width.len();
            }
        }
    }
}

/// The sum of adjacent elements.
#[inline(always)]
fn total<C: Number>(x: &[C]) -> C {
    let mut lanes = [C::default(); LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane += v;
        }
    }
    let mut sum = rest.iter().fold(C::default(), |sum, &v| sum + v);
    if !chunks.is_empty() {
        lanes.iter().for_each(|&v| sum += v);
    }
    sum
}

/// Each value of one image spread over its piece.
struct SpreadImage<'a, S>(Image<'a, S>);

impl<S: Elem<Compute = C>, C: Number> SimdTask for SpreadImage<'_, S> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Image { job, image, x } = self.0;
        let frames = &job.frames;
        let [depth, height, width] = &frames.pieces;
        let [sd, sh, sw] = job.strides;
        let [_, rows, length] = frames.lengths;
        let size: usize = frames.lengths.iter().product();
        let (_memory, all) = scratch::<C>(size);
        // SAFETY: as many elements as were asked for, written here first.
        let all = unsafe {
            (0..size).for_each(|i| *all.at(i) = C::default());
            std::slice::from_raw_parts_mut(all.at(0), size)
        };
        let mut line = vec![C::default(); length];
        for (a, d) in depth.iter().enumerate() {
            for (b, h) in height.iter().enumerate() {
                let x = x.wrapping_offset(a as isize * sd + b as isize * sh);
                // SAFETY: there is an element for every piece.
                let at = |k: usize| unsafe { (*x.offset(k as isize * sw)).load() };
                line.fill(C::default());
                match &frames.runs {
                    Some(runs) => {
                        for run in runs {
                            for k in 0..run.count {
                                let to = run.first as isize + k as isize * run.step;
                                line[to as usize] += at(run.piece + k);
                            }
                        }
                    }
                    None => {
                        for (k, &(start, count, step)) in width.iter().enumerate() {
                            let v = at(k);
                            line[start..]
                                .iter_mut()
                                .step_by(step)
                                .take(count)
                                .for_each(|x| *x += v);
                        }
                    }
                }
                for i in 0..d.1 {
                    for j in 0..h.1 {
                        let row = (d.0 + i * d.2) * rows + h.0 + j * h.2;
                        for (sum, &v) in all[row * length..][..length].iter_mut().zip(&line) {
                            *sum += v;
                        }
                    }
                }
            }
        }
        for (i, &sum) in all.iter().enumerate() {
            // SAFETY: the elements of an image are one task's.
            unsafe { *job.out.ptr.cast::<S>().add(image * size + i) = S::store(sum) };
        }
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

/// A place in an image: of the width of the elements where that is enough.
trait Place: Copy + Ord + Default {
    /// `first + k·step`
    fn at(first: usize, k: usize, step: usize) -> Self;
    fn wide(self) -> i64;
}
impl Place for i32 {
    #[inline(always)]
    fn at(first: usize, k: usize, step: usize) -> i32 {
        (first as i32).wrapping_add((k as i32).wrapping_mul(step as i32))
    }
    #[inline(always)]
    fn wide(self) -> i64 {
        self.into()
    }
}
impl Place for i64 {
    #[inline(always)]
    fn at(first: usize, k: usize, step: usize) -> i64 {
        (first + k * step) as i64
    }
    #[inline(always)]
    fn wide(self) -> i64 {
        self
    }
}

/// The larger of two elements with their places: of equal ones the first, of two NaN the last.
#[inline(always)]
#[allow(clippy::eq_op)] // unequal to itself: NaN
fn larger<C: Least, P: Place>(a: (C, P), b: (C, P)) -> (C, P) {
    let nan = (b.0 != b.0) & ((a.0 == a.0) | (b.1 > a.1));
    let wins = (b.0 > a.0) | ((b.0 == a.0) & (b.1 < a.1)) | nan;
    (if wins { b.0 } else { a.0 }, if wins { b.1 } else { a.1 })
}

/// Sets elements with their places.
#[inline(always)]
fn begin<C: Least, P: Place>(x: &mut [C], places: &mut [P], new: impl Fn(usize) -> (C, P)) {
    for (k, (value, place)) in x.iter_mut().zip(places).enumerate() {
        (*value, *place) = new(k);
    }
}

/// Replaces elements by larger ones.
#[inline(always)]
fn join<C: Least, P: Place>(x: &mut [C], places: &mut [P], new: impl Fn(usize) -> (C, P)) {
    for (k, (value, place)) in x.iter_mut().zip(places).enumerate() {
        (*value, *place) = larger((*value, *place), new(k));
    }
}

/// Where the largest element of each piece of one image is.
struct ArgMaxImage<'a, S, P>(Image<'a, S>, PhantomData<P>);

impl<S: Elem<Compute: Least>, P: Place> SimdTask for ArgMaxImage<'_, S, P> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Image { job, image, x } = self.0;
        let frames = &job.frames;
        let [depth, height, width] = &frames.pieces;
        let [sd, sh, sw] = job.strides;
        let [_, rows, length] = frames.lengths;
        let (count, _) = job.counts();
        let least = S::Compute::LEAST;
        let mut line = vec![least; length];
        let mut places = vec![P::default(); length];
        let mut best = vec![least; width.len()];
        let mut best_places = vec![P::default(); width.len()];
        let mut to = image * count;
        // Of no elements, the other way knows the place.
        let whole = |p: &AxisPiece| p.1 > 0 && p.2 == 1;
        let by_values = frames.runs.is_none() && sw == 1 && width.iter().all(whole);
        for d in depth {
            for h in height {
                let (strides, outer) = ([sd, sh], [*d, *h]);
                let band = Band { x, strides, outer, rows, length, width };
                if by_values && d.1 * h.1 > 0 && band.largest(&mut line, &mut best_places) {
                    for (k, place) in best_places.iter().enumerate() {
                        // SAFETY: the results of an image are one task's.
                        unsafe { *job.out.ptr.cast::<i64>().add(to + k) = place.wide() };
                    }
                    to += width.len();
                    continue;
                }
                let first = (d.0 * rows + h.0) * length;
                line.fill(least);
                for i in 0..d.1 {
                    for j in 0..h.1 {
                        let (z, y) = (d.0 + i * d.2, h.0 + j * h.2);
                        let x = x.wrapping_offset(z as isize * sd + y as isize * sh);
                        let here = (z * rows + y) * length;
                        // SAFETY: pieces are inside their axes.
                        let new = |k: usize, s: isize| unsafe {
                            ((*x.offset(k as isize * s)).load(), P::at(here, k, 1))
                        };
                        with_stride!(sw, s => match (i, j) {
                            (0, 0) => begin(&mut line, &mut places, |k| new(k, s)),
                            _ => join(&mut line, &mut places, |k| new(k, s)),
                        });
                    }
                }
                // If no element is larger than the least value, the first one is the largest.
                begin(&mut best, &mut best_places, |k| (least, P::at(first, width[k].0, 1)));
                match &frames.runs {
                    Some(runs) => {
                        for run in runs {
                            let range = run.piece..run.piece + run.count;
                            let (best, at) = (&mut best[range.clone()], &mut best_places[range]);
                            let from = (line[run.first..].as_ptr(), places[run.first..].as_ptr());
                            // SAFETY: pieces are inside the line.
                            let new = |k: isize| unsafe { (*from.0.offset(k), *from.1.offset(k)) };
                            with_stride!(run.step, s => match run.opens {
                                true => begin(best, at, |k| new(k as isize * s)),
                                false => join(best, at, |k| new(k as isize * s)),
                            });
                        }
                    }
                    None => {
                        let best = best.iter_mut().zip(&mut best_places);
                        for ((value, place), &(start, count, step)) in best.zip(width) {
                            let whole = if step == 1 { count / LANES * LANES } else { 0 };
                            let lanes = start..start + whole;
                            if let Some(new) = largest(&line[lanes.clone()], &places[lanes]) {
                                (*value, *place) = larger((*value, *place), new);
                            }
                            for t in whole..count {
                                let at = start + t * step;
                                (*value, *place) = larger((*value, *place), (line[at], places[at]));
                            }
                        }
                    }
                }
                for (k, place) in best_places.iter().enumerate() {
                    // SAFETY: the results of an image are one task's.
                    unsafe { *job.out.ptr.cast::<i64>().add(to + k) = place.wide() };
                }
                to += width.len();
            }
        }
    }
}

/// The largest of adjacent elements, a multiple of [`LANES`]; `None` of none.
#[inline(always)]
fn largest<C: Least, P: Place>(x: &[C], places: &[P]) -> Option<(C, P)> {
    let mut chunks = x.as_chunks::<LANES>().0.iter().zip(places.as_chunks::<LANES>().0);
    let (&(mut best), &(mut at)) = chunks.next()?;
    for (x, places) in chunks {
        for l in 0..LANES {
            (best[l], at[l]) = larger((best[l], at[l]), (x[l], places[l]));
        }
    }
    let mut lanes = LANES;
    while lanes > 1 {
        lanes /= 2;
        for l in 0..lanes {
            (best[l], at[l]) = larger((best[l], at[l]), (best[l + lanes], at[l + lanes]));
        }
    }
    Some((best[0], at[0]))
}
