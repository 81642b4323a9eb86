//! Running a kernel: tasks, rows, tiles.
//!
//! # Prefetching
//!
//! In a simple loop over memory, the hardware prefetcher recognises the pattern and loads the next
//! lines while the loop computes. Tile by tile that is lost: the first step of a tile waits for
//! memory, the others compute and load nothing. On 4M elements the chain gelu(x·a + b)·sigmoid(c)
//! took 2.3 times as long as one loop. So, before each step, a part of the lines is prefetched that
//! the next tile (or the next rows) will read.

use super::build::fill;
use super::domain::{Access, PrefetchedOperand};
use super::plan::{CONSTANTS, OPERANDS, ROWS, SCRATCH};
use super::steps::{TileContext, at, store};
use super::{RegionKernel, TilePass};
use crate::operand::{Sink, Source};
use crate::par::{self, Shared};
use crate::pointwise::fence;
use crate::reduce::Joined;
use crate::simd::BLOCK;
use std::cell::Cell;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    /// Thread-local scratch, so that it stays in cache; all of it is initialised.
    static SCRATCH_OF_THREAD: Cell<TileScratch> = const { Cell::new(Vec::new()) };
}

/// The pointers and scratch that one thread uses.
struct ThreadContext<'a> {
    kernel: &'a RegionKernel,
    inputs: &'a [Source<'a>],
    outputs: &'a [Sink<'a>],
    table: *mut *mut u8,
    joined: *mut Joined,
    /// The kept values, starting at the element with this index.
    kept: *mut u8,
    kept_from: usize,
    /// Capacity of each kept value in elements.
    kept_len: usize,
}

