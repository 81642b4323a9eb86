//! Functions of one f32, free of branches, so that a loop over one becomes vector code.
//!
//! The ones that training uses most (exponentials, logarithms, tanh, sigmoid, erf, gelu, silu) and
//! atanh are computed in f32 throughout. The others widen to f64, which costs half the lanes and
//! gives results that are nearly always the correctly rounded ones. Each function states its
//! largest error in ulp, as the tests measure it. NaN gives NaN; infinities, signed zeros and
//! subnormals are right.

#![allow(clippy::excessive_precision)] // coefficients are written as they were computed

use super::{Isa, math64};

pub(crate) const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts; the first has 15 bits, so that its product with an exponent is exact.
pub(crate) const LN2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
/// Adding this rounds to an integer and leaves that integer in the low bits.
pub(crate) const ROUND: f32 = 12582912.0;

/// (e^r − 1 − r) / r² for |r| ≤ ln 2 / 2.
#[rustfmt::skip]
pub(crate) const EXP: [f32; 5] = [
    5.000000000e-01, 1.666657627e-01, 4.166655242e-02, 8.363292553e-03, 1.392632606e-03,
];
/// (log(1 + m) − m + m²/2) / m³ for |m| ≤ 1/3.
#[rustfmt::skip]
pub(crate) const LOG: [f32; 9] = [
    3.333333433e-01, -2.499994487e-01, 1.999994814e-01, -1.667331606e-01, 1.429186761e-01,
    -1.228872165e-01, 1.091565490e-01, -1.242220029e-01, 1.133061722e-01,
];
/// (tanh(x)/x − 1) / x² in x², for |x| ≤ 0.625.
#[rustfmt::skip]
pub(crate) const TANH: [f32; 5] = [
    -3.333332837e-01, 1.333276927e-01, -5.385090783e-02, 2.099717967e-02, -6.096714176e-03,
];
/// erf(x)/x − 1 in x², for |x| ≤ 0.93.
#[rustfmt::skip]
pub(crate) const ERF: [f32; 7] = [
    1.283_791_7e-01, -3.761263490e-01, 1.128369123e-01, -2.685915120e-02, 5.200368818e-03,
    -8.134709205e-04, 8.334718586e-05,
];
/// log(erfc(a)) for 0.9 ≤ a ≤ 4.05.
#[rustfmt::skip]
pub(crate) const LOG_ERFC: [f32; 9] = [
    3.129130637e-04, -1.130205989e+00, -6.318706274e-01, -1.100392863e-01, 2.639814653e-02,
    -4.751432687e-03, 5.950237392e-04, -4.583974805e-05, 1.625671416e-06,
];
/// (1 + 2a)·e^(a²)·erfc(a) in (a − 2)/(a + 2), for 0 ≤ a ≤ 10.05.
#[rustfmt::skip]
pub(crate) const ERFC: [f32; 10] = [
    1.276978374e+00, -9.276395291e-02, -1.660304219e-01, 1.640550047e-01, -5.421416089e-02,
    -8.061172441e-03, 8.663637564e-03, 1.328071463e-03, -1.263153390e-03, -4.236795940e-04,
];

/// (a + 5/4)·e^(a²/2)·Φ(−a) less its value at t = 0, over t = (a − 3.6)/(a + 3.6), for a from 0 to
/// 14.4.
#[rustfmt::skip]
pub(crate) const PHI: [f32; 9] = [
    -1.435473561e-01, 3.518574312e-02, 2.024591714e-02, -2.564410865e-02, 1.139182691e-02,
    -9.506916394e-04, -1.267132349e-03, 2.855719649e-04, 1.640295668e-04,
];
/// That value.
pub(crate) const PHI_MIDDLE: f32 = 5.031_107_664e-1;
/// What is added to a there.
pub(crate) const PHI_AT: [f32; 2] = [1.25, 3.6];
/// 2^−64
pub(crate) const UNLIFT: f32 = f32::from_bits((127 - 64) << 23);

