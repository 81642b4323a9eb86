//! The regularised incomplete gamma functions P(a, x) = ∫₀ˣ t^(a−1)·e^(−t) dt / Γ(a) and Q = 1 − P.
//!
//! Four methods by region: the power series (x below a), its form for Q where P is near 1 (small a
//! and x), the continued fraction (x above a), and for large a near x the uniform expansion of
//! Temme, whose number of terms does not grow with a.

use super::gamma::{lgamma_1p, stirling};
use super::poly;
use crate::simd::{Baseline, math64};
use std::f64::consts::PI;

/// From here on, near the diagonal, the uniform expansion is used: the others would take √a terms.
const UNIFORM: f64 = 5000.0;
/// The coefficient of a^(−0) in powers of η.
#[rustfmt::skip]
const C0: [f64; 14] = [
    -0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073,
    0.0003527336860670194, -0.0001787551440329218, 3.919263178522438e-05, -2.185448510679992e-06,
    -1.85406221071516e-06, 8.296711340953087e-07, -1.7665952736826078e-07, 6.707853543401498e-09,
    1.0261809784240309e-08, -4.382036018453353e-09,
];
/// The coefficient of a^(−1) in powers of η.
#[rustfmt::skip]
const C1: [f64; 14] = [
    -0.001851851851851852, -0.003472222222222222, 0.0026455026455026454, -0.0009902263374485596,
    0.00020576131687242798, -4.018775720164609e-07, -1.8098550334489977e-05, 7.64916091608111e-06,
    -1.6120900894563446e-06, 4.647127802807434e-09, 1.378633446915721e-07, -5.752545603517705e-08,
    1.1951628599778148e-08, -1.7543241719747647e-11,
];
/// The coefficient of a^(−2) in powers of η.
#[rustfmt::skip]
const C2: [f64; 14] = [
    0.004133597883597883, -0.0026813271604938273, 0.0007716049382716049, 2.0093878600823047e-06,
    -0.0001073665322636516, 5.2923448829120125e-05, -1.2760635188618728e-05, 3.423578734096138e-08,
    1.3721957309062934e-06, -6.298992138380055e-07, 1.4280614206064242e-07, -2.0477098421990866e-10,
    -1.409252991086752e-08, 6.228974084922022e-09,
];
/// The coefficient of a^(−3) in powers of η.
#[rustfmt::skip]
const C3: [f64; 14] = [
    0.0006494341563786008, 0.00022947209362139917, -0.0004691894943952557, 0.00026772063206283885,
    -7.561801671883977e-05, -2.396505113867297e-07, 1.1082654115347302e-05, -5.6749528269915965e-06,
    1.4230900732435883e-06, -2.7861080291528143e-11, -1.6958404091930278e-07, 8.099464905388083e-08,
    -1.9111168485973655e-08, 2.3928620439808118e-12,
];

/// What the result is rounded to: how many terms are added, and how exact their factor is.
trait SeriesAccuracy {
    /// Terms below this part of their sum are left out.
    const TERM: f64;
    /// Whether x^a is taken from logarithms.
    const BY_LOGARITHMS: bool;
}

/// All bits of f64.
struct Full;

impl SeriesAccuracy for Full {
    const TERM: f64 = 1e-17;
    const BY_LOGARITHMS: bool = false;
}

/// As many as decide how an f32 is rounded.
struct Half;

impl SeriesAccuracy for Half {
    const TERM: f64 = 1e-9;
    const BY_LOGARITHMS: bool = true;
}

/// P(a, x); 0 at x = 0, 1 at x = ∞; NaN where an argument is negative or both are 0 or both
/// infinite.
#[inline(never)]
pub(crate) fn gammainc(a: f64, x: f64) -> f64 {
    edge(a, x).unwrap_or_else(|| both::<Full>(a, x).0)
}

/// Q(a, x) = 1 − P(a, x), accurate where it is small.
#[inline(never)]
pub(crate) fn gammaincc(a: f64, x: f64) -> f64 {
    edge(a, x).map_or_else(|| both::<Full>(a, x).1, |p| 1.0 - p)
}

/// P(a, x) of two f32.
#[inline(never)]
pub(crate) fn gammainc32(a: f32, x: f32) -> f32 {
    let (a, x) = (a.into(), x.into());
    edge(a, x).unwrap_or_else(|| both::<Half>(a, x).0) as f32
}

/// Q(a, x) of two f32.
#[inline(never)]
pub(crate) fn gammaincc32(a: f32, x: f32) -> f32 {
    let (a, x) = (a.into(), x.into());
    edge(a, x).map_or_else(|| both::<Half>(a, x).1, |p| 1.0 - p) as f32
}

