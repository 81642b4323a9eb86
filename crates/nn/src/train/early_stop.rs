//! Early stopping.

use super::Metrics;
use crate::state::{MetricMode, json_of, number_in};
use pullback::{Error, Result};
use serde_json::{Value, json};

/// Stops a run when a metric has not improved for some time.
///
/// It checks the metric whenever it was measured: `val_loss` at each evaluation, `epoch_loss` at
/// the end of each epoch. A metric that nothing measures is an error as soon as that is known:
/// after the first evaluation, or the first epoch where nothing is evaluated.
///
/// ```
/// use pullback_nn::state::MetricMode;
/// use pullback_nn::train::EarlyStop;
///
/// let stop = EarlyStop::new("val_accuracy", MetricMode::Max).patience(5);
/// let stop = stop.min_delta(0.001).restore_best(true);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct EarlyStop {
    metric: String,
    best: MetricMode,
    patience: u64,
    min_delta: f64,
    restore: bool,
    /// The best value so far and its step.
    best_value: Option<(f64, u64)>,
    /// How many times in a row it was not better.
    waited: u64,
}

/// What a value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopDecision {
    Better,
    Wait,
    Stop,
}

impl EarlyStop {
    /// Stops when the metric was not better than its best three times in a row.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::state::MetricMode;
    /// use pullback_nn::train::{EarlyStop, Every, Trainer};
    /// let outcome = Trainer::new(&model, &opt)
    ///     .epochs(100)
    ///     .evaluate(Every::Epochs(1), |model| Ok((&model[0] - 1.5).square())) // best at step 1
    ///     .early_stop(EarlyStop::new("val_loss", MetricMode::Min))
    ///     .run(&batches, step)?;
    /// assert_eq!((outcome.step, outcome.best.unwrap().1), (4, 1));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn new(metric: &str, best: MetricMode) -> EarlyStop {
        let metric = metric.to_string();
        EarlyStop {
            metric,
            best,
            patience: 3,
            min_delta: 0.0,
            restore: false,
            best_value: None,
            waited: 0,
        }
    }

    /// The number of measurements in a row without improvement that stops the run; 3 by default, at
    /// least 1.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::state::MetricMode;
    /// use pullback_nn::train::{EarlyStop, Every, Trainer};
    /// let outcome = Trainer::new(&model, &opt)
    ///     .epochs(100)
    ///     .evaluate(Every::Epochs(1), |_| Ok(1.0))
    ///     .early_stop(EarlyStop::new("val_loss", MetricMode::Min).patience(5))
    ///     .run(&batches, step)?;
    /// assert_eq!(outcome.step, 6);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn patience(self, times: u64) -> EarlyStop {
        EarlyStop { patience: times.max(1), ..self }
    }

    /// The smallest improvement that counts; 0 by default.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::state::MetricMode;
    /// use pullback_nn::train::{EarlyStop, Every, Trainer};
    /// let mut loss = 1.0;
    /// let outcome = Trainer::new(&model, &opt)
    ///     .epochs(100)
    ///     .evaluate(Every::Epochs(1), |_| { loss -= 0.0001; Ok(loss) })
    ///     .early_stop(EarlyStop::new("val_loss", MetricMode::Min).min_delta(0.001))
    ///     .run(&batches, step)?;
    /// assert_eq!(outcome.step, 4);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn min_delta(self, delta: f64) -> EarlyStop {
        EarlyStop { min_delta: delta, ..self }
    }

    /// Whether the model gets the weights of the best step when the run ends, for whatever reason;
    /// `false` by default.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::state::MetricMode;
    /// use pullback_nn::train::{EarlyStop, Every, Trainer};
    /// let stop = EarlyStop::new("val_loss", MetricMode::Min).restore_best(true);
    /// Trainer::new(&model, &opt)
    ///     .epochs(100)
    ///     .evaluate(Every::Epochs(1), |model| Ok((&model[0] - 1.5).square())) // best at step 1
    ///     .early_stop(stop)
    ///     .run(&batches, step)?;
    /// assert!((model[0].item::<f32>() - 1.5).abs() < 1e-6);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[doc(alias = "restore_best_weights")]
    pub fn restore_best(self, restore: bool) -> EarlyStop {
        EarlyStop { restore, ..self }
    }

    pub(crate) fn restores(&self) -> bool {
        self.restore
    }

    /// The metric that it monitors.
    pub(crate) fn metric(&self) -> &str {
        &self.metric
    }

    /// The best value so far and its step; `None` before the first measurement. After a run it is
    /// in [`Outcome::best`](super::Outcome::best).
    ///
    /// ```
    /// use pullback_nn::state::MetricMode;
    /// use pullback_nn::train::EarlyStop;
    /// assert_eq!(EarlyStop::new("val_loss", MetricMode::Min).best(), None);
    /// ```
    #[must_use]
    pub fn best(&self) -> Option<(f64, u64)> {
        self.best_value
    }

    pub(crate) fn update(&mut self, step: u64, metrics: &Metrics) -> StopDecision {
        let Some(value) = metrics.get(&self.metric) else { return StopDecision::Wait };
        let better = self
            .best_value
            .map_or(!value.is_nan(), |(held, _)| self.best.is_better(value, held, self.min_delta));
        if better {
            (self.best_value, self.waited) = (Some((value, step)), 0);
            return StopDecision::Better;
        }
        self.waited += 1;
        if self.waited >= self.patience { StopDecision::Stop } else { StopDecision::Wait }
    }

    /// Why it stopped.
    pub(crate) fn reason(&self) -> String {
        let EarlyStop { metric, waited, .. } = self;
        let best = match self.best_value {
            Some((value, step)) => format!("; the best was {value} at step {step}"),
            None => String::new(),
        };
        format!("{metric} was not better {waited} times in a row{best}")
    }

    pub(crate) fn state(&self) -> Value {
        let held =
            self.best_value.map(|(value, step)| json!({ "value": json_of(value), "step": step }));
        json!({ "metric": self.metric, "best": held, "waited": self.waited })
    }

    /// Continues from a saved state; that of another metric is ignored.
    pub(crate) fn restore_state(&mut self, state: &Value) -> Result<()> {
        if state["metric"] != self.metric.as_str() {
            return Ok(());
        }
        let wrong =
            || Error::argument("train", format!("{state} is not a state of early stopping"));
        self.waited = state["waited"].as_u64().ok_or_else(wrong)?;
        self.best_value = match &state["best"] {
            Value::Null => None,
            held => Some(number_in(&held["value"]).zip(held["step"].as_u64()).ok_or_else(wrong)?),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_and_delta() {
        let mut stop = EarlyStop::new("loss", MetricMode::Min).patience(2).min_delta(0.1);
        let values = [1.0, 0.95, 0.85, f64::NAN, 0.8];
        let verdicts: Vec<StopDecision> =
            (1..).zip(values).map(|(i, v)| stop.update(i, &Metrics::from(v))).collect();
        use StopDecision::{Better, Stop, Wait};
        assert_eq!(verdicts, [Better, Wait, Better, Wait, Stop]);
        assert_eq!(
            stop.reason(),
            "loss was not better 2 times in a row; the best was 0.85 at step 3"
        );
        assert_eq!(stop.update(6, &Metrics::new().with("other", 0.0)), Wait);
        let mut other = EarlyStop::new("loss", MetricMode::Min);
        other.restore_state(&stop.state()).unwrap();
        assert_eq!((other.best_value, other.waited), (Some((0.85, 3)), 2));
    }

    #[test]
    fn a_best_that_is_infinite_comes_back() {
        let mut stop = EarlyStop::new("loss", MetricMode::Min);
        assert_eq!(stop.update(1, &Metrics::from(f64::INFINITY)), StopDecision::Better);
        let mut other = EarlyStop::new("loss", MetricMode::Min);
        let state = serde_json::from_str(&stop.state().to_string()).unwrap();
        other.restore_state(&state).unwrap();
        assert_eq!(other.best_value, Some((f64::INFINITY, 1)));
    }

    #[test]
    fn a_first_nan_is_no_best() {
        let mut stop = EarlyStop::new("loss", MetricMode::Min);
        assert_eq!(stop.update(1, &Metrics::from(f64::NAN)), StopDecision::Wait);
        assert_eq!(stop.update(2, &Metrics::from(3.0)), StopDecision::Better);
    }
}
