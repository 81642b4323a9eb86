//! Slow reference implementations of the special functions: series, recurrences and bisection, each
//! from its definition. PyTorch's values at poles. The tests of the op table read this file too.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI, SQRT_2};

/// B₂ₖ for k = 1, 2, …
const BERNOULLI: [f64; 8] = [
    1.0 / 6.0,
    -1.0 / 30.0,
    1.0 / 42.0,
    -1.0 / 30.0,
    5.0 / 66.0,
    -691.0 / 2730.0,
    7.0 / 6.0,
    -3617.0 / 510.0,
];

/// erf by a series of positive terms: 2/√π · e^(−x²) · Σ 2ⁿ x^(2n+1) / (2n+1)!!.
pub fn erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 6.0 {
        return if x.is_nan() { x } else { 1.0f64.copysign(x) };
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

fn at_pole(x: f64) -> bool {
    x <= 0.0 && x == x.floor()
}

pub fn lgamma(x: f64) -> f64 {
    if at_pole(x) || x == f64::INFINITY {
        return f64::INFINITY;
    }
    if x < 0.0 {
        return (PI / (PI * x).sin().abs()).ln() - lgamma(1.0 - x);
    }
    let (mut y, mut product) = (x, 1.0);
    while y < 10.0 {
        product *= y;
        y += 1.0;
    }
    let series: f64 = (1..=8)
        .map(|k| {
            BERNOULLI[k - 1] / (2.0 * k as f64 * (2.0 * k as f64 - 1.0) * y.powi(2 * k as i32 - 1))
        })
        .sum();
    (y - 0.5) * y.ln() - y + 0.5 * (2.0 * PI).ln() + series - f64::ln(product)
}

pub fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return -f64::INFINITY.copysign(x);
    }
    if at_pole(x) {
        return f64::NAN;
    }
    if x < 0.0 {
        return digamma(1.0 - x) - PI / (PI * x).tan();
    }
    if x == f64::INFINITY {
        return x;
    }
    let (mut y, mut sum) = (x, 0.0);
    while y < 10.0 {
        sum -= 1.0 / y;
        y += 1.0;
    }
    let series: f64 =
        (1..=8).map(|k| BERNOULLI[k - 1] / (2.0 * k as f64 * y.powi(2 * k as i32))).sum();
    sum + y.ln() - 0.5 / y - series
}

/// I₀ or I₁ by its power series, or for large x its asymptotic one; scaled by e^(−|x|) if `scaled`.
pub fn bessel(order: i32, x: f64, scaled: bool) -> f64 {
    let odd = if order == 1 { x.signum() } else { 1.0 };
    if x.is_infinite() {
        return odd * if scaled { 0.0 } else { f64::INFINITY };
    }
    if x.abs() > 40.0 {
        let (mut term, mut sum) = (1.0, 1.0);
        for k in 1..30 {
            let odd = f64::from(2 * k - 1);
            term *= (odd * odd - f64::from(4 * order * order)) / (8.0 * x.abs() * f64::from(k));
            sum += term;
        }
        let y = odd * sum / (2.0 * PI * x.abs()).sqrt();
        let half = (0.5 * x.abs()).exp();
        return if scaled { y } else { y * half * half };
    }
    let z = 0.25 * x * x;
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..120 {
        term *= z / f64::from(k * (k + order));
        sum += term;
    }
    let y = if order == 1 { 0.5 * x * sum } else { sum };
    if scaled { y * (-x.abs()).exp() } else { y }
}

pub fn erfcx(x: f64) -> f64 {
    if x < 2.0 {
        return (x * x).exp() * (1.0 - erf(x));
    }
    let f = (1..200).rev().fold(0.0, |f, k| 0.5 * f64::from(k) / (x + f));
    1.0 / ((x + f) * PI.sqrt())
}

pub fn log_ndtr(x: f64) -> f64 {
    if x < -1.0 {
        return (0.5 * erfcx(-x * FRAC_1_SQRT_2)).ln() - 0.5 * x * x;
    }
    let tail = if x < 2.0 {
        1.0 - erf(x * FRAC_1_SQRT_2)
    } else {
        erfcx(x * FRAC_1_SQRT_2) * (-0.5 * x * x).exp()
    };
    (-0.5 * tail).ln_1p()
}

pub fn erfinv(y: f64) -> f64 {
    if y.is_nan() || y.abs() > 1.0 {
        return f64::NAN;
    }
    if y.abs() == 1.0 {
        return y * f64::INFINITY;
    }
    if y.abs() < 1e-5 {
        return 0.5 * PI.sqrt() * y * (1.0 + PI / 12.0 * y * y);
    }
    if y.abs() > 0.5 {
        return -ndtri(0.5 * (1.0 - y.abs())) * FRAC_1_SQRT_2 * y.signum();
    }
    bisected(|x| erf(x) < y.abs()) * y.signum()
}

/// The point between 0 and 40 where `below` becomes false.
fn bisected(below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

pub fn ndtri(p: f64) -> f64 {
    if p.is_nan() || !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.0 || p == 1.0 {
        return if p == 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    if (0.25..=0.75).contains(&p) {
        return SQRT_2 * erfinv(2.0 * p - 1.0);
    }
    let tail = p.min(1.0 - p).ln();
    bisected(|z| log_ndtr(-z) > tail).copysign(p - 0.5)
}

#[allow(dead_code)] // the table's tests use it
pub fn zeta(s: f64, q: f64) -> f64 {
    if s.is_nan() || q.is_nan() || s < 1.0 {
        return f64::NAN;
    }
    if s == 1.0 || at_pole(q) {
        return f64::INFINITY;
    }
    if q < 0.0 && s != s.floor() {
        return f64::NAN;
    }
    if s == f64::INFINITY {
        // The term nearest to the pole alone.
        let near = if q < 0.0 { (q - q.round()).abs() } else { q };
        return near.powf(-s);
    }
    let terms: f64 = (0..1000).rev().map(|k| (q + f64::from(k)).powf(-s)).sum();
    let a = q + 1000.0;
    terms + a.powf(1.0 - s) / (s - 1.0) + 0.5 * a.powf(-s) + s * a.powf(-s - 1.0) / 12.0
}

#[allow(dead_code)] // the table's tests use it
/// P by its series, from the definition; its limits at the edges.
pub fn gammainc(a: f64, x: f64) -> f64 {
    if a.is_nan() || x.is_nan() || a < 0.0 || x < 0.0 || (a == 0.0 && x == 0.0) {
        return f64::NAN;
    }
    if a.is_infinite() || x.is_infinite() {
        return match (a.is_infinite(), x.is_infinite()) {
            (true, true) => f64::NAN,
            (infinite, _) => f64::from(u8::from(!infinite)),
        };
    }
    if a == 0.0 || x == 0.0 {
        return f64::from(u8::from(a == 0.0));
    }
    let (mut y, mut front) = (a, (-x).exp());
    while y >= 1.0 {
        front *= x / y;
        y -= 1.0;
    }
    front *= x.powf(y) / lgamma(1.0 + y).exp();
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..400 {
        term *= x / (a + f64::from(n));
        sum += term;
    }
    front * sum
}
