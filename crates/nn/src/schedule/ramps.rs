//! Rates that go from one value to another in a number of steps, and stay there.

use super::Schedule;

/// From `from` times the base rate to `to` times it, linearly: `torch.optim.lr_scheduler.LinearLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    /// The fraction of the base rate that it begins with.
    pub from: f64,
    /// The fraction that it ends with.
    pub to: f64,
    /// How many steps it takes.
    pub steps: u64,
}

/// From the base rate to 0, as (1 − step/steps) to a power: `torch.optim.lr_scheduler.PolynomialLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Polynomial {
    /// How many steps it takes.
    pub steps: u64,
    /// The power: 1 for a line.
    pub power: f64,
}

impl Schedule for Linear {
    fn rate(&self, base: f64, step: u64) -> f64 {
        base * (self.from + (self.to - self.from) * done(step, self.steps))
    }
}

impl Schedule for Polynomial {
    fn rate(&self, base: f64, step: u64) -> f64 {
        base * (1.0 - done(step, self.steps)).powf(self.power)
    }
}

/// Which part of the steps is done.
pub(super) fn done(step: u64, steps: u64) -> f64 {
    if step >= steps { 1.0 } else { step as f64 / steps as f64 }
}
