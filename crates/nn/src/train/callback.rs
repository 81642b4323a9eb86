//! Callbacks of a training loop.

use super::{Metrics, Outcome};
use crate::precision::Overflow;
use pullback::{Result, Tensor};
use std::ops::ControlFlow;

/// The state of a run that callbacks get.
#[derive(Clone, Copy, Debug)]
pub struct TrainState<'a> {
    /// The number of steps taken, those before resuming included.
    pub step: u64,
    /// The number of epochs finished.
    pub epoch: u64,
    /// The number of steps of the whole run, if known.
    pub last_step: Option<u64>,
    /// The metrics of this step: its own, `lr`, means over the epoch as `epoch_…` at the end of an
    /// epoch, and `val_…` after an evaluation.
    pub metrics: &'a Metrics,
    /// Seconds of training, over all the times the run was resumed.
    pub seconds: f64,
    /// The parameters by name. Their gradients are those of this step, unless it cleared them.
    pub parameters: &'a [(String, Tensor)],
    /// Why this step was skipped, if it was run again to know that: see
    /// [`Trainer::scaler`](super::Trainer::scaler).
    pub overflow: Option<&'a Overflow>,
}

/// Whether to continue, or to stop with a reason.
pub type LoopControl = ControlFlow<String>;

/// A callback of a training loop. Its result may stop the run, with a reason.
///
/// ```
/// use pullback::Result;
/// use pullback_nn::train::{Callback, LoopControl, TrainState};
///
/// struct StopBelow(f64);
///
/// impl Callback for StopBelow {
///     fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
///         Ok(match now.metrics.get("loss") {
///             Some(loss) if loss < self.0 => LoopControl::Break(format!("loss below {}", self.0)),
///             _ => LoopControl::Continue(()),
///         })
///     }
/// }
/// ```
pub trait Callback {
    /// Called before the first step, or before the first one after resuming, when `now.step` steps
    /// were already taken.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::{Callback, TrainState, Trainer};
    /// use std::cell::Cell;
    ///
    /// struct Count<'a>(&'a Cell<usize>);
    ///
    /// impl Callback for Count<'_> {
    ///     fn on_start(&mut self, now: &TrainState) -> pullback::Result<()> {
    ///         self.0.set(now.parameters.len());
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let count = Cell::new(0);
    /// Trainer::new(&model, &opt).callback(Count(&count)).run(&batches, step)?;
    /// assert_eq!(count.get(), 1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// An error ends the run.
    fn on_start(&mut self, now: &TrainState) -> Result<()> {
        let _ = now;
        Ok(())
    }

    /// Called after each step, and after the evaluation that was due with it.
    /// [`LoopControl::Break`] stops the run.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback::Result;
    /// use pullback_nn::train::{Callback, LoopControl, TrainState, Trainer};
    ///
    /// struct StopBelow(f64);
    ///
    /// impl Callback for StopBelow {
    ///     fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
    ///         Ok(match now.metrics.get("loss") {
    ///             Some(loss) if loss < self.0 => LoopControl::Break("low enough".to_string()),
    ///             _ => LoopControl::Continue(()),
    ///         })
    ///     }
    /// }
    ///
    /// let trainer = Trainer::new(&model, &opt).epochs(100).callback(StopBelow(1.0));
    /// let outcome = trainer.run(&batches, step)?;
    /// assert_eq!(outcome.step, 4);
    /// assert_eq!(outcome.ended.to_string(), "stopped: low enough");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// An error ends the run.
    fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
        let _ = now;
        Ok(LoopControl::Continue(()))
    }

    /// Called after the last step of each epoch. [`LoopControl::Break`] stops the run.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback::Result;
    /// use pullback_nn::train::{Callback, LoopControl, TrainState, Trainer};
    /// use std::cell::RefCell;
    ///
    /// struct Means<'a>(&'a RefCell<Vec<f64>>);
    ///
    /// impl Callback for Means<'_> {
    ///     fn on_epoch(&mut self, now: &TrainState) -> Result<LoopControl> {
    ///         self.0.borrow_mut().extend(now.metrics.get("epoch_loss"));
    ///         Ok(LoopControl::Continue(()))
    ///     }
    /// }
    ///
    /// let means = RefCell::new(Vec::new());
    /// Trainer::new(&model, &opt).epochs(3).callback(Means(&means)).run(&batches, step)?;
    /// assert_eq!(means.borrow().len(), 3);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// An error ends the run.
    fn on_epoch(&mut self, now: &TrainState) -> Result<LoopControl> {
        let _ = now;
        Ok(LoopControl::Continue(()))
    }

    /// Called after each evaluation. [`LoopControl::Break`] stops the run.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback::Result;
    /// use pullback_nn::train::{Callback, Every, LoopControl, TrainState, Trainer};
    /// use std::cell::RefCell;
    ///
    /// struct Evaluations<'a>(&'a RefCell<Vec<u64>>);
    ///
    /// impl Callback for Evaluations<'_> {
    ///     fn on_eval(&mut self, now: &TrainState) -> Result<LoopControl> {
    ///         self.0.borrow_mut().push(now.step);
    ///         Ok(LoopControl::Continue(()))
    ///     }
    /// }
    ///
    /// let steps = RefCell::new(Vec::new());
    /// Trainer::new(&model, &opt)
    ///     .epochs(5)
    ///     .evaluate(Every::Steps(2), |model| Ok((&model[0] - 3.0).abs()))
    ///     .callback(Evaluations(&steps))
    ///     .run(&batches, step)?;
    /// assert_eq!(*steps.borrow(), [2, 4, 5]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// An error ends the run.
    fn on_eval(&mut self, now: &TrainState) -> Result<LoopControl> {
        let _ = now;
        Ok(LoopControl::Continue(()))
    }

    /// Called when the run ends, unless it ends with an error.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::{Callback, Outcome, TrainState, Trainer};
    /// use std::cell::Cell;
    ///
    /// struct Steps<'a>(&'a Cell<u64>);
    ///
    /// impl Callback for Steps<'_> {
    ///     fn on_end(&mut self, _: &TrainState, outcome: &Outcome) -> pullback::Result<()> {
    ///         self.0.set(outcome.step);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let steps = Cell::new(0);
    /// Trainer::new(&model, &opt).steps(7).callback(Steps(&steps)).run(&batches, step)?;
    /// assert_eq!(steps.get(), 7);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// An error ends the run.
    fn on_end(&mut self, now: &TrainState, outcome: &Outcome) -> Result<()> {
        let _ = (now, outcome);
        Ok(())
    }
}