/// (2·atanh(s) − 2s) / s³ in s², for 1/√2 ≤ (1+s)/(1−s) ≤ √2, to 1e-13 of the logarithm.
#[rustfmt::skip]
const POW_LOG: [f64; 5] = [
    0.6666666666737545, 0.39999998796848674, 0.2857175463573276, 0.22191394493175057,
    0.19362776836747536,
];
/// (e^r − 1 − r) / r² for |r| ≤ ln 2 / 2, to 2e-10 of the exponential.
#[rustfmt::skip]
const POW_EXP: [f64; 6] = [
    0.5000000013487226, 0.16666666681647016, 0.04166646471137908, 0.00833331090172597,
    0.0013933673732931852, 0.0001989101718430203,
];

/// A polynomial by Horner's rule, lowest coefficient first.
#[inline(always)]
fn poly<I: Isa, const N: usize>(x: f32, c: &[f32; N]) -> f32 {
    let mut p = c[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        p = I::fma32(p, x, c[i]);
    }
    p
}

/// `x` clamped to `[lo, hi]`; NaN stays NaN.
#[inline(always)]
fn hold(x: f32, lo: f32, hi: f32) -> f32 {
    let x = if x < lo { lo } else { x };
    if x > hi { hi } else { x }
}

/// The larger; NaN in `x` stays.
#[inline(always)]
fn at_least(x: f32, lo: f32) -> f32 {
    if x < lo { lo } else { x }
}

/// The smaller; NaN in `x` stays.
#[inline(always)]
fn at_most(x: f32, hi: f32) -> f32 {
    if x > hi { hi } else { x }
}

/// What rounding lost in p = a·b, exactly.
#[inline(always)]
fn product_lost<I: Isa>(a: f32, b: f32, p: f32) -> f32 {
    if I::FMA {
        return I::fma32(a, b, -p);
    }
    // Products of the halves are exact.
    let high = |x: f32| f32::from_bits(x.to_bits() & 0xffff_f000);
    let (ah, bh) = (high(a), high(b));
    let (al, bl) = (a - ah, b - bh);
    (((ah * bh - p) + ah * bl) + al * bh) + al * bl
}

/// `p · 2^k`, rounded once; `k` is what is left in the low bits of `t = ROUND + k`.
#[inline(always)]
fn scale(p: f32, t: f32) -> f32 {
    // Two factors, because 2^k alone may be out of range.
    let k = t.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = k >> 1;
    let rest = k.wrapping_sub(half);
    let power = |k: i32| f32::from_bits((k.wrapping_add(127) as u32) << 23);
    p * power(half) * power(rest)
}

/// r, what rounding it lost, and the rounded exponent, where e^(h+l) = e^r · 2^k; `l` is small
/// relative to `h`.
#[inline(always)]
fn reduce<I: Isa>(h: f32, l: f32) -> (f32, f32, f32) {
    let t = I::fma32(h + l, LOG2_E, ROUND);
    let k = t - ROUND;
    let near = I::fma32(k, -LN2[0], h) + l;
    let r = I::fma32(k, -LN2[1], near);
    (r, I::fma32(k, -LN2[1], near - r), t)
}

/// e^(r+l)·s for a power of two s: 1 + r is rounded, and what that lost is added to the small
/// terms.
#[inline(always)]
fn exp_part<I: Isa>(r: f32, l: f32, s: f32) -> f32 {
    let top = I::fma32(r, s, s);
    let lost = I::fma32(r, s, s - top);
    top + I::fma32(I::fma32(r * r, poly::<I, 5>(r, &EXP), l), s, lost)
}

/// e^(h+l) for a small correction `l`.
#[inline(always)]
fn exp_sum<I: Isa>(h: f32, l: f32) -> f32 {
    let (r, l, t) = reduce::<I>(hold(h, -105.0, 89.5), l);
    scale(exp_part::<I>(r, l, 1.0), t)
}

