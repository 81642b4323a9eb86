//! Matrix multiplication, `[b…, m, k] · [b…, k, n]`, for any strides and dtypes.
//!
//! # Which method
//!
//! | case | method |
//! |---|---|
//! | `m` or `n` is 1 | [`vector`]: dot products or scaled rows, memory-bound |
//! | few rows, few steps or tiny, B with adjacent columns | tiles on unpacked operands |
//! | A or B fits in a core's cache, A with dense rows | [`half_packed`]: A unpacked, B packed |
//! | everything else | operands packed into panels, then tiles on those |
//! | integers | plain loops |
//! | bf16, where the machine multiplies pairs of them | [`pairs`] |
//!
//! # The packed method
//!
//! ```text
//! for each NC columns of B, for each KC steps of k:
//!     pack B[KC, NC] into panels                      in parallel
//!     for each MC rows of A:
//!         pack A[MC, KC] into panels                  in parallel
//!         for each block of a grid over C[MC, NC]:    in parallel
//!             for each panel of A, for each panel of B: one tile
//! ```
//!
//! A panel of A stays in L1 while the panels of B of a block, which fit in L2, are read. Packing
//! makes all strides and transposes equal, so `Aᵀ·B` and `A·Bᵀ`, which are what backward needs, run
//! at the speed of `A·B`.
//!
//! # Prepacked operands
//!
//! A loop multiplies with the same weights in every iteration. With few rows, packing B is a large
//! part of the work, so a loop packs it once ([`panels`]) and passes it to every product
//! ([`Right`]); so does a compiled program with weights that are unchanged between its calls.
//! Packing is only a copy: the bits are the same.
//!
//! # The same bits for any number of threads
//!
//! How k is blocked depends on shapes only, and each element of C is summed by one thread, in
//! order. So how C is cut into tasks does not matter.
//!
//! Batches of small matrices are distributed over the threads, each matrix whole. Where B is the
//! same for the whole batch and the rows of A follow each other, the batch is folded into the rows.

mod half_packed;
mod integer;
mod limit;
pub(crate) mod pack;
#[cfg(target_arch = "x86_64")]
mod pairs;
mod prepacked;
#[cfg(test)]
mod tests;
pub(crate) mod tile;
mod vector;

pub use limit::{multiply_add_rate, stream};
pub(crate) use prepacked::{Panels, Right, panels};

use crate::buffer::Buffer;
use crate::elem::{Bool, Elem};
use crate::operand::{Sink, Source};
use crate::par::{self, Shared};
use crate::pointwise;
use crate::simd::{has_bf16_products, level};
use crate::walk::Walk;
use ::half::{bf16, f16};
use pack::{Matrix, Packing};
use pullback_ir::{Binary, DType, Strides};
use std::any::TypeId;
use std::ops::Range;
use tile::{Kernels, Tile, Tiled};

/// Steps of k that are packed at a time.
const KC: usize = 256;
/// Columns of B that are packed at a time, a multiple of every tile width.
const NC: usize = 3072;
/// Rows of A that are packed at a time, a multiple of every tile height.
const MC: usize = 1536;
/// Panels of A and of B in a task.
const TASK_ROWS: usize = 4;
const TASK_COLS: usize = 8;
/// Tasks that a block should have at least, where it is large enough.
const TASKS: usize = 12;
/// Elements of an A that stays in L2 while the panels of B are read. (For a B whose panels are
/// reread for several strips of A, twice as many.)
const IN_PLACE: usize = 1 << 17;
/// Elements between the panels of A. Steps are packed one after the other, each into all panels:
/// were these a power of two apart, the lines that are being filled would evict each other from L1.
const PANEL_GAP: usize = 16;
/// Multiply-adds that are worth a task.
const GRAIN: usize = 1 << 17;

/// What is done with a finished part of a product, on the thread that made it: some rows (of all
/// batches, one after the other) and some columns. Parts do not overlap and cover everything.
pub(crate) type After<'a> = &'a (dyn Fn(Range<usize>, Range<usize>) + Sync);

