//! Activations beyond the primitive ones. Each is one formula; at a kink the derivative is that of
//! the branch the formula takes there, unless another convention is chosen.

use crate::Tensor;
use crate::kinks::{self, KinkKind, conventions, with_slope_at_kink};
use crate::ops::cast::one_float;
use crate::ops::one_pass::{one_pass, one_pass_over};
use pullback_ir::infer::args;

impl Tensor {
    /// The elements where `keep` is true and 0 elsewhere: a branch evaluated only where it is
    /// taken, so that neither its value nor its derivative can overflow where it is not.
    #[track_caller]
    pub(crate) fn only(&self, keep: &Tensor) -> Tensor {
        keep.select(self, self.zeros_like_splat())
    }

    /// x above 0, `slope · x` below.
    ///
    /// Derivative: 1 above 0, `slope` elsewhere.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-2.0, 3.0]).leaky_relu(0.5).to_vec::<f64>(), [-1.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn leaky_relu(&self, slope: f64) -> Tensor {
        one_pass("leaky_relu", &[slope], [self], |[x]| {
            if slope != 1.0 {
                kinks::at("leaky_relu", KinkKind::Leaky, &[x], |x| x[0].eq(0.0));
            }
            x.leaking(&(x * slope))
        })
    }

    /// x above 0, `weight · x` below, where the weight has one element, or one per channel (axis
    /// 1).
    ///
    /// Derivative: by x, 1 above 0 and the weight elsewhere; by the weight, x where it is not above
    /// 0, summed.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([[-2.0, -2.0]]).prelu(&Tensor::from([0.5, 0.25]));
    /// assert_eq!(y.to_vec::<f64>(), [-1.0, -0.5]);
    /// ```
    ///
    /// # Panics
    /// If float dtypes are mixed, or the weight has neither one element nor one per channel.
    #[track_caller]
    #[must_use]
    pub fn prelu(&self, weight: &Tensor) -> Tensor {
        one_float("prelu", [self, weight]);
        let weight = match (weight.len(), self.rank()) {
            (1, _) => weight.reshape(&[] as &[usize]),
            (_, 0 | 1) => weight.clone(),
            (n, rank) => {
                let mut shape = vec![1; rank];
                shape[1] = n;
                weight.reshape(&shape[..])
            }
        };
        // Checked here, so that operands that do not fit are an error of this function.
        let shape = self.checked(args::broadcast("prelu", self.spec(), weight.spec()));
        one_pass_over("prelu", &[], &shape, [self, &weight], |[x, weight]| {
            kinks::at("prelu", KinkKind::Leaky, &[x, weight], |x| x[0].eq(0.0));
            // Above 0 the product is that of 0: an infinite x would give the weight 0 times
            // infinity.
            let below = x.gt(0.0).logical_not();
            x.leaking(&(x.only(&below) * weight))
        })
    }

    /// x above 0, something else below.
    #[track_caller]
    fn leaking(&self, below: &Tensor) -> Tensor {
        match conventions().is_leaky_above() {
            true => self.ge(0.0).select(self, below),
            false => self.gt(0.0).select(self, below),
        }
    }

    /// Notes the elements that are one of these numbers.
    #[track_caller]
    fn report_kinks_at<const N: usize>(&self, op: &'static str, kind: KinkKind, places: [f64; N]) {
        kinks::at(op, kind, &[self], |x| {
            let on = places.iter().map(|&place| x[0].eq(place));
            on.reduce(|a, b| a.logical_or(b)).unwrap_or_else(|| x[0].ne(&x[0]))
        });
    }

    /// x above 0, `alpha · (eˣ − 1)` below.
    ///
    /// Derivative: 1 above 0, alpha·eˣ elsewhere.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([0.0, 3.0]).elu(1.0).to_vec::<f64>(), [0.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn elu(&self, alpha: f64) -> Tensor {
        one_pass("elu", &[alpha], [self], |[x]| {
            if alpha != 1.0 {
                x.report_kinks_at("elu", KinkKind::Elu, [0.0]);
            }
            let above = x.gt(0.0);
            above.select(x, &(x.only(&above.logical_not()).expm1() * alpha))
        })
    }

    /// x above 0, `alpha · (exp(x/alpha) − 1)` below: an elu whose slope at 0 is 1 for every
    /// `alpha`.
    ///
    /// Derivative: 1 above 0, exp(x/alpha) elsewhere.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([-2.0, 3.0]).celu(2.0).to_vec::<f64>();
    /// assert!((y[0] - 2.0 * (-1f64).exp_m1()).abs() < 1e-15 && y[1] == 3.0);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn celu(&self, alpha: f64) -> Tensor {
        one_pass("celu", &[alpha], [self], |[x]| {
            let above = x.gt(0.0);
            above.select(x, &((x.only(&above.logical_not()) / alpha).expm1() * alpha))
        })
    }

    /// A scaled elu with the constants that keep mean 0 and variance 1.
    ///
    /// Derivative: λ above 0, λ·α·eˣ elsewhere.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).selu().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 1.0507009873554805).abs() < 1e-15);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn selu(&self) -> Tensor {
        one_pass("selu", &[], [self], |[x]| {
            x.elu(1.673_263_242_354_377_2) * 1.050_700_987_355_480_5
        })
    }

    /// log(1 + exp(beta·x)) / beta, without overflow; x itself where beta·x is above `threshold`.
    ///
    /// Derivative: sigmoid(beta·x), and 1 above the threshold.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([0.0, 100.0]).softplus(1.0, 20.0).to_vec::<f64>(), [2f64.ln(), 100.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn softplus(&self, beta: f64, threshold: f64) -> Tensor {
        one_pass("softplus", &[beta, threshold], [self], |[x]| {
            let scaled = x * beta;
            let linear = scaled.gt(threshold);
            linear.select(x, &(-(-scaled.only(&linear.logical_not())).log_sigmoid() / beta))
        })
    }

    /// The logarithm of the sigmoid, log(1 / (1 + e⁻ˣ)), without overflow.
    ///
    /// Derivative: 1 / (1 + eˣ).
    /// PyTorch's name: `nn.functional.logsigmoid`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, -1000.0]).log_sigmoid().to_vec::<f64>();
    /// assert!((y[0] + 2f64.ln()).abs() < 1e-15 && y[1] == -1000.0);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    #[doc(alias = "logsigmoid")]
    #[track_caller]
    #[must_use]
    pub fn log_sigmoid(&self) -> Tensor {
        one_pass("log_sigmoid", &[], [self], |[x]| {
            // x − log(1 + eˣ) below 0, −log(1 + e⁻ˣ) elsewhere, with one logarithm. Both are smooth
            // at 0, so derivatives of every order hold there.
            let below = x.lt(0.0);
            x.only(&below) - below.select(x, &-x).exp().log1p()
        })
    }

    /// x·tanh(log(1 + eˣ)).
    ///
    /// Derivative: t + x·(1 − t²)·sigmoid(x), with t = tanh(log(1 + eˣ)).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).mish().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.8650983882673103).abs() < 1e-15);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn mish(&self) -> Tensor {
        one_pass("mish", &[], [self], |[x]| x * x.softplus(1.0, 20.0).tanh())
    }

    /// x / (1 + |x|).
    ///
    /// Derivative: 1 / (1 + |x|)².
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-1.0, 3.0]).softsign().to_vec::<f64>(), [-0.5, 0.75]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    #[track_caller]
    #[must_use]
    pub fn softsign(&self) -> Tensor {
        one_pass("softsign", &[], [self], |[x]| {
            // Smooth: the kink is multiplied by 0.
            x / (kinks::uncounted_part(|| x.abs()) + 1.0)
        })
    }

    /// x − tanh(x).
    ///
    /// Derivative: tanh²(x).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 100.0]).tanhshrink();
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 99.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn tanhshrink(&self) -> Tensor {
        one_pass("tanhshrink", &[], [self], |[x]| x - x.tanh())
    }

    /// Soft shrinkage: x − lambda above lambda, x + lambda below −lambda, 0 between.
    ///
    /// Derivative: 1 where |x| is above `lambda`, else 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([-2.0, 0.25, 3.0]).softshrink(0.5);
    /// assert_eq!(y.to_vec::<f64>(), [-1.5, 0.0, 2.5]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn softshrink(&self, lambda: f64) -> Tensor {
        one_pass("softshrink", &[lambda], [self], |[x]| {
            x.report_kinks_at("softshrink", KinkKind::Shrink, [lambda, -lambda]);
            let (above, below) = (x.gt(lambda), x.lt(-lambda));
            // NaN is neither, and stays.
            above.select(&(x - lambda), below.select(&(x + lambda), &(x * 0.0)))
        })
    }

    /// Hard shrinkage: 0 where |x| is at most `lambda`, x elsewhere.
    ///
    /// Derivative: 1 where |x| is above `lambda`, else 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([-2.0, 0.25, 3.0]).hardshrink(0.5);
    /// assert_eq!(y.to_vec::<f64>(), [-2.0, 0.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn hardshrink(&self, lambda: f64) -> Tensor {
        one_pass("hardshrink", &[lambda], [self], |[x]| {
            x.report_kinks_at("hardshrink", KinkKind::Shrink, [lambda, -lambda]);
            x.ge(-lambda).logical_and(x.le(lambda)).select(x.zeros_like_splat(), x)
        })
    }

    /// x between the bounds, the bound outside. The gradient passes on the open interval (unlike
    /// [`Tensor::clamp`], as PyTorch has it).
    ///
    /// Derivative: 1 between the bounds, 0 at and outside them.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([-2.0, 0.5, 3.0]).hardtanh(-1.0, 1.0);
    /// assert_eq!(y.to_vec::<f64>(), [-1.0, 0.5, 1.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn hardtanh(&self, low: f64, high: f64) -> Tensor {
        one_pass("hardtanh", &[low, high], [self], |[x]| {
            x.report_kinks_at("hardtanh", KinkKind::Hardtanh, [low, high]);
            x.between(low, high, conventions().hardtanh_part())
        })
    }

    /// x between the bounds, the bound outside; at the bounds, this part of the slope of the
    /// inside.
    #[track_caller]
    fn between(&self, low: f64, high: f64, part: f64) -> Tensor {
        let (below, above) = (self.le(low), self.ge(high));
        let y = below.select_or(low, above.select_or(high, self.clone()));
        with_slope_at_kink(with_slope_at_kink(y, self, low, part), self, high, part)
    }

    /// min(max(x, 0), 6).
    ///
    /// Derivative: 1 between 0 and 6, else 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-2.0, 3.0, 9.0]).relu6().to_vec::<f64>(), [0.0, 3.0, 6.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn relu6(&self) -> Tensor {
        one_pass("relu6", &[], [self], |[x]| {
            x.report_kinks_at("relu6", KinkKind::Relu6, [0.0, 6.0]);
            x.between(0.0, 6.0, conventions().relu6_part())
        })
    }

    /// min(max(x + 3, 0), 6) / 6.
    ///
    /// Derivative: 1/6 between −3 and 3, else 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([-4.0, 0.0, 3.0]).hardsigmoid();
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 0.5, 1.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn hardsigmoid(&self) -> Tensor {
        one_pass("hardsigmoid", &[], [self], |[x]| {
            let (below, above) = (x.le(-3.0), x.ge(3.0));
            x.report_kinks_at("hardsigmoid", KinkKind::Relu6, [-3.0, 3.0]);
            let (y, part) = (
                below.select_or(0.0, above.select_or(1.0, (x + 3.0) / 6.0)),
                conventions().relu6_part() / 6.0,
            );
            with_slope_at_kink(with_slope_at_kink(y, x, -3.0, part), x, 3.0, part)
        })
    }

    /// x·min(max(x + 3, 0), 6) / 6.
    ///
    /// Derivative: (2x + 3)/6 between −3 and 3; 0 below, 1 above.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([-4.0, 0.0, 3.0]).hardswish();
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 0.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn hardswish(&self) -> Tensor {
        one_pass("hardswish", &[], [self], |[x]| {
            let (below, above) = (x.le(-3.0), x.ge(3.0));
            x.report_kinks_at("hardswish", KinkKind::Relu6, [-3.0, 3.0]);
            // What is not inside is 0 there: far out, the square would overflow and its slope with
            // it.
            let inside = x.only(&below.logical_or(&above).logical_not());
            let middle = &inside * (&inside + 3.0) / 6.0;
            let y = below.select_or(0.0, above.select(x, &middle));
            // The slope is −½ and 1½ inside, 0 and 1 outside.
            let part = conventions().relu6_part() / 2.0;
            with_slope_at_kink(with_slope_at_kink(y, x, -3.0, -part), x, 3.0, part)
        })
    }

    /// x above the threshold, `value` elsewhere.
    ///
    /// Derivative: 1 above the threshold, else 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 3.0]).threshold(2.0, -9.0).to_vec::<f64>(), [-9.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn threshold(&self, threshold: f64, value: f64) -> Tensor {
        one_pass("threshold", &[threshold, value], [self], |[x]| {
            x.report_kinks_at("threshold", KinkKind::Shrink, [threshold]);
            x.le(threshold).select_or(value, x.clone())
        })
    }

    /// The first half of an axis times the sigmoid of the second.
    ///
    /// Derivative: for the first half a, sigmoid(b); for the second, a·sigmoid(b)·(1 − sigmoid(b)).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([[2.0, 0.0]]).glu(1).to_vec::<f64>(), [1.0]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range, or its length is odd.
    #[track_caller]
    #[must_use]
    pub fn glu(&self, axis: isize) -> Tensor {
        let n = self.shape().get(self.axis("glu", axis)).copied().unwrap_or(1);
        if n % 2 != 0 {
            let message =
                format!("axis {axis} of {} has odd length {n}, so it has no halves", self.spec());
            return self.checked(Err(crate::Error::shape("glu", message).on([self.spec()])));
        }
        self.narrow(axis, 0, n / 2) * self.narrow(axis, (n / 2) as isize, n / 2).sigmoid()
    }
}
