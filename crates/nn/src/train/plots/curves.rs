//! Learning curves from a log.

use super::Chart;
use crate::train::{Callback, LogRow, Outcome, TrainState, read_log};
use pullback::{Error, Result};
use std::path::PathBuf;

/// How many points make a line worth smoothing.
const MANY: usize = 60;

/// The curve of a metric over the steps of a log: of the steps, and of evaluations, where it was
/// measured.
///
/// Many values of steps are smoothed. A metric that is positive and falls or rises by much has a
/// logarithmic axis.
pub fn learning_curves(rows: &[LogRow], metric: &str) -> Chart {
    let points = |name: &str| -> Vec<(f64, f64)> {
        rows.iter().filter_map(|row| Some((row.step as f64, row.metrics.get(name)?))).collect()
    };
    let (train, val) = (points(metric), points(&format!("val_{metric}")));
    let values = || train.iter().chain(&val).map(|point| point.1).filter(|v| v.is_finite());
    let (low, high) =
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let log = low > 0.0 && high / low > 30.0;
    let title = capitalised(&metric.replace('_', " "));
    let chart = Chart::new(&title).x_label("step").y_label(metric).log_y(log);
    let chart = match train.len() {
        0 => chart,
        n if n > MANY && metric != "lr" => chart.noisy_line("train", train, n / 40),
        _ => chart.line("train", train),
    };
    if val.is_empty() { chart } else { chart.line("val", val) }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Draws the curves of all metrics of a [`JsonLog`](crate::train::JsonLog) when a run ends, as SVG
/// and PNG. A resumed run has those from before, because the log has them.
pub struct Plots {
    log: PathBuf,
    folder: PathBuf,
}

impl Plots {
    /// Of this log, into this folder: `loss.svg`, `loss.png`, and so on. The log's callback must be
    /// there too.
    #[must_use]
    pub fn new(log: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> Plots {
        Plots { log: log.into(), folder: folder.into() }
    }
}

impl Callback for Plots {
    fn on_end(&mut self, _: &TrainState, _: &Outcome) -> Result<()> {
        let rows = read_log(&self.log)?;
        let folder = self.folder.display();
        std::fs::create_dir_all(&self.folder).map_err(|error| {
            Error::argument("plot", format!("{folder} cannot be made: {error}"))
        })?;
        let mut metrics: Vec<&str> = Vec::new();
        for (name, _) in rows.iter().flat_map(|row| row.metrics.iter()) {
            let name = name.strip_prefix("val_").unwrap_or(name);
            if !name.starts_with("epoch_") && !metrics.contains(&name) {
                metrics.push(name);
            }
        }
        for metric in metrics {
            let chart = learning_curves(&rows, metric);
            // A metric may have any name, a file may not.
            let name: String =
                metric.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
            chart.save(self.folder.join(format!("{name}.svg")))?;
            chart.save(self.folder.join(format!("{name}.png")))?;
        }
        Ok(())
    }
}