/// e^x for −80 ≤ x ≤ 80: one factor is enough.
#[inline(always)]
fn exp_mid<I: Isa>(x: f32) -> f32 {
    let (r, _, t) = reduce::<I>(x, 0.0);
    let s = f32::from_bits(t.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    I::fma32(I::fma32(r * r, poly::<I, 5>(r, &EXP), r), s, s)
}

/// 2^(k + 64) for the exponent left in `t`, and the factor 2^−64 that undoes the 64: for −105 ≤ h ≤
/// 0 this stays in range.
#[inline(always)]
fn lifted(t: f32) -> (f32, f32) {
    let k = t.to_bits().wrapping_sub(ROUND.to_bits());
    (f32::from_bits(k.wrapping_add(127 + 64) << 23), f32::from_bits((127 - 64) << 23))
}

/// e^(h+l) for −105 ≤ h ≤ 0, to 1.1 ulp.
#[inline(always)]
fn exp_below<I: Isa>(h: f32, l: f32) -> f32 {
    let (r, _, t) = reduce::<I>(h, l);
    let (s, down) = lifted(t);
    I::fma32(I::fma32(r * r, poly::<I, 5>(r, &EXP), r), s, s) * down
}

/// e^h for −105 ≤ h ≤ 0, to 0.8 ulp: for callers that multiply its error.
#[inline(always)]
fn exp_below_accurate<I: Isa>(h: f32) -> f32 {
    let (r, l, t) = reduce::<I>(h, 0.0);
    let (s, down) = lifted(t);
    exp_part::<I>(r, l, s) * down
}

/// e^x, to 1 ulp.
#[inline(always)]
pub(crate) fn exp<I: Isa>(x: f32) -> f32 {
    exp_sum::<I>(x, 0.0)
}

/// 2^x, to 1 ulp.
#[inline(always)]
pub(crate) fn exp2<I: Isa>(x: f32) -> f32 {
    // ln 2 in two parts, so that the product is good to more than its last bit.
    let ln2 = [std::f32::consts::LN_2, -1.904_654_3e-9];
    let x = hold(x, -151.0, 129.0);
    let t = x + ROUND;
    let f = x - (t - ROUND);
    let r = f * ln2[0];
    let lost = product_lost::<I>(f, ln2[0], r);
    scale(exp_part::<I>(r, I::fma32(f, ln2[1], lost), 1.0), t)
}

/// e^x − 1, to 2 ulp.
#[inline(always)]
pub(crate) fn expm1<I: Isa>(x: f32) -> f32 {
    let (r, _, t) = reduce::<I>(hold(x, -30.0, 89.5), 0.0);
    let p = I::fma32(r * r, poly::<I, 5>(r, &EXP), r);
    let y = scale(p + (1.0 - scale(1.0, ROUND - (t - ROUND))), t);
    if x == 0.0 { x } else { y }
}

/// What log gives for `x` that are not positive and finite.
#[inline(always)]
fn log_edge(x: f32, y: f32) -> f32 {
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    let y = if x < 0.0 { f32::NAN } else { y };
    if x < f32::INFINITY { y } else { x }
}

/// u = 2^k · (1 + m) with |m| ≤ 1/3, for a normal u > 0: 2^k in the bits of the exponent, and m.
#[inline(always)]
fn split(u: f32) -> (u32, f32) {
    let bits = u.to_bits();
    let e = bits.wrapping_sub(0x3f2a_aaab) & 0xff80_0000;
    (e, f32::from_bits(bits.wrapping_sub(e)) - 1.0)
}

/// k from the bits of 2^k.
#[inline(always)]
fn exponent<I: Isa>(e: u32, shift: f32) -> f32 {
    I::fma32(e as i32 as f32, 1.192_092_9e-7, shift)
}

/// log(1 + m) − m + c for |m| ≤ 1/3 and a small c.
#[inline(always)]
fn log_rest<I: Isa>(m: f32, c: f32) -> f32 {
    let s = m * m;
    I::fma32(s * m, poly::<I, 9>(m, &LOG), I::fma32(-0.5, s, c))
}

/// A positive number made normal, and the exponent that this took away.
#[inline(always)]
fn made_normal(x: f32) -> (f32, f32) {
    let small = x < f32::MIN_POSITIVE;
    (if small { x * 8388608.0 } else { x }, if small { -23.0 } else { 0.0 })
}

/// The natural logarithm, to 1 ulp.
#[inline(always)]
pub(crate) fn log<I: Isa>(x: f32) -> f32 {
    let (u, shift) = made_normal(x);
    let (e, m) = split(u);
    let k = exponent::<I>(e, shift);
    let r = log_rest::<I>(m, k * LN2[1]);
    log_edge(x, I::fma32(k, LN2[0], r + m))
}

/// The logarithm to base 2, to 1 ulp; exact at powers of two.
#[inline(always)]
pub(crate) fn log2<I: Isa>(x: f32) -> f32 {
    // 1/ln 2 in two parts, so that its product with m is good to more than its last bit.
    let base = [LOG2_E, 1.925_963e-8];
    let (u, shift) = made_normal(x);
    let (e, m) = split(u);
    let k = exponent::<I>(e, shift);
    let p = m * base[0];
    let low = I::fma32(m, base[1], product_lost::<I>(m, base[0], p));
    let low = I::fma32(log_rest::<I>(m, 0.0), base[0], low);
    // k is zero or larger than p.
    let top = k + p;
    log_edge(x, top + ((p - (top - k)) + low))
}

/// The logarithm to base 10, to 1 ulp; exact at powers of ten.
#[inline(always)]
pub(crate) fn log10<I: Isa>(x: f32) -> f32 {
    (math64::log::<I>(f64::from(x)) * std::f64::consts::LOG10_E) as f32
}

/// log(1 + x + c) for x > −1 and a small correction c, finite.
#[inline(always)]
fn log1p_sum<I: Isa>(x: f32, c: f32) -> f32 {
    let u = 1.0 + x;
    // What rounding 1 + x lost, exactly.
    let v = u - 1.0;
    let lost = (1.0 - (u - v)) + (x - v);
    let (e, m) = split(u);
    // 1/2^k; for a large u nothing that was lost matters.
    let unit = if u < 1e8 { f32::from_bits(0x3f80_0000u32.wrapping_sub(e)) } else { 0.0 };
    let rest = (lost + c) * unit;
    // Where k is 0 this is x itself.
    let whole = m + rest;
    let rest = (rest - (whole - m)) * I::fma32(whole, whole - 1.0, 1.0);
    let k = exponent::<I>(e, 0.0);
    let r = log_rest::<I>(whole, I::fma32(k, LN2[1], rest));
    I::fma32(k, LN2[0], r + whole)
}

/// log(1 + x), to 1 ulp.
#[inline(always)]
pub(crate) fn log1p<I: Isa>(x: f32) -> f32 {
    let y = log_edge(1.0 + x, log1p_sum::<I>(x, 0.0));
    if x == 0.0 { x } else { y }
}

/// Largest |x| at which [`sin`], [`cos`] and [`tan`] are accurate: beyond it, use the standard
/// library.
pub(crate) const TRIG_MAX: f32 = 1e6;

/// The sine, to 1 ulp for |x| ≤ [`TRIG_MAX`].
#[inline(always)]
pub(crate) fn sin<I: Isa>(x: f32) -> f32 {
    math64::sin::<I>(f64::from(x)) as f32
}

/// The cosine, to 1 ulp for |x| ≤ [`TRIG_MAX`].
#[inline(always)]
pub(crate) fn cos<I: Isa>(x: f32) -> f32 {
    math64::cos::<I>(f64::from(x)) as f32
}

/// The tangent, to 1 ulp for |x| ≤ [`TRIG_MAX`].
#[inline(always)]
pub(crate) fn tan<I: Isa>(x: f32) -> f32 {
    math64::tan::<I>(f64::from(x)) as f32
}

/// The inverse sine in f64, for arguments that are f32.
#[inline(always)]
fn asin_wide<I: Isa>(x: f64) -> f64 {
    math64::atan::<I>(x / ((1.0 - x) * (1.0 + x)).sqrt())
}

/// The inverse sine, to 1 ulp.
#[inline(always)]
pub(crate) fn asin<I: Isa>(x: f32) -> f32 {
    asin_wide::<I>(f64::from(x)) as f32
}

/// The inverse cosine, to 1 ulp.
#[inline(always)]
pub(crate) fn acos<I: Isa>(x: f32) -> f32 {
    (std::f64::consts::FRAC_PI_2 - asin_wide::<I>(f64::from(x))) as f32
}

/// The inverse tangent, to 1 ulp.
#[inline(always)]
pub(crate) fn atan<I: Isa>(x: f32) -> f32 {
    math64::atan::<I>(f64::from(x)) as f32
}

/// The angle of the point (x, y), to 1 ulp, with the signs of zeros and infinities as in C.
#[inline(always)]
pub(crate) fn atan2<I: Isa>(y: f32, x: f32) -> f32 {
    let (a, b) = (f64::from(y.abs()), f64::from(x.abs()));
    let q = a / b;
    // 0/0 counts as 0, ∞/∞ as 1.
    let q = if a == 0.0 && b == 0.0 { 0.0 } else { q };
    let q = if a == f64::INFINITY && b == f64::INFINITY { 1.0 } else { q };
    let t = math64::atan::<I>(q);
    let t = if x.is_sign_negative() { std::f64::consts::PI - t } else { t };
    (t as f32).copysign(y)
}

/// The hyperbolic sine, to 1 ulp.
#[inline(always)]
pub(crate) fn sinh<I: Isa>(x: f32) -> f32 {
    let t = math64::expm1::<I>(f64::from(at_most(x.abs(), 100.0)));
    ((0.5 * (t + t / (t + 1.0))) as f32).copysign(x)
}

/// The hyperbolic cosine, to 1 ulp.
#[inline(always)]
pub(crate) fn cosh<I: Isa>(x: f32) -> f32 {
    let e = math64::exp::<I>(f64::from(at_most(x.abs(), 100.0)));
    (0.5 * (e + 1.0 / e)) as f32
}

/// The hyperbolic tangent, to 2 ulp.
#[inline(always)]
pub(crate) fn tanh<I: Isa>(x: f32) -> f32 {
    let a = x.abs();
    let s = x * x;
    let near = I::fma32(x * s, poly::<I, 5>(s, &TANH), x);
    let e = exp_mid::<I>(2.0 * at_most(a, 10.0));
    let far = 1.0 - 2.0 / (e + 1.0);
    (if a < 0.6 { near } else { far }).copysign(x)
}

/// The inverse hyperbolic sine, to 1 ulp.
#[inline(always)]
pub(crate) fn asinh<I: Isa>(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let y = math64::log1p::<I>(a + a * a / (1.0 + I::fma64(a, a, 1.0).sqrt()));
    let y = (if a < f64::INFINITY { y } else { a }) as f32;
    y.copysign(x)
}

/// The inverse hyperbolic cosine, to 1 ulp.
#[inline(always)]
pub(crate) fn acosh<I: Isa>(x: f32) -> f32 {
    let t = f64::from(x) - 1.0;
    let y = math64::log1p::<I>(t + I::fma64(t, t, 2.0 * t).sqrt()) as f32;
    if x >= 1.0 { y } else { f32::NAN }
}

/// The inverse hyperbolic tangent, to 1 ulp.
#[inline(always)]
pub(crate) fn atanh<I: Isa>(x: f32) -> f32 {
    let a = x.abs();
    // 2a/(1 − a), and what rounding the difference and the quotient lost.
    let d = 1.0 - a;
    let q = (a + a) / d;
    let p = q * d;
    let lost = I::fma32(-q, (1.0 - d) - a, (a + a) - p) - product_lost::<I>(q, d, p);
    let y = 0.5 * log1p_sum::<I>(q, lost / d);
    let y = if a < 1.0 { y } else { f32::INFINITY };
    (if a <= 1.0 { y } else { f32::NAN }).copysign(x)
}

/// e^(a²)·erfc(a) for 0 ≤ a ≤ 10.05.
#[inline(always)]
fn erfc_scaled<I: Isa>(a: f32) -> f32 {
    // One division for the two quotients (a − 2)/(a + 2) and p/(1 + 2a).
    let (u, v) = (a + 2.0, I::fma32(2.0, a, 1.0));
    let r = 1.0 / (u * v);
    let p = poly::<I, 10>((a - 2.0) * (v * r), &ERFC);
    p * (u * r)
}

/// e^(−c·a²) without the error of rounding a², for c·a² ≤ 105.
#[inline(always)]
fn exp_square<I: Isa>(a: f32, c: f32) -> f32 {
    if I::FMA {
        let s = a * a;
        return exp_below::<I>(-c * s, -c * I::fma32(a, a, -s));
    }
    // The upper half of the bits squares exactly.
    let hi = f32::from_bits(a.to_bits() & 0xffff_f000);
    exp_below::<I>(-c * (hi * hi), -c * ((a - hi) * (a + hi)))
}

/// 1 − erf(x), to 1 ulp (relative, also in the tail).
#[inline(always)]
pub(crate) fn erfc<I: Isa>(x: f32) -> f32 {
    math64::erfc::<I>(f64::from(x)) as f32
}

/// The error function, to 2 ulp.
#[inline(always)]
pub(crate) fn erf<I: Isa>(x: f32) -> f32 {
    let a = x.abs();
    let s = x * x;
    let near = I::fma32(x, poly::<I, 7>(s, &ERF), x);
    let far = 1.0 - exp_mid::<I>(poly::<I, 9>(at_most(a, 4.0), &LOG_ERFC));
    if a < 0.92 { near } else { far.copysign(x) }
}

/// (a + b)/(1 + e) for 0 ≤ e ≤ 1 and a small b: what rounding 1 + e lost is corrected in the
/// quotient.
#[inline(always)]
fn over_one_plus<I: Isa>(a: f32, b: f32, e: f32) -> f32 {
    let d = 1.0 + e;
    let lost = e - (d - 1.0);
    let q = a / d;
    // 1/(1 + e) to a few bits is enough for the correction.
    I::fma32(I::fma32(-q, lost, b), I::fma32(-0.5, e, 1.0), q)
}

/// 1 / (1 + e^−x), to 2 ulp (relative, also in the tail).
#[inline(always)]
pub(crate) fn sigmoid<I: Isa>(x: f32) -> f32 {
    let e = exp_below_accurate::<I>(-at_most(x.abs(), 105.0));
    over_one_plus::<I>(if x < 0.0 { e } else { 1.0 }, 0.0, e)
}

/// x · sigmoid(x), to 2 ulp; below −87, where the sigmoid is subnormal, within 1e-43.
#[inline(always)]
pub(crate) fn silu<I: Isa>(x: f32) -> f32 {
    let e = exp_below_accurate::<I>(-at_most(x.abs(), 105.0));
    // At minus infinity the limit, not infinity times zero.
    let held = at_least(x, -1000.0);
    let low = held * e;
    let rest = product_lost::<I>(held, e, low);
    let (top, rest) = if x < 0.0 { (low, rest) } else { (x, 0.0) };
    let y = over_one_plus::<I>(top, rest, e);
    // Zeros keep their sign.
    if x == 0.0 || x > 100.0 { x } else { y }
}

/// Φ(x), the normal distribution function, and e^(−x²/2).
#[inline(always)]
fn normal<I: Isa>(x: f32) -> (f32, f32) {
    let a = at_most(x.abs(), 14.4);
    let e = exp_square::<I>(a, 0.5);
    let tail = erfc_scaled::<I>(a * std::f32::consts::FRAC_1_SQRT_2) * (0.5 * e);
    (if x < 0.0 { tail } else { 1.0 - tail }, e)
}

/// e^(h+l)·2^64, for −140 ≤ h ≤ 0 and an l that h has no bits for.
#[inline(always)]
fn exp_lifted<I: Isa>(h: f32, l: f32) -> f32 {
    let (r, l, t) = reduce::<I>(h, l);
    exp_part::<I>(r, l, lifted(t).0)
}

/// max(x, 0) − z·2^−64 with the sign of x: a function that is −z·2^−64 for negative x and, as gelu,
/// x more for positive.
#[inline(always)]
fn above_tail<I: Isa>(x: f32, z: f32) -> f32 {
    I::fma32(-z, UNLIFT, at_least(x, 0.0)).copysign(x)
}

/// x · Φ(x), to 2 ulp (relative, also in the negative tail, where the textbook formula has no
/// correct digit).
///
/// With a = |x| the tail a·Φ(−a) is a·e^(−a²/2) · p/(a + 5/4); what rounding the first product, p
/// and the quotient lost is added.
#[inline(always)]
pub(crate) fn gelu<I: Isa>(x: f32) -> f32 {
    let a = at_most(x.abs(), 14.4);
    let half = -0.5 * a;
    let square = half * a;
    let e = exp_lifted::<I>(square, product_lost::<I>(half, a, square));
    let (v, u) = (a + PHI_AT[0], a + PHI_AT[1]);
    let r = 1.0 / (u * v);
    let t = (a - PHI_AT[1]) * (v * r);
    let more = t * poly::<I, 9>(t, &PHI);
    let p = PHI_MIDDLE + more;
    let inverse = u * r;
    let q = p * inverse;
    let rest =
        if I::FMA { I::fma32(-q, v, p) } else { (p - q * v) - product_lost::<I>(q, v, q * v) };
    let rest = I::fma32(-q, a - (v - PHI_AT[0]), rest) + (more - (p - PHI_MIDDLE));
    let m = a * e;
    let lost = product_lost::<I>(a, e, m);
    let low = I::fma32(m, rest * inverse, lost * q);
    above_tail::<I>(x, I::fma32(m, q, low))
}

pub(crate) const GELU: [f32; 2] = [1.595_769_1, 0.071_354_814];
/// −[`GELU`] in two parts; 1024 times the first number is an integer, so that what is subtracted
/// from a sum with it is exact.
pub(crate) const GELU_HIGH: [f32; 2] = [-1.595_703_125, -0.071_354_814];
pub(crate) const GELU_LOW: [f32; 2] = [-6.599_660_264e-5, -2.398_832_91e-9];

/// The tanh form, x · sigmoid(2·√(2/π)·(x + 0.044715·x³)), to 2 ulp: the exponent is kept in two
/// parts, as a rounding of it is relative to the result.
#[inline(always)]
pub(crate) fn gelu_tanh<I: Isa>(x: f32) -> f32 {
    let a = at_most(x.abs(), 11.2);
    let square = a * a;
    let square_lost = product_lost::<I>(a, a, square);
    let w = I::fma32(GELU_HIGH[1], square, GELU_HIGH[0]);
    let cubic_lost = if I::FMA {
        I::fma32(GELU_HIGH[1], square, GELU_HIGH[0] - w)
    } else {
        let cubic = GELU_HIGH[1] * square;
        (cubic - (w - GELU_HIGH[0])) + product_lost::<I>(GELU_HIGH[1], square, cubic)
    };
    let low = I::fma32(GELU_LOW[1], square, GELU_LOW[0]);
    let w_lost = cubic_lost + I::fma32(GELU_HIGH[1], square_lost, low);
    let h = a * w;
    let e = exp_lifted::<I>(h, I::fma32(a, w_lost, product_lost::<I>(a, w, h)));
    let m = a * e;
    let lost = product_lost::<I>(a, e, m);
    above_tail::<I>(x, over_one_plus::<I>(m, lost, e * UNLIFT))
}

/// a^b for a ≥ 0, where 1^∞ may be NaN: with as many terms in f64 as an f32 needs.
#[inline(always)]
fn pow_positive<I: Isa>(a: f32, b: f32) -> f32 {
    /// Adding this rounds to an integer and leaves that integer in the low bits.
    const ROUND: f64 = 6755399441055744.0;
    let (u, wide) = (f64::from(a), f64::from(b));
    // u = 2^k · m with m between 1/√2 and √2; an f32 is normal in f64.
    let bits = u.to_bits();
    let e = bits.wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits()) & 0xfff0_0000_0000_0000;
    let k = f64::from_bits((e >> 52).wrapping_add(ROUND.to_bits())) - ROUND;
    let k = if k >= 2048.0 { k - 4096.0 } else { k };
    let f = f64::from_bits(bits.wrapping_sub(e)) - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let log = I::fma64(s * z, math64::poly::<I, 5>(z, &POW_LOG), 2.0 * s);
    let log2 = I::fma64(log, std::f64::consts::LOG2_E, k);
    let log2 = if u == 0.0 { f64::NEG_INFINITY } else { log2 };
    let log2 = if u < f64::INFINITY { log2 } else { u };
    let y = wide * log2;
    let y = if y < -160.0 { -160.0 } else { y };
    let y = if y > 130.0 { 130.0 } else { y };
    let t = y + ROUND;
    let r = (y - (t - ROUND)) * std::f64::consts::LN_2;
    let p = 1.0 + I::fma64(r * r, math64::poly::<I, 6>(r, &POW_EXP), r);
    let k = t.to_bits().wrapping_sub(ROUND.to_bits());
    (p * f64::from_bits(k.wrapping_add(1023) << 52)) as f32
}

