//! The ops of LU factors with partial pivoting: factors, permutations, and systems.

use super::pivot::{exchange, factorise};
use super::solve::{FEW, Sides, blocks, copies};
use super::triangle::Triangle;
use super::view::Cols;
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
    let keep = |i: usize, exchanges: &[usize]| {
        // SAFETY: the pivots of this matrix belong to this task.
        let pivots = unsafe { part::<i32>(pivots, i, k) };
        pivots.iter_mut().zip(exchanges).for_each(|(p, &row)| *p = row as i32 + 1);
    };
    if stack.rows.max(stack.cols) <= SMALL {
        return each_small(stack.len(), |i| {
            let (m, n) = (stack.rows, stack.cols);
            let mut x = [T::ZERO; SMALL * SMALL];
            stack.read(i, &mut x);
            let mut exchanges = [0; SMALL];
            factorise(Cols::new(&mut x[..m * n], m, n, m), &mut exchanges[..k]);
            // SAFETY: the matrix belongs to this task.
            let to = unsafe { part::<T>(out, i, m * n) };
            for (r, row) in to.chunks_exact_mut(n).enumerate() {
                row.iter_mut().enumerate().for_each(|(c, to)| *to = x[c * m + r]);
            }
            keep(i, &exchanges[..k]);
        });
    }
    par::for_each(stack.len(), |i| {
        let mut x = stack.load::<T>(i);
        let mut exchanges = vec![0usize; k];
        factorise(x.view_mut(), &mut exchanges);
        store(&x, out, i);
        keep(i, &exchanges);
    });
}

/// Longest side of matrices that are read into an array: allocating one would take longer than the
/// arithmetic.
const SMALL: usize = 8;

/// Calls a function for each of many small matrices, some in each task.
fn each_small(count: usize, f: impl Fn(usize) + Sync) {
    /// Matrices of a task.
    const SOME: usize = 256;
    par::for_each(count.div_ceil(SOME), |t| {
        (t * SOME..count.min((t + 1) * SOME)).for_each(&f);
    });
}

/// The pivots of one matrix as rows counted from 0, or the first invalid one.
fn exchanges(
    pivots: Source,
    walk: &Walk<1>,
    range: std::ops::Range<usize>,
    rows: usize,
) -> Result<Vec<usize>, IndexError> {
    let mut found = Vec::with_capacity(range.len());
    let mut wrong = None;
    walk.for_range(range, |run| {
        for t in 0..run.len {
            let offset = run.offsets[0] + t as isize * run.strides[0];
            // SAFETY: inside the operand, whose layout was checked.
            let pivot = i64::from(unsafe { *pivots.ptr.cast::<i32>().wrapping_offset(offset) });
            match usize::try_from(pivot - 1) {
                Ok(row) if row < rows => found.push(row),
                _ => {
                    let position = run.start + t;
                    wrong.get_or_insert(IndexError { position, index: pivot - 1, len: rows });
                }
            }
        }
    });
    wrong.map_or(Ok(found), Err)
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
    let all = exchanges(pivots, &walk, 0..lu.len() * n, n)?;
    let rows = |i: usize| &all[i * n..(i + 1) * n];
    if out.is_empty() {
        return Ok(());
    }
    if n <= SMALL && b.cols < FEW {
        each_small(lu.len(), |i| solve_small::<T>(transpose, [&lu, &b], rows(i), out, i));
        return Ok(());
    }
    let copies = copies::<T>(&lu);
    let [lower, upper] = TRIANGLES;
    blocks(lu.len(), b.cols, |i, from, count| {
        let mut x = Sides::<T>::load(&b, i, from, count);
        let factors = match &copies[i] {
            Some(copy) => copy.view().t(),
            None => lu.in_place(i).expect("what cannot be read in place was copied"),
        };
        if transpose {
            x.solve(upper.transposed(), factors.t());
            x.solve(lower.transposed(), factors.t());
            permute(&mut x, rows(i), true);
        } else {
            permute(&mut x, rows(i), false);
            x.solve(lower, factors);
            x.solve(upper, factors);
        }
        x.store(out, i, from, b.cols);
    });
    Ok(())
}

/// Those of the factors.
const TRIANGLES: [Triangle; 2] =
    [Triangle { upper: false, unit: true }, Triangle { upper: true, unit: false }];

/// One system of a few equations, with as few right-hand sides, by the same steps.
fn solve_small<T: Real>(
    transpose: bool,
    [lu, b]: [&Stack; 2],
    rows: &[usize],
    out: Sink,
    i: usize,
) {
    let (n, cols, [lower, upper]) = (lu.rows, b.cols, TRIANGLES);
    let (mut factors, mut x) = ([T::ZERO; SMALL * SMALL], [T::ZERO; SMALL * FEW]);
    lu.read(i, &mut factors);
    b.read(i, &mut x);
    let factors = Cols::new(&mut factors[..n * n], n, n, n);
    let mut x = Cols::new(&mut x[..n * cols], n, cols, n);
    if transpose {
        upper.transposed().solve_left(factors.read().t(), x.again());
        lower.transposed().solve_left(factors.read().t(), x.again());
        for c in 0..cols {
            let column = x.column_mut(c);
            (0..n).rev().for_each(|j| column.swap(j, rows[j]));
        }
    } else {
        exchange(x.again(), rows);
        lower.solve_left(factors.read(), x.again());
        upper.solve_left(factors.read(), x.again());
    }
    // SAFETY: the results of this system belong to this task.
    let to = unsafe { part::<T>(out, i, n * cols) };
    for (r, row) in to.chunks_exact_mut(cols).enumerate() {
        row.iter_mut().enumerate().for_each(|(c, to)| *to = x.column(c)[r]);
    }
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
