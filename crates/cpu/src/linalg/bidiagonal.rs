//! Matrices to upper bidiagonal form, by reflections from the left and the right in turn.
//!
//! Reflection j from the left clears column j below the diagonal, with vector v; the one from the
//! right clears row j after its second element, with vector u. What is below and to the right
//! becomes A − v·yᵀ − x·uᵀ, where y comes from Aᵀ·v and x from A·u. As in `tridiagonal.rs`, those
//! two products are half of the work, and the updates of a panel are delayed and then are one
//! product.

use super::householder::reflection;
use super::lanes::project;
use super::product::{Into, product};
use super::vector::{combine, scale};
use super::view::Cols;
use super::{Dense, Real, Scratch};

/// Columns of a panel.
const PANEL: usize = 32;

/// What is left after the reduction.
pub(super) struct Bidiagonal<T> {
    /// τ of the reflections from the left, whose vectors are below the diagonal of A.
    pub left: Vec<T>,
    /// τ of those from the right, whose vectors are below the subdiagonal of `vectors`.
    pub right: Vec<T>,
    pub vectors: Dense<T>,
}

/// The diagonal and superdiagonal of a matrix with at least as many rows as columns.
pub(super) fn reduce<T: Real>(mut a: Cols<T>, d: &mut [T], e: &mut [T]) -> Bidiagonal<T> {
    let (m, n) = (a.rows, a.cols);
    let mut vectors = Dense::<T>::working(n, n);
    let (mut left, mut right) = (vec![T::ZERO; n], vec![T::ZERO; n.saturating_sub(1)]);
    for start in (0..n).step_by(PANEL) {
        // Panels pay off where much is left.
        let width = if n - start <= 2 * PANEL { n - start } else { PANEL };
        let (rows, cols) = (m - start, n - start);
        let mut panel = Panel {
            a: a.again().part(start, rows, start, cols),
            kept: vectors.view_mut().part(start, cols, start, cols),
            tall: Dense::zeros(rows, 2 * width),
            wide: Dense::zeros(cols, 2 * width),
            width,
        };
        let mut along = Scratch::<T>::new(2 * width + cols);
        for j in 0..width {
            let (dj, tau) = panel.column(j, along.slice());
            (d[start + j], left[start + j]) = (dj, tau);
            if j + 1 < cols {
                let (ej, tau) = panel.row(j, along.slice());
                (e[start + j], right[start + j]) = (ej, tau);
            }
        }
        panel.finish();
        if width == n - start {
            break;
        }
    }
    Bidiagonal { left, right, vectors }
}

struct Panel<'a, T> {
    a: Cols<'a, T>,
    kept: Cols<'a, T>,
    /// The vectors v, then the vectors x.
    tall: Dense<T>,
    /// The vectors y, then the vectors u.
    wide: Dense<T>,
    width: usize,
}

impl<T: Real> Panel<'_, T> {
    /// Updates column j, clears it, and computes y. Returns the diagonal element and τ.
    fn column(&mut self, j: usize, along: &mut [T]) -> (T, T) {
        let (m, n, width) = (self.a.rows, self.a.cols, self.width);
        let (rows, cols, minus) = (m - j, n - j - 1, -T::ONE);
        for i in 0..j {
            along[i] = self.wide.view().at(j, i);
            along[width + i] = self.wide.view().at(j, width + i);
        }
        let column = &mut self.a.column_mut(j)[j..];
        combine(column, minus, self.tall.view().part(j, rows, 0, j), &along[..j]);
        let x = self.tall.view().part(j, rows, width, j);
        combine(column, minus, x, &along[width..width + j]);
        let tau = reflection(column);
        let found = column[0];
        let own = &mut self.tall.column_mut(j)[j..];
        own[0] = T::ONE;
        own[1..].copy_from_slice(&column[1..]);
        if cols == 0 {
            return (found, tau);
        }
        let (v, mut wide) = (&self.tall.column(j)[j..], self.wide.view_mut());
        let tall = self.tall.view();
        let (done, rest) = wide.again().part(j + 1, cols, 0, 2 * width).split_cols(j);
        let (mut own, rest) = rest.split_cols(1);
        let (_, u) = rest.split_cols(width - j - 1);
        let y = own.column_mut(0);
        project(y, self.a.read().part(j, rows, j + 1, cols), v);
        project(&mut along[..j], tall.part(j, rows, 0, j), v);
        project(&mut along[width..width + j], tall.part(j, rows, width, j), v);
        combine(y, minus, done.read(), &along[..j]);
        combine(y, minus, u.read().part(0, cols, 0, j), &along[width..width + j]);
        scale(y, tau);
        (found, tau)
    }

    /// Updates row j, clears it, and computes x. Returns the element beside the diagonal and τ.
    fn row(&mut self, j: usize, along: &mut [T]) -> (T, T) {
        let (m, n, width) = (self.a.rows, self.a.cols, self.width);
        let (rows, cols, minus) = (m - j - 1, n - j - 1, -T::ONE);
        let (along, row) = along.split_at_mut(2 * width);
        let row = &mut row[..cols];
        for (i, x) in row.iter_mut().enumerate() {
            *x = self.a.at(j, j + 1 + i);
        }
        for i in 0..=j {
            along[i] = self.tall.view().at(j, i);
            along[width + i] = self.tall.view().at(j, width + i);
        }
        combine(row, minus, self.wide.view().part(j + 1, cols, 0, j + 1), &along[..=j]);
        let u = self.wide.view().part(j + 1, cols, width, j);
        combine(row, minus, u, &along[width..width + j]);
        let tau = reflection(row);
        let found = row[0];
        row[0] = T::ONE;
        self.wide.column_mut(width + j)[j + 1..].copy_from_slice(row);
        self.kept.column_mut(j)[j + 1..].copy_from_slice(row);
        if rows == 0 {
            return (found, tau);
        }
        let wide = self.wide.view();
        let (v, x) = self.tall.view_mut().part(j + 1, rows, 0, 2 * width).split_cols(width);
        let (done, own) = x.split_cols(j);
        let mut own = own;
        let x = own.column_mut(0);
        x.fill(T::ZERO);
        combine(x, T::ONE, self.a.read().part(j + 1, rows, j + 1, cols), row);
        project(&mut along[..=j], wide.part(j + 1, cols, 0, j + 1), row);
        project(&mut along[width..width + j], wide.part(j + 1, cols, width, j), row);
        combine(x, minus, v.read().part(0, rows, 0, j + 1), &along[..=j]);
        combine(x, minus, done.read(), &along[width..width + j]);
        scale(x, tau);
        (found, tau)
    }

    /// Updates what the panel does not contain.
    fn finish(self) {
        let (width, rows, cols) = (self.width, self.a.rows, self.a.cols);
        if cols == width {
            return;
        }
        let to = self.a.part(width, rows - width, width, cols - width);
        let tall = self.tall.view().part(width, rows - width, 0, 2 * width);
        let wide = self.wide.view().part(width, cols - width, 0, 2 * width);
        product(to, Into::Subtract, tall, wide.t());
    }
}
