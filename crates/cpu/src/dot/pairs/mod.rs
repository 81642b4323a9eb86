//! Products of bf16 by the instruction that multiplies pairs of them and adds both to a sum in f32
//! (`vdpbf16ps`): twice the arithmetic of f32.
//!
//! # Rounding
//!
//! Products are exact; of each pair the second is added first, and every sum is rounded to f32, to
//! nearest. The result is rounded once, to bf16. The instruction takes numbers below 2⁻¹²⁶ for
//! zero, operands and sums, so this differs from the other levels there, and in the last place.
//!
//! # How C is cut
//!
//! By columns, where there are enough for all threads: each packs its own columns of B, four panels
//! at a time, and multiplies them with all rows. Otherwise all of B is packed first. A is left in
//! place where the elements of a row are adjacent. Steps come in blocks whose sums are added in
//! order, and the blocks depend on k alone: so how C is cut changes no bit.

mod pack;
mod tile;

use super::pack::Matrix;
use super::{Destination, DotTask, PANEL_GAP, Shared, even, scratch};
use crate::buffer::Buffer;
use crate::par;
use half::bf16;
use pack::PairPacking;
use std::ops::Range;
use tile::{COLS, PairTile, ROWS, TILES};

/// Elements of k in a block: a panel of A stays in L1, four of B in L2.
pub(super) const KC: usize = 1024;
/// Columns of a task.
const BROAD: usize = 4 * COLS;
/// Rows of a task, and those whose sums are kept from block to block.
const TALL: usize = 8 * ROWS;
/// Multiply-adds that one thread computes sooner than two.
const SMALL: usize = 1 << 19;
/// Most rows for which packing B is a notable part of a product.
const PREPACKED: usize = 512;

/// Computes a whole job, of any size.
pub(super) fn dot(job: &DotTask) {
    let (n, k) = (job.n, job.k);
    job.each::<bf16, bf16>(Shared(job.out.ptr.cast()), |rows, a, b, to| {
        let ready = job.panels.and_then(|panels| panels.of(rows, n, k, job.out.dtype));
        if n == 1 {
            // The same numbers as a row, so that there are columns to compute side by side.
            let row = Destination { after: None, ..to };
            multiply(1, rows, k, b.transposed(), (a.transposed(), None), row);
            to.done(0..rows, 0..1);
        } else {
            multiply(rows, n, k, a, (b, ready), to);
        }
    });
}

/// The packed right operand, where packing it is a notable part of the product.
pub(super) fn panels(rows: usize, n: usize, k: usize, b: Matrix<bf16>) -> Option<Buffer> {
    (rows > 1 && rows <= PREPACKED && n > 1 && k > 0).then(|| pack_all(n, k, COLS, b, 0).0)
}

fn multiply(
    m: usize,
    n: usize,
    k: usize,
    a: Matrix<bf16>,
    (b, ready): (Matrix<bf16>, Option<Shared<u32>>),
    to: Destination<bf16>,
) {
    if k == 0 {
        // SAFETY: there is space for the product; all zero bits are zero.
        unsafe { std::ptr::write_bytes(to.c.at(0), 0, m * n) };
        return to.done(0..m, 0..n);
    }
    let packed = (a.col != 1).then(|| pack_all(m, k, ROWS, a.transposed(), PANEL_GAP));
    let product = PairProduct { n, k, a, a_panels: packed.as_ref().map(|p| p.1), to };
    let threads = if m * n * k <= SMALL { 1 } else { par::threads() };
    let groups = n.div_ceil(BROAD).next_multiple_of(threads);
    if ready.is_none() && n >= groups * COLS {
        let broad = even(n, n.div_ceil(groups), COLS);
        par::for_each(n.div_ceil(broad), |task| {
            let cols = task * broad..n.min((task + 1) * broad);
            let panels = cols.len().div_ceil(COLS);
            let (_buffer, dst) = scratch::<u32>(panels * steps(k) * COLS);
            let (b, count) = (b.at(0, cols.start), cols.len());
            let stride = steps(k) * COLS;
            let packing = PairPacking { b, count, k, width: COLS, stride, dst };
            (0..packing.tasks()).for_each(|task| packing.run(task));
            product.block(0..m, cols, dst);
        });
        return;
    }
    let (_buffer, b) = match ready {
        Some(panels) => (None, panels),
        None => {
            let (buffer, panels) = pack_all(n, k, COLS, b, 0);
            (Some(buffer), panels)
        }
    };
    let (tall, broad) = match threads {
        1 => (m, n),
        // The same number of tasks for each thread.
        _ => {
            let across = n.div_ceil(BROAD);
            let down = m.div_ceil(TALL).max(threads.div_ceil(across)).next_multiple_of(threads);
            (even(m, m.div_ceil(down), ROWS), even(n, BROAD, COLS))
        }
    };
    let across = n.div_ceil(broad);
    par::for_each(m.div_ceil(tall) * across, |task| {
        let (i, j) = (task / across * tall, task % across * broad);
        let (rows, cols) = (i..m.min(i + tall), j..n.min(j + broad));
        product.block(rows, cols, Shared(b.at(j / COLS * steps(k) * COLS)));
    });
}

