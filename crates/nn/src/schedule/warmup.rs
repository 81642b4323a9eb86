//! Linear warmup before another schedule.

use super::Schedule;

/// Rises linearly from `start_factor` times the base to the base in `total_iters` steps; then
/// `then` applies, from its own step 0. In PyTorch, `SequentialLR` of `LinearLR` and another.
///
/// With a [`CosineAnnealingLr`](super::CosineAnnealingLr) after it, this is the usual schedule of
/// transformers.
///
/// ```
/// use pullback_nn::schedule::{CosineAnnealingLr, LinearWarmup, Schedule};
/// let cosine = CosineAnnealingLr { t_max: 90, eta_min: 0.0 };
/// let schedule = LinearWarmup { total_iters: 10, start_factor: 0.0, then: cosine };
/// assert_eq!([0, 5, 10, 100].map(|step| schedule.lr(0.2, step)), [0.0, 0.1, 0.2, 0.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearWarmup<S> {
    /// The number of steps of the warmup.
    pub total_iters: u64,
    /// The factor of the base at step 0.
    pub start_factor: f64,
    /// The schedule after it.
    pub then: S,
}

impl<S: Schedule> Schedule for LinearWarmup<S> {
    fn lr(&self, base: f64, step: u64) -> f64 {
        if step >= self.total_iters {
            return self.then.lr(base, step - self.total_iters);
        }
        let LinearWarmup { start_factor, total_iters, .. } = *self;
        base * (start_factor + (1.0 - start_factor) * step as f64 / total_iters as f64)
    }
}
