//! Euclidean distances of all pairs of rows, and their gradient, without the differences in memory.
//!
//! The rows of the second operand are packed in tiles of [`W`] rows: features one after the other,
//! the rows side by side, so that vectors go across rows whatever their length is. Differences are
//! taken before they are squared: the expansion |x|² − 2x·y + |y|², a matrix product, would lose
//! the digits of close rows.
//!
//! With w = dy / distance (0 where that is 0), the gradient of row i is Σⱼ wᵢⱼ·(xᵢ − yⱼ), a sum
//! along a line of distances ([`Lines`]), and that of row j is −Σᵢ wᵢⱼ·(xᵢ − yⱼ), a sum of lines
//! ([`GradientColumns`]). Neither needs the distances transposed. Within one operand a line begins
//! after the diagonal, and its gradient is the sum of both.
//!
//! Blocks depend on shapes alone, and long sums are sums of pieces.

use crate::dot::scratch;
use crate::elem::with_elem;
use crate::norm::lanes::{AlignedScratch, ComputeFloat};
use crate::operand::{Sink, Source};
use crate::par::{self, Shared};
use crate::simd::{Isa, SimdTask, vectorised};
use crate::walk::Walk;
use crate::widen::wide_floats;

/// Rows of a tile.
const W: usize = 64;
/// Features that a loop takes at once; packed rows are padded to a multiple.
const F: usize = 4;
/// Partial sums along a line.
const LANES: usize = 32;
/// Terms that are added before their sum is added to the total: features, and lines.
const PIECE: usize = 256;
/// Tiles of a piece of a line.
const TILES: usize = PIECE / W;
/// Lines of a task, at most, and the multiplications that are enough for one.
const LINES: usize = 32;
const TASK: usize = 1 << 17;

/// The distances of the rows of `x[0]` and `x[1]`, or within `x[0]`.
pub(crate) fn distances(within: bool, x: &[Source], out: Sink) {
    wide_floats("distances", x, &[out], |x, out| {
        with_elem!(wide out[0].dtype, E => forward::<E>(within, x, out[0]));
    });
}

/// From the operands, the distances and the cotangent: the cotangents of the operands.
pub(crate) fn distances_vjp(within: bool, x: &[Source], out: &[Sink]) {
    wide_floats("distances_vjp", x, out, |x, out| {
        with_elem!(wide out[0].dtype, E => backward::<E>(within, x, out));
    });
}

/// The rows of an operand in its compute type, which may be strided, with leading axes.
#[derive(Clone, Copy)]
struct RowMatrix<C> {
    at: Shared<C>,
    strides: [isize; 2],
    count: usize,
    features: usize,
}

impl<C: ComputeFloat> RowMatrix<C> {
    /// The rows at the start of an operand.
    fn of(x: &Source) -> RowMatrix<C> {
        let rank = x.shape.len();
        RowMatrix {
            at: Shared(x.ptr.cast::<C>().cast_mut()),
            strides: [x.strides[rank - 2], x.strides[rank - 1]],
            count: x.shape[rank - 2],
            features: x.shape[rank - 1],
        }
    }

    fn moved(self, by: isize) -> RowMatrix<C> {
        RowMatrix { at: Shared(self.at.0.wrapping_offset(by)), ..self }
    }

    /// # Safety
    /// Row and feature are less than their counts.
    #[inline(always)]
    unsafe fn get(&self, row: usize, feature: usize) -> C {
        let at = row as isize * self.strides[0] + feature as isize * self.strides[1];
        // SAFETY: inside the operand, as the caller guarantees.
        unsafe { *self.at.0.offset(at) }
    }

    /// Copies rows, one after the other, each padded with zeros to `width`.
    ///
    /// # Safety
    /// The rows are there.
    #[inline(always)]
    unsafe fn copy(&self, rows: std::ops::Range<usize>, width: usize, to: &mut [C]) {
        for (row, to) in rows.zip(to.chunks_exact_mut(width)) {
            for (k, to) in to[..self.features].iter_mut().enumerate() {
                // SAFETY: guaranteed by the caller.
                *to = unsafe { self.get(row, k) };
            }
        }
    }
}

/// All pairs of rows of one example.
#[derive(Clone, Copy)]
struct RowPairs<C> {
    within: bool,
    x: RowMatrix<C>,
    y: RowMatrix<C>,
    /// The tiles of `y`, of `width` times [`W`] elements each.
    tiles: Shared<C>,
    /// Features, padded.
    width: usize,
    /// The distances of this example.
    distances: Shared<C>,
}