/// How far the lines of a tile have been prefetched.
struct Prefetching {
    /// The first element of the tile, and how many it has.
    start: usize,
    n: usize,
    /// Lines to prefetch at a time.
    each: usize,
    /// The operand and its next line.
    operand: usize,
    line: usize,
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct CacheLine(#[allow(dead_code)] [u8; 64]);

/// Scratch memory, kept between runs. It is not tensor memory and is not counted as such. All of it
/// is initialised, because tiles are computed in whole blocks, including padding.
pub(super) type TileScratch = Vec<CacheLine>;

/// Scratch of at least this many bytes.
pub(super) fn enlarged(mut held: TileScratch, bytes: usize) -> TileScratch {
    let lines = bytes.div_ceil(64);
    if held.len() < lines {
        held.clear();
        held.resize(lines, CacheLine([0; 64]));
    }
    held
}

/// Large scratch that no kernel uses at the moment. Shared by all kernels, of which there may be
/// thousands that each run occasionally.
static IDLE: Mutex<Vec<TileScratch>> = Mutex::new(Vec::new());

fn idle() -> MutexGuard<'static, Vec<TileScratch>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Scratch for one run, all of it initialised; returned by [`give_back`].
pub(super) fn borrowed(bytes: usize) -> TileScratch {
    // The largest is the most likely to be large enough, and the cheapest to enlarge.
    let found = {
        let mut idle = idle();
        let largest = idle.iter().enumerate().max_by_key(|(_, held)| held.len()).map(|at| at.0);
        largest.map(|at| idle.swap_remove(at))
    };
    enlarged(found.unwrap_or_default(), bytes)
}

pub(super) fn give_back(scratch: TileScratch) {
    idle().push(scratch);
}

/// Frees the scratch that no kernel uses.
pub(crate) fn release_scratch() {
    let all = std::mem::take(&mut *idle());
    drop(all);
}

impl RegionKernel {
    /// Bytes of all the kept values for `len` elements, each starting on a cache line.
    fn kept_bytes(&self, len: usize) -> usize {
        self.scratch_sizes.kept.iter().map(|size| (size * len).next_multiple_of(64) + 64).sum()
    }

    /// Calls `f` with this thread's scratch. The row values and the kept values are the thread's
    /// own unless they are given.
    fn with_context(
        &self,
        inputs: &[Source],
        outputs: &[Sink],
        shared: Option<(*mut u8, *mut u8)>,
        f: impl FnOnce(&mut ThreadContext),
    ) {
        let table = 8 * self.scratch_sizes.table.next_multiple_of(8);
        let joined = self.reducing.len() * size_of::<Joined>();
        let own = if shared.is_some() { 0 } else { self.domain.row * self.together };
        let bytes = [
            self.scratch_sizes.slots,
            self.scratch_sizes.rows,
            self.kept_bytes(own),
            table,
            joined,
        ];
        let bytes = bytes.map(|n| n.next_multiple_of(64));
        let mut scratch = enlarged(SCRATCH_OF_THREAD.take(), bytes.iter().sum());
        let base = scratch.as_mut_ptr().cast::<u8>();
        let start = |part: usize| base.wrapping_add(bytes[..part].iter().sum());
        let (rows, kept) = shared.map_or((start(1), start(2)), |s| (start(1), s.1));
        let table = start(3).cast::<*mut u8>();
        let kept_len = if shared.is_some() { self.domain.len() } else { own };
        let mut context = ThreadContext {
            kernel: self,
            inputs,
            outputs,
            table,
            joined: start(4).cast(),
            kept,
            kept_from: 0,
            kept_len,
        };
        // SAFETY: the table has these entries.
        unsafe {
            table.add(SCRATCH as usize).write(base);
            table.add(CONSTANTS as usize).write(self.constants.as_ptr().cast_mut().cast());
            table.add(ROWS as usize).write(rows);
            for (k, access) in self.domain.access.iter().enumerate() {
                let ptr = inputs[k].ptr.wrapping_add(access.offset() * self.input_sizes[k]);
                table.add(OPERANDS as usize + k).write(ptr.cast_mut());
            }
        }
        f(&mut context);
        if self.streams {
            fence();
        }
        SCRATCH_OF_THREAD.set(scratch);
    }

    /// Whether results may be streamed past the caches: they start on cache lines, and do not share
    /// memory with an operand (whose lines are in cache).
    pub(super) fn may_stream(&self, inputs: &[Source], outputs: &[Sink]) -> bool {
        outputs.iter().all(|out| {
            let not_aliased = |x: &Source| x.ptr != out.ptr.cast_const();
            out.ptr.addr().is_multiple_of(64) && inputs.iter().all(not_aliased)
        })
    }

    pub(super) fn execute(&self, inputs: &[Source], outputs: &[Sink]) {
        let domain = &self.domain;
        for f in &self.fills {
            let out = &outputs[f.output];
            // SAFETY: the cell is among the constants, the result has its length.
            unsafe {
                fill(self.constants.as_ptr().cast::<u8>().add(f.from), f.dtype, out.ptr, out.len())
            };
        }
        if self.passes.is_empty()
            || (domain.len() == 0 && domain.rows * self.row_results.len() == 0)
        {
            return;
        }
        if self.chunked {
            return self.execute_chunked(inputs, outputs);
        }
        if self.reducing.is_empty() {
            let (len, mut task) = (domain.len(), self.task);
            let (tasks, threads) = (len.div_ceil(task), par::threads());
            if tasks >= threads && tasks < 8 * threads {
                // The same number for each thread, so that a thread gets the same elements in
                // successive kernels.
                task = len.div_ceil(tasks.next_multiple_of(threads)).next_multiple_of(4 * BLOCK);
            }
            par::for_each(len.div_ceil(task), |t| {
                self.with_context(inputs, outputs, None, |context| {
                    context.pass(&self.passes[0], t * task..len.min((t + 1) * task), self.tile);
                });
            });
            return;
        }
        // Whole groups of rows for each task.
        let each = (self.task / domain.row.max(1)).max(1).next_multiple_of(self.together);
        par::for_each(domain.rows.div_ceil(each), |t| {
            self.with_context(inputs, outputs, None, |context| {
                let end = domain.rows.min((t + 1) * each);
                for row in (t * each..end).step_by(self.together) {
                    context.rows(row, self.together.min(end - row));
                }
            });
        });
    }

    pub(super) fn execute_part(
        &self,
        inputs: &[Source],
        outputs: &[Sink],
        rows: Range<usize>,
        columns: Range<usize>,
        width: usize,
    ) {
        debug_assert!(self.reducing.is_empty() && self.fills.is_empty());
        if columns.is_empty() || self.passes.is_empty() {
            return;
        }
        self.with_context(inputs, outputs, None, |context| {
            if columns.len() == width {
                return context.pass(&self.passes[0], rows.start * width..rows.end * width, 0);
            }
            for row in rows {
                let range = row * width + columns.start..row * width + columns.end;
                context.pass(&self.passes[0], range, 0);
            }
        });
    }

    /// Few huge rows: pass by pass, each cut into chunks.
    fn execute_chunked(&self, inputs: &[Source], outputs: &[Sink]) {
        let domain = &self.domain;
        let chunks = domain.row.div_ceil(self.task);
        let partial = 8 * self.reducing.len() * domain.rows * chunks;
        let kept = self.kept_bytes(domain.len());
        let mut scratch = borrowed(self.scratch_sizes.rows + kept + partial + 192);
        let rows = Shared(scratch.as_mut_ptr().cast::<u8>());
        let kept = Shared(rows.at(self.scratch_sizes.rows.next_multiple_of(64)));
        let start = self.scratch_sizes.rows.next_multiple_of(64) + self.kept_bytes(domain.len());
        let partials = Shared(rows.at(start.next_multiple_of(8)).cast::<u64>());
        let place = |r: usize, row: usize| (r * domain.rows + row) * chunks;
        for pass in &self.passes {
            par::for_each(domain.rows * chunks, |task| {
                let (row, chunk) = (task / chunks, task % chunks);
                let shared = Some((rows.at(0), kept.at(0)));
                self.with_context(inputs, outputs, shared, |context| {
                    context.take_row(rows.at(0), row);
                    context.begin(pass);
                    let (from, to) = (chunk * self.task, (chunk + 1) * self.task);
                    let first = row * domain.row;
                    context.pass(pass, first + from..first + to.min(domain.row), self.tile);
                    for &r in &pass.reduces {
                        // SAFETY: each slot belongs to one task; the folds are initialised.
                        unsafe {
                            let folder = &self.reducing[r].folder;
                            let total = (*context.joined.add(r)).total(folder);
                            *partials.at(place(r, row) + chunk) = total;
                        }
                    }
                });
            });
            self.with_context(inputs, outputs, Some((rows.at(0), kept.at(0))), |context| {
                // SAFETY: the table has the entry, and the shared row values have space for all
                // rows.
                unsafe { context.table.add(ROWS as usize).write(rows.at(0)) };
                for &r in &pass.reduces {
                    let how = &self.reducing[r];
                    for row in 0..domain.rows {
                        let mut joined = Joined::NOTHING;
                        // SAFETY: every task has written its slot.
                        unsafe {
                            for chunk in 0..chunks {
                                joined.push(&how.folder, *partials.at(place(r, row) + chunk));
                            }
                            how.put(context.table, row, joined.total(&how.folder));
                        }
                    }
                }
                context.row_values(pass, domain.rows);
            });
        }
        self.with_context(inputs, outputs, Some((rows.at(0), kept.at(0))), |context| {
            // SAFETY: as above.
            unsafe { context.table.add(ROWS as usize).write(rows.at(0)) };
            context.row_results(0, domain.rows);
        });
        give_back(scratch);
    }
}

impl ThreadContext<'_> {
    /// All the passes over a few rows that are processed together.
    fn rows(&mut self, first: usize, count: usize) {
        let row = self.kernel.domain.row;
        self.kept_from = first * row;
        for pass in &self.kernel.passes {
            self.begin(pass);
            self.pass(pass, first * row..(first + count) * row, count * row);
            if !self.kernel.domain.many || row == 0 {
                for &r in &pass.reduces {
                    let how = &self.kernel.reducing[r];
                    for i in 0..count {
                        // SAFETY: the folds are initialised; there is space for these rows.
                        unsafe { how.put(self.table, i, (*self.joined.add(r)).total(&how.folder)) };
                    }
                }
            }
            self.row_values(pass, count);
        }
        self.row_results(first, count);
    }

    /// Initialises the folds of a pass.
    fn begin(&mut self, pass: &TilePass) {
        for &r in &pass.reduces {
            // SAFETY: there is space for each reduction.
            unsafe { self.joined.add(r).write(Joined::NOTHING) };
        }
    }

    /// Copies the row values of one row from those of all rows.
    fn take_row(&mut self, all: *const u8, row: usize) {
        let scratch_sizes = &self.kernel.scratch_sizes;
        for (value, &size) in scratch_sizes.row_sizes.iter().enumerate() {
            // SAFETY: both have space for the value.
            unsafe {
                let own = (*self.table.add(ROWS as usize)).add(value * scratch_sizes.row);
                let from = all.add(value * scratch_sizes.row);
                std::ptr::copy_nonoverlapping(from.add(row * size), own, size);
            }
        }
    }

    /// Computes the row values that follow a pass.
    fn row_values(&mut self, pass: &TilePass, rows: usize) {
        let here = self.here(0, rows);
        for step in &pass.rows {
            // SAFETY: the row values have space for these rows, padded to whole blocks.
            unsafe { here.run(step) };
        }
    }

    /// Writes the results that are one number per row.
    fn row_results(&mut self, first: usize, count: usize) {
        for result in &self.kernel.row_results {
            let out = self.outputs[result.output].ptr;
            // SAFETY: the result has an element for each row.
            unsafe {
                let to = out.add(first * result.dtype.size());
                store(at(self.table, result.from), result.kind, result.dtype, to, count);
            }
        }
    }

    fn here(&self, start: usize, n: usize) -> TileContext<'_> {
        TileContext {
            table: self.table,
            start,
            n,
            domain: &self.kernel.domain,
            inputs: self.inputs,
            reducing: &self.kernel.reducing,
            joined: self.joined,
        }
    }

