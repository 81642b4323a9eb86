//! How a run ended.

use super::Metrics;
use std::fmt;

/// Why a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All steps were taken.
    Finished,
    /// Early stopping, with the reason.
    Early(String),
    /// It was interrupted.
    Interrupted,
    /// A callback stopped it, for this reason.
    Stopped(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Finished => f.write_str("finished"),
            Ended::Early(why) => write!(f, "stopped early: {why}"),
            Ended::Interrupted => f.write_str("interrupted"),
            Ended::Stopped(why) => write!(f, "stopped: {why}"),
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The number of steps taken, those before resuming included.
    pub step: u64,
    /// The number of epochs finished.
    pub epoch: u64,
    /// The last value of each metric.
    pub metrics: Metrics,
    /// The best value that early stopping saw, and its step.
    pub best: Option<(f64, u64)>,
    /// Why the run ended.
    pub ended: Ended,
    /// Seconds of training, over all the times the run was resumed.
    pub seconds: f64,
    /// Where the size of batches is known ([`Trainer::batch_size`](super::Trainer::batch_size)):
    /// `examples_per_second`, `tokens_per_second` and `mfu` over all steps since it was started or
    /// resumed but the first, which may compile.
    pub throughput: Metrics,
    /// Notes: checkpoints that were skipped because they are corrupt; steps that a scaler skipped,
    /// with the op and line that overflowed first.
    pub notes: Vec<String>,
}
