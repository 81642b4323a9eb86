//! Running reductions, and sorting.

use crate::apply::{apply, apply_all};
use crate::ops::one_pass::one_pass;
use crate::ops::reduce::unit_padding;
use crate::rule::{ByHand, Derivatives, Grad, RuleContext, Tensors, Val};
use crate::{DType, Op, Tensor, custom_vjp, fail, kinks, mode};
use pullback_ir::{Combine, Cumulation, Line};
use smallvec::smallvec;

pub(crate) fn row(kind: Cumulation) -> Grad {
    match kind {
        Cumulation::Sum => {
            super::linear("the running sum of `dy` from the other end", |f, _, dy| {
                let Op::Cumulate { kind, axis, reverse } = *f.op else {
                    unreachable!("called for Cumulate")
                };
                apply(Op::Cumulate { kind, axis, reverse: !reverse }, &[dy])
            })
        }
        Cumulation::Prod => Grad::Decompose(|op, inputs| running_products(op, inputs[0])),
        Cumulation::LogSumExp => Grad::Decompose(|op, inputs| running_logarithms(op, inputs[0])),
        Cumulation::Max | Cumulation::Min => Grad::ByHand(ByHand {
            uses: &[Val::In(0), Val::Out(0)],
            vjp: extreme_vjp,
            jvp: extreme_jvp,
            formula: "`dy` added up at the element that each result is",
        }),
    }
}

/// Running products by doubling: after step k each element holds its window of 2ᵏ. No division, so
/// zeros are no special case, at any order of derivative.
fn running_products(op: &Op, x: &Tensor) -> Tensors {
    let Op::Cumulate { axis, reverse, .. } = *op else { unreachable!("called for Cumulate") };
    let n = x.shape()[axis];
    let mut y = if reverse { x.flip(axis as isize) } else { x.clone() };
    let mut shift = 1;
    while shift < n {
        let padding: Vec<_> =
            unit_padding(x.rank(), axis, shift).into_iter().map(|(a, b)| (b, a)).collect();
        let earlier = y.narrow(axis as isize, 0, n - shift).pad_with(&padding, 1.0);
        y = &y * earlier;
        shift *= 2;
    }
    Tensors::One(if reverse { y.flip(axis as isize) } else { y })
}

/// Running logarithms of sums, by doubling: of each window its largest element and the sum of
/// exponentials of the differences from that. The logarithm is taken only at the end: it may be
/// lost relative to very large elements, but their parts of the sum are not.
fn running_logarithms(op: &Op, x: &Tensor) -> Tensors {
    let Op::Cumulate { axis, reverse, .. } = *op else { unreachable!("called for Cumulate") };
    let n = x.shape()[axis];
    let flipped = |x: Tensor| if reverse { x.flip(axis as isize) } else { x };
    // x less itself as a constant: 0, also of infinities.
    let none = |x: &Tensor| (x.zeros_like(), ());
    let moved = custom_vjp("logcumsumexp", none, |_: &(), dy: &Tensor| dy.clone()).trusted();
    let (mut most, mut sum) = (flipped(x.detach()), flipped(moved.call(x).exp()));
    let mut shift = 1;
    while shift < n {
        let padding: Vec<_> =
            unit_padding(x.rank(), axis, shift).into_iter().map(|(a, b)| (b, a)).collect();
        let earlier =
            |x: &Tensor, unit: f64| x.narrow(axis as isize, 0, n - shift).pad_with(&padding, unit);
        let before = (earlier(&most, f64::NEG_INFINITY), earlier(&sum, 0.0));
        let high = kinks::uncounted_part(|| most.maximum(&before.0));
        // Equal infinities have a difference of 0.
        let part = |x: &Tensor| x.eq(&high).select_or(0.0, x - &high).exp();
        sum = sum * part(&most) + before.1 * part(&before.0);
        most = high;
        shift *= 2;
    }
    Tensors::One(flipped(most + sum.log()))
}