/// P where it needs no computation.
fn edge(a: f64, x: f64) -> Option<f64> {
    if a.is_nan() || x.is_nan() || a < 0.0 || x < 0.0 {
        return Some(f64::NAN);
    }
    if a == 0.0 {
        return Some(if x > 0.0 { 1.0 } else { f64::NAN });
    }
    if x == 0.0 {
        return Some(0.0);
    }
    if a == f64::INFINITY {
        return Some(if x == f64::INFINITY { f64::NAN } else { 0.0 });
    }
    (x == f64::INFINITY).then_some(1.0)
}

/// P and Q, one of them computed, the other 1 minus it unless it would be small.
fn both<A: SeriesAccuracy>(a: f64, x: f64) -> (f64, f64) {
    let d = (x - a) / a;
    if a > UNIFORM && d.abs() < 0.25 {
        return uniform(a, d);
    }
    if x < 1.1 && a < 1.1 * x.max(0.36 / -x.min(0.5).ln()) {
        let q = small::<A>(a, x);
        return (if q < 0.9 { 1.0 - q } else { series::<A>(a, x) }, q);
    }
    if x < a + 1.0 {
        let p = series::<A>(a, x);
        return (p, 1.0 - p);
    }
    let q = fraction::<A>(a, x);
    (1.0 - q, q)
}

/// d − log(1 + d), without cancellation for small d.
fn excess(d: f64) -> f64 {
    if d.abs() > 0.4 {
        return d - d.ln_1p();
    }
    // log(1 + d) = 2·atanh(r) with r = d/(2 + d).
    let r = d / (2.0 + d);
    let z = r * r;
    let mut sum = 0.0;
    for k in (1..14).rev() {
        sum = (sum + 1.0 / f64::from(2 * k + 1)) * z;
    }
    r * (d - 2.0 * sum)
}

/// x^a·e^(−x) / Γ(a + 1).
fn prefactor<A: SeriesAccuracy>(a: f64, x: f64) -> f64 {
    if a >= 8.0 {
        return (-a * excess((x - a) / a) - stirling(a)).exp() / (2.0 * PI * a).sqrt();
    }
    if x > 600.0 || A::BY_LOGARITHMS {
        return (a * x.ln() - x - lgamma_1p(a)).exp();
    }
    // Γ(a + 1) from Γ on [1, 2], by multiplication.
    let (mut y, mut gamma) = (a, 1.0);
    while y >= 1.0 {
        gamma *= y;
        y -= 1.0;
    }
    x.powf(a) * (-x).exp() / (gamma * lgamma_1p(y).exp())
}

/// P by Σ xⁿ / ((a + 1)…(a + n)).
fn series<A: SeriesAccuracy>(a: f64, x: f64) -> f64 {
    let front = prefactor::<A>(a, x);
    let (mut term, mut sum, mut n) = (1.0, 1.0, a);
    while term > sum * A::TERM {
        n += 1.0;
        term *= x / n;
        sum += term;
    }
    (front * sum).min(1.0)
}

/// Q for small a and x: 1 − x^a/Γ(a+1) − a·x^a/Γ(a+1)·Σ (−x)ⁿ/(n!·(a + n)).
fn small<A: SeriesAccuracy>(a: f64, x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (1.0, 0.0, 0.0);
    loop {
        n += 1.0;
        term *= -x / n;
        let add: f64 = term / (a + n);
        sum += add;
        if add.abs() <= f64::abs(sum) * A::TERM {
            break;
        }
    }
    let log = a * x.ln() - lgamma_1p(a);
    -log.exp_m1() - log.exp() * a * sum
}

/// Q by its continued fraction, evaluated forwards.
fn fraction<A: SeriesAccuracy>(a: f64, x: f64) -> f64 {
    let tiny = 1e-300;
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / tiny, 1.0 / b);
    let mut h = d;
    for i in 1..20_000 {
        let n = -f64::from(i) * (f64::from(i) - a);
        b += 2.0;
        d = n * d + b;
        d = 1.0 / if d.abs() < tiny { tiny } else { d };
        c = b + n / c;
        c = if f64::abs(c) < tiny { tiny } else { c };
        h *= d * c;
        if (d * c - 1.0).abs() < A::TERM.max(1e-16) {
            break;
        }
    }
    prefactor::<A>(a, x) * a * h
}

/// ½·erfc(∓η·√(a/2)) ∓ e^(−aη²/2)/√(2πa)·Σ cₖ(η)·a^(−k), with η²/2 = d − log(1 + d).
fn uniform(a: f64, d: f64) -> (f64, f64) {
    let half = excess(d);
    let eta = (2.0 * half).sqrt().copysign(d);
    let c = [poly(eta, &C0), poly(eta, &C1), poly(eta, &C2), poly(eta, &C3)];
    let rest = (-a * half).exp() / (2.0 * PI * a).sqrt() * poly(1.0 / a, &c);
    let z = (a * half).sqrt().copysign(d);
    let erfc = math64::erfc::<Baseline>;
    (0.5 * erfc(-z) - rest, 0.5 * erfc(z) + rest)
}
