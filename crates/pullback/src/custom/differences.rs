//! Differences of a function along a line, compared with a claimed derivative.
//!
//! At a kink the derivative is a convention, and near one a difference is that of two pieces. So a
//! number fits if it agrees with the central difference or with one of the one-sided ones, for some
//! step of a ladder. Where none fits, it is wrong if the function is smooth there: both sides
//! agree, and so do two steps (a jump makes the same large difference on both sides, twice as large
//! at half the step). Otherwise the line is inconclusive.
//!
//! # How far to move
//!
//! A step of a thousandth is negligible relative to 10³⁰ and huge relative to 10⁻⁵. So each number
//! is perturbed relative to its magnitude ([`StepScale::OfEach`]); where that is inconclusive,
//! because the function has a scale of its own, by the same amount as all others
//! ([`StepScale::Even`]).
//!
//! # What rounding hides
//!
//! A difference is as accurate as the values it is made of. A step whose rounding error exceeds the
//! tolerance is ignored: it would accept any value. Where that is so at every step the line is
//! [`Verdict::Hidden`].

use crate::{DType, Tensor};

/// How exact differences can be.
#[derive(Clone, Copy)]
pub(super) struct DifferenceTolerance {
    /// Steps, from the largest.
    pub steps: &'static [f64],
    pub relative: f64,
    /// How far a gradient in this dtype may be from that in `f64`, if it is small.
    pub absolute: f64,
    /// The rounding of a value, relative to it.
    pub rounding: f64,
}

#[rustfmt::skip]
impl DifferenceTolerance {
    pub const F64: DifferenceTolerance = DifferenceTolerance { steps: &[1e-3, 1e-4, 1e-5, 1e-6], relative: 1e-5, absolute: 1e-7, rounding: 8e-15 };
    pub const F32: DifferenceTolerance = DifferenceTolerance { steps: &[1e-2, 3e-3], relative: 2e-2, absolute: 1e-3, rounding: 1e-6 };
    pub const HALF: DifferenceTolerance = DifferenceTolerance { steps: &[0.25, 0.125], relative: 0.2, absolute: 0.1, rounding: 8e-3 };
}

impl DifferenceTolerance {
    pub fn of(dtype: DType) -> DifferenceTolerance {
        match dtype {
            DType::F32 => DifferenceTolerance::F32,
            DType::BF16 | DType::F16 => DifferenceTolerance::HALF,
            _ => DifferenceTolerance::F64,
        }
    }
}

/// The result of a comparison.
pub(super) enum Verdict {
    Fits,
    /// The value that was expected.
    Wrong(f64),
    /// The function is not smooth here.
    Kink,
    /// The rounding error is larger than the tolerance.
    Hidden,
}

/// A claimed derivative.
#[derive(Clone, Copy)]
pub(super) struct ClaimedDerivative {
    pub value: f64,
    /// What it would change by if the numbers that move changed by themselves: their rounding is
    /// seen through this.
    pub input: f64,
}

/// Compares a number with the differences of Σ `terms(t)` at t = 0. Terms are compared one by one:
/// large terms that do not move add no rounding error.
pub(super) fn verdict(
    precision: DifferenceTolerance,
    terms: &dyn Fn(f64) -> Vec<f64>,
    middle: &[f64],
    given: ClaimedDerivative,
) -> Verdict {
    let DifferenceTolerance { steps, relative, rounding, .. } = precision;
    let ClaimedDerivative { value: given, input } = given;
    let mut verdict = Verdict::Hidden;
    // The difference of the step before, and its rounding.
    let mut before: Option<(f64, f64)> = None;
    let mut still = true;
    for &h in steps {
        let [a, b, c, e] = [-2.0, -1.0, 1.0, 2.0].map(|k| terms(k * h));
        let (mut central, mut right, mut left, mut near, mut far) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let (mut moved, mut size) = (false, 0.0f64);
        for (i, &m) in middle.iter().enumerate() {
            let [a, b, c, e] = [a[i], b[i], c[i], e[i]];
            if [a, b, c, e].iter().all(|v| *v == m) {
                continue;
            }
            moved = true;
            central += (8.0 * (c - b) - (e - a)) / (12.0 * h);
            right += (4.0 * c - 3.0 * m - e) / (2.0 * h);
            left += (3.0 * m - 4.0 * b + a) / (2.0 * h);
            near += (c - b) / (2.0 * h);
            far += (e - a) / (4.0 * h);
            size = size.hypot([a, b, m, c, e].iter().fold(0.0, |most, v| v.abs().max(most)));
        }
        if !moved {
            // A change smaller than the rounding error of any of them would not be detected.
            size = middle.iter().fold(0.0, |size, m| m.hypot(size));
        }
        still &= !moved;
        let noise = rounding * size.hypot(input) / h;
        let counts = |expected: f64| noise <= relative * given.abs().max(expected.abs());
        let agrees = |expected: f64| {
            let allowed = relative * given.abs().max(expected.abs()) + noise;
            counts(expected) && (given - expected).abs() <= allowed
        };
        if agrees(central) || agrees(right) || agrees(left) {
            return Verdict::Fits;
        }
        let Some(&expected) = [central, right, left].iter().find(|d| d.is_finite()) else {
            verdict = Verdict::Kink;
            continue;
        };
        let steady = before.is_none_or(|(other, rough)| {
            let allowed = relative * other.abs().max(expected.abs()) + noise + rough;
            (other - expected).abs() <= allowed
        });
        // Smooth, to second order in the step only.
        let alike = |a: f64, b: f64| (a - b).abs() <= 1e-2 * a.abs().max(b.abs()) + 2.0 * noise;
        verdict = match given.is_finite() {
            true if !counts(expected) => continue,
            true if steady && alike(right, left) && alike(near, far) => Verdict::Wrong(expected),
            false if steady && before.is_some() => Verdict::Wrong(expected),
            _ => Verdict::Kink,
        };
        before = Some((expected, noise));
    }
    // A constant, whose derivative is said to be zero.
    if still && given == 0.0 { Verdict::Fits } else { verdict }
}

