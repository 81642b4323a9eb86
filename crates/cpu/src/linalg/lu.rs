//! LU factors with partial pivoting, permutations, and solving systems with them.
//!
//! The factorisation is recursive: the left half of the columns, then its row exchanges and its
//! triangle are applied to the right half, the product is subtracted, and the lower right part is
//! factorised. Nearly all work is in matrix products.

use super::solve::{Triangle, blocks, copies};
use super::{Dense, Real, Stack, part};
use crate::index::IndexError;
use crate::operand::{Sink, Source};
use crate::par;
use crate::walk::Walk;
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::solve_unit_lower_triangular_in_place;
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::traits::math_utils::{one, zero};
use faer::{Accum, MatMut, Par};

/// Columns that are factorised one by one.
const NARROW: usize = 8;

pub(super) fn lu<T: Real>(a: Source, out: Sink, pivots: Sink) {
    let stack = Stack::of(a);
    let k = stack.rows.min(stack.cols);
    if out.is_empty() {
        return;
    }
    par::for_each(stack.len(), |i| {
        let mut x = stack.load::<T>(i);
        let mut exchanges = vec![0usize; k];
        factorise(x.view_mut(), &mut exchanges);
        x.store(out, i);
        // SAFETY: the pivots of this matrix belong to this task.
        let pivots = unsafe { part::<i32>(pivots, i, k) };
        pivots.iter_mut().zip(exchanges).for_each(|(p, row)| *p = row as i32 + 1);
    });
}

/// Factorises `m` rows and `n` columns in place; exchange j is that of row j with row
/// `exchanges[j]`.
fn factorise<T: Real>(a: MatMut<T>, exchanges: &mut [usize]) {
    let (m, n) = (a.nrows(), a.ncols());
    if n > m {
        let (mut left, mut right) = a.split_at_col_mut(m);
        factorise(left.rb_mut(), exchanges);
        exchange(right.rb_mut(), exchanges.iter().copied());
        return solve_unit_lower_triangular_in_place(left.rb(), right, Par::Seq);
    }
    if n <= NARROW {
        return narrow(a, exchanges);
    }
    let half = (n / 2).next_multiple_of(NARROW);
    let (first, second) = exchanges.split_at_mut(half);
    let (mut left, mut right) = a.split_at_col_mut(half);
    factorise(left.rb_mut(), first);
    exchange(right.rb_mut(), first.iter().copied());
    let (top, mut bottom) = left.rb_mut().split_at_row_mut(half);
    let (mut upper, mut rest) = right.split_at_row_mut(half);
    solve_unit_lower_triangular_in_place(top.rb(), upper.rb_mut(), Par::Seq);
    matmul(rest.rb_mut(), Accum::Add, bottom.rb(), upper.rb(), -one::<T>(), Par::Seq);
    factorise(rest, second);
    exchange(bottom.rb_mut(), second.iter().copied());
    second.iter_mut().for_each(|row| *row += half);
}

/// A few columns, one by one. A column without a pivot is left unchanged.
fn narrow<T: Real>(mut a: MatMut<T>, exchanges: &mut [usize]) {
    let (m, n) = (a.nrows(), a.ncols());
    for j in 0..n {
        // The largest, the first of equals; what is not finite counts as the largest, so that it is
        // not lost.
        let (mut row, mut largest) = (j, zero::<T>());
        for i in j..m {
            let size = a[(i, j)].size();
            if size > largest || !size.finite() {
                (row, largest) = (i, size);
            }
            if !size.finite() {
                break;
            }
        }
        exchanges[j] = row;
        if row != j {
            (0..n).for_each(|c| {
                let held = a[(j, c)];
                a[(j, c)] = a[(row, c)];
                a[(row, c)] = held;
            });
        }
        let pivot = a[(j, j)];
        if pivot == zero() {
            continue;
        }
        (j + 1..m).for_each(|i| a[(i, j)] /= pivot);
        let (_, right, below, rest) = a.rb_mut().split_at_mut(j + 1, j + 1);
        let (right, below) = (right.rb().subrows(j, 1), below.rb().subcols(j, 1));
        matmul(rest, Accum::Add, below, right, -one::<T>(), Par::Seq);
    }
}

