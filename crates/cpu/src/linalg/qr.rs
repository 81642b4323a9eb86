//! QR factors by Householder's reflections, with LAPACK's signs.
//!
//! A reflection is I − τ·v·vᵀ with v₀ = 1; it maps x to β·e₀ with β = −sign(x₀)·|x|, and a column
//! that is zero below its head is left unchanged (τ = 0). Reflections are grouped in panels: their
//! product is I − V·T·Vᵀ with an upper triangular T, so that nearly all work is in products of
//! matrices.

use super::{Dense, Real, Stack};
use crate::operand::{Sink, Source};
use crate::par;
use faer::linalg::matmul::matmul;
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::traits::math_utils::{one, zero};
use faer::{Accum, MatMut, MatRef, Par};

/// Reflections in a panel.
const PANEL: usize = 32;

/// Q and R, of the sizes of the sinks.
pub(super) fn qr<T: Real>(a: Source, q: Sink, r: Sink) {
    let stack = Stack::of(a);
    let (m, n) = (stack.rows, stack.cols);
    let k = r.shape[r.shape.len() - 2];
    if q.is_empty() && r.is_empty() {
        return;
    }
    par::for_each(stack.len(), |i| {
        let mut x = stack.load::<T>(i);
        let panels = reflect(&mut x);
        let mut left = Dense::<T>::identity(m, k);
        for panel in panels.iter().rev() {
            panel.apply(false, left.view_mut().subrows_mut(panel.start, m - panel.start));
        }
        left.store(q, i);
        let mut right = Dense::<T>::zeros(k, n);
        for j in 0..n {
            let len = (j + 1).min(k).min(m);
            right.column_mut(j)[..len].copy_from_slice(&x.column(j)[..len]);
        }
        right.store(r, i);
    });
}

/// I − V·T·Vᵀ on the rows from `start` on.
struct Panel<T> {
    start: usize,
    v: Dense<T>,
    t: Dense<T>,
}

impl<T: Real> Panel<T> {
    /// C becomes Q·C, or Qᵀ·C.
    fn apply(&self, transpose: bool, c: MatMut<T>) {
        let (v, width) = (self.v.view(), c.ncols());
        if width == 0 {
            return;
        }
        let mut c = c;
        let mut inner = Dense::<T>::zeros(v.ncols(), width);
        let mut turned = Dense::<T>::zeros(v.ncols(), width);
        product(inner.view_mut(), v.transpose(), c.rb(), one());
        let t = if transpose { self.t.view().transpose() } else { self.t.view() };
        product(turned.view_mut(), t, inner.view(), one());
        product(c.rb_mut(), v, turned.view(), -one::<T>());
    }
}

/// C += α·A·B.
fn product<T: Real>(c: MatMut<T>, a: MatRef<T>, b: MatRef<T>, alpha: T) {
    matmul(c, Accum::Add, a, b, alpha, Par::Seq);
}

/// Leaves R on and above the diagonal of `x`; what is below is no longer used.
fn reflect<T: Real>(x: &mut Dense<T>) -> Vec<Panel<T>> {
    let (m, n) = (x.rows, x.cols);
    let mut panels = Vec::new();
    for start in (0..m.min(n)).step_by(PANEL) {
        let width = PANEL.min(m.min(n) - start);
        let mut v = Dense::<T>::zeros(m - start, width);
        let mut t = Dense::<T>::zeros(width, width);
        for j in 0..width {
            let column = &mut x.column_mut(start + j)[start + j..];
            let (tau, scale) = reflection(column);
            let own = &mut v.column_mut(j)[j..];
            own[0] = one();
            own[1..].iter_mut().zip(&column[1..]).for_each(|(v, &x)| *v = x * scale);
            let own = &v.column(j)[j..];
            for c in j + 1..width {
                let column = &mut x.column_mut(start + c)[start + j..];
                let along = tau * inner(own, column);
                column.iter_mut().zip(own).for_each(|(x, &v)| *x -= along * v);
            }
            // T grows by the column −τ·T·(Vᵀ·v) and τ on the diagonal.
            let along: Vec<T> = (0..j).map(|c| inner(&v.column(c)[j..], own)).collect();
            for row in 0..j {
                let sum = (row..j).fold(zero::<T>(), |sum, c| sum + t.column(c)[row] * along[c]);
                t.column_mut(j)[row] = -(tau * sum);
            }
            t.column_mut(j)[j] = tau;
        }
        let panel = Panel { start, v, t };
        let rest = x.view_mut().subrows_mut(start, m - start);
        panel.apply(true, rest.subcols_mut(start + width, n - start - width));
        panels.push(panel);
    }
    panels
}

/// The head of `x` becomes β. Returns τ, and the factor that turns the rest into v.
fn reflection<T: Real>(x: &mut [T]) -> (T, T) {
    let head = x[0];
    let below = faer::ColRef::from_slice(&x[1..]).norm_l2();
    if below == zero() {
        return (zero(), zero());
    }
    let size = head.with(below);
    let beta = if head < zero() { size } else { -size };
    x[0] = beta;
    ((beta - head) / beta, one::<T>() / (head - beta))
}

fn inner<T: Real>(a: &[T], b: &[T]) -> T {
    // Eight partial sums, so that the compiler may use vectors.
    let mut sums = [zero::<T>(); 8];
    let (a, b) = (a.chunks(8), b.chunks(8));
    for (a, b) in a.zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(s, (&a, &b))| *s += a * b);
    }
    sums.into_iter().fold(zero::<T>(), |s, v| s + v)
}
