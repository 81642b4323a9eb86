//! Functions of one f64, free of branches, so that a loop over one becomes vector code.
//!
//! Polynomials are interpolations at Chebyshev nodes, computed with 120 digits and rounded. Each
//! function states its largest error in ulp (units in the last place), as the tests measure it. NaN
//! gives NaN; infinities, signed zeros and subnormals are right unless said otherwise. Functions
//! described as *the standard library's* are scalar calls, one element at a time.

#![allow(clippy::excessive_precision)] // coefficients are written as they were computed

use super::Isa;

const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// ln 2 in two parts; the first has 32 bits, so that its product with an exponent is exact.
const LN2: [f64; 2] = [0.6931471803691238, 1.9082149292705877e-10];
/// π/2 in three parts of 33, 33 and 53 bits.
const PI_2: [f64; 3] = [1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21];
/// Adding this rounds to an integer and leaves that integer in the low bits.
const ROUND: f64 = 6755399441055744.0;

/// (e^r − 1 − r) / r² for |r| ≤ ln 2 / 2.
#[rustfmt::skip]
const EXP: [f64; 11] = [
    0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326025, 0.001388888888888367,
    0.00019841269875205077, 2.4801587325822283e-05, 2.75572549134867e-06, 2.7557273295539724e-07,
    2.5105419192016337e-08, 2.091483135138041e-09,
];
/// (2·atanh(s) − 2s) / s³ in s², for 1/√2 ≤ (1+s)/(1−s) ≤ √2.
#[rustfmt::skip]
const LOG: [f64; 8] = [
    0.6666666666666666, 0.4000000000000094, 0.2857142857076445, 0.2222222240054776,
    0.181817947008978, 0.15386290534658992, 0.13267418596474884, 0.1310072138350349,
];
/// (sin r − r) / r³ in r², for |r| ≤ π/4.
#[rustfmt::skip]
const SIN: [f64; 7] = [
    -0.16666666666666666, 0.008333333333333331, -0.00019841269841265017, 2.755731921930192e-06,
    -2.5052106219521895e-08, 1.6058529572267877e-10, -7.586576588171073e-13,
];
/// (cos r − 1 + r²/2) / r⁴ in r², for |r| ≤ π/4.
#[rustfmt::skip]
const COS: [f64; 7] = [
    0.041666666666666664, -0.0013888888888888887, 2.4801587301584618e-05, -2.7557319221382114e-07,
    2.087675578389404e-09, -1.1470459749675607e-11, 4.745804889760674e-14,
];
/// (atan t − t) / t³ in t², for |t| ≤ tan(π/8).
#[rustfmt::skip]
const ATAN: [f64; 12] = [
    -0.3333333333333333, 0.19999999999999804, -0.14285714285659828, 0.11111111105155447,
    -0.09090908753500877, 0.07692296375032143, -0.06666424885738255, 0.05878928997834775,
    -0.05230454270650244, 0.04551593220626549, -0.034570561981427744, 0.016285756855221028,
];
/// erf(x)/x − 1 in x², for |x| ≤ 1.
#[rustfmt::skip]
const ERF: [f64; 13] = [
    0.12837916709551256, -0.3761263890318375, 0.11283791670954879, -0.026866170645076792,
    0.0052239776248180145, -0.000854832698083379, 0.0001205533111164271, -1.4925595266831182e-05,
    1.6461000484121368e-06, -1.6350312701054695e-07, 1.4659775274047436e-08,
    -1.1372848856791674e-09, 5.957176147748911e-11,
];
/// (1 + 2a)·e^(a²)·erfc(a) in (a − 4)/(a + 4), for 0 ≤ a ≤ 28.
#[rustfmt::skip]
const ERFC: [f64; 23] = [
    1.2329951186255526, -0.1396211168405629, 0.01537965210262074, 0.06809705425473732,
    -0.10103906603635213, 0.09373283499679412, -0.06633036581152939, 0.03716751556249286,
    -0.016197734059115006, 0.005031969755895426, -0.00075777334141333, -0.00019925550755614952,
    0.000150622243948303, -2.4403169244974074e-05, -1.1224789135154701e-05, 5.7178872846321855e-06,
    3.0135049944875397e-07, -8.351619688696847e-07, 6.270727157198311e-08, 1.1534943745754157e-07,
    -7.71541861441783e-09, -1.3670989863347383e-08, -1.8206098680308682e-09,
];

