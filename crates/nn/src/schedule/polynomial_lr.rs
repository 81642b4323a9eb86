//! Polynomial decay.

use super::Schedule;
use super::linear_lr::progress;

/// From the base to 0, as (1 − step/total_iters) to a power:
/// `torch.optim.lr_scheduler.PolynomialLR`.
///
/// ```
/// use pullback_nn::schedule::{PolynomialLr, Schedule};
/// let schedule = PolynomialLr { total_iters: 4, power: 2.0 };
/// assert_eq!([0, 2, 4].map(|step| schedule.lr(0.8, step)), [0.8, 0.2, 0.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolynomialLr {
    /// The number of steps.
    pub total_iters: u64,
    /// The power: 1 is linear.
    pub power: f64,
}

impl Schedule for PolynomialLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * (1.0 - progress(step, self.total_iters)).powf(self.power)
    }
}
