//! What a training loop needs of a schedule.

use super::Metrics;
use crate::schedule::{PlateauScheduler, Schedule, Scheduler};
use pullback::Result;
use serde_json::Value;

/// A schedule that a training loop steps.
pub trait Scheduled {
    /// Goes on to the next step, with what was measured.
    fn advance(&mut self, metrics: &Metrics);

    /// The metric that it looks at, if it looks at one.
    fn metric(&self) -> Option<&str> {
        None
    }

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

/// A plateau schedule with the metric that it looks at, whenever that was measured.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{UpdateRule, Sgd};
/// use pullback_nn::schedule::{Plateau, PlateauScheduler};
/// use pullback_nn::train::{Metrics, Scheduled, Watching};
///
/// let optimizer = Sgd { lr: 1.0, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
/// let how = Plateau { patience: 0, factor: 0.5, ..Plateau::default() };
/// let mut schedule = Watching::new("val_loss", PlateauScheduler::new(&optimizer, how)?);
/// for loss in [3.0, 3.0] {
///     schedule.advance(&Metrics::new().with("loss", 0.0));
///     schedule.advance(&Metrics::new().with("val_loss", loss));
/// }
/// assert_eq!(schedule.scheduler().lrs(), [0.5]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Watching {
    metric: String,
    scheduler: PlateauScheduler,
}

impl Watching {
    /// Looks at this metric.
    #[must_use]
    pub fn new(metric: &str, scheduler: PlateauScheduler) -> Watching {
        Watching { metric: metric.to_string(), scheduler }
    }

    /// The schedule.
    #[must_use]
    pub fn scheduler(&self) -> &PlateauScheduler {
        &self.scheduler
    }
}

impl Scheduled for Watching {
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