/// A polynomial by Horner's rule, lowest coefficient first.
#[inline(always)]
pub(super) fn poly<I: Isa, const N: usize>(x: f64, c: &[f64; N]) -> f64 {
    let mut p = c[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        p = I::fma64(p, x, c[i]);
    }
    p
}

/// `x` clamped to `[lo, hi]`; NaN stays NaN.
#[inline(always)]
fn hold(x: f64, lo: f64, hi: f64) -> f64 {
    let x = if x < lo { lo } else { x };
    if x > hi { hi } else { x }
}

/// `p · 2^k`, rounded once; `k` is what is left in the low bits of `t = ROUND + k`.
#[inline(always)]
fn scale(p: f64, t: f64) -> f64 {
    // Two factors, because 2^k alone may be out of range. The shift is made unsigned, as there
    // are no signed 64-bit vector shifts before AVX-512.
    let k = t.to_bits().wrapping_sub(ROUND.to_bits());
    let half = (k.wrapping_add(4096) >> 1).wrapping_sub(2048);
    let rest = k.wrapping_sub(half);
    p * f64::from_bits(half.wrapping_add(1023) << 52)
        * f64::from_bits(rest.wrapping_add(1023) << 52)
}

/// e^r − 1 and the rounded exponent, where e^(h+l) = e^r · 2^k; `l` is small relative to `h`.
#[inline(always)]
fn reduce<I: Isa>(h: f64, l: f64) -> (f64, f64) {
    let t = I::fma64(h + l, LOG2_E, ROUND);
    let k = t - ROUND;
    let r = I::fma64(k, -LN2[1], I::fma64(k, -LN2[0], h) + l);
    (I::fma64(r * r, poly::<I, 11>(r, &EXP), r), t)
}

/// e^(h+l) for a small correction `l`.
#[inline(always)]
fn exp_sum<I: Isa>(h: f64, l: f64) -> f64 {
    let (p, t) = reduce::<I>(hold(h, -746.0, 710.0), l);
    scale(1.0 + p, t)
}

/// e^x, to 1 ulp.
#[inline(always)]
pub(crate) fn exp<I: Isa>(x: f64) -> f64 {
    exp_sum::<I>(x, 0.0)
}

/// 2^x, to 1 ulp.
#[inline(always)]
pub(crate) fn exp2<I: Isa>(x: f64) -> f64 {
    let x = hold(x, -1076.0, 1025.0);
    let t = x + ROUND;
    let r = (x - (t - ROUND)) * std::f64::consts::LN_2;
    scale(1.0 + I::fma64(r * r, poly::<I, 11>(r, &EXP), r), t)
}

/// e^x − 1, to 2 ulp.
#[inline(always)]
pub(crate) fn expm1<I: Isa>(x: f64) -> f64 {
    let (p, t) = reduce::<I>(hold(x, -60.0, 710.0), 0.0);
    let y = scale(p + (1.0 - scale(1.0, ROUND - (t - ROUND))), t);
    if x == 0.0 { x } else { y }
}

/// u = 2^k · m with m between 1/√2 and √2, as (k, m).
#[inline(always)]
fn split(u: f64) -> (f64, f64) {
    let bits = u.to_bits();
    let e = bits.wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits()) & 0xfff0_0000_0000_0000;
    // The exponent as a float, through the rounding constant: 64-bit integers convert slowly.
    let k = f64::from_bits((e >> 52).wrapping_add(ROUND.to_bits())) - ROUND;
    let k = if k >= 2048.0 { k - 4096.0 } else { k };
    (k, f64::from_bits(bits.wrapping_sub(e)))
}

/// log(u) + c for a normal u > 0 and a small correction c.
#[inline(always)]
fn log_sum<I: Isa>(u: f64, c: f64) -> f64 {
    let (k, m) = split(u);
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let half = 0.5 * f * f;
    let r = s * I::fma64(z, poly::<I, 8>(z, &LOG), half);
    let low = I::fma64(k, LN2[1], c);
    I::fma64(k, LN2[0], f - (half - (r + low)))
}

/// What log gives for `x` that are not positive and finite.
#[inline(always)]
fn log_edge(x: f64, y: f64) -> f64 {
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    let y = if x < 0.0 { f64::NAN } else { y };
    // Infinity and NaN are returned unchanged.
    if x < f64::INFINITY { y } else { x }
}

/// The natural logarithm, to 1 ulp.
#[inline(always)]
pub(crate) fn log<I: Isa>(x: f64) -> f64 {
    let small = x < f64::MIN_POSITIVE;
    let u = if small { x * 18014398509481984.0 } else { x };
    let shift = if small { -54.0 } else { 0.0 };
    let y = log_sum::<I>(u, shift * LN2[1]);
    log_edge(x, I::fma64(shift, LN2[0], y))
}

