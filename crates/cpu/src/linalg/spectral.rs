//! Eigenvalues of symmetric matrices, and singular values.
//!
//! Vectors are fixed up to their sign. Here the largest element (by size, the first of equals) of
//! an eigenvector or left singular vector is positive, so that vectors change continuously with the
//! matrix.

use super::{Dense, Real, Stack, Work, part};
use crate::operand::{Sink, Source};
use crate::par;
use faer::Par;
use faer::diag::DiagMut;
use faer::linalg::evd::{self, ComputeEigenvectors};
use faer::linalg::svd::{self as faer_svd, ComputeSvdVectors};

/// Eigenvalues and eigenvectors; NaN where an element is not finite, or the iteration did not
/// converge.
pub(super) fn eigh<T: Real>(a: Source, values: Sink, vectors: Sink) {
    let stack = Stack::of(a);
    let n = stack.rows;
    if vectors.is_empty() {
        return;
    }
    par::for_each(stack.len(), |i| {
        let x = stack.load::<T>(i);
        // SAFETY: the eigenvalues of this matrix belong to this task.
        let w = unsafe { part::<T>(values, i, n) };
        let mut v = Dense::<T>::zeros(n, n);
        let finite = (0..n).all(|j| x.column(j)[j..].iter().all(|v| v.finite()));
        let need = || {
            let with = ComputeEigenvectors::Yes;
            evd::self_adjoint_evd_scratch::<T>(n, with, Par::Seq, Default::default())
        };
        let found = finite && {
            let mut work = Work::of(need());
            let (w, v) = (DiagMut::from_slice_mut(w), Some(v.view_mut()));
            let params = Default::default();
            evd::self_adjoint_evd(x.view(), w, v, Par::Seq, work.stack(), params).is_ok()
        };
        if !found {
            w.fill(T::NAN);
            v.slice_mut().fill(T::NAN);
        }
        for j in 0..n {
            if points_down(v.column(j)) {
                turn(v.column_mut(j));
            }
        }
        v.store(vectors, i);
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
            Dense::<T>::identity(m, wide).store(left, i);
            Dense::<T>::identity(tall, n).store(right, i);
            return;
        }
        let x = stack.load::<T>(i);
        // SAFETY: the singular values of this matrix belong to this task.
        let s = unsafe { part::<T>(values, i, k) };
        let (mut u, mut v) = (Dense::<T>::zeros(m, wide), Dense::<T>::zeros(n, tall));
        let kind = |full: bool| match full {
            true => ComputeSvdVectors::Full,
            false => ComputeSvdVectors::Thin,
        };
        let finite = x.slice().iter().all(|v| v.finite());
        let found = finite && {
            let (with_u, with_v) = (kind(wide > k), kind(tall > k));
            let need =
                faer_svd::svd_scratch::<T>(m, n, with_u, with_v, Par::Seq, Default::default());
            let mut work = Work::of(need);
            let (s, u, v) = (DiagMut::from_slice_mut(s), u.view_mut(), v.view_mut());
            let params = Default::default();
            faer_svd::svd(x.view(), s, Some(u), Some(v), Par::Seq, work.stack(), params).is_ok()
        };
        if !found {
            s.fill(T::NAN);
            u.slice_mut().fill(T::NAN);
            v.slice_mut().fill(T::NAN);
        }
        for j in 0..k {
            if points_down(u.column(j)) {
                turn(u.column_mut(j));
                turn(v.column_mut(j));
            }
        }
        u.store(left, i);
        // V is column-major: read row by row it is Vᵀ, the wanted result.
        // SAFETY: this part of the sink belongs to this task.
        unsafe { part::<T>(right, i, tall * n) }.copy_from_slice(v.slice());
    });
}

/// Whether the largest element of a vector is negative.
fn points_down<T: Real>(v: &[T]) -> bool {
    let mut largest = v[0];
    for &x in v {
        if x.size() > largest.size() {
            largest = x;
        }
    }
    largest < faer::traits::math_utils::zero()
}

fn turn<T: Real>(v: &mut [T]) {
    v.iter_mut().for_each(|x| *x = -*x);
}