/// How far numbers move along a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepScale {
    /// By a part of themselves.
    OfEach,
    /// All by the same amount; those that are too large to be moved by so little stay.
    Even,
}

/// An argument whose floats are one list of numbers.
pub(super) struct FlatArgument<'a> {
    pub x: &'a [Tensor],
    /// Which leaves are floats.
    pub floats: Vec<usize>,
    /// Where each of them begins in the list, and where the last ends.
    pub starts: Vec<usize>,
}

impl<'a> FlatArgument<'a> {
    pub fn of(x: &'a [Tensor]) -> FlatArgument<'a> {
        let floats: Vec<usize> = (0..x.len()).filter(|&i| x[i].dtype().is_float()).collect();
        let mut starts = vec![0];
        floats.iter().for_each(|&i| starts.push(starts[starts.len() - 1] + x[i].len()));
        FlatArgument { x, floats, starts }
    }

    /// How many numbers there are.
    pub fn count(&self) -> usize {
        self.starts[self.floats.len()]
    }

    /// For each number how much a step of one moves it. One that is not finite stays.
    pub fn reach(&self, reach: StepScale, precision: DifferenceTolerance) -> Vec<f64> {
        let DifferenceTolerance { steps, relative, rounding, .. } = precision;
        let largest = relative * steps[0] / rounding;
        let mut all = Vec::with_capacity(self.count());
        for &i in &self.floats {
            let sizes: Vec<f64> = self.x[i].to_f64_vec().iter().map(|v| v.abs()).collect();
            let most = sizes.iter().filter(|v| v.is_finite()).fold(0.0f64, |most, v| most.max(*v));
            // A zero among small numbers is one of them.
            let zero = if most == 0.0 { 1.0 } else { most.min(1.0) };
            all.extend(sizes.into_iter().map(|size| match reach {
                _ if !size.is_finite() => 0.0,
                StepScale::OfEach if size == 0.0 => zero,
                StepScale::OfEach => size,
                StepScale::Even if size > largest => 0.0,
                StepScale::Even => 1.0,
            }));
        }
        all
    }

    /// The argument at another place: the leaves with their numbers moved.
    pub fn moved(&self, direction: &[f64], by: f64) -> Vec<Tensor> {
        let mut moved = self.x.to_vec();
        for (k, &i) in self.floats.iter().enumerate() {
            let part = &direction[self.starts[k]..self.starts[k + 1]];
            if part.iter().any(|d| *d != 0.0) {
                let part: Vec<f64> = part.iter().map(|d| d * by).collect();
                let part = self.x[i].new_from_vec(part, self.x[i].shape());
                moved[i] = (self.x[i].cast(DType::F64) + part).cast(self.x[i].dtype());
            }
        }
        moved
    }

    /// The floats of a list like the argument, its gradient say.
    pub fn list(&self, of: &[Tensor]) -> Vec<f64> {
        self.floats.iter().flat_map(|&i| of[i].to_f64_vec()).collect()
    }

    /// Where a number is: the leaf and its index in it.
    pub fn place(&self, flat: usize) -> (usize, Vec<usize>) {
        let k = self.starts.partition_point(|&start| start <= flat) - 1;
        let i = self.floats[k];
        (i, index_of(flat - self.starts[k], self.x[i].shape()))
    }
}

/// The index of an element.
pub(super) fn index_of(flat: usize, shape: &[usize]) -> Vec<usize> {
    let (mut index, mut rest) = (vec![0; shape.len()], flat);
    for (i, &n) in shape.iter().enumerate().rev() {
        index[i] = rest % n;
        rest /= n;
    }
    index
}
