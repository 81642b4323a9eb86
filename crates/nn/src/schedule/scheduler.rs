//! Counts the steps and writes the learning rates.

use super::Schedule;
use crate::optim::Optimizer;
use pullback::{Error, Result, Tensor};
use serde_json::{Value, json};

/// Applies a [`Schedule`] to an optimiser.
///
/// It writes the learning rates of step 0 when it is made, and the next ones at each
/// [`Scheduler::step`]. The base of each group is the learning rate it had when the scheduler was
/// made. Learning rates are tensors, so a compiled step sees them.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, UpdateRule, Sgd};
/// use pullback_nn::schedule::{CosineAnnealingLr, Scheduler, LinearWarmup};
///
/// let x = Tensor::from(1.0).requires_grad();
/// let opt = Sgd { lr: 0.1, ..Sgd::default() }.over([x])?;
/// let cosine = CosineAnnealingLr { t_max: 90, eta_min: 0.0 };
/// let warmup = LinearWarmup { total_iters: 10, start_factor: 0.1, then: cosine };
/// let mut scheduler = Scheduler::new(&opt, warmup);
/// assert!((opt.lrs()[0].item::<f64>() - 0.01).abs() < 1e-15);
/// for _ in 0..10 {
///     // … loss, backward, opt.step()? …
///     scheduler.step();
/// }
/// assert_eq!(opt.lrs()[0].item::<f64>(), 0.1);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scheduler<S> {
    schedule: S,
    lrs: LearningRates,
    base_lrs: Vec<f64>,
    step: u64,
}

impl<S: Schedule> Scheduler<S> {
    /// Writes the learning rates of step 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # use pullback_nn::schedule::{ConstantLr, Scheduler};
    /// let opt = Sgd { lr: 0.4, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// Scheduler::new(&opt, ConstantLr { factor: 0.5, total_iters: 10 });
    /// assert_eq!(opt.lrs()[0].item::<f64>(), 0.2);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Inside a function that is being compiled, as learning rates are read.
    pub fn new(optimizer: &(impl Optimizer + ?Sized), schedule: S) -> Scheduler<S> {
        let lrs = LearningRates::of(optimizer);
        let scheduler = Scheduler { schedule, base_lrs: lrs.read(), lrs, step: 0 };
        scheduler.lrs.write(scheduler.lrs());
        scheduler
    }

    /// Writes the learning rates of the next step. Call it after the optimiser's step.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # use pullback_nn::schedule::{ExponentialLr, Scheduler};
    /// let opt = Sgd { lr: 0.4, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// let mut scheduler = Scheduler::new(&opt, ExponentialLr { gamma: 0.5 });
    /// scheduler.step();
    /// assert_eq!(opt.lrs()[0].item::<f64>(), 0.2);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn step(&mut self) {
        self.step += 1;
        self.lrs.write(self.lrs());
    }

    /// The number of steps taken.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// # use pullback_nn::schedule::{ExponentialLr, Scheduler};
    /// let opt = Sgd::default().over([Tensor::from(1.0).requires_grad()])?;
    /// let mut scheduler = Scheduler::new(&opt, ExponentialLr { gamma: 0.5 });
    /// scheduler.step();
    /// assert_eq!(scheduler.steps(), 1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// The current learning rate of each group.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// # use pullback_nn::schedule::{ExponentialLr, Scheduler};
    /// let (x, y) = (Tensor::from(1.0).requires_grad(), Tensor::from(1.0).requires_grad());
    /// let sgd = Sgd { lr: 0.4, ..Sgd::default() };
    /// let opt = sgd.over([x])?.and([y], Sgd { lr: 0.8, ..sgd })?;
    /// let mut scheduler = Scheduler::new(&opt, ExponentialLr { gamma: 0.5 });
    /// scheduler.step();
    /// assert_eq!(scheduler.lrs(), [0.2, 0.4]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Never.
    #[doc(alias = "get_last_lr")]
    pub fn lrs(&self) -> Vec<f64> {
        self.base_lrs.iter().map(|&base| self.schedule.lr(base, self.step)).collect()
    }

    /// The state for a checkpoint, as JSON: the number of steps and the base learning rates.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// # use pullback_nn::schedule::{ExponentialLr, Scheduler};
    /// let opt = Sgd { lr: 0.4, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// let mut scheduler = Scheduler::new(&opt, ExponentialLr { gamma: 0.5 });
    /// scheduler.step();
    /// assert_eq!(scheduler.state(), serde_json::json!({ "step": 1, "base_lrs": [0.4] }));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[doc(alias = "state_dict")]
    pub fn state(&self) -> Value {
        json!({ "step": self.step, "base_lrs": self.base_lrs })
    }

    /// Continues from a saved [`Scheduler::state`].
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// # use pullback_nn::schedule::{ExponentialLr, Scheduler};
    /// let opt = Sgd { lr: 0.4, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// let mut scheduler = Scheduler::new(&opt, ExponentialLr { gamma: 0.5 });
    /// let saved = serde_json::json!({ "step": 2, "base_lrs": [0.4] });
    /// scheduler.restore(&saved)?;
    /// assert_eq!(scheduler.lrs(), [0.1]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is not such a state, or is that of another number of groups. Nothing is changed then.
    #[doc(alias = "load_state_dict")]
    pub fn restore(&mut self, state: &Value) -> Result<()> {
        let wrong =
            || Error::argument("Scheduler", format!("`step` is not a count: {}", state["step"]));
        let step = state["step"].as_u64().ok_or_else(wrong)?;
        self.base_lrs = self.lrs.saved("Scheduler", state, either(state, "base_lrs", "bases"))?;
        self.step = step;
        self.lrs.write(self.lrs());
        Ok(())
    }
}

/// The name under which a state has a value: states of earlier versions have another.
pub(super) fn either<'a>(state: &Value, name: &'a str, before: &'a str) -> &'a str {
    if state[name].is_null() && !state[before].is_null() { before } else { name }
}

/// The learning rates of an optimiser's groups.
#[derive(Clone, Debug)]
pub(super) struct LearningRates(Vec<Tensor>);

impl LearningRates {
    pub fn of(optimizer: &(impl Optimizer + ?Sized)) -> LearningRates {
        LearningRates(optimizer.lrs())
    }

    pub fn read(&self) -> Vec<f64> {
        self.0.iter().map(Tensor::item::<f64>).collect()
    }

    pub fn write(&self, lrs: impl IntoIterator<Item = f64>) {
        for (lr, value) in self.0.iter().zip(lrs) {
            lr.fill_(value);
        }
    }

    /// The learning rates that a saved state has under this name, one for each group.
    pub fn saved(&self, owner: &'static str, state: &Value, name: &str) -> Result<Vec<f64>> {
        let list = state[name].as_array();
        let saved =
            list.and_then(|list| list.iter().map(Value::as_f64).collect::<Option<Vec<_>>>());
        let Some(saved) = saved else {
            return Err(Error::argument(
                owner,
                format!("`{name}` are not learning rates: {}", state[name]),
            ));
        };
        if saved.len() != self.0.len() {
            let (there, here) = (saved.len(), self.0.len());
            let message = format!("the state is of {there} groups, the optimiser has {here}");
            return Err(Error::argument(owner, message));
        }
        Ok(saved)
    }
}