/// The matrix product of the last two axes; the axes before them are the same in all three.
pub(crate) fn dot<'a>(a: Source, b: impl Into<Right<'a>>, out: Sink) {
    run(a, b.into(), out, None);
}

/// As [`dot`], and `after` for each part while it is in cache. Returns `false`, with only the
/// product done, where results do not come in parts: integers and widened floats.
pub(crate) fn dot_then(a: Source, b: Right, out: Sink, after: After) -> bool {
    let in_parts = match out.dtype {
        DType::F64 | DType::F32 => true,
        DType::BF16 => multiplies_pairs(),
        DType::F16 | DType::I64 | DType::I32 | DType::U8 | DType::Bool => false,
    };
    let hooked = in_parts && out.shape.len() >= 2;
    run(a, b, out, hooked.then_some(after));
    hooked
}

/// Whether products of bf16 are computed by [`pairs`].
pub(crate) fn multiplies_pairs() -> bool {
    cfg!(target_arch = "x86_64") && has_bf16_products(level())
}

fn run(a: Source, b: Right, out: Sink, after: Option<After>) {
    if a.shape.last() == Some(&1) && after.is_none() && out.shape.len() >= 2 {
        return outer(a, b.source, out);
    }
    let Some(mut job) = DotTask::new(a, b.source, out) else { return };
    (job.panels, job.after) = (b.panels, after);
    match out.dtype {
        DType::F64 => job.float::<f64>(),
        DType::F32 => job.float::<f32>(),
        DType::BF16 => job.bf16(),
        DType::F16 => job.narrow::<f16>(),
        DType::I64 => integer::dot::<i64>(&job),
        DType::I32 => integer::dot::<i32>(&job),
        DType::U8 => integer::dot::<u8>(&job),
        DType::Bool => integer::dot::<Bool>(&job),
    }
}

/// A product with one term for each element: a column times a row, which repeat.
fn outer(a: Source, b: Source, out: Sink) {
    let (mut columns, mut rows) = (Strides::from_slice(a.strides), Strides::from_slice(b.strides));
    let last = out.shape.len() - 1;
    (columns[last], rows[last - 1]) = (0, 0);
    let a = Source { shape: out.shape, strides: &columns, ..a };
    let b = Source { shape: out.shape, strides: &rows, ..b };
    pointwise::binary(Binary::Mul, &a, &b, &out);
}

/// Adds the product of two matrices to `out`: one pass over `out` where a product and a sum would
/// be three. Returns `false`, with nothing done, where there is no kernel for it: batches, vectors,
/// integers and narrow floats.
pub(crate) fn dot_add<'a>(a: Source, b: impl Into<Right<'a>>, out: Sink) -> bool {
    let &[m, n] = out.shape else { return false };
    if m < 2 || n < 2 {
        return false;
    }
    fn add<C: Tiled + vector::DotElem + Elem<Compute = C>>(a: &Source, b: Right, out: Sink) {
        let (m, n, k) = (out.shape[0], out.shape[1], a.shape[1]);
        let ready = b.panels.and_then(|panels| panels.of(m, n, k, out.dtype));
        let (a, b) = (Matrix::<C>::of(a, 0), Matrix::<C>::of(&b.source, 0));
        let target = Destination { c: Shared(out.ptr.cast()), add: true, after: None, row: 0 };
        multiply(m, n, k, a, (b, ready), target);
    }
    match out.dtype {
        DType::F64 => add::<f64>(&a, b.into(), out),
        DType::F32 => add::<f32>(&a, b.into(), out),
        _ => return false,
    }
    true
}

/// The destination of a product: dense rows.
struct Destination<'a, C> {
    c: Shared<C>,
    /// Accumulate into the destination instead of overwriting it.
    add: bool,
    /// What is done with finished parts, and which row the first one is.
    after: Option<After<'a>>,
    row: usize,
}

