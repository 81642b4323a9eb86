//! Derivatives by differences of values, and whether they can be trusted.

use crate::ast::Program;
use crate::compare::{NUMERIC, Outcome, Value, outcome};
use crate::interpret::weights;
use crate::ways::{DIRECTION, LOSS, Transform, Way};
use pullback::Tensor;

/// A derivative along the direction, by differences.
pub enum Numeric {
    /// This.
    Slope(f64),
    /// The differences of two step sizes, or of the two sides, are not the same: a kink, a jump, or
    /// too much rounding.
    Unclear,
}

/// The weighted sum of the numbers in a result.
pub fn weighted(values: &[Value], salt: usize) -> f64 {
    let floats = values.iter().filter(|v| v.dtype.is_float()).enumerate();
    let sum = |(k, v): (usize, &Value)| {
        let w = weights(&Tensor::zeros_with(&v.shape[..], pullback::DType::F64), k + salt);
        w.to_f64_vec().iter().zip(&v.data).map(|(w, x)| w * x).sum::<f64>()
    };
    floats.map(sum).sum()
}

/// The derivative of the weighted results of `way` along the direction.
pub fn slope(program: &Program, way: &Way) -> Numeric {
    let at = way.inputs(program);
    let moved = |h: f64| {
        let xs: Vec<Tensor> =
            at.iter().enumerate().map(|(k, x)| x + weights(x, k + DIRECTION) * h).collect();
        match outcome(|| way.function(program)(&xs)) {
            Outcome::Gave(values) => Some(weighted(&values, LOSS)),
            Outcome::Refused(_) | Outcome::Panicked(_) => None,
        }
    };
    let all = [-1e-4, -5e-5, 0.0, 5e-5, 1e-4].map(moved);
    let [Some(a), Some(b), Some(c), Some(d), Some(e)] = all else { return Numeric::Unclear };
    let (wide, narrow) = ((e - a) / 2e-4, (d - b) / 1e-4);
    // Richardson: the errors of second order cancel.
    let best = (4.0 * narrow - wide) / 3.0;
    let scale = 1.0 + best.abs();
    // One-sided slopes differ by h·f'' where the function is smooth, so half as much for half the
    // step; at a kink or a jump they do not.
    let bend = |low: f64, high: f64, h: f64| (high - 2.0 * c + low) / h;
    let far = |x: f64, y: f64| (x - y).abs() / scale;
    let smooth = far(wide, narrow) < NUMERIC / 10.0
        && far(bend(a, e, 1e-4), 2.0 * bend(b, d, 5e-5)) < NUMERIC / 4.0;
    match smooth && best.is_finite() {
        true => Numeric::Slope(best),
        false => Numeric::Unclear,
    }
}

/// The way under the outermost derivative of this one, if there is nothing but that above it: what
/// it is to be compared with is a slope of that.
pub fn under(way: &Way) -> Option<Way> {
    match way.plain().0.split_first() {
        Some((Transform::Grad | Transform::Jvp, rest)) => Some(Way(rest.to_vec())),
        _ => None,
    }
}

/// What the results of a way say about the slope along the direction.
pub fn claimed(way: &Way, values: &[Value]) -> f64 {
    match way.plain().0.first() {
        Some(Transform::Jvp) => weighted(values, LOSS),
        _ => weighted(values, DIRECTION),
    }
}
