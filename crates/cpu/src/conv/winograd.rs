//! Windows of three by three with stride 1 in f32, by Winograd's F(2 × 2, 3 × 3).
//!
//! Four results, two by two, are the sums of 36 products of a window of four by four elements and
//! the kernel. Transformed, `B d Bᵀ` and `G g Gᵀ`, they take one product for each of the sixteen
//! positions, which are summed over the channels and transformed back, `A m Aᵀ`: 16 instead of 36
//! multiplications. For each position that is a matrix product, on the tiles of [`crate::dot`]:
//! kernels on the left, tiles of all images on the right.
//!
//! A task takes some panels of tiles and rows of kernels: it transforms its part of the source, and
//! for each panel of kernels multiplies sixteen times, into scratch that stays in L1, and
//! transforms that back.
//!
//! # Accuracy
//!
//! The transform of the data adds and subtracts, that of a kernel takes halves too, so errors are a
//! small multiple (about two) of those of the plain sum; but they are relative to the largest
//! element of a tile, where a plain sum's are relative to its own terms. A value that is not finite
//! would reach all four results of a tile, and large ones could overflow on the way. Both show in
//! the results (no later step makes them finite again), so where one is not finite, all is computed
//! again by plain sums: what a result is depends on the operands alone.
//!
//! Larger tiles would save more and lose digits. f64 is where digits are wanted, so it is summed
//! plainly.

use super::Volume;
use super::implicit_gemm::{Direction, Phase};
use super::transforms::{InputRun, LONGEST, OutputRun, POSITIONS, SIDE, SPARE, transforms};
use crate::Buffer;
use crate::dot::tile::{Tile, Tiled};
use crate::dot::{even, scratch};
use crate::operand::{Sink, Source};
use crate::par::{self, Shared};
use crate::pointwise;
use crate::simd::{Isa, SimdTask, vectorised};
use pullback_ir::DType;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Fewest channels of the source and of the result in a group.
const CHANNELS: usize = 16;
/// Elements of transformed data that stay in L2.
const BLOCK: usize = 1 << 16;
/// Fewest tasks to aim for.
const TASKS: usize = 8;
/// Fewest rows of kernels for which transforming the data once more is cheap.
const ROWS: usize = 48;
/// Most rows of a panel of kernels.
const TALLEST: usize = 16;

/// The phase if it is such a convolution, with what the method needs to know.
struct Winograd<'a> {
    phase: &'a Phase<'a>,
    /// Where the window of result 0 begins, on the last two axes.
    first: [isize; 2],
    /// Results on the last two axes, and tiles.
    results: [usize; 2],
    tiles: [usize; 2],
    /// Tiles of all images.
    all: usize,
    /// Rows and columns of a panel.
    rows: usize,
    cols: usize,
    /// Rows of kernels in each panel but the last, and panels.
    height: usize,
    panels: usize,
}

/// Adjacent tiles in a panel.
struct TileRun {
    image: usize,
    /// The tile's place on both axes.
    at: [usize; 2],
    count: usize,
    /// Its column.
    col: usize,
}

/// Computes the phase, unless the method does not fit or a result is not finite. Whatever it has
/// written then is to be written again.
pub(super) fn run(
    phase: &Phase,
    x: Volume<f32>,
    w: Volume<f32>,
    ready: Option<&Buffer>,
    out: Shared<f32>,
) -> bool {
    let Some(job) = Winograd::of(phase) else { return false };
    let (_held, x) = job.dense(x);
    if let Some(ready) = ready {
        // It is only read.
        return job.run(x, Shared(ready.as_ptr().cast_mut().cast()), out);
    }
    let (_memory, kernels) = job.kernels(w);
    job.run(x, kernels, out)
}

/// The transformed kernels of a phase that the method fits, for [`run`].
pub(super) fn kernels(phase: &Phase, w: Volume<f32>) -> Option<Buffer> {
    Some(Winograd::of(phase)?.kernels(w).0)
}