impl<C> Clone for Destination<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Destination<'_, C> {}

impl<C> Destination<'_, C> {
    /// Called when some rows and columns are finished.
    fn done(&self, rows: Range<usize>, cols: Range<usize>) {
        if let Some(after) = self.after {
            after(self.row + rows.start..self.row + rows.end, cols);
        }
    }
}

struct DotTask<'a> {
    m: usize,
    n: usize,
    k: usize,
    a: Source<'a>,
    b: Source<'a>,
    out: Sink<'a>,
    batches: Walk<2>,
    panels: Option<&'a Panels>,
    after: Option<After<'a>>,
}

/// Scratch memory for one kernel.
pub(crate) fn scratch<T>(len: usize) -> (Buffer, Shared<T>) {
    match Buffer::alloc(len.saturating_mul(size_of::<T>())) {
        Ok(mut buffer) => {
            let ptr = Shared(buffer.as_mut_ptr().cast());
            (buffer, ptr)
        }
        Err(error) => panic!("scratch: {error}"),
    }
}

impl<'a> DotTask<'a> {
    /// A product with no prepacked operand and no epilogue; `None` if there is nothing to compute.
    fn new(a: Source<'a>, b: Source<'a>, out: Sink<'a>) -> Option<DotTask<'a>> {
        let rank = out.shape.len();
        if rank < 2 || out.is_empty() {
            return None;
        }
        let (m, n, k) = (out.shape[rank - 2], out.shape[rank - 1], a.shape[rank - 1]);
        let strides = [&a.strides[..rank - 2], &b.strides[..rank - 2]];
        let batches = Walk::new(&out.shape[..rank - 2], strides);
        Some(DotTask { m, n, k, a, b, out, batches, panels: None, after: None })
    }

    /// The whole batch as one product, if possible: its rows and its operands.
    fn as_one<S>(&self) -> Option<(usize, Matrix<S>, Matrix<S>)> {
        let (m, count) = (self.m, self.batches.len());
        let (a, b) = (Matrix::of(&self.a, 0), Matrix::of(&self.b, 0));
        if count == 1 {
            return Some((m, a, b));
        }
        // One matrix B for all, and rows of A that are contiguous across batches: one tall product.
        let [batch] = self.batches.axes() else { return None };
        let runs_on = batch.strides[0] == a.row * m as isize || m == 1;
        let row = if m == 1 { batch.strides[0] } else { a.row };
        (batch.strides[1] == 0 && runs_on).then_some((m * count, Matrix { row, ..a }, b))
    }

    fn float<C: Tiled + vector::DotElem + Elem<Compute = C>>(&self) {
        self.run::<C, C>(Shared(self.out.ptr.cast()));
    }

    /// Narrow storage: computed in f32, narrowed at the end.
    fn narrow<S: Elem<Compute = f32>>(&self) {
        let len = self.out.len();
        let (_buffer, wide) = scratch::<f32>(len);
        self.run::<S, f32>(wide);
        let out = Shared(self.out.ptr.cast::<S>());
        let size = 1 << 15;
        par::for_each(len.div_ceil(size), |task| {
            for i in task * size..len.min((task + 1) * size) {
                // SAFETY: `run` filled the scratch; each element belongs to one task.
                unsafe { *out.at(i) = S::store(*wide.at(i)) };
            }
        });
    }

    /// bf16: by products of pairs where the machine has them, otherwise as other narrow floats.
    fn bf16(&self) {
        #[cfg(target_arch = "x86_64")]
        if multiplies_pairs() {
            return pairs::dot(self);
        }
        self.narrow::<bf16>();
    }

    fn run<S: Elem<Compute = C>, C: Tiled + vector::DotElem>(&self, c: Shared<C>) {
        let (n, k) = (self.n, self.k);
        self.each::<S, C>(c, |rows, a, b, to| {
            let ready = self.panels.and_then(|panels| panels.of(rows, n, k, self.out.dtype));
            multiply(rows, n, k, a, (b, ready), to);
        });
    }

    /// Calls a function with the rows, operands and destination of each product: of one, where the
    /// batch is one.
    fn each<S: Elem, C>(
        &self,
        c: Shared<C>,
        multiply: impl Fn(usize, Matrix<S>, Matrix<S>, Destination<C>) + Sync,
    ) {
        let (m, n, k) = (self.m, self.n, self.k);
        let count = self.batches.len();
        let target = Destination { c, add: false, after: self.after, row: 0 };
        if let Some((rows, a, b)) = self.as_one::<S>() {
            return multiply(rows, a, b, target);
        }
        let one = |i: usize| {
            let [a, b] = self.batches.offsets(i);
            let to = Destination { c: Shared(c.at(i * m * n)), row: i * m, ..target };
            multiply(m, Matrix::of(&self.a, a), Matrix::of(&self.b, b), to);
        };
        let work = m * n * k;
        if work > 64 * GRAIN {
            (0..count).for_each(one);
        } else {
            let group = GRAIN.div_ceil(work.max(1)).min(count);
            par::for_each(count.div_ceil(group), |task| {
                (task * group..count.min((task + 1) * group)).for_each(one);
            });
        }
    }
}

/// A method of computing one product: see the head of this file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    /// No steps: zeros.
    Nothing,
    Vector,
    Direct,
    HalfPacked,
    Packed,
}

