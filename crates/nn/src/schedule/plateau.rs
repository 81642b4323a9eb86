//! Rates that fall when nothing gets better.

use super::scheduler::Rates;
use crate::optim::Optimizer;
use pullback::{Error, Result};
use serde_json::{Value, json};

/// When [`PlateauScheduler`] lowers rates: `torch.optim.lr_scheduler.ReduceLROnPlateau`, with its meanings and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plateau {
    /// Better is higher (an accuracy), not lower (a loss).
    pub higher_is_better: bool,
    /// What rates are multiplied by.
    pub factor: f64,
    /// How many times in a row the metric may fail to get better before that.
    pub patience: u64,
    /// What counts as better.
    pub threshold: Threshold,
    /// After rates were lowered, so many metrics do not count.
    pub cooldown: u64,
    /// No rate gets lower.
    pub lowest: f64,
    /// Rates that would change by no more stay as they are.
    pub eps: f64,
}

/// By how much a metric must be better than the best one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// By this part of the best one (`rel`).
    Relative(f64),
    /// By this much (`abs`).
    Absolute(f64),
}

impl Default for Plateau {
    fn default() -> Plateau {
        Plateau {
            higher_is_better: false,
            factor: 0.1,
            patience: 10,
            threshold: Threshold::Relative(1e-4),
            cooldown: 0,
            lowest: 0.0,
            eps: 1e-8,
        }
    }
}

impl Plateau {
    fn is_better(&self, metric: f64, best: f64) -> bool {
        match (self.higher_is_better, self.threshold) {
            (false, Threshold::Relative(part)) => metric < best * (1.0 - part),
            (false, Threshold::Absolute(much)) => metric < best - much,
            (true, Threshold::Relative(part)) => metric > best * (1.0 + part),
            (true, Threshold::Absolute(much)) => metric > best + much,
        }
    }
}

/// Lowers the rates of an optimiser where a metric has stopped getting better.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, Rule, Sgd};
/// use pullback_nn::schedule::{Plateau, PlateauScheduler};
///
/// let opt = Sgd { rate: 1.0, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
/// let how = Plateau { patience: 1, factor: 0.5, ..Plateau::default() };
/// let mut scheduler = PlateauScheduler::new(&opt, how)?;
/// for loss in [3.0, 2.0, 2.0, 2.0] {
///     scheduler.step(loss);
/// }
/// assert_eq!(opt.rates()[0].item::<f64>(), 0.5);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PlateauScheduler {
    how: Plateau,
    rates: Rates,
    /// The best metric so far; none before the first that is better than nothing.
    best: Option<f64>,
    bad: u64,
    cooling: u64,
}

impl PlateauScheduler {
    /// Starts; the rates stay as they are.
    ///
    /// # Errors
    /// If the factor is not from 0 to below 1.
    pub fn new(optimizer: &(impl Optimizer + ?Sized), how: Plateau) -> Result<PlateauScheduler> {
        if !(0.0..1.0).contains(&how.factor) {
            let message =
                format!("`factor` must be a number from 0 to below 1, not {}", how.factor);
            return Err(Error::argument("Plateau", message));
        }
        let rates = Rates::of(optimizer);
        Ok(PlateauScheduler { how, rates, best: None, bad: 0, cooling: 0 })
    }

    /// Takes note of a metric, and lowers the rates if it is time to.
    pub fn step(&mut self, metric: f64) {
        let worst = if self.how.higher_is_better { f64::NEG_INFINITY } else { f64::INFINITY };
        if self.how.is_better(metric, self.best.unwrap_or(worst)) {
            self.best = Some(metric);
            self.bad = 0;
        } else {
            self.bad += 1;
        }
        if self.cooling > 0 {
            self.cooling -= 1;
            self.bad = 0;
        }
        if self.bad > self.how.patience {
            self.lower();
            self.cooling = self.how.cooldown;
            self.bad = 0;
        }
    }

    fn lower(&self) {
        let lowered = |old: f64| {
            let new = (old * self.how.factor).max(self.how.lowest);
            if old - new > self.how.eps { new } else { old }
        };
        self.rates.write(self.rates.read().into_iter().map(lowered));
    }

    /// The rate of each group now.
    pub fn rates(&self) -> Vec<f64> {
        self.rates.read()
    }

    /// What a checkpoint saves.
    pub fn state(&self) -> Value {
        let rates = self.rates.read();
        json!({ "rates": rates, "best": self.best, "bad": self.bad, "cooling": self.cooling })
    }

    /// Goes on from what [`PlateauScheduler::state`] gave.
    ///
    /// # Errors
    /// If it is not such a state, or is that of another number of groups. Nothing is changed then.
    pub fn restore(&mut self, state: &Value) -> Result<()> {
        let rates = self.rates.saved("Plateau", state, "rates")?;
        let count = |name: &str| {
            let wrong =
                || Error::argument("Plateau", format!("`{name}` is no count: {}", state[name]));
            state[name].as_u64().ok_or_else(wrong)
        };
        let best = match &state["best"] {
            Value::Null => None,
            best => match best.as_f64() {
                None => {
                    return Err(Error::argument("Plateau", format!("`best` is no metric: {best}")));
                }
                best => best,
            },
        };
        let (bad, cooling) = (count("bad")?, count("cooling")?);
        (self.best, self.bad, self.cooling) = (best, bad, cooling);
        self.rates.write(rates);
        Ok(())
    }
}
