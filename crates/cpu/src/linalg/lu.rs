//! The ops of LU factors with partial pivoting: factors, permutations, and systems.

use super::pivot::{exchange, factorise};
use super::solve::{Sides, blocks, copies};
use super::triangle::Triangle;
use super::{Real, Stack, part, store};
use crate::index::IndexError;
use crate::operand::{Sink, Source};
use crate::par;
use crate::walk::Walk;

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
        store(&x, out, i);
        // SAFETY: the pivots of this matrix belong to this task.
        let pivots = unsafe { part::<i32>(pivots, i, k) };
        pivots.iter_mut().zip(exchanges).for_each(|(p, row)| *p = row as i32 + 1);
    });
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
        let mut x = Sides::<T>::load(&b, i, from, count);
        let factors = match &copies[i] {
            Some(copy) => copy.view().t(),
            None => lu.in_place(i).expect("what cannot be read in place was copied"),
        };
        if transpose {
            x.solve(upper.transposed(), factors.t());
            x.solve(lower.transposed(), factors.t());
            permute(&mut x, &rows[i], true);
        } else {
            permute(&mut x, &rows[i], false);
            x.solve(lower, factors);
            x.solve(upper, factors);
        }
        x.store(out, i, from, b.cols);
    });
    Ok(())
}

/// Exchanges the rows of right-hand sides in order, or undoes that, the last exchange first.
fn permute<T: Real>(sides: &mut Sides<T>, rows: &[usize], undo: bool) {
    let mut x = sides.x.view_mut();
    let n = rows.len();
    let exchanges = (0..n).map(|step| if undo { n - 1 - step } else { step });
    if sides.rows {
        for j in exchanges.filter(|&j| rows[j] != j) {
            let (a, b) = x.pair(j, rows[j]);
            a.swap_with_slice(b);
        }
    } else if undo {
        for c in 0..x.cols {
            let column = x.column_mut(c);
            exchanges.clone().for_each(|j| column.swap(j, rows[j]));
        }
    } else {
        exchange(x, rows);
    }
}
