//! Batch normalisation: each channel (axis 1) over all other axes, and its gradients.
//!
//! A channel is one contiguous *line* in each sample. It is cut into *parts* of whole lines that
//! stay in L2 while they are read three times: for their sum, for the distances from their own mean
//! (which correct its rounding error), and for the squares of those. With the mean `mₚ` and the
//! squares `qₚ` of parts of `nₚ` elements,
//!
//! ```text
//! mean = m₀ + Σ nₚ·(mₚ − m₀) / n      variance = Σ (qₚ + nₚ·(mₚ − mean)²) / n
//! ```
//!
//! and nothing cancels: a constant channel is exactly 0. A channel of one part is also normalised
//! while it is in cache, so memory is read once; otherwise all parts are summed first. Backward
//! works the same way, with `x̂ = (x − mean)·r` and `r = 1/√(variance + eps)`:
//!
//! ```text
//! db = Σ dy      dw = Σ dy·x̂      dx = w·r · (dy − db/n − x̂·dw/n)
//! ```
//!
//! Forward returns the mean and variance, and backward takes them: the running statistics need them
//! as well.
//!
//! Lines too short for vectors are joined by a transpose first: `[n, c, …]` becomes `[c, n, …]`,
//! where a channel is one line. The split into parts and tasks depends on the shape alone.

use super::lanes::{
    AlignedScratch, ComputeFloat, LANES, Results, is_streamed, load, padded, total,
};
use super::lanes::{corrected_mean, view};
use crate::buffer::Buffer;
use crate::dot::scratch;
use crate::elem::{Elem, with_elem};
use crate::operand::{Sink, Source};
use crate::par::{self, Shared};
use crate::pointwise::{copy, copy_to};
use crate::simd::{Isa, SimdTask, vectorised};
use crate::widen::wide_floats;
use pullback_ir::{Shape, dense_strides};

mod backward;

pub(crate) use backward::batch_norm_vjp;

/// Elements of a part, of one line at least.
const PART: usize = 1 << 16;
/// Elements of a task, of one part at least.
const TASK: usize = 1 << 14;
/// Elements of a line that are processed at a time, and summed before the sum is added to the
/// total.
const CHUNK: usize = 128 * LANES;
/// Lines shorter than this are joined.
const SHORT: usize = 16;

/// How the work is split.
#[derive(Clone, Copy)]
struct Partition {
    samples: usize,
    channels: usize,
    line: usize,
    /// Lines of a part.
    lines: usize,
    /// Parts of a channel.
    parts: usize,
    /// Whether `[n, c, …]` is transposed to `[c, n, …]`.
    transposed: bool,
}

impl Partition {
    /// For a shape `[n, c, …]` with elements.
    fn new(shape: &[usize]) -> Partition {
        let line: usize = shape[2..].iter().product();
        let transposed = line < SHORT && shape[0] > 1;
        let (samples, line) = if transposed { (1, shape[0] * line) } else { (shape[0], line) };
        let lines = (PART / line).clamp(1, samples);
        Partition {
            samples,
            channels: shape[1],
            line,
            lines,
            parts: samples.div_ceil(lines),
            transposed,
        }
    }

    /// The elements of a channel.
    fn count(&self) -> usize {
        self.samples * self.line
    }

    /// The samples of a part.
    #[inline(always)]
    fn samples_of(&self, part: usize) -> (usize, usize) {
        (part * self.lines, self.samples.min((part + 1) * self.lines))
    }

    /// Runs `f` with a step and ranges of units (of all parts of all channels).
    fn run(&self, f: impl Fn(BatchNormPhase, usize, usize) + Sync) {
        let units = self.channels * self.parts;
        let each = (TASK / (self.lines * self.line)).max(1);
        let steps: &[BatchNormPhase] = if self.parts == 1 {
            &[BatchNormPhase::Both]
        } else {
            &[BatchNormPhase::First, BatchNormPhase::Second]
        };
        for &step in steps {
            par::for_each(units.div_ceil(each), |t| {
                f(step, t * each, units.min((t + 1) * each));
            });
        }
    }
}

/// What a task does: sums, results from the sums of all parts, or both at once.
#[derive(Clone, Copy, PartialEq)]
enum BatchNormPhase {
    First,
    Second,
    Both,
}

