//! Connectionist temporal classification of many examples: their samples are samples of one call.

use super::{BatchedValue, BatchedValues, join, part};
use crate::apply::apply;
use crate::{Op, Tensor};

pub(crate) fn ctc(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    samples(op, examples, n, 0)
}

pub(crate) fn ctc_vjp(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    samples(op, examples, n, 1)
}

/// `axis`: of the samples in the result.
fn samples(op: &Op, examples: &[BatchedValue], n: usize, axis: usize) -> BatchedValues {
    let count = examples[0].shape()[1];
    let of = |(i, x): (usize, &BatchedValue)| join(&x.spread(n), usize::from(i == 0));
    let joined: Vec<Tensor> = examples.iter().enumerate().map(of).collect();
    let result = apply(op.clone(), &joined.iter().collect::<Vec<_>>());
    [BatchedValue::batched(part(&result, axis, n, count))].into_iter().collect()
}
