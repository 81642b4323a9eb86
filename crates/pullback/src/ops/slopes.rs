//! Slopes of functions of one element that are longer than a line.

use crate::{DType, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI, SQRT_2};

pub(super) fn normal_cdf(x: &Tensor) -> Tensor {
    ((x * (1.0 / SQRT_2)).erf() + 1.0) * 0.5
}

pub(super) fn normal_pdf(x: &Tensor) -> Tensor {
    (x.square() * -0.5).exp() * (0.5 * FRAC_2_SQRT_PI / SQRT_2)
}

pub(super) fn gelu_tanh_slope(x: &Tensor) -> Tensor {
    let k = (2.0 / PI).sqrt();
    let t = ((x + x.square() * x * 0.044715) * k).tanh();
    let inner = (x.square() * (3.0 * 0.044715) + 1.0) * k;
    (&t + 1.0) * 0.5 + x * 0.5 * (1.0 - t.square()) * inner
}

/// 2x·y − 2/√π. For large x that is a difference of equal numbers, and the first terms of its
/// asymptotic series are exact.
pub(super) fn erfcx_slope(x: &Tensor, y: &Tensor) -> Tensor {
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
pub(super) fn log_ndtr_slope(x: &Tensor, y: &Tensor) -> Tensor {
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
pub(super) fn bessel_part(y: &Tensor, x: &Tensor, scaled: bool) -> Tensor {
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

/// b^(a−1)·e^(−b) / Γ(a).
pub(super) fn gamma_density(a: &Tensor, b: &Tensor) -> Tensor {
    ((a - 1.0).xlogy(b) - b - a.lgamma()).exp()
}
