//! Learning rates reduced when a metric stops improving.

use super::scheduler::{LearningRates, either};
use crate::optim::Optimizer;
use crate::state::MetricMode;
use pullback::{Error, Result};
use serde_json::{Value, json};

const NAME: &str = "ReduceLrOnPlateau";

/// When [`PlateauScheduler`] reduces learning rates: `torch.optim.lr_scheduler.ReduceLROnPlateau`,
/// with its meanings and defaults.
///
/// ```
/// use pullback_nn::schedule::ReduceLrOnPlateau;
/// use pullback_nn::state::MetricMode;
/// // For an accuracy: halved when it has not risen for three epochs.
/// let options = ReduceLrOnPlateau {
///     mode: MetricMode::Max,
///     factor: 0.5,
///     patience: 2,
///     ..ReduceLrOnPlateau::default()
/// };
/// assert_eq!((options.threshold, options.min_lr), (1e-4, 0.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReduceLrOnPlateau {
    /// Whether the metric should fall (a loss) or rise (an accuracy).
    pub mode: MetricMode,
    /// The factor by which learning rates are multiplied.
    pub factor: f64,
    /// The number of epochs without improvement that are tolerated before that.
    pub patience: u64,
    /// By how much a metric must improve on the best one to count.
    pub threshold: f64,
    /// Whether that is a fraction of the best one.
    pub threshold_mode: ThresholdMode,
    /// The number of epochs after a reduction in which metrics are ignored.
    pub cooldown: u64,
    /// A lower bound of all learning rates.
    pub min_lr: f64,
    /// Reductions by no more than this are not made.
    pub eps: f64,
}

/// What a threshold is relative to.
///
/// ```
/// use pullback_nn::schedule::{ReduceLrOnPlateau, ThresholdMode};
/// // A loss counts as better if it fell by 0.01.
/// let options = ReduceLrOnPlateau {
///     threshold: 0.01,
///     threshold_mode: ThresholdMode::Abs,
///     ..ReduceLrOnPlateau::default()
/// };
/// assert_ne!(options.threshold_mode, ReduceLrOnPlateau::default().threshold_mode);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdMode {
    /// A fraction of the best metric.
    Rel,
    /// An absolute difference.
    Abs,
}

impl Default for ReduceLrOnPlateau {
    fn default() -> ReduceLrOnPlateau {
        ReduceLrOnPlateau {
            mode: MetricMode::Min,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            threshold_mode: ThresholdMode::Rel,
            cooldown: 0,
            min_lr: 0.0,
            eps: 1e-8,
        }
    }
}

impl ReduceLrOnPlateau {
    fn is_better(&self, metric: f64, best: f64) -> bool {
        match (self.mode, self.threshold_mode) {
            (MetricMode::Min, ThresholdMode::Rel) => metric < best * (1.0 - self.threshold),
            (MetricMode::Min, ThresholdMode::Abs) => metric < best - self.threshold,
            (MetricMode::Max, ThresholdMode::Rel) => metric > best * (1.0 + self.threshold),
            (MetricMode::Max, ThresholdMode::Abs) => metric > best + self.threshold,
        }
    }
}

/// Reduces the learning rates of an optimiser when a metric stops improving.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, UpdateRule, Sgd};
/// use pullback_nn::schedule::{PlateauScheduler, ReduceLrOnPlateau};
///
/// let opt = Sgd { lr: 1.0, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
/// let options = ReduceLrOnPlateau { patience: 1, factor: 0.5, ..Default::default() };
/// let mut scheduler = PlateauScheduler::new(&opt, options)?;
/// for loss in [3.0, 2.0, 2.0, 2.0] {
///     scheduler.step(loss);
/// }
/// assert_eq!(opt.lrs()[0].item::<f64>(), 0.5);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PlateauScheduler {
    options: ReduceLrOnPlateau,
    lrs: LearningRates,
    /// The best metric so far.
    best: Option<f64>,
    num_bad_epochs: u64,
    cooldown_counter: u64,
}

impl PlateauScheduler {
    /// Leaves the learning rates as they are until the metric stops improving.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// # use pullback_nn::schedule::{PlateauScheduler, ReduceLrOnPlateau};
    /// let opt = Sgd { lr: 0.1, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// let scheduler = PlateauScheduler::new(&opt, ReduceLrOnPlateau::default())?;
    /// assert_eq!(scheduler.lrs(), [0.1]);
    /// let wrong = ReduceLrOnPlateau { factor: 1.0, ..ReduceLrOnPlateau::default() };
    /// assert!(PlateauScheduler::new(&opt, wrong).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the factor is not from 0 to below 1.
    pub fn new(
        optimizer: &(impl Optimizer + ?Sized),
        options: ReduceLrOnPlateau,
    ) -> Result<PlateauScheduler> {
        if !(0.0..1.0).contains(&options.factor) {
            let message =
                format!("`factor` must be a number from 0 to below 1, not {}", options.factor);
            return Err(Error::argument(NAME, message));
        }
        let lrs = LearningRates::of(optimizer);
        Ok(PlateauScheduler { options, lrs, best: None, num_bad_epochs: 0, cooldown_counter: 0 })
    }

