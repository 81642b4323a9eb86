//! `y` from `x` and `w`, and `x` from `y` and `w`: a matrix product whose right side is packed
//! block by block, never as a whole.
//!
//! Both are "result `q` of a phase is the sum over channels and taps of weight · source at
//! `q·step + offset`". The forward map has one phase; the map to the input has one for each
//! remainder of a position modulo the stride.

use super::lanes::{Laned, OVERRUN, PanelPack, PanelRun};
use super::num::ConvFloat;
use super::source_block::{AxisReads, SourceBlock};
use super::{Axis, Made, Problem, Volume, direct, winograd};
use crate::dot::tile::Tile;
use crate::dot::{even, scratch};
use crate::elem::Elem;
use crate::operand::Sink;
use crate::par::{self, Shared};
use std::any::TypeId;

/// Columns of the result to aim for in a task.
const BLOCK: usize = 256;
/// Fewest tasks to aim for, if there is enough work.
const TASKS: usize = 8;
/// Steps of the inner sum that are packed at a time.
const STEPS: usize = 320;
/// Bytes of a panel that stays in L1 beside one of the left side.
const IN_L1: usize = 20 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Input,
}

/// One axis of a phase.
#[derive(Clone, Debug)]
pub(super) struct AxisPhase {
    /// Taps of the kernel that this phase uses, and their offsets from `q·step`.
    pub(super) taps: Vec<(usize, isize)>,
    pub(super) step: usize,
    /// Results.
    pub(super) count: usize,
    /// Result `q` is element `first + q·every` of the axis.
    first: usize,
    pub(super) every: usize,
    /// Length of the source.
    pub(super) len: usize,
}

impl AxisPhase {
    fn forward(axis: &Axis) -> Vec<AxisPhase> {
        let w = axis.window;
        let taps = (0..w.size).map(|t| (t, (t * w.dilation) as isize - w.before)).collect();
        let (count, len) = (axis.output, axis.input);
        vec![AxisPhase { taps, step: w.stride, count, first: 0, every: 1, len }]
    }

    /// Element `first + q·stride` of the input is used by output `o` at tap `t` where
    /// `o·stride + t·dilation − before` is its position.
    fn input(axis: &Axis) -> Vec<AxisPhase> {
        let (w, stride) = (axis.window, axis.window.stride as isize);
        let phase = |first: usize| {
            let shift = |t: usize| first as isize + w.before - (t * w.dilation) as isize;
            let taps = (0..w.size)
                .filter(|&t| shift(t) % stride == 0)
                .map(|t| (t, shift(t) / stride))
                .collect();
            let count = (axis.input - first).div_ceil(w.stride);
            AxisPhase { taps, step: 1, count, first, every: w.stride, len: axis.output }
        };
        (0..w.stride.min(axis.input)).map(phase).collect()
    }

    pub(super) fn least(&self) -> isize {
        self.taps.iter().map(|t| t.1).min().unwrap_or(0)
    }

    fn reach(&self) -> usize {
        let most = self.taps.iter().map(|t| t.1).max().unwrap_or(0);
        (most - self.least()) as usize
    }
}

/// Most results of an image, in all of the batch, for which a kernel is made ready beforehand: of
/// more it is a small part of the work.
const FEW: usize = 1 << 12;

/// The kernel, ready for the forward map.
pub(super) fn kernels(p: &Problem, w: Volume<f32>) -> Option<Made> {
    let results = p.axes.iter().map(|a| a.output).fold(p.batch, usize::saturating_mul);
    if p.is_thin() || results > FEW || p.inner == 0 {
        return None;
    }
    let tracks = p.axes.each_ref().map(AxisPhase::forward);
    let axes = tracks.each_ref().map(|track| &track[0]);
    if axes.iter().any(|t| t.taps.is_empty() || t.len == 0) {
        return None;
    }
    let phase = Phase { p, way: Direction::Forward, axes, rows: p.outer, channels: p.inner };
    let transformed = winograd::kernels(&phase, w).map(Made::Transformed);
    transformed.or_else(|| Some(Made::Packed(PackedWeights::pack(&phase, w))))
}

