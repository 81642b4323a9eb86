//! What a step did and when: the input of `pullback simulate`.

use pullback::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Instant;

/// When the buckets of a data-parallel step became ready, and how large they were. Times are in
/// seconds.
///
/// ```
/// use pullback_nn::parallel::{BucketTime, StepSchedule};
/// let bucket = BucketTime { bytes: 25 << 20, ready: 0.05 };
/// let schedule = StepSchedule { backward: 0.2, buckets: vec![bucket], ..StepSchedule::default() };
/// let text = serde_json::to_string(&schedule).unwrap();
/// assert_eq!(serde_json::from_str::<StepSchedule>(&text).unwrap(), schedule);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepSchedule {
    /// How many workers recorded it.
    pub workers: usize,
    /// Everything but backward and waiting: the data, the forward pass, the optimiser.
    pub forward: f64,
    /// The backward pass.
    pub backward: f64,
    /// How long the worker waited for sums after backward.
    pub waited: f64,
    /// The buckets, in the order in which they were sent.
    pub buckets: Vec<BucketTime>,
}

/// One bucket of a [`StepSchedule`].
///
/// ```
/// use pullback_nn::parallel::BucketTime;
/// assert_eq!(BucketTime { bytes: 1024, ready: 0.5 }.bytes, 1024);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BucketTime {
    /// Its size.
    pub bytes: usize,
    /// When its last gradient was complete, after the start of backward.
    pub ready: f64,
}

impl StepSchedule {
    /// Writes the schedule as JSON, whole or not at all.
    ///
    /// ```
    /// use pullback_nn::parallel::StepSchedule;
    /// # let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("step.json");
    /// StepSchedule { workers: 2, ..StepSchedule::default() }.save(&path)?;
    /// assert!(std::fs::read_to_string(path).unwrap().contains("\"workers\": 2"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::argument("StepSchedule", error.to_string()))?;
        crate::state::replace_file("StepSchedule", path.as_ref(), text.as_bytes())
    }
}

/// Times one step after the other, and keeps the last.
#[derive(Default)]
pub(super) struct StepTimer {
    finished: Option<Instant>,
    began: Option<Instant>,
    forward: f64,
    backward: f64,
    buckets: Vec<BucketTime>,
    last: Option<StepSchedule>,
}

impl StepTimer {
    pub fn begin(&mut self, traced: bool) {
        if traced || self.began.is_some() {
            return;
        }
        self.forward = self.finished.map_or(0.0, |at| at.elapsed().as_secs_f64());
        self.buckets.clear();
        self.began = Some(Instant::now());
    }

    /// A step that was not finished is not recorded.
    pub fn forget(&mut self) {
        self.began = None;
        self.buckets.clear();
    }

    fn since(&self) -> f64 {
        self.began.map_or(0.0, |at| at.elapsed().as_secs_f64())
    }

    pub fn bucket(&mut self, bytes: usize, traced: bool) {
        if !traced {
            self.buckets.push(BucketTime { bytes, ready: self.since() });
        }
    }

    /// Backward is over.
    pub fn computed(&mut self, traced: bool) {
        if !traced {
            self.backward = self.since();
        }
    }

    /// The sums are there.
    pub fn waited(&mut self, traced: bool) {
        if traced || self.began.is_none() {
            return;
        }
        self.last = Some(StepSchedule {
            workers: 0,
            forward: self.forward,
            backward: self.backward,
            waited: self.since() - self.backward,
            buckets: std::mem::take(&mut self.buckets),
        });
        (self.began, self.finished) = (None, Some(Instant::now()));
    }

    pub fn schedule(&self, workers: usize) -> Option<StepSchedule> {
        self.last.clone().map(|last| StepSchedule { workers, ..last })
    }
}
