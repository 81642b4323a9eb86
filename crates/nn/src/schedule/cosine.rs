//! Half waves of the cosine, down.

use super::Schedule;
use super::ramps::done;
use std::f64::consts::PI;

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

/// [`Cosine`] again and again, each `times` as long as the last: `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CosineRestarts {
    /// How many steps the first takes.
    pub first: u64,
    /// How much longer each is than the last.
    pub times: u64,
    /// The rate that each ends with.
    pub lowest: f64,
}

impl Schedule for Cosine {
    fn rate(&self, base: f64, step: u64) -> f64 {
        between(base, self.lowest, done(step, self.steps))
    }
}

impl Schedule for CosineRestarts {
    fn rate(&self, base: f64, step: u64) -> f64 {
        let (mut at, mut length) = (step, self.first.max(1));
        if self.times <= 1 {
            at %= length;
        }
        while at >= length {
            at -= length;
            length = length.saturating_mul(self.times);
        }
        between(base, self.lowest, done(at, length))
    }
}

/// From one value to another along half a wave.
pub(super) fn between(from: f64, to: f64, part: f64) -> f64 {
    to + (from - to) * (1.0 + (PI * part).cos()) / 2.0
}