    /// Takes the metric of an epoch, and reduces the learning rates if it stopped improving.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// # use pullback_nn::schedule::{PlateauScheduler, ReduceLrOnPlateau};
    /// let opt = Sgd { lr: 0.5, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// let options = ReduceLrOnPlateau { patience: 0, factor: 0.5, ..Default::default() };
    /// let mut scheduler = PlateauScheduler::new(&opt, options)?;
    /// scheduler.step(2.0);
    /// assert_eq!(scheduler.lrs(), [0.5]);
    /// scheduler.step(2.0);
    /// assert_eq!(scheduler.lrs(), [0.25]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Inside a function that is being compiled, as learning rates are read.
    pub fn step(&mut self, metric: f64) {
        let worst =
            if self.options.mode == MetricMode::Max { f64::NEG_INFINITY } else { f64::INFINITY };
        if self.options.is_better(metric, self.best.unwrap_or(worst)) {
            self.best = Some(metric);
            self.num_bad_epochs = 0;
        } else {
            self.num_bad_epochs += 1;
        }
        if self.cooldown_counter > 0 {
            self.cooldown_counter -= 1;
            self.num_bad_epochs = 0;
        }
        if self.num_bad_epochs > self.options.patience {
            self.reduce();
            self.cooldown_counter = self.options.cooldown;
            self.num_bad_epochs = 0;
        }
    }

    fn reduce(&self) {
        let reduced = |old: f64| {
            let new = (old * self.options.factor).max(self.options.min_lr);
            if old - new > self.options.eps { new } else { old }
        };
        self.lrs.write(self.lrs.read().into_iter().map(reduced));
    }

    /// The current learning rate of each group.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// # use pullback_nn::schedule::{PlateauScheduler, ReduceLrOnPlateau};
    /// let opt = Sgd { lr: 0.1, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// assert_eq!(PlateauScheduler::new(&opt, ReduceLrOnPlateau::default())?.lrs(), [0.1]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Inside a function that is being compiled, as learning rates are read.
    #[doc(alias = "get_last_lr")]
    pub fn lrs(&self) -> Vec<f64> {
        self.lrs.read()
    }

    /// The state for a checkpoint, as JSON.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// # use pullback_nn::schedule::{PlateauScheduler, ReduceLrOnPlateau};
    /// let opt = Sgd { lr: 0.1, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// let mut scheduler = PlateauScheduler::new(&opt, ReduceLrOnPlateau::default())?;
    /// scheduler.step(2.0);
    /// assert_eq!(scheduler.state()["best"], 2.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Inside a function that is being compiled, as learning rates are read.
    #[doc(alias = "state_dict")]
    pub fn state(&self) -> Value {
        let lrs = self.lrs.read();
        json!({
            "lrs": lrs,
            "best": self.best,
            "num_bad_epochs": self.num_bad_epochs,
            "cooldown_counter": self.cooldown_counter,
        })
    }

    /// Continues from a saved [`PlateauScheduler::state`].
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// # use pullback_nn::schedule::{PlateauScheduler, ReduceLrOnPlateau};
    /// let opt = Sgd { lr: 0.1, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// let mut scheduler = PlateauScheduler::new(&opt, ReduceLrOnPlateau::default())?;
    /// scheduler.step(2.0);
    /// let saved = scheduler.state();
    /// scheduler.step(1.0);
    /// scheduler.restore(&saved)?;
    /// assert_eq!(scheduler.state(), saved);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is not such a state, or is that of another number of groups. Nothing is changed then.
    #[doc(alias = "load_state_dict")]
    pub fn restore(&mut self, state: &Value) -> Result<()> {
        let lrs = self.lrs.saved(NAME, state, either(state, "lrs", "rates"))?;
        let count = |name: &str| {
            let wrong =
                || Error::argument(NAME, format!("`{name}` is not a count: {}", state[name]));
            state[name].as_u64().ok_or_else(wrong)
        };
        let best = match &state["best"] {
            Value::Null => None,
            best => match best.as_f64() {
                None => {
                    return Err(Error::argument(NAME, format!("`best` is not a metric: {best}")));
                }
                best => best,
            },
        };
        let (bad, cooldown) = (
            count(either(state, "num_bad_epochs", "bad"))?,
            count(either(state, "cooldown_counter", "cooling"))?,
        );
        (self.best, self.num_bad_epochs, self.cooldown_counter) = (best, bad, cooldown);
        self.lrs.write(lrs);
        Ok(())
    }
}