/// The method for a product of this size, whose operands have these column strides.
fn method<S: 'static, C: Tiled>(
    m: usize,
    n: usize,
    k: usize,
    a_col: isize,
    b_col: isize,
) -> Method {
    // Up to about 256³ the packing costs more than strided panels of B do: 220 against 170 GFLOP/s.
    let few = m <= 12 || k <= 8 || (m * n * k <= 1 << 24 && k * n <= 1 << 16);
    if k == 0 {
        Method::Nothing
    } else if m == 1 || n == 1 {
        Method::Vector
    } else if b_col == 1 && few {
        Method::Direct
    } else if a_col == 1
        && n >= 4 * C::kernels().cols
        && (m * k <= IN_PLACE || (k * n <= 2 * IN_PLACE && TypeId::of::<S>() == TypeId::of::<C>()))
    {
        Method::HalfPacked
    } else {
        Method::Packed
    }
}

/// One product into dense row-major `c`. `b` may be prepacked.
fn multiply<S: Elem<Compute = C>, C>(
    m: usize,
    n: usize,
    k: usize,
    a: Matrix<S>,
    (b, ready): (Matrix<S>, Option<Shared<C>>),
    target: Destination<C>,
) where
    C: Tiled + vector::DotElem,
{
    match method::<S, C>(m, n, k, a.col, b.col) {
        Method::Nothing => {
            if !target.add {
                // SAFETY: there is space for the product; all zero bits are zero.
                unsafe { std::ptr::write_bytes(target.c.at(0), 0, m * n) };
            }
            target.done(0..m, 0..n);
        }
        Method::Vector => {
            let (_a, a) = wide(m, k, a);
            let (_b, b) = wide(k, n, b);
            if n == 1 {
                vector::multiply(m, k, a, b.ptr, b.row, target.c);
            } else {
                vector::multiply(n, k, b.transposed(), a.ptr, a.col, target.c);
            }
            target.done(0..m, 0..n);
        }
        Method::Direct => {
            let (_a, a) = wide(m, k, a);
            let (_b, b) = wide(k, n, b);
            direct(m, n, k, a, b, target);
        }
        Method::HalfPacked => {
            let (_a, a) = wide(m, k, a);
            half_packed::multiply(m, n, k, a, (b, ready), target);
        }
        Method::Packed => packed(m, n, k, a, b, target),
    }
}