/// Pairs of k elements.
fn steps(k: usize) -> usize {
    k.div_ceil(2)
}

/// All panels of B, or of Aᵀ, each with all of its steps and so many pairs after it.
fn pack_all(
    n: usize,
    k: usize,
    width: usize,
    b: Matrix<bf16>,
    gap: usize,
) -> (Buffer, Shared<u32>) {
    let stride = steps(k) * width + gap;
    let (buffer, dst) = scratch::<u32>(n.div_ceil(width) * stride);
    let packing = PairPacking { b, count: n, k, width, stride, dst };
    match n * k <= SMALL / 64 {
        true => (0..packing.tasks()).for_each(|task| packing.run(task)),
        false => par::for_each(packing.tasks(), |task| packing.run(task)),
    }
    (buffer, dst)
}

struct PairProduct<'a> {
    n: usize,
    k: usize,
    a: Matrix<bf16>,
    /// Panels of all rows, if those are not read in place.
    a_panels: Option<Shared<u32>>,
    to: Destination<'a, bf16>,
}

impl PairProduct<'_> {
    /// Some rows and columns; the first panel of `b` has the first of these columns.
    fn block(&self, rows: Range<usize>, cols: Range<usize>, b: Shared<u32>) {
        if self.k <= KC {
            self.blocks(rows.clone(), cols.clone(), b, Shared(std::ptr::null_mut()));
        } else {
            let (_buffer, partial) = scratch::<f32>(TALL.min(rows.len()) * cols.len());
            for i in rows.clone().step_by(TALL) {
                self.blocks(i..rows.end.min(i + TALL), cols.clone(), b, partial);
            }
        }
        self.to.done(rows, cols);
    }

    /// All blocks of k, one after the other.
    fn blocks(&self, rows: Range<usize>, cols: Range<usize>, b: Shared<u32>, partial: Shared<f32>) {
        let kc = even(self.k, KC, 2);
        let height = match self.a_panels {
            Some(_) => ROWS,
            None => even(rows.len(), ROWS, 1),
        };
        for from in (0..self.k).step_by(kc) {
            let to = self.k.min(from + kc);
            for i in rows.clone().step_by(height) {
                let count = height.min(rows.end - i);
                for j in cols.clone().step_by(COLS) {
                    let local = (i - rows.start) * cols.len() + j - cols.start;
                    let panel = b.at((j - cols.start) * steps(self.k) + from / 2 * COLS);
                    let tile = PairTile {
                        b: panel,
                        partial: partial.at(local),
                        partial_row: cols.len(),
                        cols: COLS.min(cols.end - j),
                        ..self.rows(i, from..to)
                    };
                    let vectors = if tile.cols > COLS / 2 { 2 } else { 1 };
                    let tiles = match self.a_panels {
                        Some(_) => &TILES.packed,
                        None => &TILES.in_place,
                    };
                    let out = match to == self.k {
                        true => self.to.c.at(i * self.n + j),
                        false => std::ptr::null_mut(),
                    };
                    // SAFETY: the panel is packed, A has these rows, this part of C is the calling
                    // task's, and so are the sums; the processor has these instructions.
                    unsafe { tiles[count - 1][vectors - 1](&PairTile { out, ..tile }) };
                }
            }
        }
    }

    /// A tile of some rows and steps, without its columns.
    fn rows(&self, i: usize, steps_of: Range<usize>) -> PairTile {
        let a = match self.a_panels {
            Some(panels) => {
                let stride = steps(self.k) * ROWS + PANEL_GAP;
                panels.at(i / ROWS * stride + steps_of.start / 2 * ROWS).cast_const().cast()
            }
            None => self.a.at(i, steps_of.start).ptr,
        };
        PairTile {
            k: steps_of.len(),
            a,
            a_row: self.a.row,
            b: std::ptr::null(),
            partial: std::ptr::null_mut(),
            partial_row: 0,
            add: steps_of.start > 0,
            out: std::ptr::null_mut(),
            out_row: self.n,
            cols: 0,
        }
    }
}