/// a^b, to 1 ulp, with C's rules for zeros, infinities, NaN and negative bases.
#[inline(always)]
pub(crate) fn pow<I: Isa>(a: f32, b: f32) -> f32 {
    let y = pow_positive::<I>(a.abs(), b);
    // Every f32 from 2^24 on is an even integer; infinity counts as one.
    let whole = b.abs() >= 16777216.0 || b == b.trunc();
    let odd = whole && b.abs() < 16777216.0 && (b * 0.5) != (b * 0.5).trunc();
    let y = if a < 0.0 && a > f32::NEG_INFINITY && !whole { f32::NAN } else { y };
    let y = if a.is_sign_negative() && odd { -y } else { y };
    let y = if a == -1.0 && b.abs() == f32::INFINITY { 1.0 } else { y };
    if b == 0.0 || a == 1.0 { 1.0 } else { y }
}

/// Where [`fmod`] is not exact: quotients of 2^28 and more, NaN and infinities.
#[inline(always)]
pub(crate) fn fmod_is_rare(a: f32, b: f32) -> bool {
    let quotient = (f64::from(a) / f64::from(b)).abs();
    quotient >= 268_435_456.0 || quotient.is_nan() || b.abs() == f32::INFINITY
}

/// a − b·trunc(a/b), exactly: in f64 the product of such a quotient and an f32 is exact.
#[inline(always)]
pub(crate) fn fmod<I: Isa>(a: f32, b: f32) -> f32 {
    let (x, y) = (f64::from(a.abs()), f64::from(b.abs()));
    let r = I::fma64(-(x / y).trunc(), y, x);
    // The quotient may have been rounded up to the next integer.
    let r = if r < 0.0 { r + y } else { r };
    (r as f32).copysign(a)
}

