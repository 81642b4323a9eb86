//! Convolution and its transposes.
//!
//! The three arrays of a convolution have four indices besides the spatial ones, each in two or
//! three of the arrays:
//!
//! ```text
//! y[image, (group, outer), p] = Σ  x[image, (group, inner), …] · w[(group, outer), inner, …]
//! ```
//! An axis of examples can join any index that is in just the arrays which have that axis. One is
//! always the result. If both operands are batched, that is the group: every example is a group of
//! its own. If only one is, it is the index that this operand and the result have alone, so that
//! what is shared stays as it is: the image for a batch of inputs under one kernel, the outer
//! channel for many kernels over one input, and so around for the two transposes.

use super::{Lane, Lanes, join, merged, operands, part};
use crate::apply::apply;
use crate::{Op, Tensor};
use pullback_ir::{Conv, Padding, Role, View};
use smallvec::smallvec;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Index {
    Image,
    Group,
    Outer,
    Inner,
}
use Index::{Group, Image, Inner, Outer};

/// The indices of an array, before the spatial ones.
type Indices = [Index; 3];
const X: Indices = [Image, Group, Inner];
const Y: Indices = [Image, Group, Outer];
const W: Indices = [Group, Outer, Inner];

/// How long the indices of one example are.
#[derive(Clone, Copy)]
struct Lengths {
    image: usize,
    group: usize,
    outer: usize,
    inner: usize,
}

impl Lengths {
    fn of(self, index: Index) -> usize {
        match index {
            Image => self.image,
            Group => self.group,
            Outer => self.outer,
            Inner => self.inner,
        }
    }
}

pub(super) fn conv(op: &Op, lanes: &[Lane], n: usize) -> Lanes {
    let Op::Conv(conv) = op else { unreachable!("called for Conv") };
    let y = match n {
        // There are no convolutions of zero groups. So of no example at all, by way of one that is
        // all zeros.
        0 => {
            let one = lanes
                .iter()
                .map(|x| if x.batched { Lane::batched(padded(&x.value)) } else { x.clone() });
            batched(conv, &one.collect::<Vec<_>>(), 1).narrow(0, 0, 0)
        }
        _ => batched(conv, lanes, n),
    };
    smallvec![Lane::batched(y)]
}

/// With a lane of zeros behind the others.
fn padded(x: &Tensor) -> Tensor {
    let mut padding = vec![Padding::default(); x.rank()];
    padding[0].after = 1;
    apply(Op::Pad(padding.into()), &[x])
}

fn batched(conv: &Conv, lanes: &[Lane], n: usize) -> Tensor {
    let [a, b] = operands(lanes);
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
    let lengths = Lengths { image: first[0], group, outer, inner };
    // The index of one operand and the result that the other operand does not have.
    let own = |mine: Indices, others: Indices| {
        let found = mine.into_iter().find(|i| in_y.contains(i) && !others.contains(i));
        found.expect("each two of the arrays have an index alone")
    };
    let at = match (a.batched, b.batched) {
        (true, true) => Group,
        (true, false) => own(in_a, in_b),
        (false, _) => own(in_b, in_a),
    };
    let groups = if at == Group { n * group } else { group };
    let given = |x: &Lane, has: Indices| match x.batched {
        true => joined(&x.value, has, at, lengths),
        false => x.value.clone(),
    };
    let op = Op::Conv(Box::new(Conv { groups, ..conv.clone() }));
    let y = apply(op, &[&given(a, in_a), &given(b, in_b)]);
    parted(&y, in_y, at, lengths, n)
}

/// Where an index stands among those of an array.
fn place(has: Indices, at: Index) -> usize {
    has.iter().position(|&i| i == at).expect("an array with examples has the index that they join")
}

/// `[n, …]` with the examples in one of the indices. The group is one axis with the index behind
/// it.
fn joined(x: &Tensor, has: Indices, at: Index, lengths: Lengths) -> Tensor {
    let spatial = &x.shape()[3..];
    let apart = [&[x.shape()[0]], &has.map(|i| lengths.of(i))[..], spatial].concat();
    let x = join(&x.view(View::Reshape(apart.into())), place(has, at));
    x.view(View::Reshape(merged(x.shape(), place(has, Group))))
}

/// What [`joined`] put together, taken apart.
fn parted(y: &Tensor, has: Indices, at: Index, lengths: Lengths, n: usize) -> Tensor {
    let long = |i: Index| lengths.of(i) * if i == at { n } else { 1 };
    let apart = [&has.map(long)[..], &y.shape()[2..]].concat();
    let y = part(&y.view(View::Reshape(apart.into())), place(has, at), n, lengths.of(at));
    y.view(View::Reshape(merged(y.shape(), 1 + place(has, Group))))
}
