//! Learning curves from a log.

use super::Chart;
use crate::train::{Callback, LogRow, Outcome, TrainState, read_log};
use pullback::{Error, Result};
use std::path::PathBuf;

/// How many points make a line worth smoothing.
const MANY: usize = 60;

/// A chart of a metric over the steps of a log: its training values, and those of evaluations
/// (`val_…`), where they were measured.
///
/// Long training curves are smoothed. The axis is logarithmic if all values are positive and they
/// differ by a factor of more than 30.
///
/// ```
/// use pullback_nn::train::plots::learning_curves;
/// use pullback_nn::train::{LogRow, Metrics};
/// let row = |step: u64| {
///     let metrics = Metrics::from(1.0 / step as f64).with("val_loss", 2.0 / step as f64);
///     LogRow { step, epoch: 0, seconds: 0.1 * step as f64, metrics }
/// };
/// let chart = learning_curves(&Vec::from_iter((1..=10).map(row)), "loss");
/// assert!(chart.svg().contains("Loss") && chart.svg().contains("val"));
/// ```
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

/// A callback that draws the curves of all metrics of a [`JsonLog`](crate::train::JsonLog) when a
/// run ends, as SVG and PNG. Those of a resumed run include the steps before, which are in the log.
pub struct Plots {
    log: PathBuf,
    folder: PathBuf,
}

impl Plots {
    /// Draws the metrics of the log at `log` into the folder `folder`: `loss.svg`, `loss.png`, and
    /// so on. Add the callback of the log, [`JsonLog`](crate::train::JsonLog), to the trainer too.
    /// If the log cannot be read or a file cannot be written, the run ends with an error.
    ///
    /// ```
    #[doc = include_str!("../example_run.txt")]
    /// use pullback_nn::train::plots::Plots;
    /// use pullback_nn::train::{JsonLog, Trainer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let log = folder.join("log.jsonl");
    /// Trainer::new(&model, &opt)
    ///     .epochs(3)
    ///     .callback(JsonLog::new(&log))
    ///     .callback(Plots::new(&log, folder))
    ///     .run(&batches, step)?;
    /// assert!(folder.join("loss.svg").is_file());
    /// # Ok::<(), pullback::Error>(())
    /// ```
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
