//! One schedule after the other.

use super::Schedule;

/// Schedules one after the other, each from its own step 0: `torch.optim.lr_scheduler.SequentialLR`.
///
/// ```
/// use pullback_nn::schedule::{Cosine, Linear, Schedule, Sequential};
/// let rates = Sequential::new(Linear { from: 0.1, to: 1.0, steps: 10 })
///     .then(10, Cosine { steps: 90, lowest: 0.0 });
/// assert_eq!(rates.rate(0.5, 10), 0.5);
/// assert_eq!(rates.rate(0.5, 100), 0.0);
/// ```
pub struct Sequential {
    parts: Vec<(u64, Box<dyn Schedule + Send + Sync>)>,
}

impl Sequential {
    /// Begins with this one.
    pub fn new(first: impl Schedule + Send + Sync + 'static) -> Sequential {
        Sequential { parts: vec![(0, Box::new(first))] }
    }

    /// From step `milestone` on, that one. A milestone before the last one is taken to be at it.
    #[must_use]
    pub fn then(
        mut self,
        milestone: u64,
        next: impl Schedule + Send + Sync + 'static,
    ) -> Sequential {
        let last = self.parts.last().map_or(0, |(at, _)| *at);
        self.parts.push((milestone.max(last), Box::new(next)));
        self
    }
}

impl Schedule for Sequential {
    fn rate(&self, base: f64, step: u64) -> f64 {
        let now = self.parts.iter().rev().find(|(at, _)| *at <= step);
        now.map_or(base, |(at, schedule)| schedule.rate(base, step - at))
    }
}

impl std::fmt::Debug for Sequential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let milestones: Vec<u64> = self.parts.iter().map(|(at, _)| *at).collect();
        f.debug_struct("Sequential").field("milestones", &milestones).finish()
    }
}
