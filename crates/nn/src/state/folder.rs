//! A folder of checkpoints, of which the last valid one survives.
//!
//! Each is a folder of its own, `00007-step-3500`: numbered in the order in which they were saved,
//! so that a run that resumed from an earlier step has the newest. Old ones are removed only after
//! a new one is in its place.

use super::atomic_write::{failed, remove_folder, sweep};
use super::checkpoint::{Checkpoint, SavedCheckpoint};
use super::manifest::Manifest;
use pullback::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const OP: &str = "checkpoint";

/// Whether the lowest or the highest value of a metric is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricMode {
    /// The lowest, as of a loss.
    Min,
    /// The highest, as of an accuracy.
    Max,
}

impl MetricMode {
    /// Whether `new` is better than `old` by more than `delta`. Any number is better than NaN, and
    /// NaN is never better.
    ///
    /// ```
    /// use pullback_nn::state::MetricMode;
    /// assert!(MetricMode::Min.is_better(0.4, 0.5, 0.01));
    /// assert!(!MetricMode::Max.is_better(0.4, 0.5, 0.0));
    /// assert!(!MetricMode::Min.is_better(f64::NAN, 0.5, 0.0));
    /// ```
    #[must_use]
    pub fn is_better(self, new: f64, old: f64, delta: f64) -> bool {
        let gain = match self {
            MetricMode::Min => old - new,
            MetricMode::Max => new - old,
        };
        gain > delta || (old.is_nan() && !new.is_nan())
    }
}

/// A folder of checkpoints. One process at a time may save to it; any may read.
#[derive(Clone, Debug)]
#[must_use]
pub struct Checkpoints {
    folder: PathBuf,
    last: usize,
    best: Option<(String, MetricMode)>,
}

/// A valid checkpoint that [`Checkpoints::latest`] or [`Checkpoints::best`] found.
#[derive(Clone, Debug)]
pub struct FoundCheckpoint {
    /// The checkpoint.
    pub checkpoint: SavedCheckpoint,
    /// Why newer or better ones were skipped: one message for each.
    pub passed_over: Vec<String>,
}

