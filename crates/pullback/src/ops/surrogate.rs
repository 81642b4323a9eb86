//! Gradients that are not the derivative, on purpose: straight-through estimators, reversal,
//! scaling and clipping in the graph.
//!
//! Each is a [`custom_vjp`](crate::custom_vjp) of a line or two. As its rule is not the derivative
//! of its value, it skip the check with a reason, and [`unchecked_rules`](crate::unchecked_rules)
//! lists the line of the model that uses it, with the number of calls.

use crate::{CustomVjp, Error, Tensor, custom_vjp, fail, mode};
use pullback_ir::Line;

const STEP: &str =
    "the derivative of a step function is zero: the gradient passes as if it were the identity";

impl Tensor {
    /// `hard` of this tensor, with the gradient of the identity: a straight-through estimator.
    ///
    /// Derivative: dx = dy; forward mode passes tangents in the same way. The derivative of that
    /// rule is zero.
    ///
    /// ```
    /// use pullback::{Tensor, grad};
    /// let tenths = |x: &Tensor| x.straight_through(|x| (x * 10.0).floor() / 10.0);
    /// assert_eq!(tenths(&Tensor::from(0.37)).item::<f64>(), 0.3);
    /// assert_eq!(grad(|x: &Tensor| tenths(x).square())(&Tensor::from(0.37)).item::<f64>(), 0.6);
    /// ```
    ///
    /// What `hard` captures has its own derivative, which for a step is zero; where it is
    /// not, a tensor that is being differentiated is refused. To train a threshold t, write it as
    /// `(x - t).straight_through(|d| …)`.
    ///
    /// # Panics
    /// If `hard` gives another shape or dtype, or depends on a tracked tensor that is not its
    /// argument.
    #[track_caller]
    #[must_use]
    pub fn straight_through(
        &self,
        hard: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
    ) -> Tensor {
        let at = mode::user_line(Line::caller());
        let alike = move |x: &Tensor| {
            let y = hard(x);
            if y.spec() != x.spec() {
                let message = format!(
                    "gives {} for {}: its gradient cannot be passed back",
                    y.spec(),
                    x.spec()
                );
                fail::raise(Error::shape("straight_through", message).at(at));
            }
            (y, ())
        };
        custom_vjp("straight_through", alike, |_: &(), dy: &Tensor| dy.clone())
            .unchecked(STEP)
            .linear()
            .call(self)
    }

    /// The nearest integer, ties to even, with the gradient of the identity.
    ///
    /// Derivative: dx = dy, in both modes; that of `round` would be 0.
    ///
    /// ```
    /// # use pullback::{Tensor, grad};
    /// let x = Tensor::from(2.6);
    /// assert_eq!(x.round_ste().item::<f64>(), 3.0);
    /// assert_eq!(grad(|x: &Tensor| x.round_ste().square())(&x).item::<f64>(), 6.0);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    #[track_caller]
    #[must_use]
    pub fn round_ste(&self) -> Tensor {
        self.straight_through(Tensor::round)
    }

    /// The sign, with the gradient of the identity where |x| is at most `within`, or everywhere.
    /// With `Some(1.0)` it is the gradient of the hard tanh, as binary networks use it: a saturated
    /// weight is not pushed further.
    ///
    /// Derivative: dx = dy where |x| ≤ within, 0 elsewhere, in both modes; that of `sign` would
    /// be 0.
    ///
    /// ```
    /// # use pullback::{Tensor, grad};
    /// let x = Tensor::from([-2.0, -0.5, 0.0, 0.5]);
    /// assert_eq!(x.sign_ste(None).to_vec::<f64>(), [-1.0, -1.0, 0.0, 1.0]);
    /// assert_eq!(grad(|x: &Tensor| x.sign_ste(Some(1.0)).sum())(&x).to_vec::<f64>(), [0.0, 1.0, 1.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If `within` is not a positive number.
    #[track_caller]
    #[must_use]
    pub fn sign_ste(&self, within: Option<f64>) -> Tensor {
        let Some(within) = within else { return self.straight_through(Tensor::sign) };
        self.check_positive("sign_ste", "the limit", within);
        let backward = move |x: &Tensor, dy: &Tensor| x.abs().le(within).select(dy, 0.0);
        let forward = |x: &Tensor| (x.sign(), x.clone());
        custom_vjp("sign_ste", forward, backward).unchecked(STEP).linear().call(self)
    }

