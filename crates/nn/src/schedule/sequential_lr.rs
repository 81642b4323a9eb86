//! One schedule after the other.

use super::Schedule;

/// Schedules one after the other, each from its own step 0:
/// `torch.optim.lr_scheduler.SequentialLR`.
///
/// ```
/// use pullback_nn::schedule::{CosineAnnealingLr, LinearLr, Schedule, SequentialLr};
/// let warmup = LinearLr { start_factor: 0.1, end_factor: 1.0, total_iters: 10 };
/// let schedule =
///     SequentialLr::new(warmup).then(10, CosineAnnealingLr { t_max: 90, eta_min: 0.0 });
/// assert_eq!(schedule.lr(0.5, 10), 0.5);
/// assert_eq!(schedule.lr(0.5, 100), 0.0);
/// ```
pub struct SequentialLr {
    parts: Vec<(u64, Box<dyn Schedule + Send + Sync>)>,
}

impl SequentialLr {
    /// Starts with this schedule.
    ///
    /// ```
    /// # use pullback_nn::schedule::{ConstantLr, Schedule, SequentialLr};
    /// let schedule = SequentialLr::new(ConstantLr { factor: 0.5, total_iters: 100 });
    /// assert_eq!(schedule.lr(0.2, 0), 0.1);
    /// ```
    pub fn new(first: impl Schedule + Send + Sync + 'static) -> SequentialLr {
        SequentialLr { parts: vec![(0, Box::new(first))] }
    }

    /// Switches to the schedule `next` at step `milestone`. A milestone before the last one counts
    /// as equal to it.
    ///
    /// ```
    /// # use pullback_nn::schedule::{ConstantLr, ExponentialLr, Schedule, SequentialLr};
    /// let schedule = SequentialLr::new(ConstantLr { factor: 0.5, total_iters: 100 })
    ///     .then(3, ExponentialLr { gamma: 0.5 });
    /// assert_eq!([0, 2, 3, 4].map(|step| schedule.lr(0.2, step)), [0.1, 0.1, 0.2, 0.1]);
    /// ```
    #[must_use]
    pub fn then(
        mut self,
        milestone: u64,
        next: impl Schedule + Send + Sync + 'static,
    ) -> SequentialLr {
        let last = self.parts.last().map_or(0, |(at, _)| *at);
        self.parts.push((milestone.max(last), Box::new(next)));
        self
    }
}

impl Schedule for SequentialLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let now = self.parts.iter().rev().find(|(at, _)| *at <= step);
        now.map_or(base, |(at, schedule)| schedule.lr(base, step - at))
    }
}

impl std::fmt::Debug for SequentialLr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let milestones: Vec<u64> = self.parts.iter().map(|(at, _)| *at).collect();
        f.debug_struct("SequentialLr").field("milestones", &milestones).finish()
    }
}
