//! Pointwise functions that are one formula of others.

use crate::kinks::{self, KinkKind};
use crate::ops::Operand;
use crate::ops::binary::unit_for_squares;
use crate::ops::one_pass::one_pass;
use crate::{DType, Error, Tensor, custom_vjp};
use pullback_ir::infer::args;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// More dimensions than any covariance matrix has: the terms are added one by one.
const MAX_DIMENSION: usize = 1 << 16;

impl Tensor {
    /// log(x / (1 − x)).
    ///
    /// Derivative: 1 / (x·(1 − x)).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from(0.5).logit().item::<f64>(), 0.0);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    #[track_caller]
    #[must_use]
    pub fn logit(&self) -> Tensor {
        one_pass("logit", &[], [self], |[x]| {
            // Not of the quotient, whose slope at 0 and 1 would be 0 times infinity.
            x.log() - (-x).log1p()
        })
    }

    /// [`Tensor::logit`] of x held between `eps` and 1 − eps.
    ///
    /// Derivative: 1 / (x·(1 − x)) between the bounds, 0 outside.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // 0 and 1 have infinite logits.
    /// let y = Tensor::from([0.0, 0.5, 1.0]).logit_within(1e-3).to_vec::<f64>();
    /// assert!((y[0] + 999f64.ln()).abs() < 1e-12 && y[1] == 0.0);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn logit_within(&self, eps: f64) -> Tensor {
        one_pass("logit_within", &[eps], [self], |[x]| {
            // The lower bound comes first, also where it is above the upper one.
            let below = x.lt(eps);
            below.select_or(eps, x.clamp_max(1.0 - eps)).logit()
        })
    }

    /// The derivative of order `n` of ψ: ψ itself for 0, else (−1)ⁿ⁺¹·n!·ζ(n + 1, x).
    ///
    /// Derivative: the one of order n + 1.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(1.0).polygamma(1).item::<f64>();
    /// assert!((y - std::f64::consts::PI.powi(2) / 6.0).abs() < 1e-15);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn polygamma(&self, n: usize) -> Tensor {
        if n == 0 {
            return self.digamma();
        }
        let x = self.real();
        let s = x.new_splat((n as f64 + 1.0).into(), &[], x.dtype());
        let factorial =
            if n > 170 { f64::INFINITY } else { (2..=n).map(|k| k as f64).product::<f64>() };
        s.zeta(&x) * if n % 2 == 1 { factorial } else { -factorial }
    }

    /// log Γₚ(x) = p(p−1)/4·log π + Σᵢ log Γ(x − i/2) for i < p, the multivariate gamma function;
    /// NaN where x is not above (p − 1)/2.
    ///
    /// Derivative: Σᵢ ψ(x − i/2).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from(2.5);
    /// assert!((x.multigammaln(1) - x.lgamma()).abs().item::<f64>() < 1e-15);
    /// ```
    ///
    /// # Panics
    /// If `p` is 0 or more than 65536.
    #[track_caller]
    #[must_use]
    pub fn multigammaln(&self, p: usize) -> Tensor {
        if !(1..=MAX_DIMENSION).contains(&p) {
            let message = format!("the dimension p must be from 1 to {MAX_DIMENSION}, not {p}");
            let error = Error::argument("multigammaln", message);
            return self.checked(Err(error.on([self.spec()])));
        }
        let constant = p as f64 * (p as f64 - 1.0) / 4.0 * PI.ln();
        (1..p).fold(self.lgamma() + constant, |sum, i| sum + (self - i as f64 / 2.0).lgamma())
    }

    /// log B(a, b) = log Γ(a) + log Γ(b) − log Γ(a + b).
    ///
    /// Derivative: ψ(a) − ψ(a + b) by a, and the same of b.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // B(2, 3) = 1/12.
    /// let y = Tensor::from(2.0).betaln(&Tensor::from(3.0)).item::<f64>();
    /// assert!((y + 12f64.ln()).abs() < 1e-14);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn betaln(&self, other: &Tensor) -> Tensor {
        self.lgamma() + other.lgamma() - (self + other).lgamma()
    }

    /// sin(πx) / (πx), and 1 at 0.
    ///
    /// Derivative: (cos(πx) − y)/x, and 0 at 0; of second order −π²/3 there.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 0.5]).sinc().to_vec::<f64>();
    /// assert!(y[0] == 1.0 && (y[1] - std::f64::consts::FRAC_2_PI).abs() < 1e-15);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn sinc(&self) -> Tensor {
        one_pass("sinc", &[], [self], |[x]| {
            // Near 0 the first terms of the series, whose derivatives of every order are those of
            // the function to rounding.
            let angle = x * PI;
            let near = angle.lt(0.02).logical_and(angle.gt(-0.02));
            let (far, square) = (near.select_or(1.0, angle.clone()), angle.only(&near).square());
            let series = 1.0 - &square / 6.0 * (1.0 - &square / 20.0 * (1.0 - &square / 42.0));
            near.select(&series, &(far.sin() / &far))
        })
    }

    /// x·log(y), and 0 where x is 0 and y is not positive.
    ///
    /// Derivative: by x, log(y); by y, x/y.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from(0.0).xlogy(&Tensor::from(0.0)).item::<f64>(), 0.0);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn xlogy(&self, y: &Tensor) -> Tensor {
        one_pass("xlogy", &[], [self, y], |[x, y]| {
            let void = x.eq(0.0).logical_and(y.le(0.0).logical_or(y.eq(f64::INFINITY)));
            x * void.select_or(1.0, y.real()).log()
        })
    }

    /// x·log(1 + y), and 0 where x is 0 and y is not above −1.
    ///
    /// Derivative: by x, log(1 + y); by y, x/(1 + y).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 2.0]).xlog1py(&Tensor::from([-1.0, 1e-20]));
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 2e-20]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn xlog1py(&self, y: &Tensor) -> Tensor {
        one_pass("xlog1py", &[], [self, y], |[x, y]| {
            let void = x.eq(0.0).logical_and(y.le(-1.0).logical_or(y.eq(f64::INFINITY)));
            x * void.select_or(0.0, y.real()).log1p()
        })
    }

    /// The entropy −x·log(x): 0 at 0, −∞ below.
    ///
    /// Derivative: −log(x) − 1, infinite at 0; 0 below.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 0.5, -1.0]).entr().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.5 * 2f64.ln()).abs() < 1e-15);
    /// assert_eq!(y[2], f64::NEG_INFINITY);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn entr(&self) -> Tensor {
        let (below, zero) = (self.lt(0.0), self.eq(0.0));
        let inside = below.logical_or(&zero).select_or(1.0, self.clone());
        // A root at 0: as the entropy it is 0 there, with an infinite slope.
        let start = zero.logical_not().select_or(1.0, self + 0.0).sqrt();
        let middle = zero.select(&start, &-inside.x_log_x());
        below.select_or(f64::NEG_INFINITY, middle)
    }

    /// x·log(x), whose slope is log(x) + 1: as a product it would be log(x) + x/x, the derivative
    /// of which is a difference of two infinities where 1/x overflows.
    #[track_caller]
    pub(crate) fn x_log_x(&self) -> Tensor {
        let forward = |x: &Tensor| (x * x.log(), x.clone());
        let backward = |x: &Tensor, dy: &Tensor| dy * (x.log() + 1.0);
        custom_vjp("x_log_x", forward, backward).trusted().call(&self.real())
    }

    /// The distribution function of the standard normal.
    ///
    /// Derivative: exp(−x²/2)/√(2π).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.96]).ndtr().to_vec::<f64>();
    /// assert!(y[0] == 0.5 && (y[1] - 0.975).abs() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn ndtr(&self) -> Tensor {
        one_pass("ndtr", &[], [self], |[x]| (x * -FRAC_1_SQRT_2).erfc() * 0.5)
    }

    /// The fraction x − trunc(x), with the sign of x.
    ///
    /// Derivative: 1.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.75, -1.75]).frac().to_vec::<f64>(), [0.75, -0.75]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is `bool`.
    #[track_caller]
    #[must_use]
    pub fn frac(&self) -> Tensor {
        one_pass("frac", &[], [self], |[x]| x - x.trunc())
    }

    /// Degrees as radians.
    ///
    /// Derivative: π/180.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from(180.0).deg2rad().item::<f64>(), std::f64::consts::PI);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[doc(alias = "radians")]
    #[track_caller]
    #[must_use]
    pub fn deg2rad(&self) -> Tensor {
        self * (PI / 180.0)
    }

    /// Radians as degrees.
    ///
    /// Derivative: 180/π.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from(std::f64::consts::PI).rad2deg().item::<f64>(), 180.0);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[doc(alias = "degrees")]
    #[track_caller]
    #[must_use]
    pub fn rad2deg(&self) -> Tensor {
        self * (180.0 / PI)
    }

    /// NaN and the infinities replaced; the gradient passes elsewhere.
    ///
    /// Derivative: 1 where x is finite, else 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([f64::NAN, f64::INFINITY, 2.0]);
    /// assert_eq!(x.nan_to_num(0.0, 9.0, -9.0).to_vec::<f64>(), [0.0, 9.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[track_caller]
    #[must_use]
    pub fn nan_to_num(&self, nan: f64, positive: f64, negative: f64) -> Tensor {
        one_pass("nan_to_num", &[nan, positive, negative], [self], |[x]| {
            let x = x.is_nan().select_or(nan, x.clone());
            let x = x.eq(f64::INFINITY).select_or(positive, x);
            x.eq(f64::NEG_INFINITY).select_or(negative, x)
        })
    }

    /// self + value · a · b.
    ///
    /// Derivative: 1 by self, value·b by a, value·a by b.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (x, a, b) = (Tensor::from(1.0), Tensor::from(2.0), Tensor::from(3.0));
    /// assert_eq!(x.addcmul(&a, &b, 0.5).item::<f64>(), 4.0);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn addcmul(&self, a: &Tensor, b: &Tensor, value: f64) -> Tensor {
        one_pass("addcmul", &[value], [self, a, b], |[x, a, b]| x + a * b * value)
    }

    /// self + value · a / b.
    ///
    /// Derivative: 1 by self, value/b by a, −value·a/b² by b.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let (x, a, b) = (Tensor::from(1.0), Tensor::from(6.0), Tensor::from(3.0));
    /// assert_eq!(x.addcdiv(&a, &b, 0.5).item::<f64>(), 2.0);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn addcdiv(&self, a: &Tensor, b: &Tensor, value: f64) -> Tensor {
        one_pass("addcdiv", &[value], [self, a, b], |[x, a, b]| x + a / b * value)
    }

    /// The larger of each pair, ignoring NaN; a tie gives the gradient to `self`.
    ///
    /// Derivative: 1 for the one taken, 0 for the other.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([f64::NAN, 1.0]).fmax(&Tensor::from([2.0, 3.0])).to_vec::<f64>(), [2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn fmax(&self, other: &Tensor) -> Tensor {
        one_pass("fmax", &[], [self, other], |[x, other]| {
            kinks::at("fmax", KinkKind::FirstOfPair, &[x, other], |x| x[0].eq(&x[1]));
            x.ge(other).logical_or(other.is_nan()).select(x, other)
        })
    }

    /// The smaller of each pair, ignoring NaN; a tie gives the gradient to `self`.
    ///
    /// Derivative: 1 for the one taken, 0 for the other.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([f64::NAN, 1.0]).fmin(&Tensor::from([2.0, 3.0]));
    /// assert_eq!(y.to_vec::<f64>(), [2.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn fmin(&self, other: &Tensor) -> Tensor {
        one_pass("fmin", &[], [self, other], |[x, other]| {
            kinks::at("fmin", KinkKind::FirstOfPair, &[x, other], |x| x[0].eq(&x[1]));
            x.le(other).logical_or(other.is_nan()).select(x, other)
        })
    }

    /// √(a² + b²); its derivative at the origin is 0.
    ///
    /// Derivative: a/y by a, b/y by b.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from(3.0).hypot(&Tensor::from(4.0)).item::<f64>(), 5.0);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn hypot(&self, other: &Tensor) -> Tensor {
        one_pass("hypot", &[], [self, other], |[x, other]| {
            // Checked here, so that operands that do not fit are an error of this function.
            x.checked(args::broadcast("hypot", x.spec(), other.spec()));
            let (a, b) = (x.wide(), other.wide());
            let unit = unit_for_squares(&a, &b);
            let square = (a * &unit).square() + (b * &unit).square();
            let dtype = x.real_dtype().promote(other.real_dtype());
            (square.root_of_squares("hypot", KinkKind::Hypot) / unit).cast(dtype)
        })
    }

    /// log₂(2ᵃ + 2ᵇ), without overflow.
    ///
    /// Derivative: 2ᵃ/(2ᵃ + 2ᵇ) by a, 2ᵇ/(2ᵃ + 2ᵇ) by b.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([3.0, 5000.0]).logaddexp2(&Tensor::from([3.0, 0.0])).to_vec::<f64>();
    /// assert!((y[0] - 4.0).abs() < 1e-14 && (y[1] - 5000.0).abs() < 1e-9);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn logaddexp2(&self, other: &Tensor) -> Tensor {
        one_pass("logaddexp2", &[], [self, other], |[x, other]| {
            let ln2 = std::f64::consts::LN_2;
            (x * ln2).logaddexp(&(other * ln2)) / ln2
        })
    }

    /// 0 below zero, 1 above, `middle` at zero; its derivative is 0.
    ///
    /// Derivative: 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-1.0, 0.0, 1.0]).heaviside(0.5).to_vec::<f64>(), [0.0, 0.5, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[track_caller]
    #[must_use]
    pub fn heaviside(&self, middle: impl Operand) -> Tensor {
        let middle = middle.matching(self).detach();
        kinks::at("heaviside", KinkKind::Jump, &[self], |x| x[0].eq(0));
        let step = self.gt(0).cast(self.dtype());
        let step = self.is_nan().select(self.detach(), &step);
        self.eq(0).select(&middle, &step)
    }

    /// Division rounded towards zero; its derivative is zero.
    ///
    /// Derivative: 0.
    /// PyTorch's name: `div`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([-7.0, 7.0]).trunc_div(2.0).to_vec::<f64>(), [-3.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[doc(alias = "div")]
    #[track_caller]
    #[must_use]
    pub fn trunc_div(&self, other: impl Operand) -> Tensor {
        let other = other.matching(self);
        match self.dtype().promote(other.dtype()).is_float() {
            true => one_pass("trunc_div", &[], [self, &*other], |[x, y]| (x / y).trunc()),
            false => {
                let exact = self.cast(DType::I64).abs().floor_div(other.cast(DType::I64).abs());
                exact * self.sign() * other.sign()
            }
        }
    }

    /// Rounded to this many decimals, ties to even; its derivative is zero.
    ///
    /// Derivative: 0.
    /// PyTorch's name: `round`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([12.345]).round_to(1).to_vec::<f64>(), [12.3]);
    /// assert_eq!(Tensor::from([12.345]).round_to(-1).to_vec::<f64>(), [10.0]);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype.
    #[doc(alias = "round")]
    #[track_caller]
    #[must_use]
    pub fn round_to(&self, decimals: i32) -> Tensor {
        one_pass("round_to", &[f64::from(decimals)], [self], |[x]| {
            let x = x.real().detach();
            let scale = 10f64.powi(decimals.unsigned_abs().min(400) as i32);
            // Where the scaled value is past the largest number, there is nothing to round, or
            // nothing left.
            let (y, beyond) = match decimals >= 0 {
                true => ((&x * scale).round() / scale, x),
                false => ((&x / scale).round() * scale, x.is_finite().select_or(0.0, x)),
            };
            y.is_finite().select(&y, &beyond)
        })
    }
}