/// The index of each running extreme: the latest one that equals it.
fn places(f: &RuleContext) -> (usize, Tensor) {
    let Op::Cumulate { axis, reverse, .. } = *f.op else { unreachable!("called for Cumulate") };
    let x = f.x(0);
    let mut shape = vec![1; x.rank()];
    shape[axis] = x.shape()[axis];
    let here = x.new_iota(x.shape()[axis]).reshape(&shape[..]);
    // NaN is an extreme too, and equals nothing.
    let hit = x.eq(f.y(0)).logical_or(x.is_nan());
    let (none, kind) = match reverse {
        false => (-1, Cumulation::Max),
        true => (i64::MAX, Cumulation::Min),
    };
    let marks = hit.select(&here, none);
    (axis, apply(Op::Cumulate { kind, axis, reverse }, &[&marks]))
}

fn extreme_vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let (axis, index) = places(f);
    let back = |dy: &Tensor| {
        apply(Op::Scatter(axis, Combine::Add), &[&Tensor::zeros_of(f.in_spec(0)), &index, dy])
    };
    smallvec![dys[0].as_ref().map(back)]
}

fn extreme_jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let (axis, index) = places(f);
    t[0].iter().map(|tx| apply(Op::Gather(axis), &[tx, &index])).collect()
}

fn sorted_axis(op: &Op) -> usize {
    match *op {
        Op::Sort { axis, .. } | Op::Ranks { axis, .. } => axis,
        _ => unreachable!("called for Sort and Ranks"),
    }
}

/// Sorting, also of some ranks alone, is a gather by the indices it found.
pub(crate) fn sort_row() -> Grad {
    Grad::ByHand(ByHand {
        formula: "`dy` put back at the indices (scatter-add)",
        uses: &[Val::Out(1)],
        vjp: |f, dys| {
            let axis = sorted_axis(f.op);
            let back = |dy: &Tensor| {
                apply(
                    Op::Scatter(axis, Combine::Add),
                    &[&Tensor::zeros_of(f.in_spec(0)), f.y(1), dy],
                )
            };
            smallvec![dys[0].as_ref().map(back)]
        },
        jvp: |f, t| {
            let axis = sorted_axis(f.op);
            t[0].iter().map(|tx| apply(Op::Gather(axis), &[tx, f.y(1)])).collect()
        },
    })
}

impl Tensor {
    #[track_caller]
    fn cumulate(&self, kind: Cumulation, axis: isize) -> Tensor {
        let axis = self.axis(kind.name(), axis);
        let x = match kind {
            // Sums and products of integers and booleans are in i64, see `infer`.
            Cumulation::Sum | Cumulation::Prod => self.clone(),
            Cumulation::Max | Cumulation::Min if self.dtype() == DType::Bool => {
                self.cast(DType::I64)
            }
            Cumulation::Max | Cumulation::Min => self.clone(),
            Cumulation::LogSumExp => self.real(),
        };
        let op = Op::Cumulate { kind, axis, reverse: false };
        match x.rank() {
            0 => apply(op, &[&x.reshape([1])]).reshape(&[] as &[usize]),
            _ => apply(op, &[&x]),
        }
    }

