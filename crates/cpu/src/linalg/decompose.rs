//! Eigenvalues of symmetric matrices and singular values, from the reductions and what follows
//! them.

use super::divide::divide;
use super::householder::{self, blocks_of, multiply};
use super::{Dense, Real, Scratch, bidiagonal, divide_singular, tridiagonal};

/// The power of two that takes a matrix with this largest element to a range where squares are
/// exact enough; 1 if it is there.
fn power<T: Real>(largest: T) -> T {
    let fine = largest == T::ZERO || (largest > T::LOW && largest < T::HIGH);
    if fine { T::ONE } else { largest.to_one() }
}

fn scale<T: Real>(x: &mut Dense<T>, s: T) {
    if s != T::ONE {
        (0..x.cols).for_each(|j| x.column_mut(j).iter_mut().for_each(|x| *x *= s));
    }
}

/// The eigenvalues of a symmetric matrix, ascending, from its lower triangle, and the eigenvectors.
/// Returns whether it converged, which it does not if an element is not finite.
pub(super) fn symmetric<T: Real>(x: &mut Dense<T>, w: &mut [T], v: &mut Dense<T>) -> bool {
    let n = x.cols;
    for j in 0..n {
        x.column_mut(j)[..j].fill(T::ZERO);
    }
    let (finite, largest) = x.largest();
    if !finite {
        return false;
    }
    if n == 0 {
        return true;
    }
    let power = power(largest);
    scale(x, power);
    let mut e = Scratch::<T>::zeros(n);
    let taus = tridiagonal::reduce(x.view_mut(), w, e.slice());
    let e = &mut e.slice()[..n - 1];
    let found = divide(w, e, v.view_mut());
    if n > 1 {
        let vectors = x.view().part(1, n - 1, 0, n - 1);
        let blocks = blocks_of(vectors, &taus);
        multiply(vectors, &taus, &blocks, v.view_mut().part(1, n - 1, 0, n), false);
    }
    w.iter_mut().for_each(|w| *w /= power);
    found
}

/// The singular values, descending, of a matrix with at least as many rows as columns, and U and
/// V; those may have more columns than there are values. Returns whether it converged,
/// which it does not if an element is not finite.
pub(super) fn singular<T: Real>(
    x: &mut Dense<T>,
    s: &mut [T],
    u: &mut Dense<T>,
    v: &mut Dense<T>,
) -> bool {
    let (m, n) = (x.rows, x.cols);
    let (finite, largest) = x.largest();
    if !finite {
        return false;
    }
    let power = power(largest);
    scale(x, power);
    // A tall matrix is first reduced to a square one.
    let tall = m > n + n / 2 && n > 2;
    let (mut square, mut first) = (None, (Vec::new(), Vec::new()));
    if tall {
        first = householder::factorise(x.view_mut());
        let mut r = Dense::<T>::zeros(n, n);
        (0..n).for_each(|j| r.column_mut(j)[..=j].copy_from_slice(&x.column(j)[..=j]));
        square = Some(r);
    }
    let mut e = Scratch::<T>::zeros(n);
    let core = match &mut square {
        Some(r) => r,
        None => &mut *x,
    };
    let reduced = bidiagonal::reduce(core.view_mut(), s, e.slice());
    let e = &mut e.slice()[..n - 1];
    let (rows, wide) = (core.rows, u.cols);
    u.view_mut().fill(T::ZERO);
    (n..wide).for_each(|j| u.view_mut().set(j, j, T::ONE));
    let found = divide_singular::divide(s, e, u.view_mut().part(0, n, 0, n), v.view_mut());
    let vectors = core.view().part(0, rows, 0, n);
    let blocks = blocks_of(vectors, &reduced.left);
    let cols = if tall { n } else { wide };
    multiply(vectors, &reduced.left, &blocks, u.view_mut().part(0, rows, 0, cols), false);
    if tall {
        multiply(x.view(), &first.0, &first.1, u.view_mut(), false);
    }
    if n > 1 {
        let vectors = reduced.vectors.view().part(1, n - 1, 0, n - 1);
        let blocks = blocks_of(vectors, &reduced.right);
        multiply(vectors, &reduced.right, &blocks, v.view_mut().part(1, n - 1, 0, n), false);
    }
    s.iter_mut().for_each(|s| *s /= power);
    found
}
