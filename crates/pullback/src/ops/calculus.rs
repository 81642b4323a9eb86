//! Integrals and derivatives of sampled functions.

use crate::ops::one_pass::{one_pass_of_rows, or_op_by_op};
use crate::{Error, Tensor, cat};

/// Where the samples of a function are.
#[derive(Clone, Copy, Debug)]
pub enum Spacing<'a> {
    /// At this distance from each other.
    Even(f64),
    /// At these coordinates: a vector for the axis, or a tensor that broadcasts with the samples.
    At(&'a Tensor),
}

impl Tensor {
    /// The distances between neighbouring samples of an axis, in a shape that broadcasts with them.
    #[track_caller]
    fn steps(&self, op: &'static str, spacing: Spacing, axis: isize) -> Tensor {
        let n = self.length(op, axis);
        let at = match spacing {
            Spacing::Even(step) => return self.new_tensor(step).cast(self.real_dtype()),
            Spacing::At(at) => at,
        };
        let at = match at.rank() {
            0 | 1 => at.clone(),
            rank if rank < self.rank() => {
                at.reshape([&vec![1; self.rank() - rank][..], at.shape()].concat())
            }
            _ => at.clone(),
        };
        if at.rank() > 1 {
            let k = self.axis(op, axis);
            let together = pullback_ir::infer::args::broadcast(op, self.spec(), at.spec());
            let _ = self.checked(together);
            if at.rank() != self.rank() || at.shape()[k] != n {
                let message = format!("{} does not fit {} along axis {k}", at.spec(), self.spec());
                let error = Error::shape(op, message).on([self.spec(), at.spec()]);
                return self.checked(Err(error));
            }
            return at.diff(1, axis);
        }
        if at.len() != n {
            let message = format!("{} does not give a place to each of the {n} samples", at.spec());
            let error = Error::shape(op, message).on([self.spec(), at.spec()]);
            return self.checked(Err(error));
        }
        let mut shape = vec![1; self.rank()];
        shape[self.axis(op, axis)] = n.saturating_sub(1);
        at.diff(1, 0).reshape(shape)
    }

    /// The areas between neighbouring samples of an axis.
    #[track_caller]
    fn areas(&self, op: &'static str, spacing: Spacing, axis: isize) -> Tensor {
        let (x, n) = (self.real(), self.length(op, axis));
        let steps = x.steps(op, spacing, axis);
        let most = n.saturating_sub(1);
        let pairs = x.narrow(axis, n.min(1) as isize, most) + x.narrow(axis, 0, most);
        pairs * steps * 0.5
    }

    /// The integral along an axis by the trapezoidal rule: `Σ (yₖ + yₖ₊₁)·(xₖ₊₁ − xₖ)/2`.
    ///
    /// Derivative: of its formula.
    ///
    /// ```
    /// use pullback::{Spacing, Tensor};
    /// let y = Tensor::from([1.0, 2.0, 4.0]);
    /// assert_eq!(y.trapezoid(Spacing::Even(1.0), 0).item::<f64>(), 4.5);
    /// let x = Tensor::from([0.0, 2.0, 3.0]);
    /// assert_eq!(y.trapezoid(Spacing::At(&x), 0).item::<f64>(), 6.0);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, or the positions do not fit it.
    #[track_caller]
    #[must_use]
    pub fn trapezoid(&self, spacing: Spacing, axis: isize) -> Tensor {
        match spacing {
            // All samples count once and the outer ones half, so nothing but a sum is stored.
            Spacing::Even(step) if self.length("trapezoid", axis) > 1 => {
                let x = self.real();
                let ends = x.select_at(axis, 0) + x.select_at(axis, -1);
                (x.sum_over(axis) - ends * 0.5) * step
            }
            _ => self.areas("trapezoid", spacing, axis).sum_over(axis),
        }
    }

    /// The running integral along an axis by the trapezoidal rule, one shorter than the samples.
    ///
    /// Derivative: of its formula.
    ///
    /// ```
    /// use pullback::{Spacing, Tensor};
    /// let y = Tensor::from([1.0, 2.0, 4.0]);
    /// assert_eq!(y.cumulative_trapezoid(Spacing::Even(1.0), 0).to_vec::<f64>(), [1.5, 4.5]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, or the positions do not fit it.
    #[track_caller]
    #[must_use]
    pub fn cumulative_trapezoid(&self, spacing: Spacing, axis: isize) -> Tensor {
        self.areas("cumulative_trapezoid", spacing, axis).cumsum(axis)
    }

