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

/// Which value of a metric is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricMode {
    /// The lowest, as of a loss.
    Min,
    /// The highest, as of an accuracy.
    Max,
}

impl MetricMode {
    /// Whether a value is better than another by more than `delta`. Anything is better than NaN,
    /// and NaN is better than nothing.
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

/// A checkpoint that was found.
#[derive(Clone, Debug)]
pub struct FoundCheckpoint {
    /// The checkpoint.
    pub checkpoint: SavedCheckpoint,
    /// Why newer or better ones were skipped, a message each.
    pub passed_over: Vec<String>,
}

impl Checkpoints {
    /// The checkpoints in a folder, which is made when the first is saved. The last three are kept.
    pub fn new(folder: impl Into<PathBuf>) -> Checkpoints {
        Checkpoints { folder: folder.into(), last: 3, best: None }
    }

    /// Keeps the last `count`, at least one.
    pub fn keep_last(self, count: usize) -> Checkpoints {
        Checkpoints { last: count.max(1), ..self }
    }

    /// Also keeps the one with the best value of this metric. A checkpoint that was saved at a step
    /// where the metric was not measured does not count, so evaluate at the steps at which you
    /// save.
    pub fn keep_best(self, metric: &str, best: MetricMode) -> Checkpoints {
        Checkpoints { best: Some((metric.to_string(), best)), ..self }
    }

    /// The metric that says which is best.
    pub(crate) fn best_metric(&self) -> Option<&str> {
        self.best.as_ref().map(|(metric, _)| metric.as_str())
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Saves a checkpoint and then removes those that need not be kept. Gives its folder.
    ///
    /// # Errors
    /// If it cannot be written. Then the others are as they were, and nothing of it is left.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf> {
        let folder = &self.folder;
        std::fs::create_dir_all(folder).map_err(|error| failed(OP, "made", folder, &error))?;
        sweep(folder);
        let number = self.numbered()?.last().map_or(1, |(number, _)| number + 1);
        let name = format!("{number:05}-step-{}", checkpoint.record.step);
        let made = checkpoint.write(folder, &name)?;
        self.prune();
        Ok(made)
    }

    /// The folders of all checkpoints, the newest last. They are not verified.
    ///
    /// # Errors
    /// If the folder is there but cannot be listed.
    pub fn list(&self) -> Result<Vec<PathBuf>> {
        Ok(self.numbered()?.into_iter().map(|(_, path)| path).collect())
    }

    /// The newest valid checkpoint, or none if there is no checkpoint at all.
    ///
    /// # Errors
    /// If there are checkpoints but none is valid: the error says why for each.
    pub fn latest(&self) -> Result<Option<FoundCheckpoint>> {
        let mut folders = self.list()?;
        folders.reverse();
        self.first_good(folders)
    }

    /// The valid checkpoint with the best value of the metric that [`Checkpoints::keep_best`]
    /// named, or none if there is no checkpoint.
    ///
    /// # Errors
    /// If no metric was named, or there are checkpoints but none is good or none has the metric:
    /// then the error lists those there are.
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

    /// The folders that are named as checkpoints are, by number.
    fn numbered(&self) -> Result<Vec<(u64, PathBuf)>> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(OP, "listed", &self.folder, &error)),
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

    /// What the metric was in a checkpoint, as its manifest says.
    fn value(&self, folder: &Path) -> Option<f64> {
        let (metric, _) = self.best.as_ref()?;
        Manifest::read(folder).ok()?.record.metrics.get(metric).copied()
    }

    /// Removes what need not be kept. A checkpoint whose manifest cannot be read is ignored and
    /// left for inspection; what cannot be removed stays.
    fn prune(&self) {
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
