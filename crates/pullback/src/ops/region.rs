//! Regions op by op: for derivatives through one, and as the reference for its kernels.

use super::one_pass;
use crate::apply::{apply, apply_all};
use crate::rule::{ByHand, Grad, Tensors, Val};
use crate::{Spec, Tensor};
use pullback_ir::{Axes, Inst, Op, Reduction, Region, View};
use smallvec::SmallVec;

/// The row of a region: its derivative is one too, if it is one of `one_pass.rs`.
pub(crate) fn row_of(region: &Region) -> Grad {
    if !one_pass::has_pullback(region) {
        return row();
    }
    const USES: [Val; one_pass::OPERANDS] =
        [Val::In(0), Val::In(1), Val::In(2), Val::In(3), Val::In(4)];
    let (vjp, jvp) = (one_pass::pullback, one_pass::pushforward);
    Grad::ByHand(ByHand { uses: &USES, vjp, jvp, formula: "what its ops pull back" })
}

pub(crate) fn row() -> Grad {
    Grad::Decompose(|op, inputs| match op {
        Op::Region(region) => one_by_one(region, inputs),
        Op::DotRegion(region) => {
            let product = apply(Op::Dot, &inputs[..2]);
            let all: SmallVec<[&Tensor; 6]> =
                std::iter::once(&product).chain(inputs[2..].iter().copied()).collect();
            one_by_one(region, &all)
        }
        other => apply_all(other.clone(), inputs),
    })
}

/// Each instruction as its op, on whole tensors.
pub(super) fn one_by_one(region: &Region, inputs: &[&Tensor]) -> Tensors {
    let inner: Axes = (region.shape.len() - region.inner..region.shape.len()).collect();
    let over_rows = |x: &Tensor| {
        // A row value as an element value: the axes of the row come back, repeated.
        let mut shape = region.outer().to_vec();
        shape.resize(region.shape.len(), 1);
        let open = apply(Op::View(View::Reshape(shape.as_slice().into())), &[x]);
        apply(Op::View(View::Broadcast(region.shape.clone())), &[&open])
    };
    let mut values: Vec<(Tensor, bool)> = Vec::new();
    for inst in &region.body {
        let made = match inst {
            Inst::Load(k) => (through(inputs[*k], &region.inputs[*k].layout), false),
            Inst::Literal(value, dtype) => {
                (Tensor::splat(*value, Spec::on(region.device, *dtype, region.outer())), true)
            }
            Inst::Index(axis, dtype) => {
                let count = Tensor::iota_on(region.device, region.shape[*axis], *dtype);
                let mut shape = vec![1; region.shape.len()];
                shape[*axis] = region.shape[*axis];
                let open = apply(Op::View(View::Reshape(shape.as_slice().into())), &[&count]);
                (apply(Op::View(View::Broadcast(region.shape.clone())), &[&open]), false)
            }
            Inst::Random(kind, key, dtype) => {
                let draw = Op::Random { kind: *kind, shape: region.shape.clone(), dtype: *dtype };
                (apply(draw, &[inputs[*key]]), false)
            }
            Inst::Point(op, of) => {
                let row = of.iter().all(|&v| values[v].1);
                let operand = |&v: &usize| match values[v].1 && !row {
                    true => over_rows(&values[v].0),
                    false => values[v].0.clone(),
                };
                let operands: SmallVec<[Tensor; 3]> = of.iter().map(operand).collect();
                (apply(op.clone(), &operands.iter().collect::<SmallVec<[_; 3]>>()), row)
            }
            Inst::Reduce(kind, v) => {
                (apply(Op::Reduce(*kind, inner.clone()), &[&values[*v].0]), true)
            }
        };
        values.push(made);
    }
    let rows: Axes = (0..region.outer().len()).collect();
    let column = |&v: &usize| apply(Op::Reduce(Reduction::Sum, rows.clone()), &[&values[v].0]);
    let outputs = region.outputs.iter().map(|&v| values[v].0.clone());
    outputs.chain(region.columns.iter().map(column)).collect()
}

/// A contiguous tensor viewed through a layout.
pub(crate) fn through(x: &Tensor, layout: &pullback_ir::Layout) -> Tensor {
    if *x.dims() == layout.shape && layout.offset == 0 && layout.is_dense() {
        return x.clone();
    }
    let flat = match x.rank() {
        1 => x.clone(),
        _ => apply(Op::View(View::Reshape([x.len()].as_slice().into())), &[x]),
    };
    let step = |x: Tensor, view: View| apply(Op::View(view), &[&x]);
    layout.views_of_flat(x.len()).into_iter().fold(flat, step)
}