/// The matrix as it is when it is of the compute type, otherwise a dense widened copy.
fn wide<S: Elem<Compute = C>, C: Copy + 'static>(
    rows: usize,
    cols: usize,
    x: Matrix<S>,
) -> (Option<Buffer>, Matrix<C>) {
    if TypeId::of::<S>() == TypeId::of::<C>() {
        return (None, Matrix { ptr: x.ptr.cast(), row: x.row, col: x.col });
    }
    let (buffer, copy) = scratch::<C>(rows * cols);
    let grain = (1usize << 15).div_ceil(cols.max(1));
    par::for_each(rows.div_ceil(grain), |task| {
        for i in task * grain..rows.min((task + 1) * grain) {
            for j in 0..cols {
                // SAFETY: inside both matrices; each row belongs to one task.
                unsafe { *copy.at(i * cols + j) = (*x.at(i, j).ptr).load() };
            }
        }
    });
    (Some(buffer), Matrix { ptr: copy.at(0), row: cols as isize, col: 1 })
}

/// Cuts `len` into pieces of about `piece`, all of the same size but the last.
pub(crate) fn even(len: usize, piece: usize, multiple: usize) -> usize {
    let pieces = len.div_ceil(piece.max(1)).max(1);
    len.div_ceil(pieces).next_multiple_of(multiple)
}

/// Tiles on unpacked operands; the columns of `b` are adjacent.
fn direct<C: Tiled>(m: usize, n: usize, k: usize, a: Matrix<C>, b: Matrix<C>, to: Destination<C>) {
    let Destination { c, add, .. } = to;
    let kernels = C::kernels();
    let height = even(m, kernels.direct.len(), 1);
    // A task is a stripe of columns with all of its rows, unless there are few columns.
    let (task_rows, task_cols) = if m * n * k <= 2 * GRAIN {
        (m, n)
    } else {
        let cols = even(n, 8 * kernels.cols, kernels.cols);
        (even(m, GRAIN.div_ceil(cols.min(n) * k).max(height), height), cols)
    };
    let across = n.div_ceil(task_cols);
    par::for_each(across * m.div_ceil(task_rows), |task| {
        let (i0, j0) = (task / across * task_rows, task % across * task_cols);
        let (i1, j1) = (m.min(i0 + task_rows), n.min(j0 + task_cols));
        for j in (j0..j1).step_by(kernels.cols) {
            for i in (i0..i1).step_by(height) {
                let tile = Tile {
                    k,
                    a: a.at(i, 0).ptr,
                    a_row: a.row,
                    a_step: a.col,
                    b: b.at(0, j).ptr,
                    b_step: b.row,
                    c: c.at(i * n + j),
                    c_row: n as isize,
                    cols: kernels.cols.min(j1 - j),
                    add,
                };
                // SAFETY: the tile lies inside the three matrices, and C's part is this task's.
                unsafe { kernels.direct[height.min(i1 - i) - 1](&tile) };
            }
        }
        to.done(i0..i1, j0..j1);
    });
}

