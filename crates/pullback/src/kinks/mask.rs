//! Which elements of a result are at a kink: formulas in ordinary ops, so that they can be traced
//! as well.

use crate::apply::apply;
use crate::{DType, Op, Shape, Tensor};
use pullback_ir::{Collective, Combination, Combine, Cumulation, Frame, Pool, Window};
use std::sync::Arc;

/// From an op, its operands and its results: where the results are at a kink.
pub(crate) type Spots = fn(&Op, &[Tensor], &[Tensor]) -> Tensor;

pub(crate) fn zero(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    x[0].eq(0.0)
}

pub(crate) fn one(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    x[0].eq(1.0)
}

pub(crate) fn minus_one(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    x[0].eq(-1.0)
}

pub(crate) fn one_or_minus_one(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    x[0].abs().eq(1.0)
}

pub(crate) fn zero_or_one(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    x[0].eq(0.0).logical_or(x[0].eq(1.0))
}

pub(crate) fn integer(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    // Infinities are integers here.
    x[0].floor().eq(&x[0]).logical_and(x[0].is_finite())
}

pub(crate) fn integer_but_zero(op: &Op, x: &[Tensor], y: &[Tensor]) -> Tensor {
    integer(op, x, y).logical_and(x[0].ne(0.0))
}

pub(crate) fn integer_not_above_zero(op: &Op, x: &[Tensor], y: &[Tensor]) -> Tensor {
    integer(op, x, y).logical_and(x[0].le(0.0))
}

/// Halfway between two integers.
pub(crate) fn half(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    (&x[0] - x[0].floor()).eq(0.5)
}

pub(crate) fn tie(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    x[0].eq(&x[1])
}

pub(crate) fn second_zero(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    x[1].eq(0.0)
}

pub(crate) fn either_zero(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    x[0].eq(0.0).logical_or(x[1].eq(0.0))
}

/// The remainder is zero.
pub(crate) fn multiple(_: &Op, _: &[Tensor], y: &[Tensor]) -> Tensor {
    y[0].eq(0.0)
}

/// `fmod` is the dividend itself around 0.
pub(crate) fn multiple_but_zero(_: &Op, x: &[Tensor], y: &[Tensor]) -> Tensor {
    y[0].eq(0.0).logical_and(x[0].ne(0.0))
}

pub(crate) fn divides(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    x[0].remainder(&x[1]).eq(0.0)
}

pub(crate) fn power(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    x[0].eq(0.0).logical_and(x[1].lt(1.0))
}

/// The jump of the angle from π to −π, and the origin.
pub(crate) fn cut(_: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    x[0].eq(0.0).logical_and(x[1].le(0.0))
}

/// More than one of these, over some axes.
fn several(hit: &Tensor, axes: Vec<isize>) -> Tensor {
    hit.cast(DType::I64).sum_over(axes).gt(1)
}

/// The extreme is found more than once.
pub(crate) fn shared(op: &Op, x: &[Tensor], y: &[Tensor]) -> Tensor {
    let Op::Reduce(_, axes) = op else { unreachable!("called for Reduce") };
    let one = |(i, &n): (usize, &usize)| if axes.contains(&i) { 1 } else { n };
    let kept: Shape = x[0].shape().iter().enumerate().map(one).collect();
    let hit = x[0].eq(y[0].reshape(&kept[..]));
    several(&hit, axes.iter().map(|&i| i as isize).collect())
}

pub(crate) fn placed(op: &Op, x: &[Tensor], y: &[Tensor]) -> Tensor {
    let Op::ArgReduce(_, axis) = op else { unreachable!("called for ArgReduce") };
    let axis = *axis as isize;
    let best = x[0].gather(axis, &y[0].unsqueeze(axis));
    several(&x[0].eq(best), vec![axis])
}

/// A running extreme that occurred again, and has not changed since.
pub(crate) fn running(op: &Op, x: &[Tensor], y: &[Tensor]) -> Tensor {
    let Op::Cumulate { axis, reverse, .. } = *op else { unreachable!("called for Cumulate") };
    let (axis, n) = (axis as isize, x[0].shape()[axis]);
    if n < 2 {
        return x[0].new_zeros_with(x[0].shape(), DType::Bool);
    }
    let forward = |t: &Tensor| if reverse { t.flip(axis) } else { t.clone() };
    let (x, y) = (forward(&x[0]), forward(&y[0]));
    let before = y.narrow(axis, 0, n - 1);
    let stays = y.narrow(axis, 1, n - 1).eq(&before);
    let again = x.narrow(axis, 1, n - 1).eq(&before);
    // The first element begins a run, and repeats nothing.
    let mut padding = vec![(0, 0); x.rank()];
    padding[axis as usize].0 = 1;
    let number = |t: &Tensor| t.cast(DType::I64).pad_with(&padding, 0);
    let (stays, again) = (number(&stays), number(&again));
    let mut shape = vec![1; x.rank()];
    shape[axis as usize] = n;
    let here = x.new_iota(n).reshape(&shape[..]);
    let latest = |marks: &Tensor, none: i64| {
        let kind = Cumulation::Max;
        let op = Op::Cumulate { kind, axis: axis as usize, reverse: false };
        apply(op, &[&marks.select(&here, none)])
    };
    let (begun, repeated) = (latest(&stays.eq(0), 0), latest(&again.eq(1), -1));
    forward(&repeated.ge(begun))
}

