//! Linear interpolation between two factors.

use super::Schedule;

/// From `start_factor` times the base to `end_factor` times it, linearly:
/// `torch.optim.lr_scheduler.LinearLR`.
///
/// ```
/// use pullback_nn::schedule::{LinearLr, Schedule};
/// let schedule = LinearLr { start_factor: 0.5, end_factor: 1.0, total_iters: 2 };
/// assert_eq!([0, 1, 2, 3].map(|step| schedule.lr(1.0, step)), [0.5, 0.75, 1.0, 1.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearLr {
    /// The factor of the base at step 0.
    pub start_factor: f64,
    /// The factor of the base from step `total_iters` on.
    pub end_factor: f64,
    /// The number of steps.
    pub total_iters: u64,
}

impl Schedule for LinearLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let LinearLr { start_factor, end_factor, total_iters } = *self;
        base * (start_factor + (end_factor - start_factor) * progress(step, total_iters))
    }
}

/// The fraction of `total` steps that is done, at most 1.
pub(super) fn progress(step: u64, total: u64) -> f64 {
    if step >= total { 1.0 } else { step as f64 / total as f64 }
}
