//! Special functions of f32, free of branches, so that a loop over one becomes vector code.
//!
//! They compute in f64 on the range where nearly all arguments lie, with polynomials of as many
//! coefficients as an f32 needs: the error before rounding is at most 1e-8 relative, a tenth of an
//! ulp, so results are within 1 ulp. Outside that range, as [`rare`] says, the functions of f64
//! that branch take over. Polynomials are interpolations at Chebyshev nodes of their interval, in
//! the distance from its middle.

use crate::simd::{Isa, math64};
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

/// erfinv(x)/x in w − 2.5 where w = −log(1 − x²), for w ≤ 5, to 6e-10.
#[rustfmt::skip]
const ERFINV_NEAR: [f64; 12] = [
    1.5014093517481764, 0.24664027674858424, -0.004177325080457763, -0.0012527079573557702,
    0.0002182641252155226, -4.996000110143956e-06, -3.426266209734268e-06, 4.786897084558858e-07,
    1.650364404121373e-08, -1.0861761271594343e-08, 4.340626803853993e-10, 1.2346577114502573e-10,
];
/// The same in w − 10.55, for 5 ≤ w ≤ 16.1, to 4e-9.
#[rustfmt::skip]
const ERFINV_FAR: [f64; 11] = [
    3.081951867782598, 0.15474361584282936, -0.0035391255177684043, 0.00015398786200190203,
    -7.549495071554037e-06, 3.0731061518042625e-07, -7.301915573246343e-10, -1.8075850040605434e-09,
    3.155701662518734e-10, -3.839264969647824e-11, 2.1678969246370377e-12,
];
/// log Γ(2 + t) / t for |t| ≤ 1/2, to 5e-10.
#[rustfmt::skip]
const LGAMMA_NEAR: [f64; 10] = [
    0.4227843350004583, 0.3224670334689425, -0.0673522814721006, 0.020580799471518252,
    -0.007386174155633413, 0.002890795321559696, -0.0011858600344983208, 0.0005065171429518161,
    -0.0002538170956727826, 0.00011347281994554691,
];
/// x·(log Γ(x) − (x − ½)·log x + x − ½·log 2π) in 1/x² − 1/60.5, for x ≥ 5.5, to 8e-11.
const STIRLING: [f64; 4] =
    [0.08328763384674454, -0.0027520147086997774, 0.0007656276354107817, -0.000544699529621851];
/// ½·log 2π − ½.
const STIRLING_CONSTANT: f64 = 0.418_938_533_204_672_8;
/// ψ(x) / (x − root) in x − 1.5, for 1 ≤ x ≤ 2, to 1e-10.
#[rustfmt::skip]
const DIGAMMA_NEAR: [f64; 13] = [
    0.9510558760318328, -0.4236274186325623, 0.2405424824751142, -0.14840521855349975,
    0.09498892142362683, -0.061912770922936004, 0.040754593297480844, -0.027101835424346757,
    0.01799126155857759, -0.011096228103516554, 0.007385776781953944, -0.00769679044525289,
    0.0051290832618366995,
];
/// The zero of ψ, in two parts.
const DIGAMMA_ROOT: [f64; 2] = [1.4616321449683622, 9.549995429965697e-17];
/// x²·(log x − 1/(2x) − ψ(x)) in 1/x² − 1/72, for x ≥ 6, to 4e-10.
const DIGAMMA_FAR: [f64; 4] =
    [0.08321834715254323, -0.008225437747918956, 0.0038041085058965187, -0.0037855295533562156];
/// I0 in x²/4 − 8, for |x| ≤ 8, to 3e-10.
#[rustfmt::skip]
const I0_NEAR: [f64; 12] = [
    49.20855422280692, 15.774186685404187, 2.0896479714065164, 0.1544915583556351,
    0.007283582714917053, 0.00023721396240075797, 5.638477429595161e-06, 1.0187176899029669e-07,
    1.443545916604622e-09, 1.6453772671461983e-11, 1.5549227270514156e-13, 1.2115990918750212e-15,
];
/// I1(x)/(x/2), as above, to 2e-11.
#[rustfmt::skip]
const I1_NEAR: [f64; 12] = [
    15.774186685385903, 4.179295942208619, 0.46347467508404894, 0.0291343310800789,
    0.0011860698095034737, 3.383084253263906e-05, 7.131025079554343e-07, 1.1549253187431543e-08,
    1.4808144229516716e-10, 1.5395416301665992e-12, 1.3345033360831336e-14, 9.6140430790495e-17,
];
/// √x·e⁻ˣ·I0(x) in 1/x − [`BESSEL_MIDDLE`], for x ≥ 8, to 2e-10.
#[rustfmt::skip]
const I0_FAR: [f64; 9] = [
    0.40217677829003856, 0.05376918435057384, 0.03487206974013188, 0.04563107022642843,
    0.09701202690286834, 0.3220946255033238, 1.7155317683861202, 8.519435661437772,
    13.787116640963646,
];
/// √x·e⁻ˣ·I1(x), as above.
#[rustfmt::skip]
const I1_FAR: [f64; 9] = [
    0.38939767905829376, -0.15599380030670665, -0.05612535363700351, -0.06158736016496386,
    -0.12000695484105031, -0.3756517247623771, -1.9169951761165276, -9.638961801028064,
    -18.1827649638416,
];
const BESSEL_MIDDLE: f64 = 0.062505;