    /// 1 above `at` and 0 elsewhere, with the gradient of the identity.
    ///
    /// Derivative: dx = dy, in both modes; that of the comparison would be 0.
    ///
    /// ```
    /// # use pullback::{Tensor, grad};
    /// let x = Tensor::from([0.2, 0.5, 0.7]);
    /// assert_eq!(x.threshold_ste(0.5).to_vec::<f64>(), [0.0, 0.0, 1.0]);
    /// assert_eq!(grad(|x: &Tensor| x.threshold_ste(0.5).sum())(&x).to_vec::<f64>(), [1.0; 3]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn threshold_ste(&self, at: f64) -> Tensor {
        self.straight_through(move |x| x.gt(at).cast(x.dtype()))
    }

    /// This tensor, with its gradient times −`lambda`: the layers before this point are trained
    /// adversarially to those after it, as in domain-adversarial networks.
    ///
    /// Derivative: dx = −lambda·dy. The rule is linear: forward mode multiplies tangents by
    /// −lambda, and each further order by it once more.
    ///
    /// ```
    /// # use pullback::{Tensor, grad};
    /// let x = Tensor::from(3.0);
    /// assert_eq!(grad(|x: &Tensor| x.reverse_gradient(0.5).square())(&x).item::<f64>(), -3.0);
    /// ```
    ///
    /// # Panics
    /// If `lambda` is not finite.
    #[track_caller]
    #[must_use]
    pub fn reverse_gradient(&self, lambda: f64) -> Tensor {
        self.check_finite("reverse_gradient", lambda);
        with_gradient("reverse_gradient", "the gradient is reversed on purpose", move |dy| {
            dy * -lambda
        })
        .linear()
        .call(self)
    }

    /// This tensor, with its gradient times `factor`: a separate learning rate for the layers
    /// before this point.
    ///
    /// Derivative: dx = factor·dy. The rule is linear: forward mode multiplies tangents by it, and
    /// each further order by it once more.
    ///
    /// ```
    /// # use pullback::{Tensor, grad};
    /// let x = Tensor::from(3.0);
    /// assert_eq!(grad(|x: &Tensor| x.scale_gradient(0.1).square())(&x).item::<f64>(), 6.0 * 0.1);
    /// ```
    ///
    /// # Panics
    /// If `factor` is not finite.
    #[track_caller]
    #[must_use]
    pub fn scale_gradient(&self, factor: f64) -> Tensor {
        self.check_finite("scale_gradient", factor);
        with_gradient("scale_gradient", "the gradient is scaled on purpose", move |dy| dy * factor)
            .linear()
            .call(self)
    }

    /// This tensor, with a gradient whose norm (over all its elements; under `vmap`, of each
    /// example, also where they share the tensor) is at most `max_norm`: clipping at one point of
    /// the graph, in the middle of backward.
    ///
    /// Derivative: dx = dy·min(1, max_norm/|dy|). Tangents pass as they are: a cotangent is
    /// clipped, a direction is not. A second derivative is that of the formula, clipped where its
    /// own backward passes here. A gradient that is not finite stays so.
    ///
    /// ```
    /// # use pullback::{Tensor, grad};
    /// let x = Tensor::from([3.0, 4.0]);
    /// let g = grad(|x: &Tensor| (x.clip_gradient(2.5).square() * 0.5).sum())(&x);
    /// assert_eq!(g.to_vec::<f64>(), [1.5, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If `max_norm` is not a positive number.
    #[track_caller]
    #[must_use]
    pub fn clip_gradient(&self, max_norm: f64) -> Tensor {
        self.check_positive("clip_gradient", "the norm", max_norm);
        let clipped = move |dy: &Tensor| clipped(dy, max_norm);
        with_gradient("clip_gradient", "the gradient is clipped on purpose", clipped).call(self)
    }

    /// This tensor, with each element of its gradient clamped between −`limit` and `limit`; under
    /// `vmap` that of each example, also where they share the tensor.
    ///
    /// Derivative: dx = min(max(dy, −limit), limit). Tangents pass as they are; a second derivative
    /// is that of the formula, clamped where its own backward passes here. NaN stays.
    ///
    /// ```
    /// # use pullback::{Tensor, grad};
    /// let x = Tensor::from([0.5, 2.0, -3.0]);
    /// let g = grad(|x: &Tensor| (x.clip_gradient_value(1.0).square() * 0.5).sum())(&x);
    /// assert_eq!(g.to_vec::<f64>(), [0.5, 1.0, -1.0]);
    /// ```
    ///
    /// # Panics
    /// If `limit` is not a positive number.
    #[track_caller]
    #[must_use]
    pub fn clip_gradient_value(&self, limit: f64) -> Tensor {
        self.check_positive("clip_gradient_value", "the limit", limit);
        let clamped = move |dy: &Tensor| dy.clamp(-limit, limit);
        with_gradient("clip_gradient_value", "the gradient is clipped on purpose", clamped)
            .call(self)
    }

    #[track_caller]
    pub(super) fn check_positive(&self, op: &'static str, what: &str, value: f64) {
        if !(value > 0.0 && value.is_finite()) {
            let message = format!("{what} must be a positive number, not {value}");
            self.checked(Err(Error::argument(op, message).on([self.spec()])))
        }
    }

    #[track_caller]
    fn check_finite(&self, op: &'static str, value: f64) {
        if !value.is_finite() {
            let message = format!("the factor must be finite, not {value}");
            self.checked(Err(Error::argument(op, message).on([self.spec()])))
        }
    }
}

/// The identity, with a backward of its own.
#[track_caller]
fn with_gradient(
    name: &'static str,
    reason: &'static str,
    backward: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
) -> CustomVjp<Tensor, Tensor, ()> {
    custom_vjp(name, |x: &Tensor| (x.clone(), ()), move |_: &(), dy: &Tensor| backward(dy))
        .unchecked(reason)
}

/// Scaled down to a norm, if it is longer.
fn clipped(dy: &Tensor, max_norm: f64) -> Tensor {
    if dy.is_empty() {
        return dy.clone();
    }
    // In units of the largest element, whose square cannot overflow. The norm does not depend on
    // the unit, so neither do derivatives.
    let wide = dy.wide();
    let unit = wide.detach().abs().max().clamp_min(max_norm);
    let limit = max_norm / &unit;
    let norm = (&wide / unit).square().sum().clamp_min(limit.square()).sqrt();
    (wide * (limit / norm)).cast(dy.dtype())
}
