//! Householder's reflections, one by one and in blocks.
//!
//! A reflection is I − τ·v·vᵀ with v₀ = 1; it maps x to β·e₀ with β = −sign(x₀)·|x|, and a column
//! that is zero below its head is left unchanged (τ = 0). The product of several is I − V·T·Vᵀ with
//! an upper triangular T, so that applying them is nearly all products of matrices.

use super::lanes::{dot, project};
use super::product::{Into, product};
use super::vector::{axpy, norm, scale};
use super::view::{Cols, Grid};
use super::{Dense, Real};

/// Reflections in a block.
pub(super) const PANEL: usize = 32;

/// The head of `x` becomes β, the rest v without its head. Returns τ.
pub(super) fn reflection<T: Real>(x: &mut [T]) -> T {
    let Some((&mut head, rest)) = x.split_first_mut() else { return T::ZERO };
    let below = norm(rest);
    if below == T::ZERO {
        return T::ZERO;
    }
    let size = head.length(below);
    if size < T::LOW || size > T::HIGH && size.finite() {
        // Numbers close to 1, as subnormal ones have few digits.
        let power = size.to_one();
        x.iter_mut().for_each(|x| *x *= power);
        let size = norm(x);
        let tau = plain(x, size);
        x[0] /= power;
        return tau;
    }
    plain(x, size)
}

/// As [`reflection`], for a vector of this length.
fn plain<T: Real>(x: &mut [T], size: T) -> T {
    let Some((head, rest)) = x.split_first_mut() else { return T::ZERO };
    let beta = if *head < T::ZERO { size } else { -size };
    let tau = (beta - *head) / beta;
    scale(rest, T::ONE / (*head - beta));
    *head = beta;
    tau
}

/// C becomes (I − τ·v·vᵀ)·C, where `tail` is v without its head, which is 1.
pub(super) fn reflect<T: Real>(mut c: Cols<T>, tau: T, tail: &[T]) {
    if tau == T::ZERO {
        return;
    }
    for j in 0..c.cols {
        let column = c.column_mut(j);
        let along = tau * (column[0] + dot(&column[1..], tail));
        column[0] -= along;
        axpy(&mut column[1..], -along, tail);
    }
}

/// I − V·T·Vᵀ on the rows from `start` on.
pub(super) struct ReflectorBlock<T> {
    pub start: usize,
    v: Dense<T>,
    t: Dense<T>,
}

impl<T: Real> ReflectorBlock<T> {
    /// The block of the reflections whose vectors lie below the diagonal of `x`, with these τ.
    pub(super) fn new(start: usize, x: Grid<T>, taus: &[T]) -> ReflectorBlock<T> {
        let width = taus.len();
        let mut v = Dense::<T>::zeros(x.rows, width);
        for j in 0..width {
            let column = v.column_mut(j);
            column[j] = T::ONE;
            column[j + 1..].copy_from_slice(&x.column(j)[j + 1..]);
        }
        let mut t = Dense::<T>::zeros(width, width);
        let mut inner = Dense::<T>::zeros(width, width);
        if width > 4 {
            product(inner.view_mut(), Into::Set, v.view().t(), v.view());
        } else {
            for j in 1..width {
                project(inner.column_mut(j), v.view().part(0, x.rows, 0, j), v.column(j));
            }
        }
        // T grows by the column −τ·T·(Vᵀ·v) and τ on the diagonal.
        for (j, &tau) in taus.iter().enumerate() {
            for (c, &along) in inner.column(j)[..j].iter().enumerate() {
                let s = -(tau * along);
                let mut t = t.view_mut();
                let (from, to) = t.pair(c, j);
                (0..=c).for_each(|row| to[row] += s * from[row]);
            }
            t.column_mut(j)[j] = tau;
        }
        ReflectorBlock { start, v, t }
    }

    /// C, whose first row is row `start`, becomes Q·C, or Qᵀ·C.
    pub(super) fn apply(&self, transpose: bool, mut c: Cols<T>) {
        let (v, width) = (self.v.view(), c.cols);
        if width == 0 {
            return;
        }
        let mut inner = Dense::<T>::working(v.cols, width);
        let mut turned = Dense::<T>::working(v.cols, width);
        product(inner.view_mut(), Into::Set, v.t(), c.read());
        let t = if transpose { self.t.view().t() } else { self.t.view() };
        product(turned.view_mut(), Into::Set, t, inner.view());
        product(c.again(), Into::Subtract, v, turned.view());
    }
}

/// Factors X = Q·R in place: R on and above the diagonal, the vectors of the reflections below it.
/// Returns τ of each.
pub(super) fn factorise<T: Real>(mut x: Cols<T>) -> (Vec<T>, Vec<ReflectorBlock<T>>) {
    let (m, n) = (x.rows, x.cols);
    let k = m.min(n);
    let (mut taus, mut blocks) = (Vec::with_capacity(k), Vec::new());
    for start in (0..k).step_by(PANEL) {
        let width = PANEL.min(k - start);
        let (mut panel, rest) =
            x.again().part(start, m - start, start, n - start).split_cols(width);
        for j in 0..width {
            let (mut own, others) =
                panel.again().part(j, m - start - j, j, width - j).split_cols(1);
            let tau = reflection(own.column_mut(0));
            reflect(others, tau, &own.column(0)[1..]);
            taus.push(tau);
        }
        if k > SMALL {
            let block = ReflectorBlock::new(start, panel.read(), &taus[start..]);
            block.apply(true, rest);
            blocks.push(block);
        } else {
            let mut rest = rest;
            for j in 0..width {
                let (tau, tail) = (taus[start + j], &panel.column(j)[j + 1..]);
                let (rows, cols) = (m - start - j, rest.cols);
                reflect(rest.again().part(j, rows, 0, cols), tau, tail);
            }
        }
    }
    (taus, blocks)
}

/// Up to so many reflections are applied one by one.
pub(super) const SMALL: usize = 24;

/// C becomes Q·C, for the reflections below the diagonal of `x`, one by one or in blocks if there
/// are any. If C is the identity, `fresh`, less is to be done.
pub(super) fn multiply<T: Real>(
    x: Grid<T>,
    taus: &[T],
    blocks: &[ReflectorBlock<T>],
    mut c: Cols<T>,
    fresh: bool,
) {
    let (rows, cols) = (c.rows, c.cols);
    let first = |start: usize| if fresh { start.min(cols) } else { 0 };
    if blocks.is_empty() {
        for (j, &tau) in taus.iter().enumerate().rev() {
            let part = c.again().part(j, rows - j, first(j), cols - first(j));
            reflect(part, tau, &x.column(j)[j + 1..]);
        }
    }
    for block in blocks.iter().rev() {
        let from = first(block.start);
        block.apply(false, c.again().part(block.start, rows - block.start, from, cols - from));
    }
}

/// The blocks of reflections that lie below the diagonal of `x`, or none if they are few.
pub(super) fn blocks_of<T: Real>(x: Grid<T>, taus: &[T]) -> Vec<ReflectorBlock<T>> {
    let mut blocks = Vec::new();
    if taus.len() > SMALL {
        for start in (0..taus.len()).step_by(PANEL) {
            let width = PANEL.min(taus.len() - start);
            let part = x.part(start, x.rows - start, start, width);
            blocks.push(ReflectorBlock::new(start, part, &taus[start..start + width]));
        }
    }
    blocks
}
