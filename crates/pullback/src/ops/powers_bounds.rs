//! Powers by a number, bounds, and interpolation: methods of pointwise ops.

use crate::ops::Operand;
use crate::ops::one_pass::one_pass;
use crate::{AtBound, Scalar, Tensor, kinks};
use pullback_ir::{Binary, Compare};

impl Tensor {
    /// self raised to an integer power.
    ///
    /// Derivative: `n·x^(n−1)·dy`.
    /// PyTorch's name: `pow`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-2.0, 3.0]).powi(3).to_vec::<f64>(), [-8.0, 27.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool` and the exponent 2.
    #[doc(alias = "pow")]
    #[track_caller]
    #[must_use]
    pub fn powi(&self, exponent: i32) -> Tensor {
        match exponent {
            1 => self.deep_clone(),
            2 => self.square(),
            -1 => self.recip(),
            3 if self.dtype().is_float() => one_pass("cube", &[], [self], |[x]| x.square() * x),
            4 if self.dtype().is_float() => {
                one_pass("fourth", &[], [self], |[x]| x.square().square())
            }
            n => self.pow(Scalar::from(n)),
        }
    }

    /// self raised to a real power.
    ///
    /// Derivative: `n·x^(n−1)·dy`.
    /// PyTorch's name: `pow`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([4.0, 9.0]).powf(0.5).to_vec::<f64>(), [2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[doc(alias = "pow")]
    #[track_caller]
    #[must_use]
    pub fn powf(&self, exponent: f64) -> Tensor {
        match exponent {
            2.0 if self.dtype().is_float() => self.powi(2),
            3.0 if self.dtype().is_float() => self.powi(3),
            _ => self.pow(exponent),
        }
    }

    /// Clamps values between `low` and `high`, and to `high` where `low` is above it. The gradient
    /// passes on the closed interval. NaN stays, and a bound that is NaN gives NaN.
    ///
    /// Derivative: `dy` inside and at the bounds, 0 outside; there it goes to a bound that is a
    /// tensor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-2.0, 0.5, 9.0]).clamp(0.0, 1.0).to_vec::<f64>(), [0.0, 0.5, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "clip")]
    #[track_caller]
    #[must_use]
    pub fn clamp(&self, low: impl Operand, high: impl Operand) -> Tensor {
        match (low.number(), high.number()) {
            (Some(a), Some(b)) if self.dtype().is_float() => {
                one_pass("clamp", &[a, b], [self], |[x]| {
                    x.bounded("clamp", Compare::Lt, a).bounded("clamp", Compare::Gt, b)
                })
            }
            _ => self.bounded("clamp", Compare::Lt, low).bounded("clamp", Compare::Gt, high),
        }
    }

    /// Clamps values to at least `low`.
    ///
    /// Derivative: `dy` inside and at the bounds, 0 outside; there it goes to a bound that is a
    /// tensor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-2.0, 0.5]).clamp_min(0.0).to_vec::<f64>(), [0.0, 0.5]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn clamp_min(&self, low: impl Operand) -> Tensor {
        match low.number() {
            Some(low) if self.dtype().is_float() => one_pass("clamp_min", &[low], [self], |[x]| {
                x.bounded("clamp_min", Compare::Lt, low)
            }),
            _ => self.bounded("clamp_min", Compare::Lt, low),
        }
    }

    /// Clamps values to at most `high`.
    ///
    /// Derivative: `dy` inside and at the bounds, 0 outside; there it goes to a bound that is a
    /// tensor.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([0.5, 9.0]).clamp_max(1.0).to_vec::<f64>(), [0.5, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn clamp_max(&self, high: impl Operand) -> Tensor {
        match high.number() {
            Some(high) if self.dtype().is_float() => {
                one_pass("clamp_max", &[high], [self], |[x]| {
                    x.bounded("clamp_max", Compare::Gt, high)
                })
            }
            _ => self.bounded("clamp_max", Compare::Gt, high),
        }
    }

    /// Values that lie `beyond` the bound replaced by it.
    #[track_caller]
    fn bounded(&self, op: &'static str, beyond: Compare, bound: impl Operand) -> Tensor {
        let (may_be_nan, number) = (bound.may_be_nan(), bound.is_number());
        let bound = bound.matching(self);
        let bound = &*bound;
        kinks::at(op, kinks::KinkKind::Clamp, &[self, bound], |x| x[0].eq(&x[1]));
        let low = beyond == Compare::Lt;
        let outside = match (kinks::conventions().at_clamp(number), low) {
            (AtBound::Inside, true) => self.lt(bound),
            (AtBound::Inside, false) => self.gt(bound),
            (AtBound::Outside, true) => self.le(bound),
            (AtBound::Outside, false) => self.ge(bound),
            (AtBound::Half, true) => return kinks::uncounted_part(|| self.maximum(bound)),
            (AtBound::Half, false) => return kinks::uncounted_part(|| self.minimum(bound)),
        };
        // Comparisons with NaN are false: a NaN stays, and without this a value with a NaN bound
        // would stay too.
        match may_be_nan {
            true => outside.logical_or(bound.is_nan()).select(bound, self),
            false => outside.select(bound, self),
        }
    }

    /// Linear interpolation: `self + weight · (end − self)`.
    ///
    /// Derivative: `(1 − weight)·dy`, `weight·dy`, and `(end − self)·dy` for the weight.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from(10.0).lerp(&Tensor::from(20.0), 0.25).item::<f64>(), 12.5);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn lerp(&self, end: &Tensor, weight: impl Operand) -> Tensor {
        match weight.number() {
            Some(w) if self.dtype().is_float() => {
                one_pass("lerp", &[w], [self, end], |[x, end]| x + (end - x) * w)
            }
            _ => self + (end - self).mul_operand(weight),
        }
    }

    #[track_caller]
    fn mul_operand(&self, other: impl Operand) -> Tensor {
        self.binary(Binary::Mul, other)
    }
}
