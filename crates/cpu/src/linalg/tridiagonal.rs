//! Symmetric matrices to tridiagonal form, by reflections from both sides.
//!
//! Reflection j clears column j below its subdiagonal, and row j with it. For v = its vector, the
//! part below and to the right becomes A − v·wᵀ − w·vᵀ with w = τ·(A·v − ½·τ·(vᵀ·A·v)·v). Half of
//! the work is the products A·v, which read the whole remaining matrix and cannot be grouped; the
//! other half, the updates, is delayed: inside a panel, a column is updated just before it is used,
//! and A·v is corrected by the pending updates; after the panel all of them are one product. Only
//! the lower triangle is read and written.

use super::householder::reflection;
use super::lanes::{dot, mirrored, project};
use super::product::subtract_lower;
use super::vector::{axpy, combine, scale};
use super::view::Cols;
use super::{Dense, Real, Scratch};
use crate::simd::{Isa, SimdTask, vectorised};

/// Columns of a panel.
const PANEL: usize = 32;
/// What is not larger is updated after each column.
const SMALL: usize = 64;

/// The diagonal and the subdiagonal; below that, A holds the vectors of the reflections (without
/// their heads), whose τ are returned.
pub(super) fn reduce<T: Real>(mut a: Cols<T>, d: &mut [T], e: &mut [T]) -> Vec<T> {
    let n = a.cols;
    let mut taus = vec![T::ZERO; n.saturating_sub(1)];
    let mut start = 0;
    while n - start > SMALL {
        let (d, e) = (&mut d[start..start + PANEL], &mut e[start..start + PANEL]);
        let size = n - start;
        panel(a.again().part(start, size, start, size), d, e, &mut taus[start..start + PANEL]);
        start += PANEL;
    }
    let mut w_space = Scratch::<T>::new(n - start);
    let mut v_space = Scratch::<T>::new(n - start);
    for j in start..n {
        d[j] = a.at(j, j);
        let rest = n - j - 1;
        if rest == 0 {
            break;
        }
        let (mut own, others) = a.again().part(j + 1, rest, j, rest + 1).split_cols(1);
        let column = own.column_mut(0);
        let tau = reflection(column);
        (e[j], taus[j]) = (column[0], tau);
        if tau == T::ZERO {
            continue;
        }
        let (v, w) = (&mut v_space.slice()[..rest], &mut w_space.slice()[..rest]);
        v[0] = T::ONE;
        v[1..].copy_from_slice(&column[1..]);
        mirrored(w, others.read(), v);
        finish(w, v, tau);
        vectorised(RankTwoUpdate { a: others, v, w });
    }
    taus
}

/// A·v becomes w.
fn finish<T: Real>(w: &mut [T], v: &[T], tau: T) {
    scale(w, tau);
    let along = dot(w, v) * tau * T::of_f64(-0.5);
    axpy(w, along, v);
}

/// The lower triangle of A −= v·wᵀ + w·vᵀ.
struct RankTwoUpdate<'a, T> {
    a: Cols<'a, T>,
    v: &'a [T],
    w: &'a [T],
}

impl<T: Real> SimdTask for RankTwoUpdate<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let RankTwoUpdate { mut a, v, w } = self;
        let n = a.cols;
        for j in 0..n {
            let (x, y) = (-v[j], -w[j]);
            let (v, w) = (&v[j..n], &w[j..n]);
            let column = &mut a.column_mut(j)[j..n];
            for i in 0..n - j {
                column[i] = x.fma::<I>(w[i], y.fma::<I>(v[i], column[i]));
            }
        }
    }
}

/// The first columns of A, and the updates of all others.
fn panel<T: Real>(mut a: Cols<T>, d: &mut [T], e: &mut [T], taus: &mut [T]) {
    let (n, width) = (a.cols, d.len());
    // V, W, and V again, so that both factors of the update are adjacent columns.
    let mut both = Dense::<T>::zeros(n, 3 * width);
    let mut along = Scratch::<T>::new(2 * width);
    let along = along.slice();
    for j in 0..width {
        let (pending, mut fresh) = both.view_mut().split_cols(width);
        let column = &mut a.column_mut(j)[j..];
        for i in 0..j {
            (along[i], along[width + i]) = (fresh.at(j, i), pending.at(j, i));
        }
        combine(column, -T::ONE, pending.read().part(j, n - j, 0, j), &along[..j]);
        combine(column, -T::ONE, fresh.read().part(j, n - j, 0, j), &along[width..width + j]);
        d[j] = column[0];
        let tau = reflection(&mut column[1..]);
        (e[j], taus[j]) = (column[1], tau);
        let (rest, from) = (n - j - 1, j + 1);
        let mut pending = pending;
        let v = &mut pending.column_mut(j)[from..];
        v[0] = T::ONE;
        v[1..].copy_from_slice(&a.column(j)[from + 1..]);
        let v = &pending.column(j)[from..];
        let (done, mut own) = fresh.again().part(from, rest, 0, j + 1).split_cols(j);
        let w = own.column_mut(0);
        mirrored(w, a.read().part(from, rest, from, rest), v);
        let old = pending.read().part(from, rest, 0, j);
        project(&mut along[..j], done.read(), v);
        project(&mut along[width..width + j], old, v);
        combine(w, -T::ONE, old, &along[..j]);
        combine(w, -T::ONE, done.read(), &along[width..width + j]);
        finish(w, v, tau);
    }
    for j in 0..width {
        let mut all = both.view_mut();
        let (from, to) = all.pair(j, 2 * width + j);
        to.copy_from_slice(from);
    }
    let rest = n - width;
    let both = both.view();
    let (left, right) =
        (both.part(width, rest, 0, 2 * width), both.part(width, rest, width, 2 * width));
    subtract_lower(a.part(width, rest, width, rest), left, right);
}
