//! A constant factor for some steps.

use super::Schedule;

/// `factor` times the base for `total_iters` steps, then the base:
/// `torch.optim.lr_scheduler.ConstantLR`.
///
/// ```
/// use pullback_nn::schedule::{ConstantLr, Schedule};
/// let schedule = ConstantLr { factor: 0.5, total_iters: 3 };
/// assert_eq!([0, 2, 3].map(|step| schedule.lr(0.1, step)), [0.05, 0.05, 0.1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConstantLr {
    /// The factor of the base.
    pub factor: f64,
    /// The number of these steps.
    pub total_iters: u64,
}

impl Schedule for ConstantLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        if step < self.total_iters { base * self.factor } else { base }
    }
}