/// The forward map or the map to the input; `a` is the source, `w` the kernel.
pub(super) fn run<S: Elem<Compute = C>, C: Laned + ConvFloat>(
    p: &Problem,
    way: Direction,
    a: Volume<S>,
    w: Volume<S>,
    ready: Option<&Made>,
    out: Sink,
) {
    let direct = || match way {
        Direction::Forward => direct::forward(p, a, w, out),
        Direction::Input => direct::input(p, a, w, out),
    };
    if p.is_thin() {
        return direct();
    }
    let tracks = p.axes.each_ref().map(|axis| match way {
        Direction::Forward => AxisPhase::forward(axis),
        Direction::Input => AxisPhase::input(axis),
    });
    // If a phase uses no tap, or the source is empty, its results are zero.
    let void = tracks.iter().flatten().any(|t| t.taps.is_empty() || t.len == 0);
    let source = if way == Direction::Forward { p.inner } else { p.outer };
    if void || source == 0 {
        zero::<S>(out);
    }
    let (c, kept) = match way {
        Direction::Forward => (p.outer, p.inner),
        Direction::Input => (p.inner, p.outer),
    };
    for depth in &tracks[0] {
        for height in &tracks[1] {
            for width in &tracks[2] {
                let phase = Phase { p, way, axes: [depth, height, width], rows: c, channels: kept };
                let seen = phase.axes.iter().all(|t| !t.taps.is_empty() && t.len > 0);
                if seen && source > 0 && !phase.run(a, w, ready, out) {
                    return direct();
                }
            }
        }
    }
}

fn zero<S>(out: Sink) {
    let ptr = Shared(out.ptr.cast::<S>());
    let (len, size) = (out.len(), 1 << 16);
    par::for_each(len.div_ceil(size), |task| {
        let from = task * size;
        // SAFETY: a part of the sink that is this task's; all zero bits are zero.
        unsafe { std::ptr::write_bytes(ptr.at(from), 0, size.min(len - from)) };
    });
}

pub(super) struct Phase<'a> {
    pub(super) p: &'a Problem,
    pub(super) way: Direction,
    pub(super) axes: [&'a AxisPhase; 3],
    /// Channels of the result in a group.
    pub(super) rows: usize,
    /// Channels of the source in a group.
    pub(super) channels: usize,
}

/// How the results of a phase are cut into blocks.
struct Cutting {
    /// The axis that is cut, and the results along it in a block.
    axis: usize,
    each: usize,
    along: usize,
    /// Images in a block.
    images: usize,
}

