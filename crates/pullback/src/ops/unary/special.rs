//! The error function and its relatives, the gamma function and Bessel functions.

use super::Row;
use crate::rule::{Grad, slopes};
use crate::{DType, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

#[rustfmt::skip]
rows! {
    //       policy  need        kink                              derivative
    Erf      Promote Mixed       []                                slopes!(X => |x| (-x.square()).exp() * FRAC_2_SQRT_PI);
    Erfc     F32     Mixed       []                                slopes!(X => |x| (-x.square()).exp() * -FRAC_2_SQRT_PI);
    Erfcx    F32     Exact       []                                slopes!(X Y => |x, y| erfcx_slope(x, y));
    Erfinv   F32     Exact       [Infinite one_or_minus_one]       slopes!(Y => |y| y.square().exp() * (1.0 / FRAC_2_SQRT_PI));
    LogNdtr  F32     Mixed       []                                slopes!(X Y => |x, y| log_ndtr_slope(x, y));
    Ndtri    F32     Exact       [Infinite zero_or_one]            slopes!(Y => |y| (y.square() * 0.5).exp() * (2.0 * SQRT_2 / FRAC_2_SQRT_PI));
    Lgamma   F32     Exact       [Lgamma integer_not_above_zero]   slopes!(X => |x| x.digamma());
    Digamma  F32     Exact       [Infinite integer_not_above_zero] slopes!(X => |x| x.polygamma(1));
    I0       F32     Exact       []                                slopes!(X => |x| x.i1());
    I0e      F32     Exact       [Bessel zero]                     slopes!(X Y => |x, y| x.i1e() - x.sign() * y);
    I1       F32     Exact       []                                slopes!(X Y => |x, y| x.i0() - bessel_part(y, x, false));
    I1e      F32     Exact       []                                slopes!(X Y => |x, y| x.i0e() - x.sign() * y - bessel_part(y, x, true));
}

/// 2x·y − 2/√π. For large x that is a difference of equal numbers, and the first terms of its
/// asymptotic series are exact.
fn erfcx_slope(x: &Tensor, y: &Tensor) -> Tensor {
    let far = x.gt(if x.dtype() == DType::F64 { 20.0 } else { 6.0 });
    let near = far.select_or(1.0, x.clone()) * y * 2.0 - FRAC_2_SQRT_PI;
    // −1/√π · (1 − 3u + 15u² − …)/x² with u = 1/(2x²): each coefficient is (2n + 1) times that
    // before.
    let inverse = far.logical_not().select_or(1.0, x.clone()).recip().square();
    let u = &inverse * 0.5;
    let mut series = u.ones_like_splat();
    for n in (1..=8).rev() {
        series = 1.0 - &u * f64::from(2 * n + 1) * series;
    }
    far.select(&(inverse * series * (-0.5 * FRAC_2_SQRT_PI)), &near)
}

/// The density over the distribution function: √(2/π) / erfcx(−x/√2), which overflows above 0;
/// there it is exp(−x²/2 − y)/√(2π). Far below it is −x − 1/x, to the last digit, where erfcx would
/// vanish and its own slope overflow.
fn log_ndtr_slope(x: &Tensor, y: &Tensor) -> Tensor {
    let (below, end) = (x.lt(0.0), x.lt(if x.dtype() == DType::F64 { -1e8 } else { -1e4 }));
    let near = below.logical_and(end.logical_not());
    let low = (x.only(&near) * -FRAC_1_SQRT_2).erfcx().recip() * (2.0 * FRAC_1_SQRT_2);
    let above = below.logical_not();
    let high = (x.only(&above).square() * -0.5 - y.only(&above)).exp() * FRAC_1_SQRT_2;
    let inside = below.select(&low, &high) * (0.5 * FRAC_2_SQRT_PI);
    let far = end.logical_not().select_or(-1.0, x.clone());
    end.select(&-(&far + 1.0 / &far), &inside)
}

/// y/x for y the Bessel function I₁, or I₁·e^(−|x|). Near 0 by the series ½·Σ tᵏ/(k!·(k+1)!) with
/// t = x²/4: the derivative of a quotient is a difference of equal numbers there, over x.
fn bessel_part(y: &Tensor, x: &Tensor, scaled: bool) -> Tensor {
    let near = x.lt(1.0).logical_and(x.gt(-1.0));
    let inside = x.only(&near);
    let t = inside.square() * 0.25;
    let mut series = t.ones_like_splat();
    for k in (1..=9).rev() {
        series = &t * (1.0 / f64::from(k * (k + 1))) * series + 1.0;
    }
    let series = if scaled { series * (-inside.abs()).exp() } else { series };
    near.select(&(series * 0.5), &(y / near.select_or(1.0, x.clone())))
}

real_methods! {
    /// The error function.
    ///
    /// Derivative: `2/√π·exp(−x²)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).erf().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.8427007929497149).abs() < 1e-15);
    /// ```
    erf Erf;
    /// 1 − erf(x), accurate for large x.
    ///
    /// Derivative: `−2/√π·exp(−x²)·dy`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 10.0]).erfc().to_vec::<f64>();
    /// // 1 − erf(10) rounds to 0.
    /// assert!(y[0] == 1.0 && (y[1] / 2.0884875837625449e-45 - 1.0).abs() < 1e-13);
    /// ```
    erfc Erfc;
    /// e^(x²)·erfc(x): the scaled complementary error function.
    ///
    /// Derivative: 2x·y − 2/√π.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 100.0]).erfcx().to_vec::<f64>();
    /// assert!(y[0] == 1.0 && (y[1] - 0.005641613782989433).abs() < 1e-15);
    /// ```
    erfcx Erfcx;
    /// The x with erf(x) = self: ±∞ at ±1, NaN beyond.
    ///
    /// Derivative: ½√π·exp(y²).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.5, 1.0]).erfinv().to_vec::<f64>();
    /// assert!((y[0] - 0.4769362762044699).abs() < 1e-15 && y[1] == f64::INFINITY);
    /// ```
    erfinv Erfinv;
    /// log Φ(x), the logarithm of [`Tensor::ndtr`], accurate in both tails.
    ///
    /// Derivative: √(2/π) / erfcx(−x/√2).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, -40.0]).log_ndtr().to_vec::<f64>();
    /// // Φ(−40) itself rounds to 0.
    /// assert!((y[0] + 2f64.ln()).abs() < 1e-15 && (y[1] + 804.608442).abs() < 1e-6);
    /// ```
    log_ndtr LogNdtr;
    /// The x with Φ(x) = self, the quantile of the standard normal: −∞ at 0, ∞ at 1, NaN outside.
    ///
    /// Derivative: √(2π)·exp(y²/2).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.5, 0.975]).ndtri().to_vec::<f64>();
    /// assert!(y[0].abs() < 1e-15 && (y[1] - 1.959963984540054).abs() < 1e-14);
    /// ```
    ndtri Ndtri;
    /// log |Γ(x)|; infinite at 0 and the negative integers.
    ///
    /// Derivative: ψ(x), [`Tensor::digamma`].
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1.0, 2.0, 0.0]).lgamma().to_vec::<f64>(), [0.0, 0.0, f64::INFINITY]);
    /// ```
    #[doc(alias = "gammaln")]
    lgamma Lgamma;
    /// ψ(x) = Γ'(x)/Γ(x); −∞ at 0, NaN at the negative integers.
    ///
    /// Derivative: [`Tensor::polygamma`] of order 1.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from(1.0).digamma().item::<f64>();
    /// assert!((y + 0.5772156649015329).abs() < 1e-15);
    /// ```
    digamma Digamma;
    /// I₀(x), the modified Bessel function of the first kind.
    ///
    /// Derivative: I₁(x).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).i0().to_vec::<f64>();
    /// assert!(y[0] == 1.0 && (y[1] - 1.2660658777520084).abs() < 1e-14);
    /// ```
    i0 I0;
    /// e^(−|x|)·I₀(x).
    ///
    /// Derivative: e^(−|x|)·I₁(x) − sign(x)·y.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // I₀(1000) overflows.
    /// let y = Tensor::from([0.0, 1000.0]).i0e().to_vec::<f64>();
    /// assert!(y[0] == 1.0 && (y[1] - 0.01261724).abs() < 1e-8);
    /// ```
    i0e I0e;
    /// I₁(x), the modified Bessel function of the first kind.
    ///
    /// Derivative: I₀(x) − y/x, and ½ at 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([0.0, 1.0]).i1().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.5651591039924851).abs() < 1e-14);
    /// ```
    i1 I1;
    /// e^(−|x|)·I₁(x).
    ///
    /// Derivative: e^(−|x|)·I₀(x) − sign(x)·y − y/x, and ½ at 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // I₁(1000) overflows.
    /// let y = Tensor::from([0.0, 1000.0]).i1e().to_vec::<f64>();
    /// assert!(y[0] == 0.0 && (y[1] - 0.01261093).abs() < 1e-8);
    /// ```
    i1e I1e;
}