impl<C: ComputeFloat> RowPairs<C> {
    /// The first column of a line.
    #[inline(always)]
    fn from(&self, line: usize) -> usize {
        if self.within { line + 1 } else { 0 }
    }

    /// Where column 0 of a line is, or would be, among the distances.
    #[inline(always)]
    fn start(&self, line: usize) -> isize {
        let n = self.y.count as isize;
        let (i, row) = (line as isize, line as isize * n);
        if self.within { row - i * (i + 1) / 2 - i - 1 } else { row }
    }

    /// How many distances there are.
    fn len(within: bool, n: usize, m: usize) -> usize {
        if within { n * n.saturating_sub(1) / 2 } else { n * m }
    }

    #[inline(always)]
    fn tile(&self, t: usize) -> &[C] {
        let size = self.width * W;
        // SAFETY: every tile was packed before any task reads one.
        unsafe { std::slice::from_raw_parts(self.tiles.at(t * size), size) }
    }
}

/// The pairs of all examples, packed.
struct DistanceJob<C> {
    pairs: Vec<RowPairs<C>>,
    _memory: crate::Buffer,
}

impl<C: ComputeFloat> DistanceJob<C> {
    fn new(within: bool, x: &[Source], distances: *mut u8) -> DistanceJob<C> {
        let (a, b) = (&x[0], if within { &x[0] } else { &x[1] });
        let (first, second) = (RowMatrix::<C>::of(a), RowMatrix::<C>::of(b));
        let lead = a.shape.len() - 2;
        let walk = Walk::new(&a.shape[..lead], [&a.strides[..lead], &b.strides[..lead]]);
        let width = first.features.max(1).next_multiple_of(F);
        let each = second.count.div_ceil(W);
        let size = each * width * W;
        let (memory, tiles) = scratch::<C>(walk.len().saturating_mul(size));
        let len = RowPairs::<C>::len(within, first.count, second.count);
        let pair = |i: usize| {
            let at = walk.offsets(i);
            RowPairs {
                within,
                x: first.moved(at[0]),
                y: second.moved(at[1]),
                tiles: Shared(tiles.at(i * size)),
                width,
                distances: Shared(distances.cast::<C>().wrapping_add(i * len)),
            }
        };
        let pairs: Vec<RowPairs<C>> = (0..walk.len()).map(pair).collect();
        par::for_each(pairs.len() * each, |task| {
            vectorised(PackedRows(pairs[task / each], task % each));
        });
        DistanceJob { pairs, _memory: memory }
    }

    /// Calls `f` for every example and part of `count` things, of which `parts` are one.
    fn each(
        &self,
        count: usize,
        parts: usize,
        f: impl Fn(&RowPairs<C>, usize, usize, usize) + Sync,
    ) {
        let tasks = count.div_ceil(parts);
        par::for_each(self.pairs.len() * tasks, |task| {
            let (i, from) = (task / tasks, task % tasks * parts);
            f(&self.pairs[i], i, from, count.min(from + parts));
        });
    }
}

/// Packs a tile; rows and features that are missing are zeros.
struct PackedRows<C>(RowPairs<C>, usize);

impl<C: ComputeFloat> SimdTask for PackedRows<C> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let PackedRows(pairs, t) = self;
        let (y, size) = (pairs.y, pairs.width * W);
        // SAFETY: this tile is this task's alone, and its rows are those of the operand.
        unsafe {
            let to = pairs.tiles.at(t * size);
            for i in 0..size {
                to.add(i).write(C::default());
            }
            let rows = t * W..y.count.min((t + 1) * W);
            for (j, row) in rows.enumerate() {
                for k in 0..y.features {
                    to.add(k * W + j).write(y.get(row, k));
                }
            }
        }
    }
}

/// Lines of a task, of so many multiplications each.
fn lines(columns: usize, width: usize) -> usize {
    (TASK / (columns * width).max(1)).clamp(1, LINES)
}

fn forward<C: ComputeFloat>(within: bool, x: &[Source], out: Sink) {
    if out.is_empty() {
        return;
    }
    let job = DistanceJob::<C>::new(within, x, out.ptr);
    let of = job.pairs[0];
    job.each(of.x.count, lines(of.y.count, of.width), |pairs, _, from, to| {
        vectorised(Forward { pairs: *pairs, from, to });
    });
}

struct Forward<C> {
    pairs: RowPairs<C>,
    from: usize,
    to: usize,
}

