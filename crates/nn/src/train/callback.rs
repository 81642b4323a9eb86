//! What may look on while a model is trained, and may stop it.

use super::{Metrics, Outcome};
use crate::precision::Overflow;
use pullback::{Result, Tensor};
use std::ops::ControlFlow;

/// What callbacks are told.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    /// How many steps were taken, since the very beginning.
    pub step: u64,
    /// How many epochs were finished.
    pub epoch: u64,
    /// How many steps there will be, where that is known.
    pub last_step: Option<u64>,
    /// What this step measured: its own metrics, `lr`, `epoch_…` with means at the end of an epoch,
    /// `val_…` after an evaluation.
    pub metrics: &'a Metrics,
    /// Seconds of training, over all the times the run was resumed.
    pub seconds: f64,
    /// The parameters by name. Their gradients are those of this step, unless it forgot them.
    pub parameters: &'a [(String, Tensor)],
    /// Why this step was skipped, if it was run again to know that: see
    /// [`Trainer::scaler`](super::Trainer::scaler).
    pub overflow: Option<&'a Overflow>,
}

/// Whether to go on, or why not.
pub type Flow = ControlFlow<String>;

/// Looks on while a model is trained. What it returns may stop the run, with a reason.
///
/// ```
/// use pullback::Result;
/// use pullback_nn::train::{Callback, Flow, Now};
///
/// struct StopBelow(f64);
///
/// impl Callback for StopBelow {
///     fn on_step(&mut self, now: &Now) -> Result<Flow> {
///         Ok(match now.metrics.get("loss") {
///             Some(loss) if loss < self.0 => Flow::Break(format!("the loss is below {}", self.0)),
///             _ => Flow::Continue(()),
///         })
///     }
/// }
/// ```
pub trait Callback {
    /// Before the first step, or the first one after resuming: `now.step` were taken already.
    ///
    /// # Errors
    /// Whatever keeps it from its work; the run ends with it.
    fn on_start(&mut self, now: &Now) -> Result<()> {
        let _ = now;
        Ok(())
    }

    /// After each step, and after what was due with it.
    ///
    /// # Errors
    /// Whatever keeps it from its work; the run ends with it.
    fn on_step(&mut self, now: &Now) -> Result<Flow> {
        let _ = now;
        Ok(Flow::Continue(()))
    }

    /// After the last step of each epoch.
    ///
    /// # Errors
    /// Whatever keeps it from its work; the run ends with it.
    fn on_epoch(&mut self, now: &Now) -> Result<Flow> {
        let _ = now;
        Ok(Flow::Continue(()))
    }

    /// After each evaluation.
    ///
    /// # Errors
    /// Whatever keeps it from its work; the run ends with it.
    fn on_eval(&mut self, now: &Now) -> Result<Flow> {
        let _ = now;
        Ok(Flow::Continue(()))
    }

    /// At the end, however it came, unless it was an error.
    ///
    /// # Errors
    /// Whatever keeps it from its work.
    fn on_end(&mut self, now: &Now, outcome: &Outcome) -> Result<()> {
        let _ = (now, outcome);
        Ok(())
    }
}
