//! Schedules in a training loop.

use super::Metrics;
use crate::schedule::{PlateauScheduler, Schedule, Scheduler};
use pullback::Result;
use serde_json::Value;

/// A schedule that a training loop steps.
pub trait Scheduled {
    /// Moves to the next step, with the metrics.
    fn advance(&mut self, metrics: &Metrics);

    /// The metric that it monitors, if any.
    fn metric(&self) -> Option<&str> {
        None
    }

    /// The state for a checkpoint.
    fn state(&self) -> Value;

    /// Continues from a saved [`Scheduled::state`].
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

/// A plateau schedule with the metric that it monitors.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{UpdateRule, Sgd};
/// use pullback_nn::schedule::{PlateauScheduler, ReduceLrOnPlateau};
/// use pullback_nn::train::{Metrics, Scheduled, MonitoredPlateau};
///
/// let optimizer = Sgd { lr: 1.0, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
/// let options = ReduceLrOnPlateau { patience: 0, factor: 0.5, ..Default::default() };
/// let scheduler = PlateauScheduler::new(&optimizer, options)?;
/// let mut schedule = MonitoredPlateau::new("val_loss", scheduler);
/// for loss in [3.0, 3.0] {
///     schedule.advance(&Metrics::new().with("loss", 0.0));
///     schedule.advance(&Metrics::new().with("val_loss", loss));
/// }
/// assert_eq!(schedule.scheduler().lrs(), [0.5]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MonitoredPlateau {
    metric: String,
    scheduler: PlateauScheduler,
}

impl MonitoredPlateau {
    /// Monitors this metric.
    #[must_use]
    pub fn new(metric: &str, scheduler: PlateauScheduler) -> MonitoredPlateau {
        MonitoredPlateau { metric: metric.to_string(), scheduler }
    }

    /// The schedule.
    #[must_use]
    pub fn scheduler(&self) -> &PlateauScheduler {
        &self.scheduler
    }
}

impl Scheduled for MonitoredPlateau {
    fn advance(&mut self, metrics: &Metrics) {
        if let Some(value) = metrics.get(&self.metric) {
            self.scheduler.step(value);
        }
    }

    fn metric(&self) -> Option<&str> {
        Some(&self.metric)
    }

    fn state(&self) -> Value {
        self.scheduler.state()
    }

    fn go_to(&mut self, state: &Value) -> Result<()> {
        self.scheduler.restore(state)
    }
}
