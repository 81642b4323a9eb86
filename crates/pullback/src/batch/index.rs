//! Gathering.

use super::{BatchedValue, BatchedValues, all, apply_spread, join, operands, part};
use crate::Op;
use crate::apply::apply;
use smallvec::smallvec;

/// Examples that look into one table have one list of indices, so that the table's gradient is one
/// too.
pub(super) fn gather(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let Op::Gather(axis) = *op else { unreachable!("called for Gather") };
    let [x, index] = operands(examples);
    if x.batched {
        return all(apply_spread(Op::Gather(axis + 1), examples, n));
    }
    let taken = apply(Op::Gather(axis), &[&x.value, &join(&index.value, axis)]);
    smallvec![BatchedValue::batched(part(&taken, axis, n, index.shape()[axis]))]
}