/// The logarithm to base 2, to 2 ulp; exact at powers of two.
#[inline(always)]
pub(crate) fn log2<I: Isa>(x: f64) -> f64 {
    // The exponent is removed first, so that the product is small.
    let small = x < f64::MIN_POSITIVE;
    let u = if small { x * 18014398509481984.0 } else { x };
    let (k, m) = split(u);
    let k = if small { k - 54.0 } else { k };
    log_edge(x, I::fma64(log_sum::<I>(m, 0.0), LOG2_E, k))
}

/// The logarithm to base 10: the standard library's.
#[inline(always)]
pub(crate) fn log10<I: Isa>(x: f64) -> f64 {
    x.log10()
}

/// log(1 + x), to 2 ulp.
#[inline(always)]
pub(crate) fn log1p<I: Isa>(x: f64) -> f64 {
    let u = 1.0 + x;
    // What rounding 1 + x lost, exactly.
    let v = u - 1.0;
    let lost = (1.0 - (u - v)) + (x - v);
    let y = log_sum::<I>(u, lost / u);
    let y = if x.abs() < 1e-17 { x } else { y };
    log_edge(u, y)
}

/// x modulo π/2 as (r, what r lost, quadrant in the low bits).
#[inline(always)]
fn quadrant<I: Isa>(x: f64) -> (f64, f64, u64) {
    let t = I::fma64(x, std::f64::consts::FRAC_2_PI, ROUND);
    let k = t - ROUND;
    // Products with the first two parts are exact for |k| < 2^20.
    let a = x - k * PI_2[0];
    let b = k * PI_2[1];
    let c = a - b;
    let lost = (a - c) - b;
    let d = k * PI_2[2] - lost;
    let r = c - d;
    (r, (c - r) - d, t.to_bits())
}

/// sin(r + l) for |r| ≤ π/4.
#[inline(always)]
fn sin_part<I: Isa>(r: f64, l: f64) -> f64 {
    let z = r * r;
    I::fma64(z * r, poly::<I, 7>(z, &SIN), I::fma64(-0.5 * z, l, l)) + r
}

/// cos(r + l) for |r| ≤ π/4.
#[inline(always)]
fn cos_part<I: Isa>(r: f64, l: f64) -> f64 {
    let z = r * r;
    let half = 0.5 * z;
    let w = 1.0 - half;
    w + (((1.0 - w) - half) + (I::fma64(z * z, poly::<I, 7>(z, &COS), -(r * l))))
}

/// Largest |x| at which [`sin`], [`cos`] and [`tan`] are accurate: beyond it, use the standard
/// library.
pub(crate) const TRIG_MAX: f64 = 1e6;

/// The sine, to 1 ulp for |x| ≤ [`TRIG_MAX`].
#[inline(always)]
pub(crate) fn sin<I: Isa>(x: f64) -> f64 {
    let (r, l, q) = quadrant::<I>(x);
    let y = if q & 1 == 0 { sin_part::<I>(r, l) } else { cos_part::<I>(r, l) };
    let y = if q & 2 == 0 { y } else { -y };
    if x == 0.0 { x } else { y }
}

/// The cosine, to 1 ulp for |x| ≤ [`TRIG_MAX`].
#[inline(always)]
pub(crate) fn cos<I: Isa>(x: f64) -> f64 {
    let (r, l, q) = quadrant::<I>(x);
    let y = if q & 1 == 0 { cos_part::<I>(r, l) } else { sin_part::<I>(r, l) };
    if q.wrapping_add(1) & 2 == 0 { y } else { -y }
}

/// The tangent, to 3 ulp for |x| ≤ [`TRIG_MAX`].
#[inline(always)]
pub(crate) fn tan<I: Isa>(x: f64) -> f64 {
    let (r, l, q) = quadrant::<I>(x);
    let (s, c) = (sin_part::<I>(r, l), cos_part::<I>(r, l));
    let y = if q & 1 == 0 { s / c } else { -c / s };
    if x == 0.0 { x } else { y }
}