/// Equal to a neighbour along the axis of a sort.
fn beside_an_equal(sorted: &Tensor, axis: isize) -> Tensor {
    let at = axis.rem_euclid(sorted.rank() as isize) as usize;
    let n = sorted.shape()[at];
    if n < 2 {
        return sorted.new_zeros_with(sorted.shape(), DType::Bool);
    }
    let equal = sorted.narrow(axis, 1, n - 1).eq(sorted.narrow(axis, 0, n - 1)).cast(DType::I64);
    let (mut before, mut after) = (vec![(0, 0); sorted.rank()], vec![(0, 0); sorted.rank()]);
    (before[at].0, after[at].1) = (1, 1);
    (equal.pad_with(&before, 0) + equal.pad_with(&after, 0)).gt(0)
}

pub(crate) fn sorted(op: &Op, _: &[Tensor], y: &[Tensor]) -> Tensor {
    let Op::Sort { axis, .. } = *op else { unreachable!("called for Sort") };
    beside_an_equal(&y[0], axis as isize)
}

pub(crate) fn ranked(op: &Op, x: &[Tensor], _: &[Tensor]) -> Tensor {
    let Op::Ranks { axis, descending, from, count } = *op else { unreachable!("called for Ranks") };
    let all = x[0].sort(axis as isize, descending).0;
    beside_an_equal(&all, axis as isize).narrow(axis as isize, from as isize, count)
}

pub(crate) fn eigenvalues(_: &Op, _: &[Tensor], y: &[Tensor]) -> Tensor {
    beside_an_equal(&y[0], -1)
}

/// Equal to another, or zero.
pub(crate) fn singular_values(_: &Op, _: &[Tensor], y: &[Tensor]) -> Tensor {
    beside_an_equal(&y[1], -1).logical_or(y[1].eq(0.0))
}

/// Several of the base and the sources are the result.
pub(crate) fn scattered(op: &Op, x: &[Tensor], y: &[Tensor]) -> Tensor {
    let Op::Scatter(axis, _) = *op else { unreachable!("called for Scatter") };
    let (base, index, source) = (&x[0], &x[1], &x[2]);
    let there = apply(Op::Gather(axis), &[&y[0], index]);
    let hits = source.eq(there).cast(DType::I64);
    let own = base.eq(&y[0]).cast(DType::I64);
    apply(Op::Scatter(axis, Combine::Add), &[&own, index, &hits]).gt(1)
}

/// Several workers have the extreme element. To know that takes a sum of its own, so all workers
/// count, or none.
pub(crate) fn tied_workers(op: &Op, x: &[Tensor], y: &[Tensor]) -> Tensor {
    let Op::Collective(of) = op else { unreachable!("called for collectives") };
    let hits = x[0].eq(&y[0]).cast(DType::I64);
    let sum = of.with(Collective::AllReduce(Combination::Sum));
    apply(Op::Collective(Arc::new(sum)), &[&hits]).gt(1)
}

/// The first and the last largest element of a window are not the same. The last is the first of
/// the flipped image.
pub(crate) fn pooled(op: &Op, x: &[Tensor], y: &[Tensor]) -> Tensor {
    let Op::Pool(pool) = op else { unreachable!("called for Pool") };
    let (x, axes) = (&x[0], pool.frames.len());
    let lead = x.rank() - axes;
    let lengths = &x.shape()[lead..];
    let spatial: Vec<isize> = (1..=axes as isize).map(|i| -i).collect();
    let mirrored = |(frame, &len): (&Frame, &usize)| match frame {
        Frame::Even(count) => Frame::Even(*count),
        Frame::Sliding(w) => {
            // Windows that begin at the end must end where these begin.
            let last = (w.count(len).unwrap_or(1) as isize - 1) * w.stride as isize;
            let span = (w.size as isize - 1) * w.dilation as isize + 1;
            let before = last + span - len as isize - w.before;
            Frame::Sliding(Window { before, after: w.before, ..*w })
        }
    };
    let frames = pool.frames.iter().zip(lengths).map(mirrored).collect();
    let flipped = spatial.iter().fold(x.clone(), |x, &axis| x.flip(axis));
    let op = Op::Pool(Box::new(Pool { kind: pool.kind.clone(), frames }));
    let turned = apply(op, &[&flipped]);
    let turned = spatial.iter().fold(turned, |places, &axis| places.flip(axis));
    let size: usize = lengths.iter().product();
    let last = size as i64 - 1 - turned;
    let flat = x.reshape([&x.shape()[..lead], &[size]].concat());
    let count: usize = y[0].shape()[lead..].iter().product();
    let places = y[0].reshape([&y[0].shape()[..lead], &[count]].concat());
    let broken = flat.gather(-1, &places).reshape(y[0].shape()).is_nan();
    last.ne(&y[0]).logical_and(broken.logical_not())
}