impl<C: ComputeFloat> SimdTask for Forward<C> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Forward { pairs, from, to } = self;
        let (width, columns) = (pairs.width, pairs.y.count);
        let mut rows = AlignedScratch::new((to - from) * width, C::default());
        let mut lines = AlignedScratch::new(2 * W, C::default());
        let (rows, (line, total)) = (rows.as_mut(), lines.as_mut().split_at_mut(W));
        // SAFETY: the lines of this task are rows of `x`.
        unsafe { pairs.x.copy(from..to, width, rows) };
        for t in pairs.from(from) / W..columns.div_ceil(W) {
            let tile = pairs.tile(t);
            for i in from..to {
                let (low, high) = ((t * W).max(pairs.from(i)), columns.min((t + 1) * W));
                if low >= high {
                    continue;
                }
                let row = &rows[(i - from) * width..][..width];
                squares::<C, I>(row, tile, line, total);
                // SAFETY: these distances are this task's alone.
                unsafe {
                    let to = pairs.distances.0.offset(pairs.start(i) + low as isize);
                    for (j, &v) in line[low - t * W..high - t * W].iter().enumerate() {
                        to.add(j).write(v.sqrt());
                    }
                }
            }
        }
    }
}

/// The sums of squares of the differences of a row and the rows of a tile.
#[inline(always)]
fn squares<C: ComputeFloat, I: Isa>(row: &[C], tile: &[C], line: &mut [C], total: &mut [C]) {
    let (line, total) = (&mut line[..W], &mut total[..W]);
    line.fill(C::default());
    for (p, (row, tile)) in row.chunks(PIECE).zip(tile.chunks(PIECE * W)).enumerate() {
        if p > 0 {
            total.copy_from_slice(line);
            line.fill(C::default());
        }
        for (x, y) in row.chunks_exact(F).zip(tile.chunks_exact(F * W)) {
            let (y0, rest) = y.split_at(W);
            let (y1, rest) = rest.split_at(W);
            let (y2, y3) = rest.split_at(W);
            let (x0, x1, x2, x3) = (x[0], x[1], x[2], x[3]);
            for j in 0..W {
                let (a, b) = (x0 - y0[j], x1 - y1[j]);
                let (c, d) = (x2 - y2[j], x3 - y3[j]);
                let sum = b.fma::<I>(b, a.fma::<I>(a, line[j]));
                line[j] = d.fma::<I>(d, c.fma::<I>(c, sum));
            }
        }
        if p > 0 {
            for (line, &total) in line.iter_mut().zip(&*total) {
                *line = *line + total;
            }
        }
    }
}

fn backward<C: ComputeFloat>(within: bool, x: &[Source], out: &[Sink]) {
    let operands = if within { 1 } else { 2 };
    let (given, dy) = (&x[operands], &x[operands + 1]);
    if out.iter().all(Sink::is_empty) {
        return;
    }
    if x[0].shape.contains(&0) || given.is_empty() {
        // Without pairs or features there are zeros, if anything.
        for y in out {
            // SAFETY: the sink is ours; all bits zero are the number 0.
            unsafe { std::ptr::write_bytes(y.ptr.cast::<C>(), 0, y.len()) };
        }
        return;
    }
    let (weights, at) = scratch::<C>(given.len());
    let of = PairWeights {
        walk: &Walk::new(given.shape, [given.strides, dy.strides]),
        distances: given.ptr.cast::<C>(),
        dy: dy.ptr.cast::<C>(),
        to: at,
    };
    of.run_all();
    let job = DistanceJob::<C>::new(within, x, at.0.cast());
    let first = job.pairs[0];
    let (dx, dy) = (Shared(out[0].ptr.cast::<C>()), Shared(out[operands - 1].ptr.cast::<C>()));
    let (n, m, d) = (first.x.count, first.y.count, first.x.features);
    job.each(m.div_ceil(W), 1, |pairs, example, t, _| {
        vectorised(GradientColumns { pairs: *pairs, t, out: Shared(dy.at(example * m * d)) });
    });
    job.each(n, lines(m, first.width), |pairs, example, from, to| {
        vectorised(Lines { pairs: *pairs, from, to, out: Shared(dx.at(example * n * d)) });
    });
    drop(weights);
}

/// w = dy / distance, densely; 0 where the distance is 0.
struct PairWeights<'a, C> {
    walk: &'a Walk<2>,
    distances: *const C,
    dy: *const C,
    to: Shared<C>,
}