impl Phase<'_> {
    /// Returns whether it was done: a region much larger than the data is rejected.
    fn run<S: Elem<Compute = C>, C: Laned + ConvFloat>(
        &self,
        a: Volume<S>,
        w: Volume<S>,
        ready: Option<&Made>,
        out: Sink,
    ) -> bool {
        let p = self.p;
        if TypeId::of::<S>() == TypeId::of::<f32>() {
            let [x, w] = [a, w].map(|v| Volume { ptr: v.ptr.cast::<f32>(), strides: v.strides });
            let ready = match ready {
                Some(Made::Transformed(memory)) => Some(memory),
                Some(Made::Packed(_)) | None => None,
            };
            if winograd::run(self, x, w, ready, Shared(out.ptr.cast())) {
                return true;
            }
        }
        let blocks = self.blocks(C::kernels().cols);
        let lengths: usize = self.axes.iter().map(|t| t.len).product();
        let block = self.region(&blocks, 0);
        let copies = blocks.images.saturating_mul(self.channels);
        if block.is_wide(copies, lengths) {
            return false;
        }
        let weights = match ready {
            Some(Made::Packed(ready)) if TypeId::of::<C>() == TypeId::of::<f32>() => {
                let panels = Shared(ready.panels.0.cast());
                let PackedWeights { height, count, steps, .. } = *ready;
                PackedWeights { _memory: None, panels, height, count, steps }
            }
            Some(_) | None => PackedWeights::<C>::pack(self, w),
        };
        // Whether the tile can write into the result directly.
        let dense = self.axes.iter().all(|t| t.every == 1)
            && blocks.images == 1
            && TypeId::of::<S>() == TypeId::of::<C>();
        let count = blocks.along * p.batch.div_ceil(blocks.images);
        par::for_each(p.groups * count, |task| {
            let (group, block) = (task / count, task % count);
            let (images, cut) = (block / blocks.along, block % blocks.along);
            let region = self.region(&blocks, cut);
            let job = GemmTask {
                phase: self,
                region,
                group,
                first: images * blocks.images,
                images: blocks.images.min(p.batch - images * blocks.images),
                start: std::array::from_fn(
                    |i| if i == blocks.axis { cut * blocks.each } else { 0 },
                ),
            };
            job.run::<S, C>(a, &weights, out, dense);
        });
        true
    }

    fn blocks(&self, cols: usize) -> Cutting {
        let p = self.p;
        let counts = self.axes.map(|t| t.count);
        let all: usize = counts.iter().product();
        let axis = counts.iter().position(|&n| n > 1).unwrap_or(2);
        if all < 2 * cols {
            let images = even(p.batch, BLOCK.div_ceil(all), 1);
            return Cutting { axis, each: counts[axis], along: 1, images };
        }
        let unit = all / counts[axis];
        let mut columns = BLOCK;
        while columns > 2 * cols && p.groups * p.batch * all.div_ceil(columns) < TASKS {
            columns /= 2;
        }
        let each = even(counts[axis], columns.div_ceil(unit), 1);
        Cutting { axis, each, along: counts[axis].div_ceil(each), images: 1 }
    }

    /// The part of the source that block number `cut` along the axis reads.
    fn region(&self, blocks: &Cutting, cut: usize) -> SourceBlock {
        let mut i = 0;
        SourceBlock::new(self.axes.map(|t| {
            let from = if i == blocks.axis { cut * blocks.each } else { 0 };
            let count = if i == blocks.axis { blocks.each.min(t.count - from) } else { t.count };
            i += 1;
            let first = t.least() + (from * t.step) as isize;
            AxisReads { first, step: t.step, count, reach: t.reach(), len: t.len }
        }))
    }

    /// Taps in the order of the inner sum.
    fn taps(&self) -> impl Iterator<Item = [(usize, isize); 3]> + '_ {
        let [d, h, w] = self.axes;
        d.taps.iter().flat_map(move |&d| {
            h.taps.iter().flat_map(move |&h| w.taps.iter().map(move |&w| [d, h, w]))
        })
    }
}

/// The kernel as panels of rows, the left side of the product.
pub(super) struct PackedWeights<C> {
    /// Of the panels, unless others hold it.
    _memory: Option<crate::Buffer>,
    panels: Shared<C>,
    /// Rows of all panels but the last.
    height: usize,
    /// Panels of a group.
    count: usize,
    /// Steps of the inner sum.
    steps: usize,
}