    /// One pass over a range of elements. What comes `ahead` elements later is prefetched.
    fn pass(&mut self, pass: &TilePass, range: Range<usize>, ahead: usize) {
        let kernel = self.kernel;
        let domain = &kernel.domain;
        let mut start = range.start;
        while start < range.end {
            let run_end = (start / domain.run + 1) * domain.run;
            let n = kernel.tile.min(range.end - start).min(run_end - start);
            let n = if domain.many { range.end - start } else { n };
            self.move_to(start);
            let here = self.here(start, n);
            let asks = pass.ahead.filter(|_| ahead > 0);
            let mut prefetching =
                asks.map(|(first, parts)| self.prefetching(start + ahead, n, first, parts));
            for step in &pass.steps {
                if let Some(prefetching) = &mut prefetching {
                    self.prefetch_next(prefetching);
                }
                // SAFETY: the table points at this tile, which is inside the domain.
                unsafe { here.run(step) };
            }
            start += n;
        }
    }

    /// Starts prefetching the operands' elements from `start` on, at one of this many parts of
    /// their lines.
    fn prefetching(&self, start: usize, n: usize, first: usize, parts: usize) -> Prefetching {
        let lines =
            |a: &PrefetchedOperand| (n * a.stride * self.kernel.input_sizes[a.input]).div_ceil(64);
        let each = self.kernel.ahead.iter().map(lines).sum::<usize>().div_ceil(parts);
        let (mut operand, mut line) = (0, first * each);
        while let Some(lines) = self.kernel.ahead.get(operand).map(lines)
            && line >= lines
        {
            (operand, line) = (operand + 1, line - lines);
        }
        Prefetching { start, n, each, operand, line }
    }