impl Checkpoints {
    /// The checkpoints in a folder, which is created when the first is saved. The last three are
    /// kept.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let checkpoints = Checkpoints::new(folder.join("run1"));
    /// for step in 1..=5 {
    ///     checkpoints.save(&Checkpoint::of(&Linear::new(2, 1)).at(step, 0))?;
    /// }
    /// assert_eq!(checkpoints.list()?.len(), 3);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn new(folder: impl Into<PathBuf>) -> Checkpoints {
        Checkpoints { folder: folder.into(), last: 3, best: None }
    }

    /// Keeps the last `count` checkpoints (at least 1); 3 by default.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let checkpoints = Checkpoints::new(folder).keep_last(1);
    /// for step in 1..=5 {
    ///     checkpoints.save(&Checkpoint::of(&Linear::new(2, 1)).at(step, 0))?;
    /// }
    /// assert_eq!(checkpoints.list()?, [folder.join("00005-step-5")]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn keep_last(self, count: usize) -> Checkpoints {
        Checkpoints { last: count.max(1), ..self }
    }

    /// Also keeps the checkpoint with the best value of this metric. A checkpoint that was saved at
    /// a step where the metric was not measured does not count, so evaluate at the steps at which
    /// you save.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints, MetricMode};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let model = Linear::new(2, 1);
    /// let checkpoints = Checkpoints::new(folder).keep_last(1);
    /// let checkpoints = checkpoints.keep_best("val_loss", MetricMode::Min);
    /// for (step, loss) in [(1, 0.5), (2, 0.25), (3, 0.75), (4, 0.5)] {
    ///     checkpoints.save(&Checkpoint::of(&model).at(step, 0).metric("val_loss", loss))?;
    /// }
    /// let kept = [folder.join("00002-step-2"), folder.join("00004-step-4")];
    /// assert_eq!(checkpoints.list()?, kept);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn keep_best(self, metric: &str, best: MetricMode) -> Checkpoints {
        Checkpoints { best: Some((metric.to_string(), best)), ..self }
    }

    /// The metric that says which is best.
    pub(crate) fn best_metric(&self) -> Option<&str> {
        self.best.as_ref().map(|(metric, _)| metric.as_str())
    }

    /// The folder.
    ///
    /// ```
    /// use pullback_nn::state::Checkpoints;
    /// assert_eq!(Checkpoints::new("run1").folder(), std::path::Path::new("run1"));
    /// ```
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Saves a checkpoint, then removes those that need not be kept. Returns its folder.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let model = Linear::new(2, 1);
    /// let saved = Checkpoints::new(folder).save(&Checkpoint::of(&model).at(100, 2))?;
    /// assert_eq!(saved, folder.join("00001-step-100"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it cannot be written. Then the others are unchanged, and nothing of it is left.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf> {
        let folder = &self.folder;
        std::fs::create_dir_all(folder).map_err(|error| failed(OP, "made", folder, &error))?;
        sweep(folder);
        let number = numbered(&self.folder)?.last().map_or(1, |(number, _)| number + 1);
        let name = format!("{number:05}-step-{}", checkpoint.record.step);
        let made = checkpoint.write(folder, &name)?;
        self.prune();
        Ok(made)
    }

    /// The folders of all checkpoints, the newest last. They are not verified.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let checkpoints = Checkpoints::new(folder);
    /// assert!(checkpoints.list()?.is_empty());
    /// let saved = checkpoints.save(&Checkpoint::of(&Linear::new(2, 1)))?;
    /// assert_eq!(checkpoints.list()?, [saved]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the folder exists but cannot be listed.
    pub fn list(&self) -> Result<Vec<PathBuf>> {
        Ok(numbered(&self.folder)?.into_iter().map(|(_, path)| path).collect())
    }

    /// The newest valid checkpoint; `None` if there are no checkpoints.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let checkpoints = Checkpoints::new(folder);
    /// assert!(checkpoints.latest()?.is_none());
    /// checkpoints.save(&Checkpoint::of(&Linear::new(2, 1)).at(1, 0))?;
    /// let second = checkpoints.save(&Checkpoint::of(&Linear::new(2, 1)).at(2, 0))?;
    /// std::fs::write(second.join("model.safetensors"), "damaged").unwrap();
    /// let found = checkpoints.latest()?.unwrap();
    /// assert_eq!((found.checkpoint.record.step, found.passed_over.len()), (1, 1));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are checkpoints but none is valid; the message gives the reason for each.
    pub fn latest(&self) -> Result<Option<FoundCheckpoint>> {
        let mut folders = self.list()?;
        folders.reverse();
        self.first_good(folders)
    }

    /// The valid checkpoint with the best value of the metric that [`Checkpoints::keep_best`]
    /// named; `None` if there are no checkpoints.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints, MetricMode};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let model = Linear::new(2, 1);
    /// let checkpoints = Checkpoints::new(folder).keep_best("val_loss", MetricMode::Min);
    /// for (step, loss) in [(1, 0.5), (2, 0.25), (3, 0.75)] {
    ///     checkpoints.save(&Checkpoint::of(&model).at(step, 0).metric("val_loss", loss))?;
    /// }
    /// assert_eq!(checkpoints.best()?.unwrap().checkpoint.record.step, 2);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If no metric was named, no checkpoint has it, or no checkpoint is valid; the message lists
    /// the metrics or reasons.
    pub fn best(&self) -> Result<Option<FoundCheckpoint>> {
        let Some((metric, best)) = &self.best else {
            return Err(Error::argument(OP, "no metric says which checkpoint is best")
                .hint("name one with Checkpoints::keep_best"));
        };
        let readable: Vec<Manifest> =
            self.list()?.iter().filter_map(|folder| Manifest::read(folder).ok()).collect();
        if !readable.is_empty() && !readable.iter().any(|m| m.record.metrics.contains_key(metric)) {
            let known: BTreeSet<&str> =
                readable.iter().flat_map(|m| m.record.metrics.keys()).map(String::as_str).collect();
            let there = match known.is_empty() {
                true => "they hold no metrics".to_string(),
                false => format!("there are {}", Vec::from_iter(known).join(", ")),
            };
            let message =
                format!("no checkpoint in {} has `{metric}`; {there}", self.folder.display());
            return Err(Error::argument(OP, message));
        }
        // Newest first, so that of equals the newest is taken; those that cannot be read come last,
        // to be reported.
        let mut valued: Vec<(PathBuf, f64)> = Vec::new();
        for folder in self.list()?.into_iter().rev() {
            let value = self.value(&folder).unwrap_or(f64::NAN);
            let place = valued.iter().position(|(_, other)| best.is_better(value, *other, 0.0));
            valued.insert(place.unwrap_or(valued.len()), (folder, value));
        }
        self.first_good(valued.into_iter().map(|(folder, _)| folder).collect())
    }

    fn first_good(&self, folders: Vec<PathBuf>) -> Result<Option<FoundCheckpoint>> {
        let mut passed_over = Vec::new();
        for folder in folders {
            match SavedCheckpoint::read(&folder) {
                Ok(checkpoint) => return Ok(Some(FoundCheckpoint { checkpoint, passed_over })),
                Err(error) => passed_over.push(error.message().to_string()),
            }
        }
        if passed_over.is_empty() {
            return Ok(None);
        }
        let message = format!("no checkpoint in {} can be used", self.folder.display());
        Err(passed_over.into_iter().fold(Error::argument(OP, message), Error::detail))
    }

    /// What the metric was in a checkpoint, as its manifest says.
    fn value(&self, folder: &Path) -> Option<f64> {
        let (metric, _) = self.best.as_ref()?;
        Manifest::read(folder).ok()?.record.metrics.get(metric).copied()
    }

    /// Removes what need not be kept. A checkpoint whose manifest cannot be read is ignored and
    /// left for inspection; what cannot be removed stays.
    pub(super) fn prune(&self) {
        let Ok(mut folders) = self.list() else { return };
        folders.retain(|folder| Manifest::read(folder).is_ok());
        let old = folders.len().saturating_sub(self.last);
        let mut champion: Option<(&PathBuf, f64)> = None;
        if let Some((_, best)) = self.best {
            for folder in &folders {
                let Some(value) = self.value(folder).filter(|value| !value.is_nan()) else {
                    continue;
                };
                // Of equals the newest is kept.
                if champion.is_none_or(|(_, held)| !best.is_better(held, value, 0.0)) {
                    champion = Some((folder, value));
                }
            }
        }
        for folder in &folders[..old] {
            if champion.is_none_or(|(kept, _)| kept != folder) {
                let _ = remove_folder(folder);
            }
        }
    }
}

/// The folders in it that are named as checkpoints are, by number.
pub(super) fn numbered(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(OP, "listed", folder, &error)),
    };
    let mut out: Vec<(u64, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let (number, step) = name.to_str()?.split_once("-step-")?;
            step.parse::<u64>().ok()?;
            Some((number.parse().ok()?, entry.path()))
        })
        .collect();
    out.sort();
    Ok(out)
}