/// An operand whose lines are contiguous: itself, or a copy.
struct ChannelLines {
    ptr: *const u8,
    _copy: Option<Buffer>,
}

// SAFETY: operands are only read (see `Source`).
unsafe impl Sync for ChannelLines {}

impl ChannelLines {
    fn new<E: Elem>(x: Source<'_>, partition: &Partition) -> ChannelLines {
        if !partition.transposed && x.is_dense() {
            return ChannelLines { ptr: x.ptr, _copy: None };
        }
        let (buffer, space) = scratch::<E>(x.len());
        let ptr = space.at(0).cast::<u8>();
        if partition.transposed {
            let (mut shape, mut strides) = (Shape::from_slice(x.shape), x.strides.to_vec());
            shape.swap(0, 1);
            strides.swap(0, 1);
            copy_to(Source { shape: &shape, strides: &strides, ..x }, ptr, &dense_strides(&shape));
        } else {
            copy(x, Sink { ptr, shape: x.shape, dtype: x.dtype });
        }
        ChannelLines { ptr, _copy: Some(buffer) }
    }

    /// The start of a line.
    #[inline(always)]
    fn line<E>(&self, partition: &Partition, sample: usize, channel: usize) -> *const E {
        self.ptr.cast::<E>().wrapping_add((sample * partition.channels + channel) * partition.line)
    }
}

/// Calls `f` to fill `out`, through a sink whose lines are contiguous.
fn into_lines<E: Elem>(partition: &Partition, out: Sink<'_>, f: impl FnOnce(Sink<'_>)) {
    if !partition.transposed {
        return f(out);
    }
    let mut shape = Shape::from_slice(out.shape);
    shape.swap(0, 1);
    let (_buffer, space) = scratch::<E>(out.len());
    let ptr = space.at(0).cast::<u8>();
    f(Sink { ptr, shape: &shape, dtype: out.dtype });
    let mut strides = dense_strides(&shape);
    strides.swap(0, 1);
    copy(Source { ptr, shape: out.shape, strides: &strides, dtype: out.dtype }, out);
}

/// One value per channel; statistics may come in the compute type.
fn row<E: Elem>(x: Source<'_>) -> Vec<E::Compute> {
    let mut to = vec![E::Compute::default(); x.shape[0]];
    // SAFETY: all elements of an operand, of its dtype.
    unsafe {
        if x.dtype == E::DTYPE {
            load::<E>(x.ptr.cast(), x.strides[0], &mut to);
        } else {
            load::<E::Compute>(x.ptr.cast(), x.strides[0], &mut to);
        }
    }
    to
}

/// How many of the remaining elements of a line to process next: full lanes first, then the
/// remainder.
#[inline(always)]
fn stretch(left: usize) -> usize {
    if left < LANES { left } else { left.min(CHUNK) / LANES * LANES }
}

/// `len` elements as full lanes.
///
/// # Safety
/// They can be read, and are not written while the slice lives.
#[inline(always)]
unsafe fn lanes<E: Elem>(
    from: *const E,
    len: usize,
    pad: E::Compute,
    scratch: &mut [E::Compute],
) -> &[E::Compute] {
    let scratch = &mut scratch[..padded(len)];
    scratch[len..].fill(pad);
    // SAFETY: guaranteed by the caller.
    unsafe { view(from, 1, len, scratch) }
}

/// A sum over many pieces, in two levels so that the error does not grow with their number.
struct BlockedSum<C> {
    lanes: [C; LANES],
    held: usize,
    all: C,
}

impl<C: ComputeFloat> BlockedSum<C> {
    #[inline(always)]
    fn new() -> BlockedSum<C> {
        BlockedSum { lanes: [C::default(); LANES], held: 0, all: C::default() }
    }

    /// Counts `n` more elements added to the lanes.
    #[inline(always)]
    fn added(&mut self, n: usize) {
        self.held += n;
        if self.held >= CHUNK {
            self.all = self.all + total(self.lanes);
            (self.lanes, self.held) = ([C::default(); LANES], 0);
        }
    }

    #[inline(always)]
    fn add(&mut self, a: &[C]) {
        let mut lanes = self.lanes;
        for a in a.chunks_exact(LANES) {
            for j in 0..LANES {
                lanes[j] = lanes[j] + a[j];
            }
        }
        self.lanes = lanes;
        self.added(a.len());
    }

