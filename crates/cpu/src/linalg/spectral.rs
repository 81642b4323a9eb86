//! The ops of eigenvalues of symmetric matrices, and of singular values.
//!
//! Vectors are fixed up to their sign. Here the largest element (by size, the first of equals) of
//! an eigenvector or left singular vector is positive, so that vectors change continuously with the
//! matrix.

use super::decompose::{eigenvalues, singular, singular_values, symmetric};
use super::{Dense, Real, Stack, part, store};
use crate::operand::{Sink, Source};
use crate::par;

/// Eigenvalues and eigenvectors; NaN where an element is not finite, or the iteration did not
/// converge.
pub(super) fn eigh<T: Real>(a: Source, values: Sink, vectors: Sink) {
    let stack = Stack::of(a);
    let n = stack.rows;
    if vectors.is_empty() {
        return;
    }
    par::for_each(stack.len(), |i| {
        let mut x = stack.load::<T>(i);
        // SAFETY: the eigenvalues of this matrix belong to this task.
        let w = unsafe { part::<T>(values, i, n) };
        let mut v = Dense::<T>::working(n, n);
        if !symmetric(&mut x, w, &mut v) {
            w.fill(T::NAN);
            v.view_mut().fill(T::NAN);
        }
        for j in 0..n {
            if largest_is_negative(v.column(j)) {
                negate(v.column_mut(j));
            }
        }
        store(&v, vectors, i);
    });
}

/// The eigenvalues of symmetric matrices, or singular values, alone; NaN as of [`eigh`].
pub(super) fn spectrum<T: Real>(is_singular: bool, a: Source, values: Sink) {
    let stack = Stack::of(a);
    let k = if is_singular { stack.rows.min(stack.cols) } else { stack.rows };
    if values.is_empty() {
        return;
    }
    par::for_each(stack.len(), |i| {
        // SAFETY: the values of this matrix belong to this task.
        let w = unsafe { part::<T>(values, i, k) };
        let found = match (is_singular, stack.rows < stack.cols) {
            (false, _) => eigenvalues(&mut stack.load::<T>(i), w),
            (true, false) => singular_values(&mut stack.load::<T>(i), w),
            (true, true) => singular_values(&mut stack.load_transposed::<T>(i), w),
        };
        if !found {
            w.fill(T::NAN);
        }
    });
}

/// U, the singular values and Vᵀ, of the sizes of the sinks; NaN where an element is not finite, or
/// the iteration did not converge.
pub(super) fn svd<T: Real>(a: Source, left: Sink, values: Sink, right: Sink) {
    let stack = Stack::of(a);
    let (m, n) = (stack.rows, stack.cols);
    let k = m.min(n);
    let (wide, tall) = (left.shape[left.shape.len() - 1], right.shape[right.shape.len() - 2]);
    if left.is_empty() && right.is_empty() {
        return;
    }
    par::for_each(stack.len(), |i| {
        if k == 0 {
            store(&Dense::<T>::identity(m, wide), left, i);
            store(&Dense::<T>::identity(tall, n), right, i);
            return;
        }
        // SAFETY: the singular values of this matrix belong to this task.
        let s = unsafe { part::<T>(values, i, k) };
        let (mut u, mut v) = (Dense::<T>::working(m, wide), Dense::<T>::working(n, tall));
        // A wide matrix is the transpose of a tall one.
        let found = if m < n {
            singular(&mut stack.load_transposed::<T>(i), s, &mut v, &mut u)
        } else {
            singular(&mut stack.load::<T>(i), s, &mut u, &mut v)
        };
        if !found {
            s.fill(T::NAN);
            u.view_mut().fill(T::NAN);
            v.view_mut().fill(T::NAN);
        }
        for j in 0..k {
            if largest_is_negative(u.column(j)) {
                negate(u.column_mut(j));
                negate(v.column_mut(j));
            }
        }
        store(&u, left, i);
        // V is column-major: read row by row it is Vᵀ, the wanted result.
        // SAFETY: this part of the sink belongs to this task.
        let rows = unsafe { part::<T>(right, i, tall * n) };
        rows.chunks_exact_mut(n).enumerate().for_each(|(j, row)| row.copy_from_slice(v.column(j)));
    });
}

/// Whether the largest element of a vector is negative.
fn largest_is_negative<T: Real>(v: &[T]) -> bool {
    let mut largest = v[0];
    for &x in v {
        if x.size() > largest.size() {
            largest = x;
        }
    }
    largest < T::ZERO
}

fn negate<T: Real>(v: &mut [T]) {
    v.iter_mut().for_each(|x| *x = -*x);
}
