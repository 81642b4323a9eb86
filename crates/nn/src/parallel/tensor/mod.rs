//! Tensor parallelism: one layer spread over the workers of a group.
//!
//! Activations are either *replicated* (the same on every worker) or *split*. Two functions lead
//! from one to the other:
//!
//! * [`spread`] takes a replicated value to where each worker computes something else with it.
//!   Forward it is the identity. Each worker's gradient is then that of its own share, so backward
//!   it is the sum over workers.
//! * [`gather_sum`] sums the shares of all workers into a replicated value. Everything after it is
//!   the same on every worker, and so is the gradient, so backward it is the identity.
//!
//! The ops of `pullback` differentiate the sum of the workers' results, of which a replicated loss
//! has one on each; these two differentiate the loss that all of them share. They are each other's
//! transpose, so derivatives of any order and both modes follow. With them every worker has the
//! gradients of its own shares and, of replicated parameters, the whole gradient: no reduction
//! follows, unless there are several such groups with different data.

mod linear;
mod vocabulary;

pub use linear::{ColumnParallelLinear, RowParallelLinear};
pub use vocabulary::{VocabularyParallelEmbedding, vocabulary_parallel_cross_entropy};

use crate::refuse::demand;
use pullback::{Group, Tensor, custom_vjp, no_grad};

/// A replicated value, to be used differently by each worker.
#[track_caller]
pub(super) fn spread(x: &Tensor, group: &Group) -> Tensor {
    let back = group.clone();
    custom_vjp("spread", |x: &Tensor| (x.clone(), ()), move |(), dy: &Tensor| gather_sum(dy, &back))
        .trusted()
        .call(x)
}

/// The sum of the workers' values, replicated.
#[track_caller]
pub(super) fn gather_sum(x: &Tensor, group: &Group) -> Tensor {
    let (forward, back) = (group.clone(), group.clone());
    custom_vjp(
        "gather_sum",
        move |x: &Tensor| (x.all_reduce(&forward), ()),
        move |(), dy: &Tensor| spread(dy, &back),
    )
    .trusted()
    .call(x)
}

/// This worker's share of an axis, which must be a multiple of the number of workers.
#[track_caller]
fn own_share(x: &Tensor, axis: isize, group: &Group, layer: &'static str) -> Tensor {
    let length = x.shape()[axis as usize];
    demand(length.is_multiple_of(group.size()), layer, || {
        format!("{length} rows or columns are not a multiple of {} workers", group.size())
    });
    let each = length / group.size();
    no_grad(|| x.detach().narrow(axis, (group.rank() * each) as isize, each).deep_clone())
}