impl<C: Laned + ConvFloat> PackedWeights<C> {
    fn pack<S: Elem<Compute = C>>(phase: &Phase, w: Volume<S>) -> PackedWeights<C> {
        let (p, width) = (phase.p, C::kernels().rows);
        let tap = |t: [(usize, isize); 3]| -> isize {
            (0..3).map(|i| t[i].0 as isize * w.strides[i + 2]).sum()
        };
        let taps: Vec<isize> = phase.taps().map(tap).collect();
        let steps = phase.channels * taps.len();
        let height = even(phase.rows, width, 1);
        let count = phase.rows.div_ceil(height);
        let (memory, panels) = scratch::<C>(p.groups * count * steps * width);
        par::for_each(p.groups * count, |task| {
            let (group, panel) = (task / count, task % count);
            let rows = height.min(phase.rows - panel * height);
            let (row, channel) = match phase.way {
                Direction::Forward => (w.strides[0], w.strides[1]),
                Direction::Input => (w.strides[1], w.strides[0]),
            };
            let start = match phase.way {
                Direction::Forward => w.at([group * p.outer + panel * height, 0, 0, 0, 0]),
                Direction::Input => w.at([group * p.outer, panel * height, 0, 0, 0]),
            };
            let mut to = panels.at(task * steps * width);
            for c in 0..phase.channels {
                for tap in &taps {
                    let from = start.wrapping_offset(c as isize * channel + tap);
                    // SAFETY: rows below `rows` are in the kernel; the panel is this task's.
                    unsafe {
                        for i in 0..rows {
                            *to.add(i) = (*from.wrapping_offset(i as isize * row)).load();
                        }
                        (rows..width).for_each(|i| *to.add(i) = C::default());
                        to = to.add(width);
                    }
                }
            }
        });
        PackedWeights { _memory: Some(memory), panels, height, count, steps }
    }
}

/// A block of the results of a phase.
struct GemmTask<'a> {
    phase: &'a Phase<'a>,
    region: SourceBlock,
    group: usize,
    /// The first image, and how many.
    first: usize,
    images: usize,
    /// The first result on each axis.
    start: [usize; 3],
}

