//! A log of one JSON object a line.

use super::row::LogRow;
use crate::state::replace_file;
use crate::train::{Callback, LoopControl, TrainState};
use pullback::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

/// A callback that writes a JSON object on a line of its own for each step, immediately.
/// [`read_log`](super::read_log) reads the file.
pub struct JsonLog {
    path: PathBuf,
    every: u64,
    file: Option<File>,
}

impl JsonLog {
    /// A log in this file. If it cannot be written, the run ends with an error.
    ///
    /// ```
    #[doc = include_str!("../example_run.txt")]
    /// use pullback_nn::train::{JsonLog, Trainer, read_log};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("log.jsonl");
    /// Trainer::new(&model, &opt).epochs(3).callback(JsonLog::new(&path)).run(&batches, step)?;
    /// assert_eq!(read_log(&path)?[0].metrics.get("loss"), Some(22.5));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> JsonLog {
        JsonLog { path: path.into(), every: 1, file: None }
    }

    /// Writes a line every `steps` steps, and at each evaluation and end of an epoch; 1 by default.
    ///
    /// ```
    #[doc = include_str!("../example_run.txt")]
    /// use pullback_nn::train::{JsonLog, Trainer, read_log};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("log.jsonl");
    /// let batches = vec![batches[0].clone(); 10];
    /// Trainer::new(&model, &opt).callback(JsonLog::new(&path).every(5)).run(&batches, step)?;
    /// assert_eq!(read_log(&path)?.len(), 2); // steps 5 and 10
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn every(self, steps: u64) -> JsonLog {
        JsonLog { every: steps, ..self }
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Error::argument("log", format!("{} cannot be written: {error}", self.path.display()))
    }
}

impl Callback for JsonLog {
    fn on_start(&mut self, now: &TrainState) -> Result<()> {
        let old =
            if now.step == 0 { Vec::new() } else { std::fs::read(&self.path).unwrap_or_default() };
        let old = String::from_utf8_lossy(&old);
        let kept = old.split_inclusive('\n').filter(|line| {
            line.ends_with('\n') && LogRow::from_json(line).is_some_and(|row| row.step <= now.step)
        });
        let kept: String = kept.collect();
        replace_file("log", &self.path, kept.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&self.path);
        self.file = Some(file.map_err(|error| self.failed(&error))?);
        Ok(())
    }

    fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
        if let (Some(row), Some(file)) = (LogRow::due(now, self.every), &mut self.file) {
            // One write, so that a process that is killed leaves at most one line that is not
            // whole.
            let line = format!("{}\n", row.json());
            file.write_all(line.as_bytes()).map_err(|error| self.failed(&error))?;
        }
        Ok(LoopControl::Continue(()))
    }
}
