//! What differs from PyTorch at extremes, and why it stays so. The first entry that covers a
//! difference counts for it.
//!
//! An entry says as narrowly as it can what is given here: where PyTorch is the one that rounds or
//! overflows, the number here is compared with the formula; where the number here is wrong, the
//! entry says so.

#[path = "kept/activations.rs"]
mod activations;
#[path = "kept/elementary.rs"]
mod elementary;
#[path = "kept/rows.rs"]
mod rows;
#[path = "kept/special.rs"]
mod special;

use std::f64::consts::PI;

/// Differences of one kind.
pub struct Kept {
    pub functions: &'static [&'static str],
    /// Of values (0), first (1) or second (2) derivatives.
    pub orders: &'static [usize],
    /// Where, from the operands, the number here and that of PyTorch.
    pub at: fn(&[f64], f64, f64) -> bool,
    /// The same, in words.
    pub place: &'static str,
    pub reason: &'static str,
}

fn any_nan(at: &[f64]) -> bool {
    at.iter().any(|v| v.is_nan())
}

/// Finite, and its square is beyond f32.
fn huge(v: f64) -> bool {
    v.is_finite() && v.abs() > 1e18
}

/// Not 0, and its square is below what f32 has.
fn tiny(v: f64) -> bool {
    v != 0.0 && v.abs() < 1e-18
}

/// Nine digits are all it has, as what is written of f32.
fn nine_digits(v: f64) -> bool {
    !v.is_finite() || format!("{v:.8e}").parse() == Ok(v)
}

/// The distance of 1 from the next number. That they are of f32 is seen from their digits; numbers
/// that either has count as f32.
fn epsilon(at: &[f64], here: f64, there: f64) -> f64 {
    let exact = !here.is_finite() || f64::from(here as f32) == here;
    let single = exact && nine_digits(there) && at.iter().all(|v| nine_digits(*v));
    if single { f64::from(f32::EPSILON) } else { f64::EPSILON }
}

/// Numbers that differ by this many last digits of 1.
fn digits_of_1(at: &[f64], here: f64, there: f64, count: f64) -> bool {
    (here - there).abs() <= count * epsilon(at, here, there)
}

/// It is one of these numbers, but for this part of it.
fn one_of(here: f64, right: &[f64], part: f64) -> bool {
    right.iter().any(|r| r.is_finite() && (here - r).abs() <= part * r.abs())
}

/// The density of the normal distribution.
fn density(x: f64) -> f64 {
    (-x * x / 2.0).exp() / (2.0 * PI).sqrt()
}

/// What lies below x ≤ −6 of the normal distribution, to 2e−5 of it.
fn tail(x: f64) -> f64 {
    let s = 1.0 / (x * x);
    density(x) / -x * (1.0 - s * (1.0 - 3.0 * s * (1.0 - 5.0 * s * (1.0 - 7.0 * s))))
}

/// All of them, family by family.
pub fn all() -> impl Iterator<Item = &'static Kept> {
    [elementary::KEPT, activations::KEPT, special::KEPT, rows::KEPT].into_iter().flatten()
}