    /// The derivative of sampled values along an axis: `(y₊ − y₋)/(x₊ − x₋)` with second-order
    /// weights inside, and one-sided at the ends, of order 1 or 2 (`edge_order`).
    ///
    /// Derivative: of its formula (linear in the samples).
    ///
    /// ```
    /// use pullback::{Spacing, Tensor};
    /// let y = Tensor::from([1.0, 4.0, 9.0, 16.0]);
    /// assert_eq!(y.gradient(Spacing::Even(1.0), 0, 1).to_vec::<f64>(), [3.0, 4.0, 6.0, 7.0]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, `edge_order` is neither 1 nor 2, there are too few samples for
    /// it, or the positions do not fit.
    #[track_caller]
    #[must_use]
    pub fn gradient(&self, spacing: Spacing, axis: isize, edge_order: usize) -> Tensor {
        let (x, n) = (self.real(), self.length("gradient", axis));
        if !(1..=2).contains(&edge_order) || n <= edge_order {
            let message =
                format!("{n} samples are too few for edges of order {edge_order} (1 or 2)");
            return self.checked(Err(Error::argument("gradient", message).on([self.spec()])));
        }
        let steps = x.steps("gradient", spacing, axis);
        let mut wide = vec![1; x.rank()];
        wide[self.axis("gradient", axis)] = n - 1;
        let steps = if steps.rank() == 0 { steps.expand(wide) } else { steps };
        let value = |i: usize, len: usize| x.narrow(axis, i as isize, len);
        let step = |i: usize, len: usize| steps.narrow(axis, i as isize, len);
        let slope = |i: usize| (value(i + 1, 1) - value(i, 1)) / step(i, 1);
        let (mut low, mut high) = (slope(0), slope(n - 2));
        if edge_order == 2 {
            // The slope of the parabola through three points, at its first and its last.
            let bend = |i: usize| (slope(i + 1) - slope(i)) / (step(i, 1) + step(i + 1, 1));
            (low, high) = (low - bend(0) * step(0, 1), high + bend(n - 3) * step(n - 2, 1));
        }
        if n == 2 {
            return cat(&[&low, &high], axis);
        }
        let (before, after) = (step(0, n - 2), step(1, n - 2));
        let left = (value(1, n - 2) - value(0, n - 2)) / &before;
        let right = (value(2, n - 2) - value(1, n - 2)) / &after;
        let inside = (left * &after + right * &before) / (&before + &after);
        cat(&[&low, &inside, &high], axis)
    }

    /// This tensor with each slice of an axis whose norm of order `p` is above `most` scaled down
    /// to it.
    ///
    /// Derivative: of its formula, `x·most/‖x‖ₚ` where it scales.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([[3.0, 4.0], [0.3, 0.4]]).renorm(2.0, 0, 1.0);
    /// assert!((y.norm_over(1).at(0).item::<f64>() - 1.0).abs() < 1e-6);
    /// assert_eq!(y.at(1).to_vec::<f64>(), [0.3, 0.4]);
    /// ```
    ///
    /// # Panics
    /// If there are fewer than two axes, the axis is out of range, `p` is not above 0, or `most` is
    /// negative.
    #[track_caller]
    #[must_use]
    pub fn renorm(&self, p: f64, axis: isize, most: f64) -> Tensor {
        let at = self.axis("renorm", axis);
        if self.rank() < 2 || p.is_nan() || p <= 0.0 || most.is_nan() || most < 0.0 {
            let message = format!(
                "takes at least two axes, p above 0 and a norm of at least 0, not {}, {p} and {most}",
                self.spec()
            );
            return self.checked(Err(Error::argument("renorm", message).on([self.spec()])));
        }
        let others: Vec<isize> =
            (0..self.rank()).filter(|&i| i != at).map(|i| i as isize).collect();
        let within = |x: &Tensor, others: Vec<isize>| {
            let (dtype, x) = (x.real_dtype(), x.wide());
            let norm = x.vector_norm_keep(p, others);
            let above = norm.gt(most);
            let factor = above.select(most / (norm + 1e-7), 1.0);
            (x * factor).cast(dtype)
        };
        let rows =
            one_pass_of_rows("renorm", &[p, most], [self], &others, |[x]| within(x, vec![1]));
        or_op_by_op(rows, || within(self, others))
    }
}