    #[inline(always)]
    fn add_distances(&mut self, a: &[C], mean: C) {
        let mut lanes = self.lanes;
        for a in a.chunks_exact(LANES) {
            for j in 0..LANES {
                lanes[j] = lanes[j] + (a[j] - mean);
            }
        }
        self.lanes = lanes;
        self.added(a.len());
    }

    #[inline(always)]
    fn add_squares<I: Isa>(&mut self, a: &[C], mean: C) {
        let mut lanes = self.lanes;
        for a in a.chunks_exact(LANES) {
            for j in 0..LANES {
                let d = a[j] - mean;
                lanes[j] = d.fma::<I>(d, lanes[j]);
            }
        }
        self.lanes = lanes;
        self.added(a.len());
    }

    /// Adds `(a − mean) · b`.
    #[inline(always)]
    fn add_products<I: Isa>(&mut self, a: &[C], mean: C, b: &[C]) {
        let mut lanes = self.lanes;
        for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
            for j in 0..LANES {
                lanes[j] = (a[j] - mean).fma::<I>(b[j], lanes[j]);
            }
        }
        self.lanes = lanes;
        self.added(a.len());
    }

    #[inline(always)]
    fn get(self) -> C {
        self.all + total(self.lanes)
    }
}

/// `x` normalised per channel, then `· w + b`; and the mean and variance of each channel.
pub(crate) fn batch_norm(
    eps: f64,
    x: Source<'_>,
    w: Source<'_>,
    b: Source<'_>,
    out: Sink<'_>,
    statistics: [Sink<'_>; 2],
) {
    let [mean, variance] = statistics;
    wide_floats("batch_norm", &[x, w, b], &[out, mean, variance], |x, out| {
        let (y, statistics) = (out[0], [out[1], out[2]]);
        with_elem!(wide y.dtype, E => forward::<E>(eps, x[0], x[1], x[2], y, statistics));
    });
}

struct BatchNormForward<'a, E: Elem> {
    eps: f64,
    partition: Partition,
    x: &'a ChannelLines,
    w: &'a [E::Compute],
    b: &'a [E::Compute],
    out: *mut E,
    streamed: bool,
    /// The mean and variance of each channel.
    statistics: [*mut E::Compute; 2],
    /// The mean of each part, and the squared distances from it.
    partials: Shared<[E::Compute; 2]>,
    step: BatchNormPhase,
    from: usize,
    to: usize,
}