impl<'a> Winograd<'a> {
    fn of(phase: &'a Phase<'a>) -> Option<Winograd<'a>> {
        let [depth, ..] = phase.axes;
        let flat = depth.count == 1 && depth.len == 1 && depth.every == 1;
        let one = flat && depth.taps.len() == 1 && depth.taps[0].1 == 0;
        let plain = phase.axes[1..].iter().all(|axis| {
            let least = axis.least();
            let in_order = (0..3).all(|i| axis.taps.iter().any(|tap| tap.1 == least + i));
            axis.taps.len() == 3 && in_order && (axis.step, axis.every) == (1, 1)
        });
        if !one || !plain || phase.rows < CHANNELS || phase.channels < CHANNELS {
            return None;
        }
        let batch = phase.p.batch;
        let results = [phase.axes[1].count, phase.axes[2].count];
        let tiles = results.map(|n| n.div_ceil(2));
        let all = batch * tiles[0] * tiles[1];
        let (rows, cols) = (f32::kernels().rows, f32::kernels().cols);
        // Full tiles save 5 of 9 multiplications; the transforms cost some of it.
        let work = all.next_multiple_of(cols) * POSITIONS;
        if work * 4 > batch * results[0] * results[1] * 9 * 3 {
            return None;
        }
        let first = [phase.axes[1].least(), phase.axes[2].least()];
        let height = even(phase.rows, rows, 1);
        let panels = phase.rows.div_ceil(height);
        Some(Winograd { phase, first, results, tiles, all, rows, cols, height, panels })
    }

    /// The source with adjacent elements along its last axis: itself, or a copy.
    fn dense(&self, x: Volume<f32>) -> (Option<Buffer>, Volume<f32>) {
        if x.strides[4] == 1 {
            return (None, x);
        }
        let [d, h, w] = self.phase.axes.map(|axis| axis.len);
        let shape = [self.phase.p.batch, self.phase.p.groups * self.phase.channels, d, h, w];
        let (memory, copy) = scratch::<f32>(shape.iter().product());
        let dtype = DType::F32;
        let from = Source { ptr: x.ptr.cast(), shape: &shape, strides: &x.strides, dtype };
        pointwise::copy(from, Sink { ptr: copy.at(0).cast(), shape: &shape, dtype });
        let mut strides = [0; 5];
        strides.copy_from_slice(&pullback_ir::dense_strides(&shape));
        (Some(memory), Volume { ptr: copy.at(0), strides })
    }

    /// Elements from one position of a panel of kernels to the next, and of a panel of tiles.
    fn kernel_position(&self) -> usize {
        self.phase.channels * self.rows + TALLEST
    }
    fn data_position(&self) -> usize {
        self.phase.channels * self.cols
    }

    /// The transformed kernels: for each group and panel of rows, for each position, a panel.
    fn kernels(&self, w: Volume<f32>) -> (Buffer, Shared<f32>) {
        let count = self.phase.p.groups * self.panels;
        let size = POSITIONS * self.kernel_position();
        let (memory, to) = scratch::<f32>(count * size);
        let tap = |axis: usize| -> [isize; 3] {
            let axis_phase = self.phase.axes[axis];
            let least = axis_phase.least();
            let mut at = [0; 3];
            for &(tap, offset) in &axis_phase.taps {
                at[(offset - least) as usize] = tap as isize * w.strides[axis + 2];
            }
            at
        };
        let (down, along) = (tap(1), tap(2));
        let depth = self.phase.axes[0].taps[0].0 as isize * w.strides[2];
        let taps = std::array::from_fn(|i| depth + down[i / 3] + along[i % 3]);
        par::for_each(count, |task| {
            vectorised(KernelPanel { of: self, w, taps, task, to: Shared(to.at(task * size)) });
        });
        (memory, to)
    }

    fn run(&self, x: Volume<f32>, kernels: Shared<f32>, out: Shared<f32>) -> bool {
        let groups = self.phase.p.groups;
        let panels = self.all.div_ceil(self.cols);
        let space = (BLOCK / (POSITIONS * self.data_position())).max(1);
        let each = space.min((panels * groups / TASKS).max(1));
        let blocks = panels.div_ceil(each);
        let parts = TASKS.div_ceil(groups * blocks).min((self.phase.rows / ROWS).max(1));
        let tall = self.panels.div_ceil(parts);
        let parts = self.panels.div_ceil(tall);
        let block = |task: usize| {
            let (group, rest) = (task / (blocks * parts), task % (blocks * parts));
            let (part, block) = (rest / blocks, rest % blocks);
            let tiles = block * each * self.cols..self.all.min((block + 1) * each * self.cols);
            let rows = part * tall..self.panels.min((part + 1) * tall);
            Block { of: self, group, tiles, panels: rows }
        };
        // Where tasks share data, it is transformed before.
        let size = each * POSITIONS * self.data_position();
        let shared = (parts > 1).then(|| scratch::<f32>(groups * blocks * size));
        if let Some((_, data)) = &shared {
            let cuts = self.phase.channels.div_ceil(CHANNELS);
            par::for_each(groups * blocks * cuts, |task| {
                let (task, cut) = (task / cuts, task % cuts);
                let (group, number) = (task / blocks, task % blocks);
                let from = cut * CHANNELS;
                let channels = from..self.phase.channels.min(from + CHANNELS);
                let part = block(group * blocks * parts + number);
                part.transform_all(x, channels, data.at(task * size));
            });
        }
        let finite = AtomicBool::new(true);
        par::for_each(groups * blocks * parts, |task| {
            let part = block(task);
            let done = match &shared {
                Some((_, data)) => {
                    let number = task / (blocks * parts) * blocks + task % blocks;
                    part.multiply(data.at(number * size), kernels, out)
                }
                None => {
                    let (_data, data) = scratch::<f32>(size);
                    part.transform_all(x, 0..self.phase.channels, data.at(0));
                    part.multiply(data.at(0), kernels, out)
                }
            };
            if !done {
                finite.store(false, Ordering::Relaxed);
            }
        });
        finite.into_inner()
    }

    /// Tiles as runs, each in one line of tiles of an image.
    fn runs(&self, tiles: Range<usize>) -> Vec<TileRun> {
        let (mut runs, mut tile) = (Vec::new(), tiles.start);
        while tile < tiles.end {
            let (line, at) = (tile / self.tiles[1], tile % self.tiles[1]);
            let count = (self.tiles[1] - at).min(tiles.end - tile).min(LONGEST);
            let (image, down) = (line / self.tiles[0], line % self.tiles[0]);
            runs.push(TileRun { image, at: [down, at], count, col: tile - tiles.start });
            tile += count;
        }
        runs
    }
}

