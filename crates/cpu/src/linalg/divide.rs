//! Eigenvalues and eigenvectors of tridiagonal matrices by divide and conquer.
//!
//! A tridiagonal matrix is two of half the size and a correction of rank one: with ρ the element
//! that links the halves, T = diag(T₁, T₂) + |ρ|·u·uᵀ, where u has 1 and ±1 at the link and |ρ| is
//! subtracted from both diagonal elements there. From the eigenvectors Q₁ and Q₂ of the halves, T =
//! Q·(D + ρ·z·zᵀ)·Qᵀ with z from the last row of Q₁ and the first of Q₂. The middle has the roots
//! of the secular equation as its eigenvalues (`secular.rs`), and one product with Q gives the
//! vectors of the whole.
//!
//! # Deflation
//!
//! Where zⱼ is negligible, dⱼ is an eigenvalue already and its vector stays. Where two d are close,
//! a rotation of their vectors makes one z zero. Often that is most of them. The vectors that
//! remain are grouped: those that are zero in the lower half (from Q₁), those that are zero in
//! neither (which a rotation mixed), those that are zero in the upper half. So the product is two
//! of half the size.

use super::implicit::{ql, sort};
use super::product::{Into, product};
use super::secular::Secular;
use super::vector::rotate;
use super::view::Cols;
use super::{Dense, Real};

/// What is not larger is computed directly.
pub(super) const DIRECT: usize = 32;

/// `d` becomes the eigenvalues, ascending, and Q the eigenvectors; what they held is not used.
/// Returns whether it converged.
pub(super) fn divide<T: Real>(d: &mut [T], e: &mut [T], mut q: Cols<T>) -> bool {
    let n = d.len();
    if n <= DIRECT {
        q.fill(T::ZERO);
        (0..n).for_each(|i| q.set(i, i, T::ONE));
        let found = ql(d, e, q.again());
        sort(d, q);
        return found;
    }
    let half = n / 2;
    let rho = e[half - 1];
    d[half - 1] -= rho.size();
    d[half] -= rho.size();
    {
        let (left, right) = q.again().split_cols(half);
        let (above, mut below) = left.split_rows(half);
        let (mut aside, beneath) = right.split_rows(half);
        below.fill(T::ZERO);
        aside.fill(T::ZERO);
        let (d1, d2) = d.split_at_mut(half);
        let (e1, e2) = e.split_at_mut(half);
        if !divide(d1, &mut e1[..half - 1], above) || !divide(d2, e2, beneath) {
            return false;
        }
    }
    join(d, half, rho, q);
    true
}

/// Where the elements of a vector are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Support {
    Upper,
    Both,
    Lower,
}