fn forward<E: Elem<Compute: ComputeFloat>>(
    eps: f64,
    x: Source<'_>,
    w: Source<'_>,
    b: Source<'_>,
    out: Sink<'_>,
    statistics: [Sink<'_>; 2],
) {
    if out.is_empty() {
        for sink in statistics {
            for i in 0..sink.len() {
                // SAFETY: an element of the sink, whose type is the compute type.
                unsafe { sink.ptr.cast::<E::Compute>().add(i).write(E::Compute::real(f64::NAN)) };
            }
        }
        return;
    }
    let partition = Partition::new(x.shape);
    let x = &ChannelLines::new::<E>(x, &partition);
    let (w, b) = (&row::<E>(w)[..], &row::<E>(b)[..]);
    let (_buffer, partials) = scratch::<[E::Compute; 2]>(partition.channels * partition.parts);
    into_lines::<E>(&partition, out, |out| {
        let streamed = is_streamed(out, partition.line);
        partition.run(|step, from, to| {
            let (out, statistics) = ({ out }.ptr.cast(), { statistics }.map(|s| s.ptr.cast()));
            let (x, partials) = (x, partials);
            vectorised(BatchNormForward::<E> {
                eps,
                partition,
                x,
                w,
                b,
                out,
                streamed,
                statistics,
                partials,
                step,
                from,
                to,
            });
        });
    });
}

impl<E: Elem<Compute: ComputeFloat>> BatchNormForward<'_, E> {
    /// The sum of the distances from `about` in a part, or of their squares.
    #[inline(always)]
    fn pass<I: Isa, const SQUARED: bool>(
        &self,
        channel: usize,
        part: usize,
        about: E::Compute,
        scratch: &mut [E::Compute],
    ) -> E::Compute {
        let partition = &self.partition;
        let (from, to) = partition.samples_of(part);
        let mut sum = BlockedSum::new();
        for i in from..to {
            let (line, mut at) = (self.x.line::<E>(partition, i, channel), 0);
            while at < partition.line {
                let n = stretch(partition.line - at);
                // SAFETY: a piece of a line, which nothing writes.
                let x = unsafe { lanes(line.add(at), n, about, scratch) };
                match SQUARED {
                    true => sum.add_squares::<I>(x, about),
                    false => sum.add_distances(x, about),
                }
                at += n;
            }
        }
        sum.get()
    }

    /// The mean of a part, and the squared distances from it.
    #[inline(always)]
    fn sums<I: Isa>(
        &self,
        channel: usize,
        part: usize,
        scratch: &mut [E::Compute],
    ) -> [E::Compute; 2] {
        let (from, to) = self.partition.samples_of(part);
        let count = E::Compute::real(((to - from) * self.partition.line) as f64);
        let rough = self.pass::<I, false>(channel, part, E::Compute::default(), scratch) / count;
        let off = self.pass::<I, false>(channel, part, rough, scratch) / count;
        let mean = corrected_mean(rough, off);
        [mean, self.pass::<I, true>(channel, part, mean, scratch)]
    }

    /// The mean and variance of a channel, whose parts are summed.
    #[inline(always)]
    fn moments(&self, channel: usize) -> [E::Compute; 2] {
        let partition = &self.partition;
        let count = E::Compute::real(partition.count() as f64);
        let partial = |part: usize| {
            // SAFETY: the step that writes it has finished.
            unsafe { *self.partials.at(channel * partition.parts + part) }
        };
        let size = |part: usize| {
            let (from, to) = partition.samples_of(part);
            E::Compute::real(((to - from) * partition.line) as f64)
        };
        let (first, mut off) = (partial(0)[0], E::Compute::default());
        let mut sum = off;
        for part in 0..partition.parts {
            let m = partial(part)[0];
            (off, sum) = (off + size(part) * (m - first), sum + size(part) * m);
        }
        // With infinities the distances are not finite.
        let mean = if off.finite() { first + off / count } else { sum / count };
        let mut squares = E::Compute::default();
        for part in 0..partition.parts {
            let [m, q] = partial(part);
            let d = m - mean;
            squares = squares + (q + size(part) * (d * d));
        }
        [mean, squares / count]
    }
}

impl<E: Elem<Compute: ComputeFloat>> SimdTask for BatchNormForward<'_, E> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let partition = &self.partition;
        let mut a = AlignedScratch::new(CHUNK.min(padded(partition.line)), E::Compute::default());
        let a = a.as_mut();
        let streamed = self.streamed && self.step != BatchNormPhase::First;
        let mut results = Results::new(self.out, partition.line, streamed);
        for unit in self.from..self.to {
            let (channel, part) = (unit / partition.parts, unit % partition.parts);
            if self.step != BatchNormPhase::Second {
                let sums = self.sums::<I>(channel, part, a);
                // SAFETY: the partial of this unit is this task's alone.
                unsafe { self.partials.at(unit).write(sums) };
            }
            if self.step == BatchNormPhase::First {
                continue;
            }
            let [mean, variance] = self.moments(channel);
            if part == 0 {
                // SAFETY: the first part of a channel belongs to one task.
                unsafe {
                    self.statistics[0].add(channel).write(mean);
                    self.statistics[1].add(channel).write(variance);
                }
            }
            let one = E::Compute::real(1.0);
            let scale = self.w[channel] * (one / (variance + E::Compute::real(self.eps)).sqrt());
            let shift = self.b[channel];
            let (from, to) = partition.samples_of(part);
            for i in from..to {
                let (line, mut at) = (self.x.line::<E>(partition, i, channel), 0);
                let index = i * partition.channels + channel;
                let out = results.start(index);
                while at < partition.line {
                    let n = stretch(partition.line - at);
                    // SAFETY: a piece of a line, whose result is this task's alone.
                    unsafe {
                        let (x, out) = (lanes(line.add(at), n, mean, a), out.add(at));
                        for (j, &x) in x[..n].iter().enumerate() {
                            out.add(j).write(E::store((x - mean).fma::<I>(scale, shift)));
                        }
                    }
                    at += n;
                }
                // SAFETY: the line is written.
                unsafe { results.end(index) };
            }
        }
    }
}