impl<C: ComputeFloat> PairWeights<'_, C> {
    fn run_all(&self) {
        let (count, walk, to) = (self.walk.len(), self.walk, self.to);
        let (distances, dy) = (Shared(self.distances.cast_mut()), Shared(self.dy.cast_mut()));
        par::for_each(count.div_ceil(TASK), |t| {
            let of = PairWeights { walk, distances: distances.at(0), dy: dy.at(0), to };
            vectorised(WeightsPart(of, t * TASK, count.min((t + 1) * TASK)));
        });
    }
}

struct WeightsPart<'a, C>(PairWeights<'a, C>, usize, usize);

impl<C: ComputeFloat> SimdTask for WeightsPart<'_, C> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let WeightsPart(PairWeights { walk, distances, dy, to }, from, end) = self;
        walk.for_range(from..end, |run| {
            // SAFETY: the walk stays inside both operands, and the part is this task's alone.
            unsafe {
                let to = to.at(run.start);
                let (a, b) = (distances.offset(run.offsets[0]), dy.offset(run.offsets[1]));
                if run.strides == [1, 1] {
                    for i in 0..run.len {
                        to.add(i).write(weight(*a.add(i), *b.add(i)));
                    }
                } else {
                    for i in 0..run.len as isize {
                        let (a, b) = (a.offset(i * run.strides[0]), b.offset(i * run.strides[1]));
                        to.offset(i).write(weight(*a, *b));
                    }
                }
            }
        });
    }
}

#[inline(always)]
fn weight<C: ComputeFloat>(distance: C, dy: C) -> C {
    let w = dy / distance;
    if distance == C::default() { C::default() } else { w }
}

/// The gradients of the rows of a tile: sums over all lines.
struct GradientColumns<C> {
    pairs: RowPairs<C>,
    t: usize,
    out: Shared<C>,
}

impl<C: ComputeFloat> SimdTask for GradientColumns<C> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let GradientColumns { pairs, t, out } = self;
        let (width, size) = (pairs.width, pairs.width * W);
        let end = pairs.y.count.min((t + 1) * W);
        let count = if pairs.within { end - 1 } else { pairs.x.count };
        let mut memory = AlignedScratch::new(2 * size + W, C::default());
        let (sums, rest) = memory.as_mut().split_at_mut(size);
        let (total, w) = rest.split_at_mut(size);
        let mut rows = AlignedScratch::new(LINES * width, C::default());
        let (tile, rows) = (pairs.tile(t), rows.as_mut());
        for from in (0..count).step_by(LINES) {
            let to = count.min(from + LINES);
            // SAFETY: rows of `x`.
            unsafe { pairs.x.copy(from..to, width, rows) };
            for i in from..to {
                let low = (t * W).max(pairs.from(i));
                if low >= end {
                    continue;
                }
                w[..low - t * W].fill(C::default());
                // SAFETY: the weights of this line and tile, which no task writes.
                unsafe {
                    let given = pairs.distances.0.offset(pairs.start(i) + low as isize);
                    for (j, w) in w[low - t * W..end - t * W].iter_mut().enumerate() {
                        *w = *given.add(j);
                    }
                }
                add_line::<C, I>(&rows[(i - from) * width..][..width], tile, w, sums);
            }
            if to == count || to.is_multiple_of(PIECE) {
                for (total, sum) in total.iter_mut().zip(&mut *sums) {
                    *total = *total + *sum;
                    *sum = C::default();
                }
            }
        }
        for j in t * W..end {
            for k in 0..pairs.y.features {
                // SAFETY: these rows of the result are this task's alone.
                unsafe {
                    let to = out.at(j * pairs.y.features + k);
                    to.write(total[k * W + j - t * W]);
                }
            }
        }
    }
}

/// Adds w·(y − x) for the rows y of a tile.
#[inline(always)]
fn add_line<C: ComputeFloat, I: Isa>(row: &[C], tile: &[C], w: &[C], sums: &mut [C]) {
    let w = &w[..W];
    let parts = tile.chunks_exact(F * W).zip(sums.chunks_exact_mut(F * W));
    for (x, (y, sums)) in row.chunks_exact(F).zip(parts) {
        let (y0, rest) = y.split_at(W);
        let (y1, rest) = rest.split_at(W);
        let (y2, y3) = rest.split_at(W);
        let (s0, rest) = sums.split_at_mut(W);
        let (s1, rest) = rest.split_at_mut(W);
        let (s2, s3) = rest.split_at_mut(W);
        let (s3, y3) = (&mut s3[..W], &y3[..W]);
        let (x0, x1, x2, x3) = (x[0], x[1], x[2], x[3]);
        for j in 0..W {
            s0[j] = w[j].fma::<I>(y0[j] - x0, s0[j]);
            s1[j] = w[j].fma::<I>(y1[j] - x1, s1[j]);
            s2[j] = w[j].fma::<I>(y2[j] - x2, s2[j]);
            s3[j] = w[j].fma::<I>(y3[j] - x3, s3[j]);
        }
    }
}

