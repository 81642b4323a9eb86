//! Decay at milestones.

use super::Schedule;

/// Multiplied by `gamma` at each milestone: `torch.optim.lr_scheduler.MultiStepLR`.
///
/// ```
/// use pullback_nn::schedule::{MultiStepLr, Schedule};
/// let schedule = MultiStepLr { milestones: vec![30, 60], gamma: 0.5 };
/// assert_eq!([29, 30, 60].map(|step| schedule.lr(0.8, step)), [0.8, 0.4, 0.2]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MultiStepLr {
    /// The steps, in any order; one that is listed twice counts twice.
    pub milestones: Vec<u64>,
    /// The factor by which the learning rate is multiplied.
    pub gamma: f64,
}

impl Schedule for MultiStepLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf(self.milestones.iter().filter(|&&at| at <= step).count() as f64)
    }
}
