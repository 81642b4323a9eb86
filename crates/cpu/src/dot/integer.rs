//! Products of integer matrices: plain loops, wrapping. For booleans: whether any pair is true.

use super::pack::Matrix;
use super::{DotTask, GRAIN, Shared};
use crate::elem::Elem;
use crate::par;

pub(super) fn dot<T: Elem<Compute = i64>>(job: &DotTask) {
    let (m, n, k) = (job.m, job.n, job.k);
    let out = Shared(job.out.ptr.cast::<T>());
    let rows = m * job.batches.len();
    let group = GRAIN.div_ceil(n * k.max(1));
    par::for_each(rows.div_ceil(group), |task| {
        let mut sums = vec![0i64; n];
        for row in task * group..rows.min((task + 1) * group) {
            let [a, b] = job.batches.offsets(row / m);
            let a = Matrix::<T>::of(&job.a, a).at(row % m, 0);
            let b = Matrix::<T>::of(&job.b, b);
            sums.fill(0);
            for p in 0..k {
                // SAFETY: inside both matrices.
                let x = unsafe { (*a.at(0, p).ptr).load() };
                let b = b.at(p, 0);
                for (j, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: inside the matrix.
                    let y = unsafe { (*b.ptr.offset(j as isize * b.col)).load() };
                    *sum = sum.wrapping_add(x.wrapping_mul(y));
                }
            }
            for (j, &sum) in sums.iter().enumerate() {
                // SAFETY: this row of the output is this task's.
                unsafe { *out.at(row * n + j) = T::store(sum) };
            }
        }
    });
}