    /// Prefetches the next part of the lines.
    fn prefetch_next(&self, prefetching: &mut Prefetching) {
        let mut left = prefetching.each;
        while left > 0
            && let Some(&PrefetchedOperand { input, offset, stride }) =
                self.kernel.ahead.get(prefetching.operand)
        {
            let size = self.kernel.input_sizes[input];
            let at = (offset + prefetching.start * stride) * size;
            let from = self.inputs[input].ptr.wrapping_add(at);
            let lines = (prefetching.n * stride * size).div_ceil(64);
            let end = lines.min(prefetching.line + left);
            for line in prefetching.line..end {
                prefetch_line(from.wrapping_add(64 * line));
            }
            left -= end - prefetching.line;
            prefetching.line = end;
            if end == lines {
                (prefetching.operand, prefetching.line) = (prefetching.operand + 1, 0);
            }
        }
    }

    /// Points the table at the tile that starts at an element.
    fn move_to(&mut self, start: usize) {
        let kernel = self.kernel;
        let domain = &kernel.domain;
        let inputs = OPERANDS as usize;
        // SAFETY: the table has an entry for each operand, result and kept value.
        unsafe {
            for (k, access) in domain.access.iter().enumerate() {
                let base = self.inputs[k].ptr;
                let offset = match access {
                    Access::Dense(offset) => offset + start,
                    Access::Run { offset, stride, outer } => {
                        let (run, along) = (start / domain.run, start % domain.run);
                        offset.wrapping_add_signed(domain.run_offset(run, outer)) + along * stride
                    }
                    Access::Splat(_) | Access::Walk(..) | Access::Key => continue,
                };
                let ptr = base.wrapping_add(offset * kernel.input_sizes[k]);
                self.table.add(inputs + k).write(ptr.cast_mut());
            }
            let outputs = inputs + self.inputs.len();
            for (o, out) in self.outputs.iter().enumerate() {
                let ptr = out.ptr.wrapping_add(start * kernel.output_sizes[o]);
                self.table.add(outputs + o).write(ptr);
            }
            let mut kept = self.kept;
            for (n, size) in kernel.scratch_sizes.kept.iter().enumerate() {
                let ptr = kept.wrapping_add((start - self.kept_from) * size);
                self.table.add(outputs + self.outputs.len() + n).write(ptr);
                kept = kept.wrapping_add((size * self.kept_len).next_multiple_of(64) + 64);
            }
        }
    }
}

/// Prefetches a line into L2. Any address is allowed: an invalid one is ignored.
#[inline(always)]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of the target, and a prefetch has no visible effect.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
