//! Convolution and its transposes.
//!
//! The three arrays of a convolution have four indices besides the spatial ones, each in two or
//! three of the arrays:
//!
//! ```text
//! y[image, (group, outer), p] = Σ  x[image, (group, inner), …] · w[(group, outer), inner, …]
//! ```
//! An axis of examples can join any index that is in just the arrays which have that axis. The
//! result always has it. If both operands are batched, that index is the group: every example is
//! its own group. If only one is, it is the index that only this operand and the result have, so
//! that the shared operand is unchanged: the image for a batch of inputs with one kernel, the outer
//! channel for many kernels over one input, and likewise for the two transposes.

use super::{BatchedValue, BatchedValues, join, merged, operands, part};
use crate::apply::apply;
use crate::{Op, Tensor};
use pullback_ir::{Conv, Padding, Role, View};
use smallvec::smallvec;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConvAxis {
    Image,
    Group,
    Outer,
    Inner,
}
use ConvAxis::{Group, Image, Inner, Outer};

/// The indices of an array, before the spatial ones.
type ConvAxes = [ConvAxis; 3];
const X: ConvAxes = [Image, Group, Inner];
const Y: ConvAxes = [Image, Group, Outer];
const W: ConvAxes = [Group, Outer, Inner];

/// How long the indices of one example are.
#[derive(Clone, Copy)]
struct ConvLengths {
    image: usize,
    group: usize,
    outer: usize,
    inner: usize,
}

impl ConvLengths {
    fn of(self, index: ConvAxis) -> usize {
        match index {
            Image => self.image,
            Group => self.group,
            Outer => self.outer,
            Inner => self.inner,
        }
    }
}

pub(super) fn conv(op: &Op, examples: &[BatchedValue], n: usize) -> BatchedValues {
    let Op::Conv(conv) = op else { unreachable!("called for Conv") };
    let y = match n {
        // There are no convolutions with zero groups, so zero examples are computed with one
        // example of zeros.
        0 => {
            let one = examples.iter().map(|x| {
                if x.batched { BatchedValue::batched(padded(&x.value)) } else { x.clone() }
            });
            batched(conv, &one.collect::<Vec<_>>(), 1).narrow(0, 0, 0)
        }
        _ => batched(conv, examples, n),
    };
    smallvec![BatchedValue::batched(y)]
}

/// With an example of zeros behind the others.
fn padded(x: &Tensor) -> Tensor {
    let mut padding = vec![Padding::default(); x.rank()];
    padding[0].after = 1;
    apply(Op::Pad(padding.into()), &[x])
}

fn batched(conv: &Conv, examples: &[BatchedValue], n: usize) -> Tensor {
    let [a, b] = operands(examples);
    let [in_a, in_b, in_y] = match conv.role {
        Role::Forward => [X, W, Y],
        Role::Input(_) => [Y, W, X],
        Role::Filter => [X, Y, W],
    };
    let group = conv.groups;
    let (first, second) = (a.shape(), b.shape());
    let (outer, inner) = match conv.role {
        Role::Forward | Role::Input(_) => (second[0] / group, second[1]),
        Role::Filter => (second[1] / group, first[1] / group),
    };
    let lengths = ConvLengths { image: first[0], group, outer, inner };
    // The index of one operand and the result that the other operand does not have.
    let own = |mine: ConvAxes, others: ConvAxes| {
        let found = mine.into_iter().find(|i| in_y.contains(i) && !others.contains(i));
        found.expect("each two of the arrays have an index alone")
    };
    let at = match (a.batched, b.batched) {
        (true, true) => Group,
        (true, false) => own(in_a, in_b),
        (false, _) => own(in_b, in_a),
    };
    let groups = if at == Group { n * group } else { group };
    let given = |x: &BatchedValue, has: ConvAxes| match x.batched {
        true => joined(&x.value, has, at, lengths),
        false => x.value.clone(),
    };
    let op = Op::Conv(Box::new(Conv { groups, last: false, ..conv.clone() }));
    let y = apply(op, &[&given(a, in_a), &given(b, in_b)]);
    let y = parted(&y, in_y, at, lengths, n);
    if conv.last { y.move_axis(2, -1) } else { y }
}

/// The position of an index among those of an array.
fn place(has: ConvAxes, at: ConvAxis) -> usize {
    has.iter().position(|&i| i == at).expect("an array with examples has the index that they join")
}

/// `[n, …]` with the examples in one of the indices. The group is one axis with the index behind
/// it.
fn joined(x: &Tensor, has: ConvAxes, at: ConvAxis, lengths: ConvLengths) -> Tensor {
    let spatial = &x.shape()[3..];
    let split = [&[x.shape()[0]], &has.map(|i| lengths.of(i))[..], spatial].concat();
    let x = join(&x.apply_view(View::Reshape(split.into())), place(has, at));
    x.apply_view(View::Reshape(merged(x.shape(), place(has, Group))))
}

/// The inverse of [`joined`].
fn parted(y: &Tensor, has: ConvAxes, at: ConvAxis, lengths: ConvLengths, n: usize) -> Tensor {
    let long = |i: ConvAxis| lengths.of(i) * if i == at { n } else { 1 };
    let split = [&has.map(long)[..], &y.shape()[2..]].concat();
    let y = part(&y.apply_view(View::Reshape(split.into())), place(has, at), n, lengths.of(at));
    y.apply_view(View::Reshape(merged(y.shape(), 1 + place(has, Group))))
}
