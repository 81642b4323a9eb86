//! Cosine annealing.

use super::Schedule;
use super::linear_lr::progress;
use std::f64::consts::PI;

/// From the base down to `eta_min` in `t_max` steps along a cosine, then constant:
/// `eta_min + (base − eta_min)·(1 + cos(π·step/t_max))/2`.
///
/// `torch.optim.lr_scheduler.CosineAnnealingLR` is the same up to `T_max`, and rises again after
/// that.
///
/// ```
/// use pullback_nn::schedule::{CosineAnnealingLr, Schedule};
/// let schedule = CosineAnnealingLr { t_max: 100, eta_min: 0.0 };
/// assert_eq!(schedule.lr(0.2, 0), 0.2);
/// assert!((schedule.lr(0.2, 50) - 0.1).abs() < 1e-15);
/// assert_eq!(schedule.lr(0.2, 100), 0.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CosineAnnealingLr {
    /// The number of steps (PyTorch's `T_max`).
    pub t_max: u64,
    /// The last learning rate.
    pub eta_min: f64,
}

impl Schedule for CosineAnnealingLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        interpolate(base, self.eta_min, progress(step, self.t_max))
    }
}

/// Between two values along half a cosine wave; `fraction` is from 0 to 1.
pub(super) fn interpolate(start: f64, end: f64, fraction: f64) -> f64 {
    end + (start - end) * (1.0 + (PI * fraction).cos()) / 2.0
}
