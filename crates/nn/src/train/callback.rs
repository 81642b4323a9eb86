//! Callbacks of a training loop.

use super::{Metrics, Outcome};
use crate::precision::Overflow;
use pullback::{Result, Tensor};
use std::ops::ControlFlow;

/// What callbacks get.
#[derive(Clone, Copy, Debug)]
pub struct TrainState<'a> {
    /// How many steps were taken, since the very beginning.
    pub step: u64,
    /// How many epochs were finished.
    pub epoch: u64,
    /// How many steps there will be, if known.
    pub last_step: Option<u64>,
    /// What this step measured: its own metrics, `lr`, `epoch_…` with means at the end of an epoch,
    /// `val_…` after an evaluation.
    pub metrics: &'a Metrics,
    /// Seconds of training, over all the times the run was resumed.
    pub seconds: f64,
    /// The parameters by name. Their gradients are those of this step, unless it cleared them.
    pub parameters: &'a [(String, Tensor)],
    /// Why this step was skipped, if it was run again to know that: see
    /// [`Trainer::scaler`](super::Trainer::scaler).
    pub overflow: Option<&'a Overflow>,
}

/// Whether to continue, or why not.
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
///             Some(loss) if loss < self.0 => LoopControl::Break(format!("the loss is below {}", self.0)),
///             _ => LoopControl::Continue(()),
///         })
///     }
/// }
/// ```
pub trait Callback {
    /// Before the first step, or the first one after resuming: `now.step` were taken already.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_start(&mut self, now: &TrainState) -> Result<()> {
        let _ = now;
        Ok(())
    }

    /// After each step, and after what was due with it.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
        let _ = now;
        Ok(LoopControl::Continue(()))
    }

    /// After the last step of each epoch.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_epoch(&mut self, now: &TrainState) -> Result<LoopControl> {
        let _ = now;
        Ok(LoopControl::Continue(()))
    }

    /// After each evaluation.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_eval(&mut self, now: &TrainState) -> Result<LoopControl> {
        let _ = now;
        Ok(LoopControl::Continue(()))
    }

    /// At the end, unless it was an error.
    ///
    /// # Errors
    /// An error ends the run.
    fn on_end(&mut self, now: &TrainState, outcome: &Outcome) -> Result<()> {
        let _ = (now, outcome);
        Ok(())
    }
}