/// Exchanges row j with the j-th one listed, in order.
fn exchange<T: Real>(mut a: MatMut<T>, rows: impl Iterator<Item = usize> + Clone) {
    for c in 0..a.ncols() {
        let Some(column) = a.rb_mut().col_mut(c).try_as_col_major_mut() else {
            unreachable!("columns are dense here")
        };
        let column = column.as_slice_mut();
        rows.clone().enumerate().for_each(|(j, row)| column.swap(j, row));
    }
}

/// The pivots of one matrix as rows counted from 0, or the first invalid one.
fn exchanges(
    pivots: Source,
    walk: &Walk<1>,
    range: std::ops::Range<usize>,
    rows: usize,
) -> Result<Vec<usize>, IndexError> {
    let read = |position: usize| {
        let [offset] = walk.offsets(position);
        // SAFETY: inside the operand, whose layout was checked.
        let pivot = i64::from(unsafe { *pivots.ptr.cast::<i32>().wrapping_offset(offset) });
        match usize::try_from(pivot - 1) {
            Ok(row) if row < rows => Ok(row),
            _ => Err(IndexError { position, index: pivot - 1, len: rows }),
        }
    };
    range.map(read).collect()
}

pub(super) fn permutation(rows: usize, pivots: Source, out: Sink) -> Result<(), IndexError> {
    let k = pivots.shape[pivots.shape.len() - 1];
    let walk = Walk::new(pivots.shape, [pivots.strides]);
    let count = out.len().checked_div(rows).unwrap_or(0);
    for i in 0..count {
        let exchanges = exchanges(pivots, &walk, i * k..(i + 1) * k, rows)?;
        // SAFETY: the sink has `rows` elements for each of the stacks.
        let order = unsafe { part::<i64>(out, i, rows) };
        order.iter_mut().enumerate().for_each(|(row, p)| *p = row as i64);
        exchanges.into_iter().enumerate().for_each(|(j, row)| order.swap(j, row));
    }
    Ok(())
}

/// A⁻¹·B or A⁻ᵀ·B from P·L·U = A.
pub(super) fn solve<T: Real>(
    transpose: bool,
    lu: Source,
    pivots: Source,
    b: Source,
    out: Sink,
) -> Result<(), IndexError> {
    let (lu, b) = (Stack::of(lu), Stack::of(b));
    let n = lu.rows;
    let walk = Walk::new(pivots.shape, [pivots.strides]);
    let rows = (0..lu.len()).map(|i| exchanges(pivots, &walk, i * n..(i + 1) * n, n));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    if out.is_empty() {
        return Ok(());
    }
    let copies = copies::<T>(&lu);
    let (lower, upper) =
        (Triangle { upper: false, unit: true }, Triangle { upper: true, unit: false });
    blocks(lu.len(), b.cols, |i, from, count| {
        let mut x = b.columns::<T>(i, from, count);
        let factors = match &copies[i] {
            Some(copy) => copy.view(),
            None => lu.in_place(i).expect("what cannot be read in place was copied"),
        };
        if transpose {
            Triangle { upper: false, unit: false }.solve(factors.transpose(), x.view_mut());
            Triangle { upper: true, unit: true }.solve(factors.transpose(), x.view_mut());
            undo(&mut x, &rows[i]);
        } else {
            exchange(x.view_mut(), rows[i].iter().copied());
            lower.solve(factors, x.view_mut());
            upper.solve(factors, x.view_mut());
        }
        x.store_columns(out, i, from, b.cols);
    });
    Ok(())
}

/// Undoes exchanges, the last one first.
fn undo<T: Real>(x: &mut Dense<T>, rows: &[usize]) {
    for c in 0..x.cols {
        let column = x.column_mut(c);
        rows.iter().enumerate().rev().for_each(|(j, &row)| column.swap(j, row));
    }
}
