//! What a training loop needs of a schedule.

use super::Metrics;
use crate::schedule::{Schedule, Scheduler};
use pullback::Result;
use serde_json::Value;

/// A schedule that a training loop steps.
pub trait Scheduled {
    /// Goes on to the next step, with what was measured.
    fn advance(&mut self, metrics: &Metrics);

    /// What a checkpoint keeps.
    fn state(&self) -> Value;

    /// Goes on from what [`Scheduled::state`] gave.
    ///
    /// # Errors
    /// If it is not such a state.
    fn go_to(&mut self, state: &Value) -> Result<()>;
}

impl<S: Schedule> Scheduled for Scheduler<S> {
    fn advance(&mut self, _: &Metrics) {
        self.step();
    }

    fn state(&self) -> Value {
        Scheduler::state(self)
    }

    fn go_to(&mut self, state: &Value) -> Result<()> {
        self.restore(state)
    }
}