/// The inverse tangent, to 2 ulp.
#[inline(always)]
pub(crate) fn atan<I: Isa>(x: f64) -> f64 {
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};
    let a = x.abs();
    let (mid, far) = (a > 0.41421356237309503, a > 2.414213562373095);
    let t = if far { -1.0 / a } else { (a - 1.0) / (a + 1.0) };
    let t = if mid { t } else { a };
    let base = if far { FRAC_PI_2 } else { FRAC_PI_4 };
    let low = if far { 6.123233995736766e-17 } else { 3.061616997868383e-17 };
    let (base, low) = if mid { (base, low) } else { (0.0, 0.0) };
    let z = t * t;
    let y = base + (I::fma64(z * t, poly::<I, 12>(z, &ATAN), low) + t);
    y.copysign(x)
}

/// The inverse sine: the standard library's.
#[inline(always)]
pub(crate) fn asin<I: Isa>(x: f64) -> f64 {
    x.asin()
}

/// The inverse cosine: the standard library's.
#[inline(always)]
pub(crate) fn acos<I: Isa>(x: f64) -> f64 {
    x.acos()
}

/// The angle of the point (x, y): the standard library's.
#[inline(always)]
pub(crate) fn atan2<I: Isa>(y: f64, x: f64) -> f64 {
    y.atan2(x)
}

/// The hyperbolic sine: the standard library's.
#[inline(always)]
pub(crate) fn sinh<I: Isa>(x: f64) -> f64 {
    x.sinh()
}

/// The hyperbolic cosine: the standard library's.
#[inline(always)]
pub(crate) fn cosh<I: Isa>(x: f64) -> f64 {
    x.cosh()
}

/// The hyperbolic tangent, to 3 ulp.
#[inline(always)]
pub(crate) fn tanh<I: Isa>(x: f64) -> f64 {
    let t = expm1::<I>(-2.0 * x.abs());
    (-t / (2.0 + t)).copysign(x)
}

/// The inverse hyperbolic sine: log1p of an expression without cancellation; to 4 ulp.
#[inline(always)]
pub(crate) fn asinh<I: Isa>(x: f64) -> f64 {
    let a = x.abs();
    // Beyond 2^28, a² + 1 = a² and the result is log(2a); dividing avoids overflow.
    let big = a > 268435456.0;
    let b = if big { 0.0 } else { a };
    let near = log1p::<I>(b + b * b / (1.0 + I::fma64(b, b, 1.0).sqrt()));
    let far = log::<I>(a) + std::f64::consts::LN_2;
    let y = if big { far } else { near };
    (if a <= f64::INFINITY { y } else { a }).copysign(x)
}

/// The inverse hyperbolic cosine, to 4 ulp.
#[inline(always)]
pub(crate) fn acosh<I: Isa>(x: f64) -> f64 {
    let big = x > 268435456.0;
    let t = if big { 0.0 } else { x - 1.0 };
    let near = log1p::<I>(t + I::fma64(t, t, 2.0 * t).sqrt());
    let far = log::<I>(x) + std::f64::consts::LN_2;
    let y = if big { far } else { near };
    if x >= 1.0 { y } else { f64::NAN }
}

/// The inverse hyperbolic tangent, to 4 ulp.
#[inline(always)]
pub(crate) fn atanh<I: Isa>(x: f64) -> f64 {
    let a = x.abs();
    let y = 0.5 * log1p::<I>(2.0 * a / (1.0 - a));
    (if a <= 1.0 { y } else { f64::NAN }).copysign(x)
}

/// e^(a²)·erfc(a) for a ≥ 0; clamped at 28, where e^(−a²) is zero.
#[inline(always)]
pub(crate) fn erfc_scaled<I: Isa>(a: f64) -> f64 {
    let a = hold(a, 0.0, 28.0);
    let p = poly::<I, 23>((a - 4.0) / (a + 4.0), &ERFC);
    p / I::fma64(2.0, a, 1.0)
}

/// e^(−c·x²) without the error of rounding x².
#[inline(always)]
fn exp_square<I: Isa>(x: f64, c: f64) -> f64 {
    let a = hold(x.abs(), 0.0, 64.0);
    // The upper half of the bits squares exactly.
    let hi = f64::from_bits(a.to_bits() & 0xffff_ffff_f800_0000);
    let y = exp_sum::<I>(-c * (hi * hi), -c * ((a - hi) * (a + hi)));
    if a.is_nan() { a } else { y }
}

/// 1 − erf(x), to 4 ulp (relative, also in the tail).
#[inline(always)]
pub(crate) fn erfc<I: Isa>(x: f64) -> f64 {
    let y = erfc_scaled::<I>(x.abs()) * exp_square::<I>(x, 1.0);
    if x < 0.0 { 2.0 - y } else { y }
}

