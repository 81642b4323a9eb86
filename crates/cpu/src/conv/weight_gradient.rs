//! `w` from `x` and `y`: for each tap and channel of `x`, and each channel of `y`, a sum over all
//! results.
//!
//! As a matrix product it is `[(i, t), pixels] · [pixels, c]`. The right side is `y` with channels
//! innermost, packed a piece of an image at a time. The left side is not packed: element `(i, t)`
//! of a step is read from the region directly, and steps are adjacent there, so the tile takes a
//! pointer for each of its rows.
//!
//! Tasks are blocks of rows. If those are few, the batch is split too, each part with its own sums,
//! which are added up in order at the end.

use super::lanes::{Laned, OVERRUN, RowTile};
use super::num::ConvFloat;
use super::source_block::{AxisReads, SourceBlock};
use super::{Problem, Volume, direct};
use crate::Buffer;
use crate::dot::pack::{Matrix, panels};
use crate::dot::{even, scratch};
use crate::elem::Elem;
use crate::operand::{Sink, Source};
use crate::par::Shared;
use crate::{par, pointwise};

/// Results in a piece of an image.
const PIECE: usize = 512;
/// Rows of the product in a task.
const ROWS: usize = 96;
/// Fewest tasks to aim for, if there is enough work.
const TASKS: usize = 12;
/// Multiply-adds that are worth a task.
const GRAIN: usize = 1 << 18;

pub(super) fn run<S: Elem<Compute = C>, C: Laned + ConvFloat>(
    p: &Problem,
    x: Volume<S>,
    y: Source,
    out: Sink,
) {
    let (_copy, strides, y_volume) = flat::<S>(p, y);
    let counts = p.axes.map(|a| a.output);
    let pixels: usize = counts.iter().product();
    let axis = counts.iter().position(|&n| n > 1).unwrap_or(2);
    let unit = pixels / counts[axis].max(1);
    let each = even(counts[axis], PIECE.div_ceil(unit.max(1)), 1);
    let job = WeightGradientTask { p, axis, each, strides, x, y: y_volume };
    let region = if pixels == 0 { None } else { Some(job.region(0)) };
    let lengths: usize = p.axes.iter().map(|a| a.input).product();
    let channels = p.inner.min(ROWS.div_ceil(p.taps()));
    let wide = region.is_some_and(|r| r.is_wide(channels, lengths));
    if p.is_thin() || wide || pixels == 0 || p.batch == 0 {
        return direct::weight_gradient(p, x, y_volume, out);
    }
    job.run(out);
}

/// `y` with its pixels evenly spaced: `y` itself, or a copy.
fn flat<S>(p: &Problem, y: Source) -> (Option<Buffer>, isize, Volume<S>) {
    let volume = Volume::<S>::of(&y);
    let mut step = None;
    let mut reach = 1;
    let mut even = true;
    for (axis, &stride) in p.axes.iter().zip(&volume.strides[2..]).rev() {
        if axis.output > 1 {
            let step = *step.get_or_insert(stride);
            even &= stride == step * reach;
        }
        reach *= axis.output as isize;
    }
    if even {
        return (None, step.unwrap_or(1), volume);
    }
    let (mut memory, _) = scratch::<S>(y.len());
    let sink = Sink { ptr: memory.as_mut_ptr(), shape: y.shape, dtype: y.dtype };
    pointwise::copy(y, sink);
    let strides = pullback_ir::dense_strides(y.shape);
    let dense = Source { ptr: sink.ptr, shape: y.shape, strides: &strides, dtype: y.dtype };
    let volume = Volume::of(&dense);
    (Some(memory), 1, volume)
}

struct WeightGradientTask<'a, S> {
    p: &'a Problem,
    /// The axis along which images are cut into pieces, and the results along it in a piece.
    axis: usize,
    each: usize,
    /// Stride between pixels of `y`.
    strides: isize,
    x: Volume<S>,
    y: Volume<S>,
}

