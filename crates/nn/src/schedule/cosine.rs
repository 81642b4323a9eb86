//! Half a wave of the cosine, down.

use super::Schedule;

/// From the base rate down to `lowest` in `steps` steps along a cosine, and there it stays:
/// `lowest + (base − lowest)·(1 + cos(π·step/steps))/2`.
///
/// `torch.optim.lr_scheduler.CosineAnnealingLR` is the same up to `steps`, and rises again after that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cosine {
    /// How many steps it takes.
    pub steps: u64,
    /// The rate it ends with.
    pub lowest: f64,
}

impl Schedule for Cosine {
    fn rate(&self, base: f64, step: u64) -> f64 {
        let done =
            if self.steps == 0 { 1.0 } else { step.min(self.steps) as f64 / self.steps as f64 };
        self.lowest + (base - self.lowest) * (1.0 + (std::f64::consts::PI * done).cos()) / 2.0
    }
}
