//! Batching: an op that is meant for one example, applied to many at once. `vmap` is built on it.
//!
//! # Batched values
//!
//! Each operand is a [`BatchedValue`]: a tensor whose first axis counts the examples, or one that
//! all examples share. An op without batched operands is applied as it is, and its results are
//! shared too: what does not depend on the example is computed once. (Except custom ops whose rule
//! may be nonlinear, such as clipping: each example has its own call, so that the gradient of each
//! example is clipped and not the sum of all.)
//!
//! # Kinds
//!
//! How an op batches is one of few kinds, named by its row in [`batching`]; what a kind implies is
//! derived in [`batch`], once.
//!
//! | kind | what is applied |
//! |---|---|
//! | `Pointwise` | the op itself: it does not depend on the number of axes |
//! | `Leading` | the op itself: it accepts leading batch axes |
//! | `Axes` | the op with its axis numbers one higher |
//! | `ByHand` | what a function in this folder says |
//!
//! For the first three, shared operands are repeated by a view (stride 0). That is correct for
//! every op, but slow for some: a weight that all examples share should multiply them in *one*
//! product, not in one for each, and its gradient should not be materialised once per example. So
//! `ByHand` is for ops in which the examples can be merged into an existing axis: the rows of a
//! product, the images, channels or groups of a convolution, the channels of a batch norm, the
//! features of attended values, the columns of a linear system, the list of indices into a table.
//! [`join`] and [`part`] do and undo that: a permutation and a reshape, which copies only where the
//! examples are not contiguous with the axis they join.
//!
//! No op decomposes: each has a kernel that takes many examples. (A step of an optimiser that is at
//! a different count in each example takes its formula.)
//!
//! Bodies are ordinary tensor code. So what they do is recorded, traced, differentiated and batched
//! again by an outer `vmap` like anything else.

pub(crate) mod attention;
pub(crate) mod batch_norm;
mod collective;
mod conv;
pub(crate) mod ctc;
mod dot;
pub(crate) mod flow;
mod index;
mod linalg;
pub(crate) mod norm;
mod region;
pub(crate) mod update;
mod view;

use crate::apply::{apply, apply_all};
use crate::custom::for_each_example;
use crate::rule::Tensors;
use crate::{Op, Shape, Tensor};
use pullback_ir::{Axes, Fft, Linalg, Padding, View};
use smallvec::{SmallVec, smallvec};

/// An operand or a result of an op that is applied to many examples.
#[derive(Clone, Debug)]
pub(crate) struct BatchedValue {
    pub value: Tensor,
    /// Axis 0 of the value counts the examples; otherwise all examples share it.
    pub batched: bool,
}

pub(crate) type BatchedValues = SmallVec<[BatchedValue; 1]>;

impl BatchedValue {
    /// One value for all examples.
    pub fn shared(value: Tensor) -> BatchedValue {
        BatchedValue { value, batched: false }
    }

    /// One for each, along axis 0.
    pub fn batched(value: Tensor) -> BatchedValue {
        BatchedValue { value, batched: true }
    }

    /// With an axis of examples in any case: what is shared is repeated by a view.
    pub fn spread(&self, n: usize) -> Tensor {
        match self.batched {
            true => self.value.clone(),
            false => self.value.apply_view(View::Broadcast(with(n, self.value.shape()))),
        }
    }

    /// The shape of one example.
    fn shape(&self) -> &[usize] {
        &self.value.shape()[usize::from(self.batched)..]
    }

    /// In the type in which kernels compute.
    fn wide(&self) -> BatchedValue {
        BatchedValue { value: self.value.wide(), batched: self.batched }
    }

    /// For broadcasting against examples of this rank in a pointwise operation:
    /// `[n, 1, …, 1, shape…]` if batched.
    fn with_rank(&self, rank: usize) -> Tensor {
        let missing = rank - self.shape().len();
        if !self.batched || missing == 0 {
            return self.value.clone();
        }
        let mut shape = Shape::from_elem(1, missing + 1);
        shape[0] = self.value.shape()[0];
        shape.extend_from_slice(self.shape());
        self.value.apply_view(View::Reshape(shape))
    }
}