/// The error function, to 1 ulp.
#[inline(always)]
pub(crate) fn erf<I: Isa>(x: f64) -> f64 {
    let a = x.abs();
    let s = if a < 1.0 { x * x } else { 1.0 };
    let near = I::fma64(x, poly::<I, 13>(s, &ERF), x);
    let far = (1.0 - erfc_scaled::<I>(a) * exp_square::<I>(x, 1.0)).copysign(x);
    if a < 1.0 { near } else { far }
}

/// 1 / (1 + e^−x), to 3 ulp (relative, also in the tail).
#[inline(always)]
pub(crate) fn sigmoid<I: Isa>(x: f64) -> f64 {
    let e = exp::<I>(-x.abs());
    let r = 1.0 / (1.0 + e);
    if x < 0.0 { e * r } else { r }
}

/// x · sigmoid(x), to 4 ulp; below −708, where the sigmoid is subnormal, within 1e-320.
#[inline(always)]
pub(crate) fn silu<I: Isa>(x: f64) -> f64 {
    // At minus infinity the limit, not infinity times zero.
    hold(x, -1000.0, f64::INFINITY) * sigmoid::<I>(x)
}

/// Φ(x), the normal distribution function, and e^(−x²/2).
#[inline(always)]
fn normal<I: Isa>(x: f64) -> (f64, f64) {
    let e = exp_square::<I>(x, 0.5);
    let tail = 0.5 * erfc_scaled::<I>(x.abs() * std::f64::consts::FRAC_1_SQRT_2) * e;
    (if x < 0.0 { tail } else { 1.0 - tail }, e)
}

/// x · Φ(x), to 5 ulp (relative, also in the negative tail).
#[inline(always)]
pub(crate) fn gelu<I: Isa>(x: f64) -> f64 {
    hold(x, -100.0, f64::INFINITY) * normal::<I>(x).0
}

const GELU: [f64; 2] = [1.595769121605730711759784, 0.071354816272600689];

/// The tanh form: x · sigmoid(2·√(2/π)·(x + 0.044715·x³)); a few ulp, more in the negative tail,
/// where the rounding of the exponent shows.
#[inline(always)]
pub(crate) fn gelu_tanh<I: Isa>(x: f64) -> f64 {
    let u = x * I::fma64(GELU[1], x * x, GELU[0]);
    hold(x, -1000.0, f64::INFINITY) * sigmoid::<I>(u)
}

/// a^b: the standard library's.
#[inline(always)]
pub(crate) fn pow<I: Isa>(a: f64, b: f64) -> f64 {
    a.powf(b)
}

/// No argument of [`fmod`] is.
#[inline(always)]
pub(crate) fn fmod_is_rare(_: f64, _: f64) -> bool {
    false
}

/// The remainder of C: the standard library's.
#[inline(always)]
pub(crate) fn fmod<I: Isa>(a: f64, b: f64) -> f64 {
    a % b
}

/// dy · gelu'(x) = dy · (Φ(x) + x·φ(x)).
#[inline(always)]
pub(crate) fn gelu_vjp<I: Isa>(x: f64, dy: f64) -> f64 {
    let (cdf, e) = normal::<I>(x);
    let slope = I::fma64(hold(x, -100.0, 100.0) * 0.3989422804014327, e, cdf);
    dy * slope
}

/// dy · gelu_tanh'(x).
#[inline(always)]
pub(crate) fn gelu_tanh_vjp<I: Isa>(x: f64, dy: f64) -> f64 {
    let x = hold(x, -100.0, 100.0);
    let u = x * I::fma64(GELU[1], x * x, GELU[0]);
    let du = I::fma64(3.0 * GELU[1], x * x, GELU[0]);
    let (s, c) = (sigmoid::<I>(u), sigmoid::<I>(-u));
    dy * I::fma64(x * du * s, c, s)
}

/// dy · silu'(x) = dy · s · (1 + x·(1 − s)).
#[inline(always)]
pub(crate) fn silu_vjp<I: Isa>(x: f64, dy: f64) -> f64 {
    let x = hold(x, -1000.0, 1000.0);
    let (s, c) = (sigmoid::<I>(x), sigmoid::<I>(-x));
    dy * (s * I::fma64(x, c, 1.0))
}

/// dy · erf'(x).
#[inline(always)]
pub(crate) fn erf_vjp<I: Isa>(x: f64, dy: f64) -> f64 {
    dy * (std::f64::consts::FRAC_2_SQRT_PI * exp_square::<I>(x, 1.0))
}
