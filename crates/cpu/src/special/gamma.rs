//! log Γ and its derivative ψ.
//!
//! Both have three regions on the positive axis: a polynomial around their zeros, the recurrence
//! Γ(x+1) = x·Γ(x) that maps small arguments there, and Stirling's series from 8 on. The negative
//! axis follows by reflection, with the distance to the nearest pole computed exactly.

use super::poly;
use std::f64::consts::PI;

/// log Γ(1 + t) / t for |t| ≤ 1/2.
#[rustfmt::skip]
const NEAR_ONE: [f64; 30] = [
    -0.5772156649015329, 0.8224670334241132, -0.4006856343865307, 0.27058080842778387,
    -0.2073855510288846, 0.16955717699761294, -0.1440498967441441, 0.1255096695007263,
    -0.11133426738296036, 0.10009945898417442, -0.09095396147817056, 0.08335378642428555,
    -0.07693384797749431, 0.07143424085913012, -0.0666469660070385, 0.06247981994150854,
    -0.059073275414740396, 0.055798122160668526, -0.05059570584998663, 0.048020858519722875,
    -0.059467630506988924, 0.056971969494995923, 0.004945338328244218, -0.005399712296235696,
    -0.17396451715070047, 0.1686556126817108, 0.19472176853583203, -0.18947756655876552,
    -0.24025245552681862, 0.2331921266866054,
];
/// log Γ(2 + t) / t for |t| ≤ 1/2.
#[rustfmt::skip]
const NEAR_TWO: [f64; 19] = [
    0.42278433509846713, 0.32246703342411326, -0.0673523010531981, 0.02058080842778038,
    -0.0073855510286719986, 0.002890510331034267, -0.0011927539118428156, 0.0005096695154115458,
    -0.00022315475400520507, 9.945767355819498e-05, -4.49263133791557e-05, 2.0505590755833454e-05,
    -9.438715099211532e-06, 4.38470440459836e-06, -2.0439048107029907e-06, 9.200527894968101e-07,
    -4.3252393445604814e-07, 2.78740805211359e-07, -1.3219945666117874e-07,
];
/// x·(log Γ(x) − (x − ½)·log x + x − ½·log 2π) in 1/x², for x ≥ 8.
#[rustfmt::skip]
const STIRLING: [f64; 9] = [
    0.08333333333333333, -0.0027777777777777744, 0.0007936507936450394, -0.0005952380914267929,
    0.000841749570829054, -0.001917287055870562, 0.006383322059276921, -0.027742741357277903,
    0.11001554697563673,
];
/// ψ(x) / (x − root) in x − 1.5, for 1 ≤ x ≤ 2.
#[rustfmt::skip]
const DIGAMMA: [f64; 25] = [
    0.9510558760318328, -0.42362742128146047, 0.24054248424078692, -0.1484049230539187,
    0.09498872445291558, -0.061922133271544284, 0.04076083393821673, -0.026975796849706184,
    0.01790724844392596, -0.011908215027359153, 0.007927018411136843, -0.005280020192518892,
    0.0035181618550874957, -0.0023446252179885993, 0.001562789950608375, -0.0010424323828753985,
    0.000694908174082211, -0.0004591975036646912, 0.0003061242075543146, -0.00022001895005109955,
    0.0001466781049062341, -5.7709404612698156e-05, 3.847275205849602e-05, -8.394009422598467e-05,
    5.596002350342592e-05,
];
/// x²·(log x − 1/(2x) − ψ(x)) in 1/x², for x ≥ 8.
#[rustfmt::skip]
const TAIL: [f64; 9] = [
    0.08333333333333333, -0.008333333333333273, 0.003968253968150779, -0.0041666665982644955,
    0.007575734736252119, -0.021088476563015532, 0.08284662584146768, -0.4103919397123186,
    1.7723438848038762,
];
/// ½·log 2π.
const HALF_LN_2PI: f64 = 0.918_938_533_204_672_8;
/// The zero of ψ on the positive axis, in three parts.
const ROOT: [f64; 3] = [1.4616321449683622, 9.549995429965697e-17, 2.89392992820415e-33];

/// The error of Stirling's formula for log Γ, for x ≥ 8.
pub(super) fn stirling(x: f64) -> f64 {
    let r = 1.0 / x;
    r * poly(r * r, &STIRLING)
}

/// sin(π·x) without its sign, and the distance of x from the nearest integer with its sign.
fn from_pole(x: f64) -> (f64, f64) {
    let r = x - x.round();
    ((PI * r).sin().abs(), r)
}

/// log Γ(1 + a) for a > −½, also where 1 + a is rounded.
pub(super) fn lgamma_1p(a: f64) -> f64 {
    if a < 0.5 { a * poly(a, &NEAR_ONE) } else { lgamma(1.0 + a) }
}

/// log |Γ(x)|; infinite at 0 and the negative integers.
#[inline(never)]
pub(crate) fn lgamma(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x <= 0.0 && x == x.floor() || x == f64::INFINITY {
        return f64::INFINITY;
    }
    let a = x.abs();
    if a < 0.5 {
        return x * poly(x, &NEAR_ONE) - a.ln();
    }
    if x < 0.0 {
        return (PI / (a * from_pole(x).0)).ln() - lgamma(a);
    }
    if x < 1.5 {
        // At 1, plus zero.
        return (x - 1.0) * poly(x - 1.0, &NEAR_ONE) + 0.0;
    }
    if x < 8.0 {
        let (mut y, mut product) = (x, 1.0);
        while y >= 2.5 {
            y -= 1.0;
            product *= y;
        }
        return f64::ln(product) + (y - 2.0) * poly(y - 2.0, &NEAR_TWO);
    }
    let log = x.ln();
    // Past this the product overflows although the result does not.
    if x > 1e300 {
        return x * (log - 1.0);
    }
    (x - 0.5) * (log - 1.0) + (HALF_LN_2PI - 0.5 + stirling(x))
}

/// ψ(x) = Γ'(x)/Γ(x); −∞ at +0, ∞ at −0, NaN at the negative integers.
#[inline(never)]
pub(crate) fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        if x == x.floor() {
            return f64::NAN;
        }
        let r = from_pole(x).1;
        // Close to 0, 1 − x is 1 and what matters is −1/x.
        return digamma(1.0 - x) - PI / (PI * r).tan();
    }
    if x >= 8.0 {
        let r = 1.0 / x;
        let tail = r * r * poly(r * r, &TAIL);
        return if x < f64::INFINITY { x.ln() - (0.5 * r + tail) } else { x };
    }
    if x < 1.0 {
        return digamma(1.0 + x) - 1.0 / x;
    }
    let (mut y, mut sum) = (x, 0.0);
    while y > 2.0 {
        y -= 1.0;
        sum += 1.0 / y;
    }
    let off = ((y - ROOT[0]) - ROOT[1]) - ROOT[2];
    sum + off * poly(y - 1.5, &DIGAMMA)
}
