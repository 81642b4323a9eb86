//! A factor at each of some steps.

use super::Schedule;

/// Multiplied by `gamma` at each milestone: `torch.optim.lr_scheduler.MultiStepLR`.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiStepLr {
    /// The steps, in any order; one that is listed twice counts twice.
    pub milestones: Vec<u64>,
    /// What the learning rate is multiplied by.
    pub gamma: f64,
}

impl Schedule for MultiStepLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf(self.milestones.iter().filter(|&&at| at <= step).count() as f64)
    }
}
