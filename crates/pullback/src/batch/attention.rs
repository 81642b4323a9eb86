//! Attention.

use super::{BatchedValue, BatchedValues, all, apply_spread, join, part};
use crate::apply::apply_all;
use crate::{Op, Tensor};
use pullback_ir::Fused;
use smallvec::{SmallVec, smallvec};

/// Scores do not depend on values: those of many examples are features of one. Queries do not
/// depend on each other, unless their positions matter: those of many examples are more queries.
/// Otherwise examples are batches, each with its key if weights are dropped.
pub(crate) fn attention(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let Op::Fused(Fused::Attention(how)) = op else { unreachable!("called for Attention") };
    let only = |i: usize| examples.iter().enumerate().all(|(j, x)| x.batched == (i == j));
    let rank = examples[0].shape().len();
    let joined = |i: usize, axis: usize| {
        let x = join(&examples[i].value, axis);
        let each = examples
            .iter()
            .enumerate()
            .map(|(j, example)| if i == j { &x } else { &example.value });
        apply_all(op.clone(), &each.collect::<SmallVec<[&Tensor; 5]>>())
    };
    let parted = |y: &Tensor, i: usize, axis: usize| {
        BatchedValue::batched(part(y, axis, n, examples[i].shape()[axis]))
    };
    if only(2) {
        let mut outs = joined(2, rank - 1);
        let lse = outs.remove(1);
        return smallvec![parted(&outs[0], 2, rank - 1), BatchedValue::shared(lse)];
    }
    if only(0) && !how.causal && !how.masked && !how.drops() {
        let outs = joined(0, rank - 2);
        return outs.iter().map(|y| parted(y, 0, rank - 2)).collect();
    }
    all(apply_spread(op.clone(), examples, n))
}
