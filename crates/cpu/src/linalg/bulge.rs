//! Singular values of small bidiagonal matrices: implicit QR.
//!
//! A sweep is a step of shifted QR on BᵀB, without forming that product: a rotation of the first
//! two columns brings an element below the diagonal, and rotations from the left and the right in
//! turn chase it along the diagonals and out. The shift is the smaller singular value of the last
//! two rows. Where it is negligible beside the first element, or the diagonal has a zero, the shift
//! is zero, and the sweep is written without subtractions (Demmel and Kahan), so that small
//! singular values keep their digits.
//!
//! The chase starts at the end with the larger diagonal element. Chasing upwards is the same as
//! chasing downwards in the transpose read backwards, where U and V exchange their roles.

use super::Real;
use super::implicit::{DiagonalPart, UnreducedBlock, UnreducedBlocks, reverse};
use super::vector::rotate_columns;
use super::view::Cols;

/// (c, s, r) with c·f + s·g = r and c·g − s·f = 0. Subnormal numbers count as zero, as they have
/// too few digits for a rotation.
#[inline]
pub(super) fn rotation<T: Real>(f: T, g: T) -> (T, T, T) {
    if g == T::ZERO {
        return (T::ONE, T::ZERO, f);
    }
    let r = f.length(g);
    if r <= T::TINY / T::EPS { (T::ONE, T::ZERO, f) } else { (f / r, g / r, r) }
}

/// The smaller singular value of the upper triangle f, g, h.
fn smaller<T: Real>(f: T, g: T, h: T) -> T {
    let (f, g, h) = (f.size(), g.size(), h.size());
    let (low, high) = if f < h { (f, h) } else { (h, f) };
    if low == T::ZERO {
        return T::ZERO;
    }
    let (sum, gap) = (T::ONE + low / high, (high - low) / high);
    if g < high {
        let q = (g / high) * (g / high);
        return low * (T::of_f64(2.0) / ((sum * sum + q).root() + (gap * gap + q).root()));
    }
    let q = high / g;
    let bottom = sum.with(T::ONE / q) + gap.with(T::ONE / q);
    low * T::of_f64(2.0) / bottom
}

/// `d` becomes the singular values, not negative, in no order; U and V are multiplied by the
/// vectors from the right. `e` is destroyed. Returns whether it converged.
pub(super) fn qr<T: Real>(d: &mut [T], e: &mut [T], mut u: Cols<T>, mut v: Cols<T>) -> bool {
    let n = d.len();
    let mut left = vec![(T::ONE, T::ZERO); n];
    let mut right = vec![(T::ONE, T::ZERO); n];
    let (mut blocks, mut down) = (UnreducedBlocks::of(d, e), true);
    while let Some(UnreducedBlock { first, last, is_new }) = blocks.next(d, e) {
        if is_new {
            down = d[first].size() >= d[last].size();
        }
        let (left, right) = (&mut left[..last - first], &mut right[..last - first]);
        chase(DiagonalPart { d, e, first, last, down }, left, right);
        if down {
            rotate_columns(u.again(), first, left, false);
            rotate_columns(v.again(), first, right, false);
        } else {
            reverse(left);
            reverse(right);
            rotate_columns(v.again(), first, left, true);
            rotate_columns(u.again(), first, right, true);
        }
    }
    if !blocks.converged() {
        return false;
    }
    for (j, value) in d.iter_mut().enumerate().filter(|(_, value)| **value < T::ZERO) {
        *value = -*value;
        v.column_mut(j).iter_mut().for_each(|x| *x = -*x);
    }
    true
}

/// One sweep; the rotations of rows and of columns.
fn chase<T: Real>(mut line: DiagonalPart<T>, left: &mut [(T, T)], right: &mut [(T, T)]) {
    let n = line.last - line.first;
    let singular = (0..=n).any(|i| *line.d(i) == T::ZERO);
    let shift = smaller(*line.d(n - 1), *line.e(n - 1), *line.d(n));
    let head = *line.d(0);
    let ratio = shift / head.size();
    let shifted = ratio * ratio > T::EPS;
    if singular || !shifted {
        let (mut c, mut old) = (T::ONE, (T::ONE, T::ZERO));
        for i in 0..n {
            let (cos, sin, r) = rotation(*line.d(i) * c, *line.e(i));
            if i > 0 {
                *line.e(i - 1) = old.1 * r;
            }
            let (old_c, old_s, di) = rotation(old.0 * r, *line.d(i + 1) * sin);
            *line.d(i) = di;
            (c, old) = (cos, (old_c, old_s));
            (right[i], left[i]) = ((cos, sin), old);
        }
        let h = *line.d(n) * c;
        *line.d(n) = h * old.0;
        *line.e(n - 1) = h * old.1;
        return;
    }
    let mut f = (head.size() - shift) * (T::ONE.signed(head) + shift / head);
    let mut g = *line.e(0);
    for i in 0..n {
        let (c, s, r) = rotation(f, g);
        if i > 0 {
            *line.e(i - 1) = r;
        }
        let (di, ei, next) = (*line.d(i), *line.e(i), *line.d(i + 1));
        f = c * di + s * ei;
        let ei = c * ei - s * di;
        g = s * next;
        let next = c * next;
        right[i] = (c, s);
        let (c, s, r) = rotation(f, g);
        *line.d(i) = r;
        f = c * ei + s * next;
        *line.d(i + 1) = c * next - s * ei;
        if i + 1 < n {
            let after = *line.e(i + 1);
            g = s * after;
            *line.e(i + 1) = c * after;
        }
        left[i] = (c, s);
    }
    *line.e(n - 1) = f;
}
