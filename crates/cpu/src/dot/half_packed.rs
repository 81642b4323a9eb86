//! Products with A unpacked and B in panels.
//!
//! # How C is cut
//!
//! If all panels of B are packed already, by rows: then a core writes the same rows in successive
//! products, and in the pointwise kernels between them, and the only data shared between cores is
//! B, which does not change. (In an LSTM step of 32 rows on two cores, cut by columns, a core read
//! half of every operand from the other's cache: 64 KiB per iteration and 7 µs for each 32 KiB,
//! where an iteration computes for 70 µs.) Every core reads all of B, from L2 or L3 if necessary:
//! panels are read in order, so the hardware prefetches them.
//!
//! If B is packed only for this product and A has few rows, by columns: each core packs the panels
//! it multiplies with, one at a time. Sharing them would cost more than half the product.

use super::pack::{Matrix, Packing};
use super::tile::{Tile, Tiled};
use super::{Destination, GRAIN, IN_PLACE, KC, Shared, even, scratch};
use crate::buffer::Buffer;
use crate::elem::Elem;
use crate::par;
use std::cell::Cell;
use std::ops::Range;

/// Fewest rows per task for which reading all of B is profitable.
const FEW_ROWS: usize = 8;
/// Most strips of rows in a task: they share each panel of B while it is in L1.
const STRIPS: usize = 4;

thread_local! {
    /// Scratch for one panel of B, thread-local: memory that another core has written last is slow
    /// to write again, and packing is mostly writes.
    static PANEL: Cell<Option<Buffer>> = const { Cell::new(None) };
}

/// One product. `b` may be prepacked.
pub(super) fn multiply<S: Elem<Compute = C>, C: Tiled + Default>(
    m: usize,
    n: usize,
    k: usize,
    a: Matrix<C>,
    (b, ready): (Matrix<S>, Option<Shared<C>>),
    to: Destination<C>,
) {
    let product = HalfPacked { m, n, k, a, to };
    if let Some(panels) = ready {
        return product.with_all(panels);
    }
    if m * k > IN_PLACE {
        let (_buffer, panels) = pack_all(n, k, b);
        return product.with_all(panels);
    }
    let width = C::kernels().cols;
    let kc = even(k, KC, 1);
    let broad = columns::<C>(m, n, k);
    par::for_each(n.div_ceil(broad), |task| {
        let mut space = PANEL.take().unwrap_or_else(|| scratch::<C>(KC * 2 * 16).0);
        let panel = Shared(space.as_mut_ptr().cast::<C>());
        let cols = task * broad..n.min((task + 1) * broad);
        for j in cols.clone().step_by(width) {
            for p in (0..k).step_by(kc) {
                let (steps, b) = (kc.min(k - p), b.at(p, j));
                let (count, stride) = (width.min(n - j), steps * width);
                Packing { b, count, k: steps, width, stride, dst: panel }.all();
                product.strips(0..m, j, p..p + steps, panel);
            }
        }
        PANEL.set(Some(space));
        to.done(0..m, cols);
    });
}

/// All panels of B, one after the other, each with all of its steps.
pub(super) fn pack_all<S: Elem<Compute = C>, C: Tiled + Default>(
    n: usize,
    k: usize,
    b: Matrix<S>,
) -> (Buffer, Shared<C>) {
    let width = C::kernels().cols;
    let (buffer, panels) = scratch::<C>(k * n.next_multiple_of(width));
    par::for_each(n.div_ceil(width), |panel| {
        let first = panel * width;
        let (b, dst) = (b.at(0, first), Shared(panels.at(first * k)));
        Packing { b, count: width.min(n - first), k, width, stride: k * width, dst }.all();
    });
    (buffer, panels)
}

/// Columns of a task that takes all rows: whole panels.
fn columns<C: Tiled>(m: usize, n: usize, k: usize) -> usize {
    let width = C::kernels().cols;
    even(n, (GRAIN / (m * k)).max(1) * width, width)
}

/// A product with A unpacked.
struct HalfPacked<'a, C> {
    m: usize,
    n: usize,
    k: usize,
    a: Matrix<C>,
    to: Destination<'a, C>,
}

impl<C: Tiled> HalfPacked<'_, C> {
    /// The product with all panels of B.
    fn with_all(&self, panels: Shared<C>) {
        let HalfPacked { m, n, k, to, .. } = *self;
        let (threads, kernels) = (par::threads(), C::kernels());
        let (rows, broad) = if m * n * k <= 2 * GRAIN {
            (m, n)
        } else if m >= FEW_ROWS * threads {
            // The same number of tasks for each thread.
            let pieces = m.div_ceil(STRIPS * kernels.rows).next_multiple_of(threads);
            (m.div_ceil(pieces), n)
        } else {
            (m, columns::<C>(m, n, k))
        };
        let kc = even(k, KC, 1);
        let across = n.div_ceil(broad);
        par::for_each(m.div_ceil(rows) * across, |task| {
            let (i, first) = (task / across * rows, task % across * broad);
            let (rows, cols) = (i..m.min(i + rows), first..n.min(first + broad));
            for j in cols.clone().step_by(kernels.cols) {
                for p in (0..k).step_by(kc) {
                    let panel = Shared(panels.at(j * k + p * kernels.cols));
                    self.strips(rows.clone(), j, p..k.min(p + kc), panel);
                }
            }
            to.done(rows, cols);
        });
    }

    /// The tiles of some rows with a panel: the columns from `j` on, and some steps of them.
    fn strips(&self, rows: Range<usize>, j: usize, steps: Range<usize>, panel: Shared<C>) {
        let HalfPacked { n, a, to, .. } = *self;
        let kernels = C::kernels();
        let height = even(rows.len(), kernels.rows, 1);
        for i in rows.clone().step_by(height) {
            let tile = Tile {
                k: steps.len(),
                a: a.at(i, steps.start).ptr,
                a_row: a.row,
                a_step: a.col,
                b: panel.at(0),
                b_step: kernels.cols as isize,
                c: to.c.at(i * n + j),
                c_row: n as isize,
                cols: kernels.cols.min(n - j),
                add: to.add || steps.start > 0,
            };
            // SAFETY: the panel is packed, A has these rows, and this part of C is the calling
            // task's.
            unsafe { kernels.half[height.min(rows.end - i) - 1](&tile) };
        }
    }
}
