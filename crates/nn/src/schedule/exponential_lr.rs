//! Exponential decay.

use super::Schedule;

/// Multiplied by `gamma` at each step: `torch.optim.lr_scheduler.ExponentialLR`.
///
/// ```
/// use pullback_nn::schedule::{ExponentialLr, Schedule};
/// let schedule = ExponentialLr { gamma: 0.5 };
/// assert_eq!([0, 1, 2].map(|step| schedule.lr(0.8, step)), [0.8, 0.4, 0.2]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExponentialLr {
    /// The factor by which the learning rate is multiplied.
    pub gamma: f64,
}

impl Schedule for ExponentialLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf(step as f64)
    }
}
