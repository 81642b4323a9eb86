//! A constant factor for some steps.

use super::Schedule;

/// `factor` times the base for `total_iters` steps, then the base:
/// `torch.optim.lr_scheduler.ConstantLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConstantLr {
    /// What the base is multiplied by.
    pub factor: f64,
    /// For how many steps.
    pub total_iters: u64,
}

impl Schedule for ConstantLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        if step < self.total_iters { base * self.factor } else { base }
    }
}