/// dy · gelu'(x) = dy · (Φ(x) + x·φ(x)).
#[inline(always)]
pub(crate) fn gelu_vjp<I: Isa>(x: f32, dy: f32) -> f32 {
    let (cdf, e) = normal::<I>(x);
    let slope = I::fma32(hold(x, -100.0, 100.0) * 0.398_942_3, e, cdf);
    dy * slope
}

/// dy · gelu_tanh'(x).
#[inline(always)]
pub(crate) fn gelu_tanh_vjp<I: Isa>(x: f32, dy: f32) -> f32 {
    let x = hold(x, -100.0, 100.0);
    let u = x * I::fma32(GELU[1], x * x, GELU[0]);
    let du = I::fma32(3.0 * GELU[1], x * x, GELU[0]);
    let e = exp_below::<I>(-at_most(u.abs(), 105.0), 0.0);
    let r = 1.0 / (1.0 + e);
    // sigmoid(u) and sigmoid(−u) from one exponential.
    let (s, c) = if u < 0.0 { (e * r, r) } else { (r, e * r) };
    dy * I::fma32(x * du * s, c, s)
}

/// dy · silu'(x) = dy · s · (1 + x·(1 − s)).
#[inline(always)]
pub(crate) fn silu_vjp<I: Isa>(x: f32, dy: f32) -> f32 {
    let x = hold(x, -1000.0, 1000.0);
    let e = exp_below::<I>(-at_most(x.abs(), 105.0), 0.0);
    let r = 1.0 / (1.0 + e);
    let (s, c) = if x < 0.0 { (e * r, r) } else { (r, e * r) };
    dy * (s * I::fma32(x, c, 1.0))
}

/// dy · erf'(x).
#[inline(always)]
pub(crate) fn erf_vjp<I: Isa>(x: f32, dy: f32) -> f32 {
    dy * (std::f32::consts::FRAC_2_SQRT_PI * exp_square::<I>(at_most(x.abs(), 10.2), 1.0))
}
