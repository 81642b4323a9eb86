//! The op of QR factors by Householder's reflections, with LAPACK's signs.

use super::householder::{factorise, multiply};
use super::{Dense, Real, Stack, store};
use crate::operand::{Sink, Source};
use crate::par;

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
        let (taus, blocks) = factorise(x.view_mut());
        let mut left = Dense::<T>::identity(m, k);
        multiply(x.view(), &taus, &blocks, left.view_mut(), true);
        store(&left, q, i);
        let mut right = Dense::<T>::zeros(k, n);
        for j in 0..n {
            let len = (j + 1).min(k).min(m);
            right.column_mut(j)[..len].copy_from_slice(&x.column(j)[..len]);
        }
        store(&right, r, i);
    });
}