/// One panel of kernels to be transformed.
struct KernelPanel<'a> {
    of: &'a Winograd<'a>,
    w: Volume<f32>,
    /// Where the taps are, in the order of the data that they meet.
    taps: [isize; 9],
    /// Its number.
    task: usize,
    to: Shared<f32>,
}

impl SimdTask for KernelPanel<'_> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let KernelPanel { of, w, taps, task, to } = self;
        let (phase, position) = (of.phase, of.kernel_position());
        let (group, panel) = (task / of.panels, task % of.panels);
        let rows = of.height.min(phase.rows - panel * of.height);
        let from = panel * of.height;
        let (start, row, channel) = match phase.way {
            Direction::Forward => {
                (w.at([group * phase.rows + from, 0, 0, 0, 0]), w.strides[0], w.strides[1])
            }
            Direction::Input => {
                (w.at([group * phase.channels, from, 0, 0, 0]), w.strides[1], w.strides[0])
            }
        };
        for c in 0..phase.channels {
            let start = start.wrapping_offset(c as isize * channel);
            let mut g = [[0.0f32; TALLEST]; 9];
            for i in 0..rows {
                let start = start.wrapping_offset(i as isize * row);
                for (g, &tap) in g.iter_mut().zip(&taps) {
                    // SAFETY: the row, the channel and the tap are in the kernel.
                    g[i] = unsafe { *start.wrapping_offset(tap) };
                }
            }
            // No closures here: they would not be compiled for the instruction set.
            let columns = [
                spread([g[0], g[3], g[6]]),
                spread([g[1], g[4], g[7]]),
                spread([g[2], g[5], g[8]]),
            ];
            #[allow(clippy::needless_range_loop)] // of several arrays, by columns
            for i in 0..SIDE {
                let line = spread([columns[0][i], columns[1][i], columns[2][i]]);
                for (j, u) in line.iter().enumerate() {
                    let at = to.at((i * SIDE + j) * position + c * of.rows);
                    // SAFETY: the panel is this task's. What is written past the rows is written
                    // again with the next channel, or is between positions.
                    unsafe { at.cast::<[f32; TALLEST]>().write_unaligned(*u) };
                }
            }
        }
    }
}

/// `G g` of three values, where a kernel becomes `G g Gᵀ`.
#[inline(always)]
fn spread(g: [[f32; TALLEST]; 3]) -> [[f32; TALLEST]; SIDE] {
    let mut u = [g[0], g[0], g[0], g[2]];
    for i in 0..TALLEST {
        let (outside, middle) = (0.5 * (g[0][i] + g[2][i]), 0.5 * g[1][i]);
        u[1][i] = outside + middle;
        u[2][i] = outside - middle;
    }
    u
}

/// Some tiles and some panels of kernels of a group.
struct Block<'a> {
    of: &'a Winograd<'a>,
    group: usize,
    tiles: Range<usize>,
    panels: Range<usize>,
}

