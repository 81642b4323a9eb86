//! Views, and writing through them.

use super::{BatchedValue, BatchedValues, later, one, operands, with};
use crate::apply::apply;
use crate::{Op, Tensor};
use pullback_ir::{Span, View};
use smallvec::{SmallVec, smallvec};

/// The same view behind an axis of `n` examples.
pub(super) fn shifted(view: &View, n: usize) -> View {
    match view {
        View::Reshape(shape) => View::Reshape(with(n, shape)),
        View::Permute(order) => View::Permute(std::iter::once(0).chain(later(order)).collect()),
        View::Broadcast(shape) => View::Broadcast(with(n, shape)),
        View::Slice(spans) => {
            let whole = Span { start: 0, len: n, step: 1 };
            View::Slice(std::iter::once(whole).chain(spans.iter().copied()).collect())
        }
        View::Flip(axes) => View::Flip(later(axes)),
        View::Diagonal { offset, a, b } => View::Diagonal { offset: *offset, a: a + 1, b: b + 1 },
        View::Unfold { axis, size, step } => {
            View::Unfold { axis: axis + 1, size: *size, step: *step }
        }
    }
}

/// New axes of a broadcast come between the examples and what was there.
pub(super) fn broadcast(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let Op::View(view @ View::Broadcast(shape)) = op else { unreachable!("called for Broadcast") };
    let [x] = operands(examples);
    one(Op::View(shifted(view, n)), &[&x.with_rank(shape.len())])
}

/// A barrier for one example is one for all of them; the value stays batched or shared.
pub(super) fn after(op: &Op, examples: &[BatchedValue], _: usize) -> BatchedValues {
    let values: SmallVec<[&Tensor; 4]> = examples.iter().map(|example| &example.value).collect();
    smallvec![BatchedValue { value: apply(op.clone(), &values), batched: examples[0].batched }]
}
