//! The Hurwitz zeta function ζ(s, q) = Σ (q + k)^(−s), from which the polygamma functions follow.
//!
//! For positive q, a dozen terms and the rest by the Euler–Maclaurin formula. For negative q (where
//! s must be an integer) the terms before the pole are themselves a difference of two such sums, so
//! the work does not grow with |q|.

/// B₂ₖ / (2k)!, k = 1, 2, …
#[rustfmt::skip]
const BERNOULLI: [f64; 12] = [
    0.08333333333333333,
    -0.001388888888888889,
    3.306878306878307e-05,
    -8.267195767195768e-07,
    2.08767569878681e-08,
    -5.284190138687493e-10,
    1.3382536530684679e-11,
    -3.3896802963225827e-13,
    8.586062056277845e-15,
    -2.174868698558062e-16,
    5.5090028283602295e-18,
    -1.3954464685812522e-19,
];

/// ζ(s, q) for s > 1; infinite for s = 1 and at q = 0, −1, …; NaN for s < 1, and for a negative q
/// where s is not an integer.
#[inline(never)]
pub(crate) fn zeta(s: f64, q: f64) -> f64 {
    if s.is_nan() || q.is_nan() || s < 1.0 {
        return f64::NAN;
    }
    if s == 1.0 || q <= 0.0 && q == q.floor() {
        return f64::INFINITY;
    }
    if q > 0.0 {
        return positive(s, q);
    }
    if s != s.floor() {
        return f64::NAN;
    }
    // q + k for k < m are −(r + m − 1), …, −r; then come 1 − r, 2 − r, …
    let m = (-q).floor() + 1.0;
    let r = -q - (m - 1.0);
    let before = positive(s, r) - positive(s, r + m);
    let odd = s % 2.0 == 1.0;
    positive(s, 1.0 - r) + if odd { -before } else { before }
}

fn positive(s: f64, q: f64) -> f64 {
    if q == f64::INFINITY || s == f64::INFINITY {
        // The first term alone, or nothing.
        return q.powf(-s);
    }
    let mut sum = 0.0;
    // The order of summation matters little here: the terms decrease, and there are few.
    for k in 0..12 {
        let term = (q + f64::from(k)).powf(-s);
        sum += term;
        if term < 1e-17 * sum || term == 0.0 {
            return sum;
        }
    }
    let a = q + 12.0;
    let b = a.powf(-s);
    let mut rest = b * (a / (s - 1.0)) + 0.5 * b;
    let mut factor = s * b / a;
    for (k, c) in BERNOULLI.iter().enumerate() {
        let term = c * factor;
        rest += term;
        if term.abs() < 1e-17 * rest.abs() {
            break;
        }
        let k = 2.0 * k as f64 + 1.0;
        factor *= (s + k) / a * ((s + k + 1.0) / a);
    }
    sum + rest
}