impl Block<'_> {
    /// The tiles of each panel as runs.
    fn runs(&self) -> Vec<Vec<TileRun>> {
        let panel = |tile| self.of.runs(tile..self.tiles.end.min(tile + self.of.cols));
        self.tiles.clone().step_by(self.of.cols).map(panel).collect()
    }

    /// Transforms some channels of the group.
    fn transform_all(&self, x: Volume<f32>, channels: Range<usize>, data: *mut f32) {
        let size = POSITIONS * self.of.data_position();
        for (i, runs) in self.runs().iter().enumerate() {
            self.transform(x, runs, channels.clone(), data.wrapping_add(i * size));
        }
    }

    /// Returns whether all results are finite.
    fn multiply(&self, data: *mut f32, kernels: Shared<f32>, out: Shared<f32>) -> bool {
        let of = self.of;
        let (channels, position) = (of.phase.channels, of.data_position());
        let size = POSITIONS * position;
        let parts = self.runs();
        // From one position of the product to the next.
        let step = of.rows * of.cols;
        let (_product, product) = scratch::<f32>(POSITIONS * step + SPARE);
        // SAFETY: the scratch has this space; all zero bits are zero.
        unsafe { std::ptr::write_bytes(product.at(0), 0, POSITIONS * step + SPARE) };
        let mut finite = true;
        for panel in self.panels.clone() {
            let height = of.height.min(of.phase.rows - panel * of.height);
            let kernels =
                kernels.at((self.group * of.panels + panel) * POSITIONS * of.kernel_position());
            for (i, runs) in parts.iter().enumerate() {
                for p in 0..POSITIONS {
                    let tile = Tile {
                        k: channels,
                        a: kernels.wrapping_add(p * of.kernel_position()),
                        a_row: 1,
                        a_step: of.rows as isize,
                        b: data.wrapping_add(i * size + p * position),
                        b_step: of.cols as isize,
                        c: product.at(p * step),
                        c_row: of.cols as isize,
                        cols: of.cols,
                        add: false,
                    };
                    // SAFETY: both panels were transformed, and the product is this task's.
                    unsafe { f32::kernels().packed[height - 1][1](&tile) };
                }
                for run in runs {
                    finite &= self.put(run, panel, height, product.at(run.col), out);
                }
            }
        }
        finite
    }

    /// Transforms the channels of the group for one panel of tiles.
    fn transform(&self, x: Volume<f32>, runs: &[TileRun], part: Range<usize>, to: *mut f32) {
        let of = self.of;
        let (channels, position) = (of.phase.channels, of.data_position());
        let [_, height, width] = of.phase.axes.map(|axis| axis.len);
        if runs.iter().map(|run| run.count).sum::<usize>() < of.cols {
            for p in 0..POSITIONS {
                let to = to.wrapping_add(p * position + part.start * of.cols);
                // SAFETY: the caller has space for the panel; all zero bits are zero.
                unsafe { std::ptr::write_bytes(to, 0, part.len() * of.cols) };
            }
        }
        for run in runs {
            let [y, first] = [0, 1].map(|i| of.first[i] + 2 * run.at[i] as isize);
            let end = (first + 2 * run.count as isize + 2).min(width as isize);
            let start = first.max(0);
            let lines = std::array::from_fn(|i| {
                let y = y + i as isize;
                let inside = y >= 0 && y < height as isize && start < end;
                let at = [run.image, self.group * channels + part.start, 0, y as usize, 0];
                if inside { x.at(at).wrapping_offset(first) } else { std::ptr::null() }
            });
            let run = InputRun {
                lines,
                channels: part.len(),
                channel: x.strides[1],
                before: (start - first) as usize,
                end: (end - first).max(0) as usize,
                tiles: run.count,
                space: of.cols - run.col,
                to: to.wrapping_add(part.start * of.cols + run.col),
                position,
                step: of.cols,
            };
            // SAFETY: the lines are in the source. What is written past the run is written again
            // with the next.
            unsafe { (transforms().input)(&run) };
        }
    }

    /// Transforms a run of a panel of the product back; returns whether it is finite.
    fn put(
        &self,
        run: &TileRun,
        panel: usize,
        rows: usize,
        from: *mut f32,
        out: Shared<f32>,
    ) -> bool {
        let of = self.of;
        let [height, width] = of.results;
        let channel = (run.image * of.phase.p.groups + self.group) * of.phase.rows;
        let [y, x] = run.at.map(|tile| 2 * tile);
        let line = out.at(((channel + panel * of.height) * height + y) * width + x);
        let next = if y + 1 < height { line.wrapping_add(width) } else { std::ptr::null_mut() };
        let run = OutputRun {
            from,
            position: of.rows * of.cols,
            step: of.cols,
            lines: [line, next],
            rows,
            row: height * width,
            count: (2 * run.count).min(width - x),
        };
        // SAFETY: the tiles are in the product, the lines in the result, and this part of that is
        // this task's.
        unsafe { (transforms().output)(&run) }
    }
}