/// The gradients of some rows of `x`: sums along their lines, added to what is there within one
/// operand.
struct Lines<C> {
    pairs: RowPairs<C>,
    from: usize,
    to: usize,
    out: Shared<C>,
}

impl<C: ComputeFloat> SimdTask for Lines<C> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Lines { pairs, from, to, out } = self;
        let (width, columns) = (pairs.width, pairs.y.count);
        let mut rows = AlignedScratch::new((to - from) * width, C::default());
        let mut totals = AlignedScratch::new((to - from) * width * LANES, C::default());
        let mut w = AlignedScratch::new(PIECE, C::default());
        let (rows, totals, w) = (rows.as_mut(), totals.as_mut(), w.as_mut());
        // SAFETY: rows of `x`.
        unsafe { pairs.x.copy(from..to, width, rows) };
        let tiles = columns.div_ceil(W);
        for first in (pairs.from(from) / W / TILES * TILES..tiles).step_by(TILES) {
            let last = tiles.min(first + TILES);
            for i in from..to {
                let (low, high) = ((first * W).max(pairs.from(i)), columns.min(last * W));
                if low >= high {
                    continue;
                }
                let (low, high) = (low - first * W, high - first * W);
                w[..low].fill(C::default());
                w[high..].fill(C::default());
                // SAFETY: the weights of this line, which no task writes.
                unsafe {
                    let at = pairs.start(i) + (first * W + low) as isize;
                    let given = pairs.distances.0.offset(at);
                    for (j, w) in w[low..high].iter_mut().enumerate() {
                        *w = *given.add(j);
                    }
                }
                let of = i - from;
                let row = &rows[of * width..][..width];
                let totals = &mut totals[of * width * LANES..][..width * LANES];
                for (k, totals) in totals.chunks_exact_mut(F * LANES).enumerate() {
                    along::<C, I>(&row[k * F..][..F], &pairs, (first, last, k), w, totals);
                }
            }
        }
        for (i, totals) in (from..to).zip(totals.chunks_exact(width * LANES)) {
            for (k, lanes) in totals.chunks_exact(LANES).take(pairs.x.features).enumerate() {
                let sum = lanes.iter().fold(C::default(), |sum, &v| sum + v);
                // SAFETY: these rows of the result are this task's alone; within one operand they
                // were written before.
                unsafe {
                    let to = out.at(i * pairs.x.features + k);
                    to.write(if pairs.within { *to + sum } else { sum });
                }
            }
        }
    }
}

/// Adds w·(x − y) of four features, over some tiles, to partial sums.
#[inline(always)]
fn along<C: ComputeFloat, I: Isa>(
    x: &[C],
    pairs: &RowPairs<C>,
    (first, last, k): (usize, usize, usize),
    w: &[C],
    totals: &mut [C],
) {
    let [mut s0, mut s1, mut s2, mut s3] = [[C::default(); LANES]; F];
    let (x0, x1, x2, x3) = (x[0], x[1], x[2], x[3]);
    for (t, w) in (first..last).zip(w.chunks_exact(W)) {
        let y = &pairs.tile(t)[k * F * W..][..F * W];
        let (y0, rest) = y.split_at(W);
        let (y1, rest) = rest.split_at(W);
        let (y2, y3) = rest.split_at(W);
        for at in (0..W).step_by(LANES) {
            let (w, y0, y1) = (&w[at..][..LANES], &y0[at..][..LANES], &y1[at..][..LANES]);
            let (y2, y3) = (&y2[at..][..LANES], &y3[at..][..LANES]);
            for j in 0..LANES {
                s0[j] = w[j].fma::<I>(x0 - y0[j], s0[j]);
                s1[j] = w[j].fma::<I>(x1 - y1[j], s1[j]);
                s2[j] = w[j].fma::<I>(x2 - y2[j], s2[j]);
                s3[j] = w[j].fma::<I>(x3 - y3[j], s3[j]);
            }
        }
    }
    for (totals, sums) in totals.chunks_exact_mut(LANES).zip([s0, s1, s2, s3]) {
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total = *total + sum;
        }
    }
}