/// Panels, then tiles: see the head of this file.
fn packed<S: Elem<Compute = C>, C: Tiled + Default>(
    m: usize,
    n: usize,
    k: usize,
    a: Matrix<S>,
    b: Matrix<S>,
    to: Destination<C>,
) {
    let kernels = C::kernels();
    let kc = even(k, KC, 1);
    let nc = even(n, NC, kernels.cols);
    let mc = even(m, MC, kernels.rows);
    let (_b, b_panels) = scratch::<C>(kc * nc.min(n.next_multiple_of(kernels.cols)));
    let a_count = mc.min(m.next_multiple_of(kernels.rows)) / kernels.rows;
    let (_a, a_panels) = scratch::<C>(a_count * (kc * kernels.rows + PANEL_GAP));
    for j0 in (0..n).step_by(nc) {
        let cols = nc.min(n - j0);
        for p0 in (0..k).step_by(kc) {
            let steps = kc.min(k - p0);
            // Before the last step of k nothing is finished.
            let after = if p0 + steps == k { to.after } else { None };
            let to = Destination { add: to.add || p0 > 0, after, ..to };
            let (b_stride, a_stride) = (steps * kernels.cols, steps * kernels.rows + PANEL_GAP);
            let block = TileBlock { kernels, n, steps, to, a: a_panels, a_stride, b: b_panels };
            for i0 in (0..m).step_by(mc) {
                let rows = mc.min(m - i0);
                // B is packed with the first rows of A, for all of them.
                let (b, a) = (b.at(p0, j0), a.at(i0, p0).transposed());
                let (width, stride) = (kernels.cols, b_stride);
                let b = Packing { b, count: cols, k: steps, width, stride, dst: b_panels };
                let (width, stride) = (kernels.rows, a_stride);
                let a = Packing { b: a, count: rows, k: steps, width, stride, dst: a_panels };
                // One part for each thread: it will multiply with the rows of A that it packs.
                let parts = par::threads().min(rows.div_ceil(4 * kernels.rows));
                let b_tasks = if i0 == 0 { b.tasks() } else { 0 };
                let each = b_tasks + a.tasks();
                par::for_each(parts * each, |task| {
                    let (part, task) = (task / each, task % each);
                    match task.checked_sub(b_tasks) {
                        None => b.share(part, parts).run(task),
                        Some(task) => a.share(part, parts).run(task),
                    }
                });
                block.multiply(i0, rows, j0, cols);
            }
        }
    }
}

struct TileBlock<'a, C: Tiled> {
    kernels: &'static Kernels<C>,
    n: usize,
    steps: usize,
    to: Destination<'a, C>,
    a: Shared<C>,
    a_stride: usize,
    b: Shared<C>,
}

impl<C: Tiled> TileBlock<'_, C> {
    /// The product of the packed panels, into the corresponding rows and columns of C.
    fn multiply(&self, i0: usize, rows: usize, j0: usize, cols: usize) {
        let kernels = self.kernels;
        // Small products are cut finer, so that there is work for all threads.
        let (mut tall, mut broad) = (TASK_ROWS, TASK_COLS);
        let panels = (rows.div_ceil(kernels.rows), cols.div_ceil(kernels.cols));
        while broad > 2 && panels.0.div_ceil(tall) * panels.1.div_ceil(broad) < TASKS {
            broad /= 2;
            tall = if broad <= 2 { 2 } else { tall };
        }
        let tall = even(rows, tall * kernels.rows, kernels.rows);
        let broad = even(cols, broad * kernels.cols, kernels.cols);
        let across = cols.div_ceil(broad);
        par::for_each(rows.div_ceil(tall) * across, |task| {
            let (i_from, j_from) = (task / across * tall, task % across * broad);
            let (i_to, j_to) = (rows.min(i_from + tall), cols.min(j_from + broad));
            for i in (i_from..i_to).step_by(kernels.rows) {
                let height = kernels.rows.min(i_to - i);
                for j in (j_from..j_to).step_by(kernels.cols) {
                    let width = kernels.cols.min(j_to - j);
                    let tile = Tile {
                        k: self.steps,
                        a: self.a.at(i / kernels.rows * self.a_stride),
                        a_row: 1,
                        a_step: kernels.rows as isize,
                        b: self.b.at(j * self.steps),
                        b_step: kernels.cols as isize,
                        c: self.to.c.at((i0 + i) * self.n + j0 + j),
                        c_row: self.n as isize,
                        cols: width,
                        add: self.to.add,
                    };
                    let vectors = if width * 2 > kernels.cols { 2 } else { 1 };
                    // SAFETY: both panels are packed, and this part of C is this task's.
                    unsafe { kernels.packed[height - 1][vectors - 1](&tile) };
                }
            }
            self.to.done(i0 + i_from..i0 + i_to, j0 + j_from..j0 + j_to);
        });
    }
}
