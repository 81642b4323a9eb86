//! A log as a table.

use super::row::{FIXED, LogRow};
use crate::state::replace_file;
use crate::train::{Callback, LoopControl, TrainState};
use pullback::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

/// A callback that writes a CSV file with a row for each step, immediately. A metric that appears
/// later adds a column; cells without a value are empty.
pub struct CsvLog {
    path: PathBuf,
    every: u64,
    columns: Vec<String>,
    file: Option<File>,
}

impl CsvLog {
    /// A log in this file. If it cannot be written, the run ends with an error.
    ///
    /// ```
    #[doc = include_str!("../example_run.txt")]
    /// use pullback_nn::train::{CsvLog, Trainer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("log.csv");
    /// Trainer::new(&model, &opt).epochs(3).callback(CsvLog::new(&path)).run(&batches, step)?;
    /// let text = std::fs::read_to_string(&path).unwrap();
    /// assert!(text.starts_with("step,epoch,seconds,loss,"));
    /// assert_eq!(text.lines().count(), 4);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> CsvLog {
        CsvLog { path: path.into(), every: 1, columns: Vec::new(), file: None }
    }

    /// Writes a row every `steps` steps, and at each evaluation and end of an epoch; 1 by default.
    ///
    /// ```
    #[doc = include_str!("../example_run.txt")]
    /// use pullback_nn::train::{CsvLog, Trainer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("log.csv");
    /// let batches = vec![batches[0].clone(); 10];
    /// Trainer::new(&model, &opt).callback(CsvLog::new(&path).every(5)).run(&batches, step)?;
    /// assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3); // 5, 10, header
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn every(self, steps: u64) -> CsvLog {
        CsvLog { every: steps, ..self }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Error {
        Error::argument("log", format!("{} cannot be written: {error}", self.path.display()))
    }

    /// The whole rows that are in the file, up to a step.
    fn rows(&self, up_to: u64) -> (Vec<String>, Vec<Vec<String>>) {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        // A last line that is not whole was never written.
        let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(&bytes[..end]);
        let cells = |record: &csv::StringRecord| record.iter().map(str::to_string).collect();
        let Some(columns) = reader.headers().ok().map(cells) else { return Default::default() };
        let columns: Vec<String> = columns;
        if columns.first().is_none_or(|first| first != "step") {
            return Default::default();
        }
        let rows: Vec<Vec<String>> = reader.records().flatten().map(|row| cells(&row)).collect();
        let early = |row: &Vec<String>| {
            row.first().and_then(|cell| cell.parse::<u64>().ok()).is_some_and(|step| step <= up_to)
        };
        (columns, rows.into_iter().filter(early).collect())
    }

    /// Rewrites the file with these rows, under all columns.
    fn rewrite(&mut self, rows: Vec<Vec<String>>) -> Result<()> {
        let width = self.columns.len();
        let mut text = String::new();
        for row in std::iter::once(self.columns.clone()).chain(rows) {
            text.push_str(&self.line(row, width)?);
        }
        replace_file("log", &self.path, text.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&self.path);
        self.file = Some(file.map_err(|error| self.failed(&error))?);
        Ok(())
    }

    /// A row as a line, with empty cells at its end.
    fn line(&self, mut row: Vec<String>, width: usize) -> Result<String> {
        row.resize(width.max(row.len()), String::new());
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(&row).map_err(|error| self.failed(&error))?;
        let bytes = writer.into_inner().map_err(|error| self.failed(&error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Callback for CsvLog {
    fn on_start(&mut self, now: &TrainState) -> Result<()> {
        let (columns, rows) = if now.step == 0 { Default::default() } else { self.rows(now.step) };
        self.columns = columns;
        if self.columns.is_empty() {
            self.columns = FIXED.map(str::to_string).to_vec();
        }
        self.rewrite(rows)
    }

    fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
        let Some(row) = LogRow::due(now, self.every) else { return Ok(LoopControl::Continue(())) };
        let known = self.columns.len();
        for (name, _) in row.metrics.iter() {
            if !self.columns.iter().any(|column| column == name) {
                self.columns.push(name.to_string());
            }
        }
        if self.columns.len() > known {
            let (_, rows) = self.rows(u64::MAX);
            self.rewrite(rows)?;
        }
        let fixed = [row.step.to_string(), row.epoch.to_string(), row.seconds.to_string()];
        let value = |name: &String| row.metrics.get(name).map_or(String::new(), |v| v.to_string());
        let metrics = self.columns.iter().skip(FIXED.len()).map(value);
        let line = self.line(fixed.into_iter().chain(metrics).collect(), 0)?;
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(line.as_bytes()));
        written.map_err(|error| self.failed(&error))?;
        Ok(LoopControl::Continue(()))
    }
}
