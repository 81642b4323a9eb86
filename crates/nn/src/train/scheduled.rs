//! Schedules in a training loop.

use super::Metrics;
use crate::schedule::{PlateauScheduler, Schedule, Scheduler};
use pullback::Result;
use serde_json::Value;

/// A schedule that a training loop steps.
pub trait Scheduled {
    /// Moves to the next step, with the metrics of this one.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// use pullback_nn::schedule::{ExponentialLr, Scheduler};
    /// use pullback_nn::train::{Metrics, Scheduled};
    /// let opt = Sgd { lr: 1.0, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// Scheduler::new(&opt, ExponentialLr { gamma: 0.5 }).advance(&Metrics::new());
    /// assert_eq!(opt.lrs()[0].item::<f64>(), 0.5);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn advance(&mut self, metrics: &Metrics);

    /// The metric that the schedule monitors, if any.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::optim::{Sgd, UpdateRule};
    /// use pullback_nn::schedule::PlateauScheduler;
    /// use pullback_nn::train::{MonitoredPlateau, Scheduled};
    /// let opt = Sgd::default().over([Tensor::from(1.0).requires_grad()])?;
    /// let scheduler = PlateauScheduler::new(&opt, Default::default())?;
    /// assert_eq!(MonitoredPlateau::new("val_loss", scheduler).metric(), Some("val_loss"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn metric(&self) -> Option<&str> {
        None
    }

    /// The state, for a checkpoint.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// use pullback_nn::schedule::{ExponentialLr, Scheduler};
    /// use pullback_nn::train::{Metrics, Scheduled};
    /// let opt = Sgd { lr: 1.0, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// let mut schedule = Scheduler::new(&opt, ExponentialLr { gamma: 0.5 });
    /// let start = Scheduled::state(&schedule);
    /// schedule.advance(&Metrics::new());
    /// schedule.go_to(&start)?;
    /// assert_eq!(opt.lrs()[0].item::<f64>(), 1.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[doc(alias = "state_dict")]
    fn state(&self) -> Value;

    /// Continues from a saved [`Scheduled::state`].
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::optim::{Sgd, UpdateRule};
    /// use pullback_nn::schedule::{ExponentialLr, Scheduler};
    /// use pullback_nn::train::Scheduled;
    /// let opt = Sgd { lr: 1.0, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// let mut schedule = Scheduler::new(&opt, ExponentialLr { gamma: 0.5 });
    /// assert!(schedule.go_to(&serde_json::json!("no state")).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is not a state of such a schedule.
    #[doc(alias = "load_state_dict")]
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
    /// A plateau schedule that monitors this metric.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::optim::{Sgd, UpdateRule};
    /// use pullback_nn::schedule::PlateauScheduler;
    /// use pullback_nn::train::{MonitoredPlateau, Scheduled};
    /// let opt = Sgd::default().over([Tensor::from(1.0).requires_grad()])?;
    /// let scheduler = PlateauScheduler::new(&opt, Default::default())?;
    /// assert_eq!(MonitoredPlateau::new("epoch_loss", scheduler).metric(), Some("epoch_loss"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(metric: &str, scheduler: PlateauScheduler) -> MonitoredPlateau {
        MonitoredPlateau { metric: metric.to_string(), scheduler }
    }

    /// The schedule.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::optim::{Sgd, UpdateRule};
    /// use pullback_nn::schedule::PlateauScheduler;
    /// use pullback_nn::train::MonitoredPlateau;
    /// let opt = Sgd { lr: 0.5, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// let scheduler = PlateauScheduler::new(&opt, Default::default())?;
    /// assert_eq!(MonitoredPlateau::new("val_loss", scheduler).scheduler().lrs(), [0.5]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
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
