//! Cosine annealing with warm restarts.

use super::Schedule;
use super::cosine_annealing_lr::interpolate;
use super::linear_lr::progress;

/// [`CosineAnnealingLr`](super::CosineAnnealingLr) repeated, each cycle `t_mult` times as long as
/// the last: `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`.
///
/// ```
/// use pullback_nn::schedule::{CosineAnnealingWarmRestarts, Schedule};
/// let schedule = CosineAnnealingWarmRestarts { t_0: 10, t_mult: 2, eta_min: 0.0 };
/// // Cycles begin at the steps 0, 10 and 30.
/// assert_eq!([0, 10, 30].map(|step| schedule.lr(0.2, step)), [0.2; 3]);
/// assert!((schedule.lr(0.2, 20) - 0.1).abs() < 1e-15);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CosineAnnealingWarmRestarts {
    /// The number of steps of the first cycle (PyTorch's `T_0`).
    pub t_0: u64,
    /// The length of a cycle over that of the last (PyTorch's `T_mult`).
    pub t_mult: u64,
    /// The last learning rate of each cycle.
    pub eta_min: f64,
}

impl Schedule for CosineAnnealingWarmRestarts {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let (mut at, mut length) = (step, self.t_0.max(1));
        if self.t_mult <= 1 {
            at %= length;
        }
        while at >= length {
            at -= length;
            length = length.saturating_mul(self.t_mult);
        }
        interpolate(base, self.eta_min, progress(at, length))
    }
}