/// A polynomial by Horner's rule, lowest coefficient first.
#[inline(always)]
fn poly<I: Isa, const N: usize>(x: f64, c: &[f64; N]) -> f64 {
    let mut p = c[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        p = I::fma64(p, x, c[i]);
    }
    p
}

/// Arguments that the functions of this file do not take, under their names.
pub(crate) mod rare {
    #[inline(always)]
    pub(crate) fn erfinv(x: f32) -> bool {
        x.abs() >= 1.0 || x.is_nan()
    }
    #[inline(always)]
    pub(crate) fn ndtri(p: f32) -> bool {
        // w is at most 16.1 here.
        !(p > 2.6e-8 && p < 1.0)
    }
    #[inline(always)]
    pub(crate) fn lgamma(x: f32) -> bool {
        !(x > 0.0 && x < f32::INFINITY)
    }
    #[inline(always)]
    pub(crate) fn digamma(x: f32) -> bool {
        !(x > 0.0 && x < f32::INFINITY)
    }
    /// All but ζ(2, x) for x > 0.
    #[inline(always)]
    pub(crate) fn zeta(s: f32, x: f32) -> bool {
        // Below, the square is no normal f32.
        !(s == 2.0 && x > 1e-18 && x < f32::INFINITY)
    }
    #[inline(always)]
    pub(crate) fn erfcx(x: f32) -> bool {
        x.abs() > 28.0
    }
    #[inline(always)]
    pub(crate) fn log_ndtr(x: f32) -> bool {
        x.abs() > 39.0
    }
    #[inline(always)]
    pub(crate) fn i0(x: f32) -> bool {
        x.abs() > 90.0
    }
    #[inline(always)]
    pub(crate) fn i1(x: f32) -> bool {
        x.abs() > 90.0
    }
    #[inline(always)]
    pub(crate) fn i0e(x: f32) -> bool {
        x.abs() > 1e30
    }
    #[inline(always)]
    pub(crate) fn i1e(x: f32) -> bool {
        x.abs() > 1e30
    }
}

/// erfinv(x)/x, from 1 − x².
#[inline(always)]
fn erfinv_over<I: Isa>(rest: f64) -> f64 {
    let w = -math64::log::<I>(rest);
    let near = poly::<I, 12>(w - 2.5, &ERFINV_NEAR);
    let far = poly::<I, 11>(w - 10.55, &ERFINV_FAR);
    if w < 5.0 { near } else { far }
}

/// The y with erf(y) = x.
#[inline(always)]
pub(crate) fn erfinv<I: Isa>(x: f64) -> f64 {
    x * erfinv_over::<I>((1.0 - x) * (1.0 + x))
}

/// The y with Φ(y) = p.
#[inline(always)]
pub(crate) fn ndtri<I: Isa>(p: f64) -> f64 {
    SQRT_2 * (2.0 * p - 1.0) * erfinv_over::<I>(4.0 * p * (1.0 - p))
}

/// log Γ(x). Below 5.5 the recurrence Γ(x+1) = x·Γ(x) leads to an interval around 2, beyond it is
/// Stirling's series; both need one logarithm.
#[inline(always)]
pub(crate) fn lgamma<I: Isa>(x: f64) -> f64 {
    let below = if x < 0.5 { x * (x + 1.0) } else { x };
    let mut product = if x < 1.5 { below } else { 1.0 };
    let mut y = if x < 0.5 { x + 2.0 } else { x };
    y = if (0.5..1.5).contains(&x) { x + 1.0 } else { y };
    for edge in [2.5, 3.5, 4.5] {
        let over = x >= edge;
        y = if over { y - 1.0 } else { y };
        product = if over { product * y } else { product };
    }
    let t = y - 2.0;
    let far = x >= 5.5;
    let log = math64::log::<I>(if far { x } else { product });
    // Below 1.5 the recurrence goes up, and the logarithm is subtracted.
    let near = I::fma64(t, poly::<I, 10>(t, &LGAMMA_NEAR), if x < 1.5 { -log } else { log });
    let r = 1.0 / x;
    let series = r * poly::<I, 4>(I::fma64(r, r, -1.0 / 60.5), &STIRLING);
    if far { I::fma64(x - 0.5, log - 1.0, STIRLING_CONSTANT + series) } else { near }
}

