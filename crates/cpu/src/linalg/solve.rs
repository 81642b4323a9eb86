//! Cholesky factors and triangular systems.

use super::{Dense, Real, Stack, Work};
use crate::operand::{Sink, Source};
use crate::par;
use faer::linalg::cholesky::llt::factor::{self, LltError};
use faer::linalg::triangular_solve as faer_solve;
use faer::traits::math_utils::zero;
use faer::{MatMut, MatRef, Par};

/// Right-hand sides that one task solves for.
const COLUMNS: usize = 128;

/// The lower factor of each matrix; NaN from the first minor on that is not positive.
pub(super) fn cholesky<T: Real>(a: Source, out: Sink) {
    let stack = Stack::of(a);
    let n = stack.rows;
    if out.is_empty() {
        return;
    }
    par::for_each(stack.len(), |i| {
        let mut l = stack.load::<T>(i);
        let mut work =
            Work::of(factor::cholesky_in_place_scratch::<T>(n, Par::Seq, Default::default()));
        let regular = Default::default();
        let done = factor::cholesky_in_place(
            l.view_mut(),
            regular,
            Par::Seq,
            work.stack(),
            Default::default(),
        );
        // A NaN on the diagonal is not a positive pivot, but is not reported as a failure.
        let reached = match done {
            Ok(_) => n,
            Err(LltError::NonPositivePivot { index }) => index,
        };
        let reached = (0..reached).find(|&j| !l.column(j)[j].finite()).unwrap_or(reached);
        for j in 0..n {
            let column = l.column_mut(j);
            column[..j].fill(zero());
            if j >= reached {
                column[j..].fill(T::NAN);
            }
        }
        l.store(out, i);
    });
}

/// Which triangle is solved with.
#[derive(Clone, Copy)]
pub(super) struct Triangle {
    pub upper: bool,
    pub unit: bool,
}

impl Triangle {
    /// B becomes A⁻¹·B.
    pub(super) fn solve<T: Real>(self, a: MatRef<T>, b: MatMut<T>) {
        match (self.upper, self.unit) {
            (false, false) => faer_solve::solve_lower_triangular_in_place(a, b, Par::Seq),
            (false, true) => faer_solve::solve_unit_lower_triangular_in_place(a, b, Par::Seq),
            (true, false) => faer_solve::solve_upper_triangular_in_place(a, b, Par::Seq),
            (true, true) => faer_solve::solve_unit_upper_triangular_in_place(a, b, Par::Seq),
        }
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
        let mut x = b.columns::<T>(i, from, count);
        let matrix = match &copies[i] {
            Some(copy) => copy.view(),
            None => a.in_place(i).expect("what cannot be read in place was copied"),
        };
        triangle.solve(matrix, x.view_mut());
        x.store_columns(out, i, from, b.cols);
    });
}

/// Copies of those matrices that `faer` cannot read without a copy.
pub(super) fn copies<T: Real>(a: &Stack) -> Vec<Option<Dense<T>>> {
    let copy = |i: usize| a.in_place::<T>(i).is_none().then(|| a.load::<T>(i));
    (0..a.len()).map(copy).collect()
}