    /// Cumulative sums along an axis; of integers and booleans in `i64`, as [`Tensor::sum`] is.
    ///
    /// Derivative: the running sum of `dy` from the end.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 2.0, 3.0]).cumsum(0).to_vec::<f64>(), [1.0, 3.0, 6.0]);
    /// assert_eq!(Tensor::from([200u8, 100]).cumsum(0).to_vec::<i64>(), [200, 300]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn cumsum(&self, axis: isize) -> Tensor {
        self.cumulate(Cumulation::Sum, axis)
    }

    /// Cumulative products along an axis; of integers and booleans in `i64`, as [`Tensor::prod`]
    /// is. The gradient is right where elements are zero.
    ///
    /// Derivative: `Σₖ dyₖ·∏` of the other factors of product k, exact also where some are zero.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 2.0, 3.0]).cumprod(0).to_vec::<f64>(), [1.0, 2.0, 6.0]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn cumprod(&self, axis: isize) -> Tensor {
        self.cumulate(Cumulation::Prod, axis)
    }

    /// Cumulative maxima along an axis.
    ///
    /// Derivative: `dy` added up at the element that each result is; among equals, the latest.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1, 3, 2]).cummax(0).to_vec::<i32>(), [1, 3, 3]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn cummax(&self, axis: isize) -> Tensor {
        self.cumulate(Cumulation::Max, axis)
    }

    /// Cumulative minima along an axis.
    ///
    /// Derivative: `dy` added up at the element that each result is; among equals, the latest.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([3, 1, 2]).cummin(0).to_vec::<i32>(), [3, 1, 1]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn cummin(&self, axis: isize) -> Tensor {
        self.cumulate(Cumulation::Min, axis)
    }

    /// Cumulative log(sum(exp(x))) along an axis.
    ///
    /// Derivative: `Σₖ≥ᵢ dyₖ·exp(xᵢ − yₖ)`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 0.0]).logcumsumexp(0).to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 2f64.ln()).abs() < 1e-15);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn logcumsumexp(&self, axis: isize) -> Tensor {
        self.cumulate(Cumulation::LogSumExp, axis)
    }

    /// Sorts along an axis: the values, and the indices they had. Stable; NaN counts as largest.
    ///
    /// Derivative: `dy` back in the old order.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (values, indices) = Tensor::from([3.0, 1.0, 2.0]).sort(0, false);
    /// assert_eq!(values.to_vec::<f64>(), [1.0, 2.0, 3.0]);
    /// assert_eq!(indices.to_vec::<i64>(), [1, 2, 0]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn sort(&self, axis: isize, descending: bool) -> (Tensor, Tensor) {
        let axis = self.axis("sort", axis);
        let op = Op::Sort { axis, descending };
        let none: &[usize] = &[];
        let mut outs = match self.rank() {
            0 => apply_all(op, &[&self.reshape([1])]).iter().map(|y| y.reshape(none)).collect(),
            _ => apply_all(op, &[self]),
        };
        let indices = outs.remove(1);
        (outs.remove(0), indices)
    }

    /// The elements of some ranks along an axis, in order, and the indices they had; the others are
    /// not sorted. Kinks are counted under the name of the function.
    #[track_caller]
    pub(crate) fn ranks(
        &self,
        name: &'static str,
        axis: usize,
        descending: bool,
        from: usize,
        count: usize,
    ) -> (Tensor, Tensor) {
        let at = mode::user_line(Line::caller());
        let op = Op::Ranks { axis, descending, from, count };
        let mut outs = kinks::uncounted_part(|| apply_all(op.clone(), &[self]));
        fail::or_raise(kinks::check_as(name, &op, &[self], &outs, at));
        let indices = outs.remove(1);
        (outs.remove(0), indices)
    }

    /// The indices that sort along an axis.
    ///
    /// Derivative: none (an index).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([30, 10, 20]).argsort(0, true).to_vec::<i64>(), [0, 2, 1]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn argsort(&self, axis: isize, descending: bool) -> Tensor {
        self.sort(axis, descending).1
    }

    /// log(eᵃ + eᵇ), without overflow.
    ///
    /// Derivative: `exp(a − y)·dy` and `exp(b − y)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1000.0]).logaddexp(&Tensor::from([0.0, 0.0]));
    /// assert_eq!(y.to_vec::<f64>(), [2f64.ln(), 1000.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn logaddexp(&self, other: &Tensor) -> Tensor {
        one_pass("logaddexp", &[], [self, other], |[x, other]| {
            // The larger by selection, so that both branches are smooth and a tie is no kink.
            let first = x.ge(other);
            let (high, low) = (first.select(x, other), first.select(other, x));
            // Equal infinities would give NaN as a difference.
            let endless = high.eq(&low).logical_and(high.is_inf());
            let difference = endless.select_or(0.0, low - &high);
            high + difference.exp().log1p()
        })
    }
}