impl<S: Elem<Compute = C>, C: Laned + ConvFloat> WeightGradientTask<'_, S> {
    fn run(&self, out: Sink) {
        let (p, lanes) = (self.p, C::lanes());
        let taps = p.taps();
        let rows = p.inner * taps;
        let columns = p.outer.next_multiple_of(lanes.cols);
        // Blocks of whole channels, so that a task copies only what it reads.
        let channels = even(p.inner, ROWS.div_ceil(taps), 1);
        let blocks = p.inner.div_ceil(channels);
        let wanted = TASKS.min(p.work() / GRAIN).div_ceil(p.groups * blocks);
        let images = even(p.batch, p.batch.div_ceil(wanted.clamp(1, p.batch)), 1);
        let parts = p.batch.div_ceil(images);
        let size = rows * columns;
        let (_sums, sums) = scratch::<C>(p.groups * parts * size);
        par::for_each(p.groups * parts * blocks, |task| {
            let (block, part) = (task % blocks, task / blocks % parts);
            let group = task / (blocks * parts);
            let block = RowBlock {
                group,
                first: block * channels,
                channels: channels.min(p.inner - block * channels),
                taps,
                columns,
                images: part * images..p.batch.min((part + 1) * images),
            };
            let at = (group * parts + part) * size + block.first * taps * columns;
            self.block(&block, Shared(sums.at(at)));
        });
        let out = Shared(out.ptr.cast::<S>());
        let total = p.groups * p.outer;
        let chunk = (1usize << 14).div_ceil(rows);
        par::for_each(total.div_ceil(chunk), |task| {
            for channel in task * chunk..total.min((task + 1) * chunk) {
                let (group, column) = (channel / p.outer, channel % p.outer);
                for row in 0..rows {
                    let at = |part: usize| (group * parts + part) * size + row * columns + column;
                    // SAFETY: every part was filled; each channel of the result belongs to one
                    // task.
                    unsafe {
                        let mut sum = *sums.at(at(0));
                        (1..parts).for_each(|part| sum += *sums.at(at(part)));
                        *out.at(channel * rows + row) = S::store(sum);
                    }
                }
            }
        });
    }

    /// The part of the source that the piece starting at `from` along the axis reads.
    fn region(&self, from: usize) -> SourceBlock {
        let mut i = 0;
        SourceBlock::new(self.p.axes.map(|a| {
            let cut = i == self.axis;
            i += 1;
            let (from, count) =
                if cut { (from, self.each.min(a.output - from)) } else { (0, a.output) };
            let first = (from * a.window.stride) as isize - a.window.before;
            let reach = (a.window.size - 1) * a.window.dilation;
            AxisReads { first, step: a.window.stride, count, reach, len: a.input }
        }))
    }

    /// The sums of some rows over some images.
    fn block(&self, block: &RowBlock, sums: Shared<C>) {
        let (p, lanes) = (self.p, C::lanes());
        let rows = block.channels * block.taps;
        let height = even(rows, lanes.lines.len(), 1);
        let largest = self.region(0);
        let space = block.channels * largest.channel + OVERRUN;
        let (_region, source) = scratch::<C>(space);
        let piece: usize = largest.axes.iter().map(|t| t.count).product();
        let (_packed, packed) = scratch::<C>(piece * block.columns);
        let counts = p.axes.map(|a| a.output);
        let unit: usize = counts.iter().product::<usize>() / counts[self.axis];
        let mut add = false;
        for image in block.images.clone() {
            for from in (0..counts[self.axis]).step_by(self.each) {
                let region = self.region(from);
                let [depth, lines, inner] = region.axes.map(|t| t.count);
                let pixels = depth * lines * inner;
                let offsets = self.offsets(block, &region);
                let y = self.y.at([image, block.group * p.outer, 0, 0, 0]);
                let y = y.wrapping_offset((from * unit) as isize * self.strides);
                let matrix = Matrix { ptr: y, row: self.strides, col: self.y.strides[1] };
                let first = block.group * p.inner + block.first;
                // SAFETY: the scratch has space for the largest piece, and the piece is in both
                // operands.
                unsafe {
                    region.fill(self.x, image, first, block.channels, source.at(0));
                    let stride = pixels * lanes.cols;
                    panels(matrix, p.outer, pixels, lanes.cols, packed.at(0), stride);
                }
                for d in 0..depth {
                    let base = source.at(region.result([d, 0, 0]));
                    for panel in 0..block.columns / lanes.cols {
                        let b = packed.at((panel * pixels + d * lines * inner) * lanes.cols);
                        let left = p.outer - panel * lanes.cols;
                        let vectors = if left * 2 > lanes.cols { 2 } else { 1 };
                        for row in (0..rows).step_by(height) {
                            let tall = height.min(rows - row);
                            let tile = RowTile {
                                a: base,
                                rows: &offsets[row..row + tall],
                                outer: lines,
                                line: region.axes[1].step * region.row,
                                inner,
                                b,
                                c: sums.at(row * block.columns + panel * lanes.cols),
                                c_row: block.columns,
                                add: add || d > 0,
                            };
                            // SAFETY: rows and lines stay in the region, B is packed, and these
                            // sums are this task's.
                            unsafe { lanes.lines[tall - 1][vectors - 1](&tile) };
                        }
                    }
                }
                add = true;
            }
        }
    }

    /// Where each row begins in the region.
    fn offsets(&self, block: &RowBlock, region: &SourceBlock) -> Vec<usize> {
        let [d, h, w] = self.p.axes.map(|a| a.window);
        let mut offsets = Vec::with_capacity(block.channels * block.taps);
        for channel in 0..block.channels {
            for i in 0..d.size {
                for j in 0..h.size {
                    for k in 0..w.size {
                        let tap = [i * d.dilation, j * h.dilation, k * w.dilation];
                        offsets.push(channel * region.channel + region.tap(tap));
                    }
                }
            }
        }
        offsets
    }
}

/// Rows of the product: channels of one group, over some images.
struct RowBlock {
    group: usize,
    first: usize,
    channels: usize,
    taps: usize,
    /// Channels of `y` in a group, rounded up to whole panels.
    columns: usize,
    images: std::ops::Range<usize>,
}
