//! Linear systems.

use super::{BatchedValue, BatchedValues, all, apply_spread, join, part};
use crate::Op;
use crate::Tensor;
use crate::apply::apply;
use smallvec::{SmallVec, smallvec};

/// Right-hand sides of examples that share their matrix are columns of one system.
pub(super) fn solve(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let (b, matrix) = examples.split_last().expect("a system has a right-hand side");
    if matrix.iter().any(|x| x.batched) {
        return all(apply_spread(op.clone(), examples, n));
    }
    let axis = b.shape().len() - 1;
    let columns = join(&b.value, axis);
    let mut values: SmallVec<[&Tensor; 4]> = matrix.iter().map(|x| &x.value).collect();
    values.push(&columns);
    let x = apply(op.clone(), &values);
    smallvec![BatchedValue::batched(part(&x, axis, n, b.shape()[axis]))]
}
