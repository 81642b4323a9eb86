//! A slow start before another schedule.

use super::Schedule;

/// Rises linearly from `from` times the base rate to all of it in `steps` steps; then `then` takes over, from its own step 0.
///
/// With a [`Cosine`](super::Cosine) after it, this is the schedule that transformers are usually trained with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmUp<S> {
    /// How many steps it takes.
    pub steps: u64,
    /// The fraction of the base rate that it begins with.
    pub from: f64,
    /// What comes next.
    pub then: S,
}

impl<S: Schedule> Schedule for WarmUp<S> {
    fn rate(&self, base: f64, step: u64) -> f64 {
        if step >= self.steps {
            return self.then.rate(base, step - self.steps);
        }
        base * (self.from + (1.0 - self.from) * step as f64 / self.steps as f64)
    }
}
