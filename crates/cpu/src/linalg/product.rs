//! Products of parts of matrices, on the calling thread.
//!
//! The tiles are those of [`crate::dot`], which are written for rows: a column-major C is its
//! transpose read by rows, so the vectors run along the rows of C here and the broadcast elements
//! are those of B. B is packed, times ±1, so that one tile serves both signs; A is packed
//! where its columns are not dense or a copy of it is read often.
//!
//! How k is cut depends on k alone, so the bits do not depend on what else is computed.

use super::view::{Cols, Grid};
use super::{Real, Scratch};
use crate::dot::tile::Tile;

/// Steps of k that are packed at a time.
const STEPS: usize = 256;
/// Rows of A that are packed at a time, a multiple of every tile's.
const ROWS: usize = 192;

/// What a product does to its destination.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Into {
    Set,
    Subtract,
}

/// C = A·B or C −= A·B.
pub(super) fn product<T: Real>(c: Cols<T>, into: Into, a: Grid<T>, b: Grid<T>) {
    let (m, n, k) = (c.rows, c.cols, a.cols);
    assert!(a.rows == m && b.rows == k && b.cols == n);
    let mut c = c;
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if into == Into::Set {
            c.fill(T::ZERO);
        }
        return;
    }
    let kernels = T::kernels();
    let (wide, narrow) = (kernels.cols, kernels.rows);
    let direct = a.row == 1 && (n <= 4 * narrow || m * k <= 1 << 12);
    let step = k.div_ceil(k.div_ceil(STEPS));
    let height = if direct { m } else { m.div_ceil(m.div_ceil(ROWS)).next_multiple_of(wide) };
    let (panel, block) = (step * narrow, step * height.next_multiple_of(wide));
    let mut b_space = Scratch::<T>::new(n.div_ceil(narrow) * panel);
    let mut a_space = Scratch::<T>::new(if direct { 0 } else { block });
    let (pb, pa) = (b_space.slice().as_mut_ptr(), a_space.slice().as_mut_ptr());
    for from in (0..k).step_by(step) {
        let steps = step.min(k - from);
        let add = into != Into::Set || from > 0;
        // SAFETY: there is space for all panels of B.
        unsafe {
            let part = b.part(from, steps, 0, n).t();
            pack(part, narrow, pb, panel, into == Into::Subtract);
        }
        for top in (0..m).step_by(height) {
            let rows = height.min(m - top);
            let part = a.part(top, rows, from, steps);
            if !direct {
                // SAFETY: there is space for a block of A.
                unsafe { pack(part, wide, pa, steps * wide, false) };
            }
            for i in (0..rows).step_by(wide) {
                for (p, j) in (0..n).step_by(narrow).enumerate() {
                    let count = narrow.min(n - j);
                    let cols = wide.min(rows - i);
                    let mut tile = Tile {
                        k: steps,
                        a: pb.wrapping_add(p * panel).cast_const(),
                        a_row: 1,
                        a_step: narrow as isize,
                        b: if direct {
                            part.ptr.wrapping_add(i)
                        } else {
                            pa.wrapping_add(i * steps)
                        },
                        b_step: if direct { a.col } else { wide as isize },
                        c: c.ptr.wrapping_add(top + i + j * c.ld),
                        c_row: c.ld as isize,
                        cols,
                        add,
                    };
                    // SAFETY: the tile lies inside the packed panels, or A, and inside C.
                    unsafe {
                        if !direct {
                            let vectors = if cols * 2 > wide { 2 } else { 1 };
                            kernels.packed[count - 1][vectors - 1](&tile);
                            continue;
                        }
                        let most = kernels.direct.len();
                        for done in (0..count).step_by(most) {
                            let some = most.min(count - done);
                            kernels.direct[some - 1](&tile);
                            tile.a = tile.a.add(some);
                            tile.c = tile.c.wrapping_add(some * c.ld);
                        }
                    }
                }
            }
        }
    }
}

/// Packs x into panels of `width` rows, column after column; the last one is filled up with zeros.
///
/// # Safety
/// `to` has space for a panel of `stride` elements for each `width` rows.
unsafe fn pack<T: Real>(x: Grid<T>, width: usize, to: *mut T, stride: usize, minus: bool) {
    let sign = if minus { -T::ONE } else { T::ONE };
    for (p, top) in (0..x.rows).step_by(width).enumerate() {
        let rows = width.min(x.rows - top);
        let part = x.part(top, rows, 0, x.cols);
        // SAFETY: the panel is in the space, and its elements in the matrix.
        unsafe {
            let panel = to.add(p * stride);
            if rows < width {
                (0..width * x.cols).for_each(|at| *panel.add(at) = T::ZERO);
            }
            if part.row == 1 && !minus && rows == width {
                for j in 0..x.cols {
                    let from = part.ptr.offset(j as isize * part.col);
                    match width {
                        32 => copy::<T, 32>(from, panel.add(j * 32)),
                        16 => copy::<T, 16>(from, panel.add(j * 16)),
                        8 => copy::<T, 8>(from, panel.add(j * 8)),
                        _ => (0..width).for_each(|i| *panel.add(j * width + i) = *from.add(i)),
                    }
                }
                continue;
            }
            // Some columns at a time, so that the lines of all rows stay in the cache.
            for first in (0..x.cols).step_by(16) {
                let last = x.cols.min(first + 16);
                for i in 0..rows {
                    let from = part.ptr.offset(i as isize * part.row);
                    for j in first..last {
                        *panel.add(j * width + i) = sign * *from.offset(j as isize * part.col);
                    }
                }
            }
        }
    }
}

/// # Safety
/// `N` elements on both sides, which do not overlap.
#[inline(always)]
unsafe fn copy<T: Copy, const N: usize>(from: *const T, to: *mut T) {
    // SAFETY: guaranteed by the caller.
    unsafe { to.cast::<[T; N]>().write(from.cast::<[T; N]>().read()) };
}

/// The lower triangle of C (and something above it) −= A·Bᵀ, by stripes of columns.
pub(super) fn subtract_lower<T: Real>(c: Cols<T>, a: Grid<T>, b: Grid<T>) {
    const STRIPE: usize = 48;
    let (n, k, mut c) = (c.cols, a.cols, c);
    for j in (0..n).step_by(STRIPE) {
        let (width, rows) = (STRIPE.min(n - j), n - j);
        let to = c.again().part(j, rows, j, width);
        product(to, Into::Subtract, a.part(j, rows, 0, k), b.part(j, width, 0, k).t());
    }
}
