//! The ops of Cholesky factors and triangular systems.

use super::triangle::{self, Triangle};
use super::{Dense, Grid, Real, Stack, store, store_columns};
use crate::operand::{Sink, Source};
use crate::par;

/// Right-hand sides that one task solves for.
const COLUMNS: usize = 128;
/// Fewer are solved for one by one.
pub(super) const FEW: usize = 4;

/// The lower factor of each matrix; NaN from the first minor on that is not positive.
pub(super) fn cholesky<T: Real>(a: Source, out: Sink) {
    let stack = Stack::of(a);
    if out.is_empty() {
        return;
    }
    par::for_each(stack.len(), |i| {
        let mut l = stack.load::<T>(i);
        let reached = triangle::cholesky(l.view_mut());
        for j in 0..l.cols {
            let column = l.column_mut(j);
            column[..j].fill(T::ZERO);
            if j >= reached {
                column[j..].fill(T::NAN);
            }
        }
        store(&l, out, i);
    });
}

/// Right-hand sides, as columns if there are few and as rows otherwise.
pub(super) struct Sides<T> {
    pub x: Dense<T>,
    pub rows: bool,
}

impl<T: Real> Sides<T> {
    pub(super) fn load(b: &Stack, i: usize, from: usize, count: usize) -> Sides<T> {
        let rows = count >= FEW;
        let x = if rows { b.columns_transposed(i, from, count) } else { b.columns(i, from, count) };
        Sides { x, rows }
    }

    /// They become A⁻¹·B.
    pub(super) fn solve(&mut self, triangle: Triangle, a: Grid<T>) {
        if self.rows {
            triangle.transposed().solve_right(a.t(), self.x.view_mut());
        } else {
            triangle.solve_left(a, self.x.view_mut());
        }
    }

    pub(super) fn store(&self, out: Sink, i: usize, from: usize, cols: usize) {
        store_columns(&self.x, self.rows, out, i, from, cols);
    }
}

/// Splits the right-hand sides of all systems into tasks: `f(matrix, first column, columns)`.
pub(super) fn blocks(count: usize, cols: usize, f: impl Fn(usize, usize, usize) + Sync) {
    let pieces = cols.div_ceil(COLUMNS).max(1);
    let width = cols.div_ceil(pieces);
    par::for_each(count * pieces, |task| {
        let (i, from) = (task / pieces, task % pieces * width);
        f(i, from, width.min(cols - from));
    });
}

pub(super) fn triangular<T: Real>(triangle: Triangle, a: Source, b: Source, out: Sink) {
    if out.is_empty() {
        return;
    }
    let (a, b) = (Stack::of(a), Stack::of(b));
    let copies = copies::<T>(&a);
    blocks(a.len(), b.cols, |i, from, count| {
        let mut x = Sides::<T>::load(&b, i, from, count);
        let matrix = match &copies[i] {
            Some(copy) => copy.view().t(),
            None => a.in_place(i).expect("what cannot be read in place was copied"),
        };
        x.solve(triangle, matrix);
        x.store(out, i, from, b.cols);
    });
}

/// Copies of those matrices that have no adjacent elements, transposed: so they are read in the
/// order of a dense matrix, and a layout does not change the bits.
pub(super) fn copies<T: Real>(a: &Stack) -> Vec<Option<Dense<T>>> {
    let copy =
        |i: usize| a.in_place::<T>(i).is_none().then(|| a.columns_transposed::<T>(i, 0, a.cols));
    (0..a.len()).map(copy).collect()
}
