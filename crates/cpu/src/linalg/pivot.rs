//! LU factors with partial pivoting.
//!
//! The factorisation is recursive: the left half of the columns, then its row exchanges and its
//! triangle are applied to the right half, the product is subtracted, and the lower right part is
//! factorised. Nearly all work is in matrix products.

use super::Real;
use super::product::{Into, product};
use super::triangle::Triangle;
use super::vector::axpy_loop;
use super::view::Cols;
use crate::simd::{Isa, SimdTask, vectorised};

/// Columns that are factorised one by one.
const NARROW: usize = 8;
const UNIT_LOWER: Triangle = Triangle { upper: false, unit: true };

/// Factorises in place; exchange j is that of row j with row `exchanges[j]`.
pub(super) fn factorise<T: Real>(a: Cols<T>, exchanges: &mut [usize]) {
    let (m, n) = (a.rows, a.cols);
    if n > m {
        let (mut left, mut right) = a.split_cols(m);
        factorise(left.again(), exchanges);
        exchange(right.again(), exchanges);
        return UNIT_LOWER.solve_left(left.read(), right);
    }
    if n <= NARROW {
        return vectorised(Narrow { a, exchanges });
    }
    let half = (n / 2).next_multiple_of(NARROW).min(n - 1);
    let (first, second) = exchanges.split_at_mut(half);
    let (mut left, mut right) = a.split_cols(half);
    factorise(left.again(), first);
    exchange(right.again(), first);
    let (top, mut bottom) = left.split_rows(half);
    let (mut upper, mut rest) = right.split_rows(half);
    UNIT_LOWER.solve_left(top.read(), upper.again());
    product(rest.again(), Into::Subtract, bottom.read(), upper.read());
    factorise(rest, second);
    exchange(bottom.again(), second);
    second.iter_mut().for_each(|row| *row += half);
}

/// A few columns, one by one. A column without a pivot is left unchanged.
struct Narrow<'a, T> {
    a: Cols<'a, T>,
    exchanges: &'a mut [usize],
}

impl<T: Real> SimdTask for Narrow<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Narrow { mut a, exchanges } = self;
        let n = a.cols;
        for j in 0..n {
            let row = j + largest(&a.column(j)[j..]);
            exchanges[j] = row;
            if row != j {
                for c in 0..n {
                    a.column_mut(c).swap(j, row);
                }
            }
            let column = &mut a.column_mut(j)[j..];
            let pivot = column[0];
            if pivot == T::ZERO {
                continue;
            }
            for x in &mut column[1..] {
                *x /= pivot;
            }
            for c in j + 1..n {
                let (own, other) = a.pair(j, c);
                let s = -other[j];
                axpy_loop::<I, T>(&mut other[j + 1..], s, &own[j + 1..]);
            }
        }
    }
}

/// The place of the largest element, the first of equals; what is not finite counts as the largest,
/// so that it is not lost.
#[inline(always)]
fn largest<T: Real>(x: &[T]) -> usize {
    const LANES: usize = 16;
    let whole = x.len() - x.len() % LANES;
    // The size, or NaN and infinities as infinity.
    let size = |x: T| if x * T::ZERO == T::ZERO { x.size() } else { T::ONE / T::ZERO };
    let mut most = [T::ZERO; LANES];
    let mut i = 0;
    while i < whole {
        for l in 0..LANES {
            most[l] = most[l].larger(size(x[i + l]));
        }
        i += LANES;
    }
    for l in 0..x.len() - whole {
        most[l] = most[l].larger(size(x[whole + l]));
    }
    let all = most.into_iter().fold(T::ZERO, T::larger);
    if all == T::ZERO { 0 } else { x.iter().position(|&x| size(x) == all).unwrap_or(0) }
}

/// Exchanges row j with the j-th one listed, in order.
pub(super) fn exchange<T: Real>(mut a: Cols<T>, rows: &[usize]) {
    for c in 0..a.cols {
        let column = a.column_mut(c);
        rows.iter().enumerate().for_each(|(j, &row)| column.swap(j, row));
    }
}