/// How an op batches.
pub(crate) enum Batching {
    /// Each element of the result depends on the elements at the same index alone.
    Pointwise,
    /// The op with every axis number one higher, and lengths with the number of examples in front.
    Axes(Op),
    /// The op accepts any leading batch axes, if all its operands have them.
    Leading,
    /// By a function of its own. At least one operand is batched, except for custom ops whose rule
    /// is not linear.
    ByHand(fn(&Op, &[BatchedValue], usize) -> BatchedValues),
}

/// How an op batches over `n` examples.
#[rustfmt::skip]
pub(crate) fn batching(op: &Op, n: usize) -> Batching {
    use Batching::{Axes, ByHand, Leading, Pointwise};
    match op {
        // Without operands there is nothing to batch.
        Op::Literal { .. } | Op::Iota { .. } => Pointwise,
        Op::Random { .. }                    => Leading,
        Op::Unary(_) | Op::UnaryVjp(_)       => Pointwise,
        Op::Binary(_) | Op::Compare(_)       => Pointwise,
        Op::Select | Op::Cast(_) | Op::Copy  => Pointwise,
        Op::To(_)                            => Pointwise,
        Op::After | Op::Wait                 => ByHand(view::after),
        Op::Transfer(_)                      => ByHand(view::after),
        Op::View(View::Broadcast(_))         => ByHand(view::broadcast),
        Op::View(v)                          => Axes(Op::View(view::shifted(v, n))),
        Op::Put(views)                       => Axes(Op::Put(views.iter().map(|v| view::shifted(v, n)).collect())),
        Op::Pad(padding)                     => Axes(Op::Pad([&[Padding::default()], &padding[..]].concat().into())),
        Op::Cat(axis)                        => Axes(Op::Cat(axis + 1)),
        Op::Gather(_)                        => ByHand(index::gather),
        Op::Scatter(axis, combine)           => Axes(Op::Scatter(axis + 1, *combine)),
        Op::Reduce(kind, axes)               => Axes(Op::Reduce(*kind, later(axes))),
        Op::ArgReduce(kind, axis)            => Axes(Op::ArgReduce(*kind, axis + 1)),
        Op::Cumulate { kind, axis, reverse } => Axes(Op::Cumulate { kind: *kind, axis: axis + 1, reverse: *reverse }),
        Op::Sort { axis, descending }        => Axes(Op::Sort { axis: axis + 1, descending: *descending }),
        Op::Ranks { axis, descending, from, count } =>
            Axes(Op::Ranks { axis: axis + 1, descending: *descending, from: *from, count: *count }),
        Op::Dot                              => ByHand(dot::dot),
        Op::Conv(_)                          => ByHand(conv::conv),
        Op::Pool(_)                          => Leading,
        Op::Linalg(f)                        => linear_algebra(*f),
        Op::Fft(f)                           => Axes(Op::Fft(transform(*f))),
        Op::Fused(f)                         => crate::ops::fused::batching(*f),
        Op::Region(_)                        => ByHand(region::region),
        Op::DotRegion(_)                     => ByHand(region::dot_region),
        Op::Flow(_)                          => ByHand(flow::flow),
        Op::Custom(_)                        => ByHand(crate::custom::batch),
        Op::Collective(of)                   => collective::batching(of, n),
    }
}

#[rustfmt::skip]
fn linear_algebra(f: Linalg) -> Batching {
    match f {
        Linalg::Cholesky | Linalg::Lu | Linalg::Permutation(_)           => Batching::Leading,
        Linalg::Qr { .. } | Linalg::Eigh | Linalg::Svd { .. }            => Batching::Leading,
        Linalg::Spectrum { .. }                                          => Batching::Leading,
        Linalg::TriangularSolve { .. } | Linalg::LuSolve { .. }          => Batching::ByHand(linalg::solve),
    }
}

