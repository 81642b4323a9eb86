//! Rates that are multiplied by a number now and then.

use super::Schedule;

/// The base rate at all times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constant;

/// `factor` times the base rate for `steps` steps, then all of it: `torch.optim.lr_scheduler.ConstantLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// What the base rate is multiplied by.
    pub factor: f64,
    /// For how many steps.
    pub steps: u64,
}

/// Multiplied by `gamma` every `every` steps: `torch.optim.lr_scheduler.StepLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    /// How many steps the rate stays the same.
    pub every: u64,
    /// What it is multiplied by then.
    pub gamma: f64,
}

/// Multiplied by `gamma` at each of some steps: `torch.optim.lr_scheduler.MultiStepLR`.
#[derive(Clone, Debug, PartialEq)]
pub struct Milestones {
    /// The steps, in any order; one that is listed twice counts twice.
    pub at: Vec<u64>,
    /// What the rate is multiplied by.
    pub gamma: f64,
}

/// Multiplied by `gamma` at each step: `torch.optim.lr_scheduler.ExponentialLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponential {
    /// What it is multiplied by.
    pub gamma: f64,
}

/// The base rate times a function of the step: `torch.optim.lr_scheduler.LambdaLR`.
///
/// ```
/// use pullback_nn::schedule::{Factor, Schedule};
/// let inverse_root = Factor(|step| 1.0 / (1.0 + step as f64).sqrt());
/// assert_eq!(inverse_root.rate(0.4, 3), 0.2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor<F>(pub F);

impl Schedule for Constant {
    fn rate(&self, base: f64, _: u64) -> f64 {
        base
    }
}

impl Schedule for Held {
    fn rate(&self, base: f64, step: u64) -> f64 {
        if step < self.steps { base * self.factor } else { base }
    }
}

impl Schedule for Steps {
    fn rate(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf((step / self.every.max(1)) as f64)
    }
}

impl Schedule for Milestones {
    fn rate(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf(self.at.iter().filter(|&&at| at <= step).count() as f64)
    }
}

impl Schedule for Exponential {
    fn rate(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf(step as f64)
    }
}

impl<F: Fn(u64) -> f64> Schedule for Factor<F> {
    fn rate(&self, base: f64, step: u64) -> f64 {
        base * (self.0)(step)
    }
}
