//! Steps of optimisers.

use super::{Lane, Lanes, all};
use crate::apply::apply_all;
use crate::rule::Grad;
use crate::{Op, Tensor, ops};
use pullback_ir::Fused;
use smallvec::SmallVec;

/// Pointwise, but for the number of the step and the rate. Examples that differ in one take the
/// formula, whose operations broadcast.
pub(crate) fn step(op: &Op, lanes: &[Lane], n: usize) -> Lanes {
    let counts = match op {
        Op::Fused(Fused::Sgd(how)) => how.remembers(),
        Op::Fused(Fused::Adam(_)) => true,
        _ => unreachable!("called for an update"),
    };
    let rank = lanes[0].shape().len();
    let (targets, count) = lanes.split_at(lanes.len() - 1 - usize::from(counts));
    let mut values: SmallVec<[Tensor; 7]> = targets.iter().map(|x| x.spread(n)).collect();
    values.extend(count.iter().map(|x| x.beside(rank)));
    let values: SmallVec<[&Tensor; 7]> = values.iter().collect();
    match ops::row(op) {
        Grad::Decompose(formula) if count.iter().any(|x| x.batched) => all(formula(op, &values)),
        _ => all(apply_all(op.clone(), &values)),
    }
}