#[rustfmt::skip]
fn transform(f: Fft) -> Fft {
    match f {
        Fft::Complex { axis, inverse } => Fft::Complex { axis: axis + 1, inverse },
        Fft::Real(axis)                => Fft::Real(axis + 1),
        Fft::Hermitian { axis, len }   => Fft::Hermitian { axis: axis + 1, len },
    }
}

/// Applies `op`, meant for one example, to `n` examples at once.
///
/// A result is batched if it depends on a batched operand. (Another result of the same op may be
/// batched too: then it is the same for every example.)
#[track_caller]
pub(crate) fn batch(op: &Op, operands: &[BatchedValue], n: usize) -> BatchedValues {
    if !operands.iter().any(|x| x.batched) && !for_each_example(op) {
        let values: SmallVec<[&Tensor; 4]> = operands.iter().map(|x| &x.value).collect();
        return apply_all(op.clone(), &values).into_iter().map(BatchedValue::shared).collect();
    }
    match batching(op, n) {
        Batching::Pointwise | Batching::Leading => all(apply_spread(op.clone(), operands, n)),
        Batching::Axes(op) => all(apply_spread(op, operands, n)),
        Batching::ByHand(f) => f(op, operands, n),
    }
}

/// Applies an op that takes the axis of examples, in all of its operands.
#[track_caller]
fn apply_spread(op: Op, operands: &[BatchedValue], n: usize) -> Tensors {
    let values: SmallVec<[Tensor; 4]> = operands.iter().map(|x| x.spread(n)).collect();
    apply_all(op, &values.iter().collect::<SmallVec<[&Tensor; 4]>>())
}

/// Applies an op with one result, all of whose operands have the axis of examples.
#[track_caller]
fn one(op: Op, values: &[&Tensor]) -> BatchedValues {
    smallvec![BatchedValue::batched(apply(op, values))]
}

fn all(outs: Tensors) -> BatchedValues {
    outs.into_iter().map(BatchedValue::batched).collect()
}

/// The operands of an op of which there are `N`.
fn operands<const N: usize>(examples: &[BatchedValue]) -> &[BatchedValue; N] {
    examples.try_into().expect("`infer` has counted the operands")
}

/// A shape with the number of examples in front.
fn with(n: usize, shape: &[usize]) -> Shape {
    std::iter::once(n).chain(shape.iter().copied()).collect()
}

/// Axes behind that of the examples.
fn later(axes: &[usize]) -> Axes {
    axes.iter().map(|axis| axis + 1).collect()
}

/// The examples' parts of one axis after each other: `[n, a…, len, b…]` as `[a…, n·len, b…]`, where
/// `axis` is that of `len` in one example.
#[track_caller]
fn join(x: &Tensor, axis: usize) -> Tensor {
    let moved = if axis == 0 { x.clone() } else { x.move_axis(0, axis as isize) };
    moved.apply_view(View::Reshape(merged(moved.shape(), axis)))
}

/// Whether [`join`] is a view: the examples are contiguous with the axis.
fn joins_in_place(x: &Tensor, axis: usize) -> bool {
    let order: Axes = (1..=axis).chain([0]).chain(axis + 1..x.rank()).collect();
    let moved = x.0.layout.view(&View::Permute(order));
    moved.is_some_and(|m| m.view(&View::Reshape(merged(&m.shape, axis))).is_some())
}

/// A shape with two neighbouring axes as one.
fn merged(shape: &[usize], axis: usize) -> Shape {
    let mut out = Shape::from_slice(shape);
    let n = out.remove(axis);
    out[axis] *= n;
    out
}

/// The inverse of [`join`]: `[a…, n·len, b…]` as `[n, a…, len, b…]`.
#[track_caller]
fn part(x: &Tensor, axis: usize, n: usize, len: usize) -> Tensor {
    let mut shape = x.dims().clone();
    shape[axis] = len;
    shape.insert(axis, n);
    let split = x.apply_view(View::Reshape(shape));
    if axis == 0 { split } else { split.move_axis(axis as isize, 0) }
}
