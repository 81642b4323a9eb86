//! What counts the steps and writes the rates.

use super::Schedule;
use crate::optim::Optimizer;
use pullback::{Error, Result, Tensor};
use serde_json::{Value, json};

/// A schedule at work on an optimiser.
///
/// It writes the rates of the first step when it is made, and the next ones at each [`Scheduler::step`]. Each group keeps its own base:
/// the rate it had when the scheduler was made. Rates are tensors, so a compiled step sees them.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, Rule, Sgd};
/// use pullback_nn::schedule::{Cosine, Scheduler, WarmUp};
///
/// let x = Tensor::from(1.0).requires_grad();
/// let opt = Sgd { rate: 0.1, ..Sgd::default() }.over([x])?;
/// let cosine = Cosine { steps: 90, lowest: 0.0 };
/// let mut scheduler = Scheduler::new(&opt, WarmUp { steps: 10, from: 0.1, then: cosine });
/// assert!((opt.rates()[0].item::<f64>() - 0.01).abs() < 1e-15);
/// for _ in 0..10 {
///     // … loss, backward, opt.step()? …
///     scheduler.step();
/// }
/// assert_eq!(opt.rates()[0].item::<f64>(), 0.1);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scheduler<S> {
    schedule: S,
    rates: Rates,
    bases: Vec<f64>,
    step: u64,
}

impl<S: Schedule> Scheduler<S> {
    /// Starts: writes the rates of step 0.
    ///
    /// # Panics
    /// Inside a function that is being compiled: rates are read.
    pub fn new(optimizer: &(impl Optimizer + ?Sized), schedule: S) -> Scheduler<S> {
        let rates = Rates::of(optimizer);
        let scheduler = Scheduler { schedule, bases: rates.read(), rates, step: 0 };
        scheduler.rates.write(scheduler.rates());
        scheduler
    }

    /// Goes on to the next step: writes its rates. To be called after the optimiser's step.
    pub fn step(&mut self) {
        self.step += 1;
        self.rates.write(self.rates());
    }

    /// How many steps were taken.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// The rate of each group now.
    pub fn rates(&self) -> Vec<f64> {
        self.bases.iter().map(|&base| self.schedule.rate(base, self.step)).collect()
    }

    /// What a checkpoint saves.
    pub fn state(&self) -> Value {
        json!({ "step": self.step, "bases": self.bases })
    }

    /// Goes on from what [`Scheduler::state`] gave.
    ///
    /// # Errors
    /// If it is not such a state, or is that of another number of groups. Nothing is changed then.
    pub fn restore(&mut self, state: &Value) -> Result<()> {
        let wrong =
            || Error::argument("Scheduler", format!("`step` is no count: {}", state["step"]));
        let step = state["step"].as_u64().ok_or_else(wrong)?;
        self.bases = self.rates.saved("Scheduler", state, "bases")?;
        self.step = step;
        self.rates.write(self.rates());
        Ok(())
    }
}

/// The rates of an optimiser's groups.
#[derive(Clone, Debug)]
pub(super) struct Rates(Vec<Tensor>);

impl Rates {
    pub fn of(optimizer: &(impl Optimizer + ?Sized)) -> Rates {
        Rates(optimizer.rates())
    }

    pub fn read(&self) -> Vec<f64> {
        self.0.iter().map(Tensor::item::<f64>).collect()
    }

    pub fn write(&self, rates: impl IntoIterator<Item = f64>) {
        for (rate, value) in self.0.iter().zip(rates) {
            rate.fill_(value);
        }
    }

    /// The rates that a saved state has under this name, one for each group.
    pub fn saved(&self, owner: &'static str, state: &Value, name: &str) -> Result<Vec<f64>> {
        let list = state[name].as_array();
        let saved =
            list.and_then(|list| list.iter().map(Value::as_f64).collect::<Option<Vec<_>>>());
        let Some(saved) = saved else {
            return Err(Error::argument(owner, format!("`{name}` are no rates: {}", state[name])));
        };
        if saved.len() != self.0.len() {
            let (there, here) = (saved.len(), self.0.len());
            let message = format!("the state is of {there} groups, the optimiser has {here}");
            return Err(Error::argument(owner, message));
        }
        Ok(saved)
    }
}
