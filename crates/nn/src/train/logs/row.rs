//! A row of a log.

use super::super::{Metrics, TrainState};
use pullback::{Error, Result};
use serde_json::{Map, Value};
use std::path::Path;

/// A row of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogRow {
    /// The number of steps taken.
    pub step: u64,
    /// The number of epochs finished.
    pub epoch: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// The metrics.
    pub metrics: Metrics,
}

/// The columns that every row has.
pub(super) const FIXED: [&str; 3] = ["step", "epoch", "seconds"];

impl LogRow {
    /// The current row, if it is due: every `every` steps, and whenever more than the step itself
    /// was measured.
    pub(super) fn due(now: &TrainState, every: u64) -> Option<LogRow> {
        let more = |name: &str| name.starts_with("val_") || name.starts_with("epoch_");
        let due =
            now.step.is_multiple_of(every.max(1)) || now.metrics.iter().any(|(name, _)| more(name));
        due.then(|| LogRow {
            step: now.step,
            epoch: now.epoch,
            seconds: (now.seconds * 1e6).round() / 1e6,
            metrics: now.metrics.clone(),
        })
    }

    /// As JSON. What is not finite is null: JSON cannot represent it. A metric that is named as one
    /// of the columns that every row has is left out.
    pub(super) fn json(&self) -> Value {
        let mut map = Map::new();
        let metrics = self.metrics.iter().filter(|(name, _)| !FIXED.contains(name));
        map.insert("step".to_string(), self.step.into());
        map.insert("epoch".to_string(), self.epoch.into());
        map.insert("seconds".to_string(), self.seconds.into());
        map.extend(metrics.map(|(name, value)| (name.to_string(), value.into())));
        Value::Object(map)
    }

    /// From JSON, if it is such a row.
    pub(super) fn from_json(text: &str) -> Option<LogRow> {
        let value: Map<String, Value> = serde_json::from_str(text).ok()?;
        let metrics = value.iter().filter(|(name, _)| !FIXED.contains(&name.as_str()));
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        Some(LogRow {
            step: value.get("step")?.as_u64()?,
            epoch: value.get("epoch")?.as_u64()?,
            seconds: value.get("seconds")?.as_f64()?,
            metrics: metrics
                .fold(Metrics::new(), |all, (name, value)| all.with(name.clone(), number(value))),
        })
    }
}

/// Reads the rows of a log that [`JsonLog`](super::JsonLog) wrote. An incomplete last line is left
/// out.
///
/// ```
/// use pullback_nn::train::read_log;
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("log.jsonl");
/// let line = r#"{"step": 1, "epoch": 0, "seconds": 0.5, "loss": 2.25}"#;
/// std::fs::write(&path, format!("{line}\n")).unwrap();
/// let rows = read_log(&path)?;
/// assert_eq!((rows[0].step, rows[0].metrics.get("loss")), (1, Some(2.25)));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read, or a line is not a row of a log; the message names it.
pub fn read_log(path: impl AsRef<Path>) -> Result<Vec<LogRow>> {
    let path = path.as_ref();
    let wrong = |what: String| Error::argument("log", format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let row = |(i, line)| {
        LogRow::from_json(line)
            .ok_or_else(|| wrong(format!("line {} is not a row of a log", i + 1)))
    };
    whole.lines().enumerate().map(row).collect()
}
