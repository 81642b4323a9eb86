//! Decay every `step_size` steps.

use super::Schedule;

/// Multiplied by `gamma` every `step_size` steps: `torch.optim.lr_scheduler.StepLR`.
///
/// ```
/// use pullback_nn::schedule::{Schedule, StepLr};
/// let schedule = StepLr { step_size: 30, gamma: 0.5 };
/// assert_eq!([0, 29, 30, 60].map(|step| schedule.lr(0.8, step)), [0.8, 0.8, 0.4, 0.2]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLr {
    /// The number of steps between reductions.
    pub step_size: u64,
    /// The factor of a reduction.
    pub gamma: f64,
}

impl Schedule for StepLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf((step / self.step_size.max(1)) as f64)
    }
}
