//! The gradients of batch normalisation.

use super::{
    BatchNormPhase, BlockedSum, CHUNK, ChannelLines, Partition, into_lines, lanes, row, stretch,
};
use crate::dot::scratch;
use crate::elem::{Elem, with_elem};
use crate::norm::lanes::{AlignedScratch, ComputeFloat, Results, is_streamed, padded};
use crate::operand::{Sink, Source};
use crate::par::Shared;
use crate::simd::{Isa, SimdTask, vectorised};
use crate::widen::wide_floats;

/// From `x`, `dy`, `w`, the mean and the variance: the gradients of `x`, `w` and `b`.
pub(crate) fn batch_norm_vjp(
    eps: f64,
    x_dy: [Source<'_>; 2],
    w: Source<'_>,
    statistics: [Source<'_>; 2],
    dx: Sink<'_>,
    dw_db: [Sink<'_>; 2],
) {
    let ([x, dy], [mean, variance], [dw, db]) = (x_dy, statistics, dw_db);
    wide_floats("batch_norm_vjp", &[x, dy, w, mean, variance], &[dx, dw, db], |x, out| {
        let (x_dy, statistics, dw_db) = ([x[0], x[1]], [x[3], x[4]], [out[1], out[2]]);
        let (w, dx) = (x[2], out[0]);
        with_elem!(wide w.dtype, E => backward::<E>(eps, x_dy, w, statistics, dx, dw_db));
    });
}

struct BatchNormBackward<'a, E: Elem> {
    eps: f64,
    partition: Partition,
    x: &'a ChannelLines,
    dy: &'a ChannelLines,
    w: &'a [E::Compute],
    mean: &'a [E::Compute],
    variance: &'a [E::Compute],
    dx: *mut E,
    streamed: bool,
    dw_db: [*mut E; 2],
    /// For each part, the sums of `dy · (x − mean)` and of `dy`.
    partials: Shared<[E::Compute; 2]>,
    step: BatchNormPhase,
    from: usize,
    to: usize,
}

fn backward<E: Elem<Compute: ComputeFloat>>(
    eps: f64,
    [x, dy]: [Source<'_>; 2],
    w: Source<'_>,
    statistics: [Source<'_>; 2],
    dx: Sink<'_>,
    dw_db: [Sink<'_>; 2],
) {
    if dx.is_empty() {
        for sink in dw_db {
            for i in 0..sink.len() {
                // SAFETY: an element of the sink.
                unsafe { sink.ptr.cast::<E>().add(i).write(E::default()) };
            }
        }
        return;
    }
    let partition = Partition::new(x.shape);
    let (x, dy) = (&ChannelLines::new::<E>(x, &partition), &ChannelLines::new::<E>(dy, &partition));
    let (w, [mean, variance]) = (&row::<E>(w)[..], &statistics.map(row::<E>));
    let (_buffer, partials) = scratch::<[E::Compute; 2]>(partition.channels * partition.parts);
    into_lines::<E>(&partition, dx, |dx| {
        let streamed = is_streamed(dx, partition.line);
        partition.run(|step, from, to| {
            let (dx, dw_db) = ({ dx }.ptr.cast(), { dw_db }.map(|s| s.ptr.cast()));
            let (x, dy, partials) = (x, dy, partials);
            vectorised(BatchNormBackward::<E> {
                eps,
                partition,
                x,
                dy,
                w,
                mean,
                variance,
                dx,
                streamed,
                dw_db,
                partials,
                step,
                from,
                to,
            });
        });
    });
}

impl<E: Elem<Compute: ComputeFloat>> BatchNormBackward<'_, E> {
    /// The sums of `dy · (x − mean)` and of `dy` in a part.
    #[inline(always)]
    fn sums<I: Isa>(
        &self,
        channel: usize,
        part: usize,
        a: &mut [E::Compute],
        g: &mut [E::Compute],
    ) -> [E::Compute; 2] {
        let (partition, mean) = (&self.partition, self.mean[channel]);
        let (from, to) = partition.samples_of(part);
        let (mut slope, mut shift) = (BlockedSum::new(), BlockedSum::new());
        for i in from..to {
            let (x, dy) =
                (self.x.line::<E>(partition, i, channel), self.dy.line::<E>(partition, i, channel));
            let mut at = 0;
            while at < partition.line {
                let n = stretch(partition.line - at);
                // SAFETY: pieces of lines, which nothing writes.
                let (x, dy) = unsafe {
                    (lanes(x.add(at), n, mean, a), lanes(dy.add(at), n, E::Compute::default(), g))
                };
                slope.add_products::<I>(x, mean, dy);
                shift.add(dy);
                at += n;
            }
        }
        [slope.get(), shift.get()]
    }
}

impl<E: Elem<Compute: ComputeFloat>> SimdTask for BatchNormBackward<'_, E> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let partition = &self.partition;
        let wide = CHUNK.min(padded(partition.line));
        let mut a = AlignedScratch::new(wide, E::Compute::default());
        let mut g = AlignedScratch::new(wide, E::Compute::default());
        let (a, g) = (a.as_mut(), g.as_mut());
        let streamed = self.streamed && self.step != BatchNormPhase::First;
        let mut results = Results::new(self.dx, partition.line, streamed);
        let (one, eps) = (E::Compute::real(1.0), E::Compute::real(self.eps));
        let count = E::Compute::real(partition.count() as f64);
        for unit in self.from..self.to {
            let (channel, part) = (unit / partition.parts, unit % partition.parts);
            if self.step != BatchNormPhase::Second {
                let sums = self.sums::<I>(channel, part, a, g);
                // SAFETY: the partial of this unit is this task's alone.
                unsafe { self.partials.at(unit).write(sums) };
            }
            if self.step == BatchNormPhase::First {
                continue;
            }
            let (mean, r) = (self.mean[channel], one / (self.variance[channel] + eps).sqrt());
            let (mut dw, mut db) = (E::Compute::default(), E::Compute::default());
            for part in 0..partition.parts {
                // SAFETY: the step that writes it has finished.
                let [slope, shift] = unsafe { *self.partials.at(channel * partition.parts + part) };
                (dw, db) = (dw + slope, db + shift);
            }
            dw = dw * r;
            if part == 0 {
                // SAFETY: the first part of a channel belongs to one task.
                unsafe {
                    self.dw_db[0].add(channel).write(E::store(dw));
                    self.dw_db[1].add(channel).write(E::store(db));
                }
            }
            // dx = scale · (dy − shift) − (x − mean) · slope
            let (scale, shift) = (self.w[channel] * r, db / count);
            let slope = E::Compute::default() - scale * (r * (dw / count));
            let (from, to) = partition.samples_of(part);
            for i in from..to {
                let x = self.x.line::<E>(partition, i, channel);
                let dy = self.dy.line::<E>(partition, i, channel);
                let index = i * partition.channels + channel;
                let (dx, mut at) = (results.start(index), 0);
                while at < partition.line {
                    let n = stretch(partition.line - at);
                    // SAFETY: pieces of lines, whose result is this task's alone.
                    unsafe {
                        let x = lanes(x.add(at), n, mean, a);
                        let dy = lanes(dy.add(at), n, shift, g);
                        let dx = dx.add(at);
                        for (j, (&x, &dy)) in x[..n].iter().zip(dy).enumerate() {
                            let v = (x - mean).fma::<I>(slope, scale * (dy - shift));
                            dx.add(j).write(E::store(v));
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
