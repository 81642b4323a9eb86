//! The scaled error function, the logarithm of the normal distribution function, and the inverses
//! of both.
//!
//! In the tail an inverse is found from a rough start by Halley's method on log Φ, which is nearly
//! a parabola there: the start has four digits, a step triples them.

use super::poly;
use crate::simd::{Baseline, math64};
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

/// erfinv(x)/x in w − 3.125 where w = −log(1 − x²), for w ≤ 6.25.
#[rustfmt::skip]
const ERFINV_NEAR: [f64; 29] = [
    1.6536545626831027, 0.2401581824255883, -0.006033670871426841, -0.0007407025341544332,
    0.00018673420801970214, -1.3882523394615568e-05, -1.365469175531653e-06, 4.2347881777419365e-07,
    -2.907039178498993e-08, -4.112661203540598e-09, 1.0512237965219832e-09, -5.4142654492292335e-11,
    -1.2979019361244289e-11, 2.630406194617623e-12, -8.064774687228812e-14, -3.999463242942205e-14,
    6.505208214390438e-15, -4.291376798490574e-17, -1.1967906392854037e-16, 1.581557442362459e-17,
    3.5068951753530317e-19, -3.6166496585946446e-19, 3.73511259857501e-20, 3.3277720587691056e-21,
    -1.0680754604496703e-21, 1.7567845908320597e-23, 1.469860340802335e-23, -5.781063846081595e-25,
    -9.02971859426865e-26,
];
/// z/t in 1/t where t = √(−2·log p) and Φ(−z) = p, for p ≤ 0.27, to 1e-4.
#[rustfmt::skip]
const NDTRI: [f64; 7] = [
    1.000917716405223, -0.07587194533387047, -3.049402782999306, 5.419801512540244,
    -8.345208452108187, 7.763554408690876, -3.0973708435840868,
];
/// √(2/π).
const SQRT_2_PI: f64 = 0.797_884_560_802_865_4;
/// √π.
const SQRT_PI: f64 = 1.772_453_850_905_516;

/// e^(c·x²), with the part of x² that rounding loses.
fn exp_square(x: f64, c: f64) -> f64 {
    let hi = f64::from_bits(x.to_bits() & 0xffff_ffff_f800_0000);
    (c * hi * hi).exp() * (c * (x - hi) * (x + hi)).exp()
}

/// e^(x²)·erfc(x).
#[inline(never)]
pub(crate) fn erfcx(x: f64) -> f64 {
    if x < -26.7 {
        return f64::INFINITY;
    }
    if x < 0.0 {
        return 2.0 * exp_square(x, 1.0) - math64::erfc_scaled::<Baseline>(-x);
    }
    if x <= 28.0 || x.is_nan() {
        return if x.is_nan() { x } else { math64::erfc_scaled::<Baseline>(x) };
    }
    // The asymptotic series in 1/(2x²).
    let h = 0.5 / x / x;
    let series = [1.0, -1.0, 3.0, -15.0, 105.0, -945.0, 10395.0];
    poly(h, &series) / (x * SQRT_PI)
}

/// log Φ(x).
#[inline(never)]
pub(crate) fn log_ndtr(x: f64) -> f64 {
    let scaled = 0.5 * erfcx(x.abs() * FRAC_1_SQRT_2);
    // Beyond 40 the tail is zero, and the square may be infinite.
    if x < 0.0 {
        scaled.ln() - 0.5 * x * x
    } else {
        (-scaled * exp_square(x.min(40.0), -0.5)).ln_1p()
    }
}

/// z ≥ 0 with Φ(−z) = p, for 0 < p ≤ 0.27.
fn tail_inverse(p: f64) -> f64 {
    let log_p = p.ln();
    let t = (-2.0 * log_p).sqrt();
    let mut z = t * poly(1.0 / t, &NDTRI);
    for _ in 0..2 {
        // f = log Φ(−z) − log p; f' = −h and f'' = −h·(h − z), where h is the hazard φ/Φ.
        let scaled = erfcx(z * FRAC_1_SQRT_2);
        let h = SQRT_2_PI / scaled;
        let f = (0.5 * scaled).ln() - 0.5 * z * z - log_p;
        let step = f / h;
        z += step / (1.0 + 0.5 * step * (h - z));
    }
    z
}

/// The x with erf(x) = y: ±∞ at ±1, NaN beyond.
#[inline(never)]
pub(crate) fn erfinv(y: f64) -> f64 {
    let a = y.abs();
    if a > 1.0 || a.is_nan() {
        return f64::NAN;
    }
    if a == 1.0 {
        return f64::INFINITY.copysign(y);
    }
    let w = -(-y * y).ln_1p();
    if w <= 6.25 {
        return y * poly(w - 3.125, &ERFINV_NEAR);
    }
    (tail_inverse(0.5 * (1.0 - a)) * FRAC_1_SQRT_2).copysign(y)
}

/// The x with Φ(x) = p: −∞ at 0, ∞ at 1, NaN outside.
#[inline(never)]
pub(crate) fn ndtri(p: f64) -> f64 {
    if p.is_nan() || !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.0 || p == 1.0 {
        return if p == 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    if p < 0.1 {
        return -tail_inverse(p);
    }
    if p > 0.9 {
        return tail_inverse(1.0 - p);
    }
    SQRT_2 * erfinv(2.0 * p - 1.0)
}