impl GemmTask<'_> {
    fn run<S: Elem<Compute = C>, C: Laned + ConvFloat>(
        &self,
        a: Volume<S>,
        weights: &PackedWeights<C>,
        out: Sink,
        dense: bool,
    ) {
        let (kernels, lanes) = (C::kernels(), C::lanes());
        let (phase, region, p) = (self.phase, &self.region, self.phase.p);
        let counts = region.axes.map(|t| t.count);
        let all: usize = counts.iter().product();
        let columns = all * self.images;
        let panels = columns.div_ceil(kernels.cols);
        let most = STEPS.min(weights.steps);
        let block = even(weights.steps, most, 1);

        let image = phase.channels * region.channel;
        let (_region, source) = scratch::<C>(self.images * image + kernels.cols + OVERRUN);
        let (_panels, packed) =
            scratch::<C>(panels * block * kernels.cols + kernels.cols + OVERRUN);
        // SAFETY: the region has space for these channels of each image; what follows it is read,
        // not used.
        unsafe {
            for i in 0..self.images {
                let channel = self.group * phase.channels;
                let dst = source.at(i * image);
                region.fill(a, self.first + i, channel, phase.channels, dst);
            }
            (0..kernels.cols + OVERRUN)
                .for_each(|i| *source.at(self.images * image + i) = C::default());
        }
        let least = phase.axes.map(AxisPhase::least);
        let taps: Vec<usize> = phase
            .taps()
            .map(|t| region.tap(std::array::from_fn(|i| (t[i].1 - least[i]) as usize)))
            .collect();
        let offsets: Vec<usize> = (0..phase.channels)
            .flat_map(|c| taps.iter().map(move |t| c * region.channel + t))
            .collect();
        let lengths = phase.axes.map(|t| if t.every == 1 { t.count } else { 0 });
        let plane: usize = lengths.iter().product();
        let (narrow, target, row) = if dense {
            let [d, h, w] = self.start;
            let at = (d * lengths[1] + h) * lengths[2] + w;
            let channel = (self.first * p.groups + self.group) * phase.rows;
            (None, Shared(out.ptr.cast::<C>()).at(channel * plane + at), plane)
        } else {
            let (memory, wide) = scratch::<C>(phase.rows * columns);
            (Some(memory), wide.at(0), columns)
        };
        let runs = self.runs(kernels.cols, columns, image);
        for from in (0..weights.steps).step_by(block) {
            let steps = block.min(weights.steps - from);
            for (panel, (runs, longest)) in runs.iter().enumerate() {
                let pack = PanelPack {
                    src: source.at(0),
                    offsets: &offsets[from..from + steps],
                    runs,
                    longest: *longest,
                    dst: packed.at(panel * block * kernels.cols),
                    width: kernels.cols,
                };
                // SAFETY: runs and offsets stay in the region; both sides have the extra elements
                // that a copy needs.
                unsafe { (lanes.pack)(&pack) };
            }
            // What is larger of the two panels of a tile stays in L1, if it has the space.
            let stays = steps * kernels.cols * size_of::<C>() <= IN_L1;
            for at in 0..weights.count * panels {
                let (i, panel) = match stays {
                    true => (at % weights.count, at / weights.count),
                    false => (at / panels, at % panels),
                };
                let height = weights.height.min(phase.rows - i * weights.height);
                let a = ((self.group * weights.count + i) * weights.steps + from) * kernels.rows;
                let width = kernels.cols.min(columns - panel * kernels.cols);
                let c = i * weights.height * row + panel * kernels.cols;
                let tile = Tile {
                    k: steps,
                    a: weights.panels.at(a),
                    a_row: 1,
                    a_step: kernels.rows as isize,
                    b: packed.at(panel * block * kernels.cols),
                    b_step: kernels.cols as isize,
                    c: target.wrapping_add(c),
                    c_row: row as isize,
                    cols: width,
                    add: from > 0,
                };
                let vectors = if width * 2 > kernels.cols { 2 } else { 1 };
                // SAFETY: both panels are packed, and this part of the target is this task's.
                unsafe { kernels.packed[height - 1][vectors - 1](&tile) };
            }
        }
        if narrow.is_some() {
            self.put(Shared(target), columns, Shared(out.ptr.cast::<S>()));
        }
    }

    /// For each panel, the runs of the region's rows that make up its columns, and the length of
    /// the longest.
    fn runs(&self, cols: usize, columns: usize, image: usize) -> Vec<(Vec<PanelRun>, usize)> {
        let [_, height, width] = self.region.axes.map(|t| t.count);
        let all: usize = self.region.axes.iter().map(|t| t.count).product();
        let mut panels = Vec::with_capacity(columns.div_ceil(cols));
        let mut at = 0;
        while at < columns {
            let (mut runs, mut longest) = (Vec::new(), 0);
            let end = columns.min(at + cols);
            let start = at;
            while at < end {
                let q = at % all;
                let len = (width - q % width).min(end - at);
                let place = [q / (height * width), q / width % height, q % width];
                let src = at / all * image + self.region.result(place);
                runs.push(PanelRun { col: at - start, src });
                longest = longest.max(len);
                at += len;
            }
            panels.push((runs, longest));
        }
        panels
    }

    /// Stores rows of results, one column each, into the sink.
    fn put<S: Elem<Compute = C>, C: Copy>(&self, wide: Shared<C>, columns: usize, out: Shared<S>) {
        let (phase, p) = (self.phase, self.phase.p);
        let [depth, height, width] = self.region.axes.map(|t| t.count);
        let lengths =
            p.axes.map(|a| if phase.way == Direction::Forward { a.output } else { a.input });
        let place =
            |i: usize, q: usize| phase.axes[i].first + (self.start[i] + q) * phase.axes[i].every;
        let every = phase.axes[2].every;
        let mut column = 0;
        for image in self.first..self.first + self.images {
            for d in 0..depth {
                for h in 0..height {
                    for row in 0..phase.rows {
                        let channel = (image * p.groups + self.group) * phase.rows + row;
                        let line = (channel * lengths[0] + place(0, d)) * lengths[1] + place(1, h);
                        let to = line * lengths[2] + place(2, 0);
                        for q in 0..width {
                            // SAFETY: inside the scratch and the result; each element belongs to
                            // one task.
                            unsafe {
                                *out.at(to + q * every) =
                                    S::store(*wide.at(row * columns + column + q));
                            }
                        }
                    }
                    column += width;
                }
            }
        }
    }
}
