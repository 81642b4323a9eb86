//! Steps of optimisers.

use super::{BatchedValue, BatchedValues, all};
use crate::apply::apply_all;
use crate::rule::Grad;
use crate::{Op, Tensor, ops};
use pullback_ir::Fused;
use smallvec::SmallVec;

/// Pointwise, except for the step count and the learning rate. Examples that differ in one use the
/// formula, whose operations broadcast.
pub(crate) fn step(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let counts = match op {
        Op::Fused(Fused::Sgd(how)) => how.remembers(),
        Op::Fused(Fused::Adam(_)) => true,
        _ => unreachable!("called for an update"),
    };
    let rank = examples[0].shape().len();
    let (targets, count) = examples.split_at(examples.len() - 1 - usize::from(counts));
    let mut values: SmallVec<[Tensor; 7]> = targets.iter().map(|x| x.spread(n)).collect();
    values.extend(count.iter().map(|x| x.with_rank(rank)));
    let values: SmallVec<[&Tensor; 7]> = values.iter().collect();
    match ops::row(op) {
        Grad::Decompose(formula) if count.iter().any(|x| x.batched) => all(formula(op, &values)),
        _ => all(apply_all(op.clone(), &values)),
    }
}