/// ψ(x). The steps of the recurrence are one fraction.
#[inline(always)]
pub(crate) fn digamma<I: Isa>(x: f64) -> f64 {
    // Σ 1/(y − k) = over/under.
    let low = x < 1.0;
    let mut y = if low { x + 1.0 } else { x };
    let (mut over, mut under) = (if low { -1.0 } else { 0.0 }, if low { x } else { 1.0 });
    for edge in [2.0, 3.0, 4.0, 5.0] {
        let step = x >= edge;
        y = if step { y - 1.0 } else { y };
        over = if step { I::fma64(over, y, under) } else { over };
        under = if step { under * y } else { under };
    }
    let far = x >= 6.0;
    let q = if far { 1.0 } else { over } / if far { x } else { under };
    let off = (y - DIGAMMA_ROOT[0]) - DIGAMMA_ROOT[1];
    let near = I::fma64(off, poly::<I, 13>(y - 1.5, &DIGAMMA_NEAR), q);
    let tail = q * I::fma64(q, poly::<I, 4>(I::fma64(q, q, -1.0 / 72.0), &DIGAMMA_FAR), 0.5);
    if far { math64::log::<I>(x) - tail } else { near }
}

/// ζ(2, x), the derivative of ψ. Below 6 six steps of the recurrence, as one fraction, lead to the
/// asymptotic series.
#[inline(always)]
pub(crate) fn trigamma<I: Isa>(x: f64) -> f64 {
    // The next term is 5/66·r¹¹: 2e-10.
    const SERIES: [f64; 5] = [1.0, 1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0];
    let near = x < 6.0;
    let (mut over, mut under) = (0.0, 1.0);
    for step in [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] {
        let square = (x + step) * (x + step);
        over = I::fma64(over, square, under);
        under *= square;
    }
    let sum = if near { over } else { 0.0 } / if near { under } else { 1.0 };
    let r = 1.0 / if near { x + 6.0 } else { x };
    let tail = I::fma64(r, poly::<I, 5>(r * r, &SERIES), 0.5 * r * r);
    sum + tail
}

/// e^(x²)·erfc(x).
#[inline(always)]
pub(crate) fn erfcx<I: Isa>(x: f64) -> f64 {
    let positive = math64::erfc_scaled::<I>(x.abs());
    // x² is exact, and what overflows an f64 is infinite as an f32 before.
    let negative = I::fma64(2.0, math64::exp::<I>(x * x), -positive);
    if x < 0.0 { negative } else { positive }
}

/// log Φ(x).
#[inline(always)]
pub(crate) fn log_ndtr<I: Isa>(x: f64) -> f64 {
    let scaled = 0.5 * math64::erfc_scaled::<I>(x.abs() * FRAC_1_SQRT_2);
    let half = 0.5 * x * x;
    let tail = scaled * math64::exp::<I>(-half);
    let log = math64::log1p::<I>(if x < 0.0 { scaled - 1.0 } else { -tail });
    if x < 0.0 { log - half } else { log }
}

/// e^(−a)·I(a)·√a for a ≥ 8, divided by √a.
#[inline(always)]
fn bessel_far<I: Isa>(a: f64, c: &[f64; 9]) -> f64 {
    let r = 1.0 / if a < 8.0 { 8.0 } else { a };
    poly::<I, 9>(r - BESSEL_MIDDLE, c) * r.sqrt()
}

/// x²/4 − 8, held where the polynomials of the interval are not used.
#[inline(always)]
fn bessel_square(a: f64) -> f64 {
    let a = if a > 8.0 { 8.0 } else { a };
    0.25 * a * a - 8.0
}

/// I0(x).
#[inline(always)]
pub(crate) fn i0<I: Isa>(x: f64) -> f64 {
    let a = x.abs();
    let near = poly::<I, 12>(bessel_square(a), &I0_NEAR);
    let far = bessel_far::<I>(a, &I0_FAR) * math64::exp::<I>(a);
    if a > 8.0 { far } else { near }
}

/// e^(−|x|)·I0(x).
#[inline(always)]
pub(crate) fn i0e<I: Isa>(x: f64) -> f64 {
    let a = x.abs();
    let near = poly::<I, 12>(bessel_square(a), &I0_NEAR) * math64::exp::<I>(-a);
    if a > 8.0 { bessel_far::<I>(a, &I0_FAR) } else { near }
}

/// I1(x).
#[inline(always)]
pub(crate) fn i1<I: Isa>(x: f64) -> f64 {
    let a = x.abs();
    let near = 0.5 * a * poly::<I, 12>(bessel_square(a), &I1_NEAR);
    let far = bessel_far::<I>(a, &I1_FAR) * math64::exp::<I>(a);
    (if a > 8.0 { far } else { near }).copysign(x)
}

/// e^(−|x|)·I1(x).
#[inline(always)]
pub(crate) fn i1e<I: Isa>(x: f64) -> f64 {
    let a = x.abs();
    let near = 0.5 * a * poly::<I, 12>(bessel_square(a), &I1_NEAR) * math64::exp::<I>(-a);
    (if a > 8.0 { bessel_far::<I>(a, &I1_FAR) } else { near }).copysign(x)
}