fn join<T: Real>(d: &mut [T], half: usize, rho: T, mut q: Cols<T>) {
    let n = d.len();
    // z has length 1.
    let scale = T::of_f64(0.5).root();
    let lower = if rho < T::ZERO { -scale } else { scale };
    let mut z: Vec<T> = (0..n)
        .map(|j| if j < half { q.at(half - 1, j) * scale } else { q.at(half, j) * lower })
        .collect();
    let rho = rho.size() + rho.size();
    let order = merged(d, half);
    let most = |x: &[T]| x.iter().fold(T::ZERO, |most, v| most.larger(v.size()));
    let unit = most(d).larger(rho).larger(T::TINY / T::EPS);
    let tolerance = T::of_f64(8.0) * T::EPS * unit;
    let mut halves: Vec<Support> =
        (0..n).map(|j| if j < half { Support::Upper } else { Support::Lower }).collect();
    let (mut kept, mut done) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for j in order {
        if rho * z[j].size() <= tolerance {
            done.push(j);
            continue;
        }
        if let Some(&before) = kept.last() {
            let before: usize = before;
            let length = z[before].length(z[j]);
            let (c, s) = (z[j] / length, -(z[before] / length));
            let gap = d[j] - d[before];
            if (gap * c * s).size() <= tolerance {
                (z[j], z[before]) = (length, T::ZERO);
                if halves[before] != halves[j] {
                    (halves[before], halves[j]) = (Support::Both, Support::Both);
                }
                let (x, y) = q.pair(before, j);
                rotate(x, y, c, s);
                let (low, high) = (d[before], d[j]);
                d[before] = low * c * c + high * s * s;
                d[j] = low * s * s + high * c * c;
                kept.pop();
                done.push(before);
            }
        }
        kept.push(j);
    }
    let k = kept.len();
    let mut fresh = Dense::<T>::working(n, n);
    let mut values = Vec::with_capacity(n);
    if k > 0 {
        // Numbers close to 1, so that products are neither tiny nor huge.
        let (poles, weights): (Vec<T>, Vec<T>) = kept.iter().map(|&j| (d[j] / unit, z[j])).unzip();
        let equation = Secular { d: &poles, z: &weights, rho: rho / unit, squared: false };
        let (roots, mut distances) = equation.roots();
        values.extend(roots.iter().map(|root| (poles[root.pole] + root.offset) * unit));
        let weights = distances.weights(&equation);
        let groups = Groups::new(&kept, &halves);
        let mut s = Dense::<T>::working(k, k);
        distances.vectors(&weights, &groups.place, s.view_mut());
        groups.multiply(&q, half, &s, fresh.view_mut().part(0, n, 0, k));
    }
    for (at, &j) in done.iter().enumerate() {
        values.push(d[j]);
        fresh.column_mut(k + at).copy_from_slice(q.column(j));
    }
    // Both lists are ascending, or nearly.
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| values[a].partial_cmp(&values[b]).unwrap_or(std::cmp::Ordering::Equal));
    for (to, from) in order.into_iter().enumerate() {
        d[to] = values[from];
        q.column_mut(to).copy_from_slice(fresh.column(from));
    }
}

/// The order of two ascending lists that follow each other.
fn merged<T: Real>(d: &[T], half: usize) -> Vec<usize> {
    let (mut i, mut j) = (0, half);
    let mut order = Vec::with_capacity(d.len());
    while i < half || j < d.len() {
        let first = j == d.len() || (i < half && d[i] <= d[j]);
        let from = if first { &mut i } else { &mut j };
        order.push(*from);
        *from += 1;
    }
    order
}

/// The vectors that take part, grouped by where their elements are.
pub(super) struct Groups<'a> {
    kept: &'a [usize],
    /// The position of each among the grouped.
    pub place: Vec<usize>,
    upper: usize,
    both: usize,
    halves: &'a [Support],
}

impl<'a> Groups<'a> {
    pub(super) fn new(kept: &'a [usize], halves: &'a [Support]) -> Groups<'a> {
        let count = |half: Support| kept.iter().filter(|&&j| halves[j] == half).count();
        let (upper, both) = (count(Support::Upper), count(Support::Both));
        let mut next = [0, upper, upper + both];
        let place = kept.iter().map(|&j| {
            let slot = &mut next[halves[j] as usize];
            *slot += 1;
            *slot - 1
        });
        let place = place.collect();
        Groups { kept, place, upper, both, halves }
    }

    /// `out` = Q·S, for the rows before and after `half` with those vectors that are not zero
    /// there.
    pub(super) fn multiply<T: Real>(&self, q: &Cols<T>, half: usize, s: &Dense<T>, out: Cols<T>) {
        let k = self.kept.len();
        let (above, below) = out.split_rows(half);
        for (to, top) in [(above, true), (below, false)] {
            let (from, count) =
                if top { (0, self.upper + self.both) } else { (self.upper, k - self.upper) };
            let rows = if top { 0..half } else { half..q.rows };
            let mut part = Dense::<T>::working(rows.len(), count);
            for (&j, &place) in self.kept.iter().zip(&self.place) {
                let absent = if top { Support::Lower } else { Support::Upper };
                if self.halves[j] != absent {
                    part.column_mut(place - from).copy_from_slice(&q.column(j)[rows.clone()]);
                }
            }
            let s = s.view().part(from, count, 0, s.cols);
            product(to, Into::Set, part.view(), s);
        }
    }
}
