//! Eigenvalues of symmetric matrices and singular values, from the reductions and what follows
//! them.

use super::bulge::qr;
use super::divide::divide;
use super::householder::{self, ReflectorBlock, blocks_of, multiply};
use super::implicit::ql;
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

/// Scales a matrix and returns by what; `None` if an element is not finite.
fn scaled<T: Real>(x: &mut Dense<T>) -> Option<T> {
    let (finite, largest) = x.largest();
    let power = finite.then(|| power(largest))?;
    scale(x, power);
    Some(power)
}

/// The lower triangle of a symmetric matrix, scaled.
fn lower<T: Real>(x: &mut Dense<T>) -> Option<T> {
    for j in 0..x.cols {
        x.column_mut(j)[..j].fill(T::ZERO);
    }
    scaled(x)
}

/// The factors of reflections, and their blocks.
type Reflections<T> = (Vec<T>, Vec<ReflectorBlock<T>>);

/// A tall matrix is first reduced to a square one: that, and the reflections.
fn squared<T: Real>(x: &mut Dense<T>) -> (Option<Dense<T>>, Reflections<T>) {
    let (m, n) = (x.rows, x.cols);
    if m <= n + n / 2 || n <= 2 {
        return (None, (Vec::new(), Vec::new()));
    }
    let first = householder::factorise(x.view_mut());
    let mut r = Dense::<T>::zeros(n, n);
    (0..n).for_each(|j| r.column_mut(j)[..=j].copy_from_slice(&x.column(j)[..=j]));
    (Some(r), first)
}

/// The eigenvalues of [`symmetric`], without vectors.
pub(super) fn eigenvalues<T: Real>(x: &mut Dense<T>, w: &mut [T]) -> bool {
    let n = x.cols;
    let Some(power) = lower(x) else { return false };
    if n == 0 {
        return true;
    }
    let mut e = Scratch::<T>::zeros(n);
    tridiagonal::reduce(x.view_mut(), w, e.slice());
    let found = ql(w, &mut e.slice()[..n - 1], Dense::working(0, n).view_mut());
    w.iter_mut().for_each(|w| *w /= power);
    w.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    found
}

/// The singular values of [`singular`], without vectors.
pub(super) fn singular_values<T: Real>(x: &mut Dense<T>, s: &mut [T]) -> bool {
    let n = x.cols;
    let Some(power) = scaled(x) else { return false };
    let (mut square, _) = squared(x);
    let core = square.as_mut().unwrap_or(x);
    let mut e = Scratch::<T>::zeros(n);
    bidiagonal::reduce(core.view_mut(), s, e.slice());
    let (mut u, mut v) = (Dense::working(0, n), Dense::working(0, n));
    let found = qr(s, &mut e.slice()[..n - 1], u.view_mut(), v.view_mut());
    s.iter_mut().for_each(|s| *s /= power);
    s.sort_unstable_by(|a, b| b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal));
    found
}

/// The eigenvalues of a symmetric matrix, ascending, from its lower triangle, and the eigenvectors.
/// Returns whether it converged, which it does not if an element is not finite.
pub(super) fn symmetric<T: Real>(x: &mut Dense<T>, w: &mut [T], v: &mut Dense<T>) -> bool {
    let n = x.cols;
    let Some(power) = lower(x) else { return false };
    if n == 0 {
        return true;
    }
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
    let n = x.cols;
    let Some(power) = scaled(x) else { return false };
    let (mut square, first) = squared(x);
    let tall = square.is_some();
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
