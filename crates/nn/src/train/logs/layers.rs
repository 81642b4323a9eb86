//! A log of norms by parameter: what tells a layer that does not learn from one that does.

use crate::state::replace_file;
use crate::train::{Callback, LoopControl, TrainState};
use pullback::{DType, Error, Result, Tensor, no_grad};
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A callback that writes, every so many steps, root mean squares of each parameter and of its
/// gradient, and the size of the step's update relative to the parameter: a JSON object on a line
/// of its own. [`read_layers`] reads the file, and `pullback explore FOLDER` shows it.
pub struct LayerLog {
    path: PathBuf,
    every: u64,
    file: Option<File>,
    /// The parameters before the step that is logged next.
    before: Option<Vec<Tensor>>,
}

/// A row of a log by layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerRow {
    /// The number of steps taken.
    pub step: u64,
    /// The parameters, in the order of the model.
    pub layers: Vec<LayerNorms>,
}

/// The norms of a parameter at a step.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorms {
    /// Its name.
    pub name: String,
    /// How many elements it has.
    pub count: u64,
    /// The root mean square of its gradient; 0 where it has none.
    pub gradient: f64,
    /// The root mean square of its elements, after the step.
    pub weight: f64,
    /// The root mean square of what the step changed, by that of the elements before it.
    pub update: f64,
}

impl LayerLog {
    /// A log in this file. If it cannot be written, the run ends with an error.
    ///
    /// ```
    #[doc = include_str!("../example_run.txt")]
    /// use pullback_nn::train::{LayerLog, Trainer, read_layers};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("layers.jsonl");
    /// Trainer::new(&model, &opt).epochs(3).callback(LayerLog::new(&path)).run(&batches, step)?;
    /// let rows = read_layers(&path)?;
    /// assert_eq!((rows.len(), rows[0].layers[0].count), (3, 1));
    /// assert!((rows[0].layers[0].gradient - 15.0).abs() < 1e-4);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> LayerLog {
        LayerLog { path: path.into(), every: 1, file: None, before: None }
    }

    /// Writes a line every `steps` steps; 1 by default. Only before such a step are the parameters
    /// copied.
    ///
    /// ```
    #[doc = include_str!("../example_run.txt")]
    /// use pullback_nn::train::{LayerLog, Trainer, read_layers};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("layers.jsonl");
    /// let batches = vec![batches[0].clone(); 10];
    /// Trainer::new(&model, &opt).callback(LayerLog::new(&path).every(5)).run(&batches, step)?;
    /// let steps: Vec<u64> = read_layers(&path)?.iter().map(|row| row.step).collect();
    /// assert_eq!(steps, [5, 10]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn every(self, steps: u64) -> LayerLog {
        LayerLog { every: steps.max(1), ..self }
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Error::argument("log", format!("{} cannot be written: {error}", self.path.display()))
    }

    /// Copies the parameters, if the next step is logged.
    fn prepare(&mut self, now: &TrainState) {
        let due = (now.step + 1).is_multiple_of(self.every);
        let copy = || now.parameters.iter().map(|(_, x)| x.detach().deep_clone()).collect();
        self.before = due.then(|| no_grad(copy));
    }
}

impl Callback for LayerLog {
    fn on_start(&mut self, now: &TrainState) -> Result<()> {
        let old =
            if now.step == 0 { Vec::new() } else { std::fs::read(&self.path).unwrap_or_default() };
        let old = String::from_utf8_lossy(&old);
        let kept = old.split_inclusive('\n').filter(|line| {
            let early = |row: LayerRow| row.step <= now.step;
            line.ends_with('\n') && LayerRow::from_json(line).is_some_and(early)
        });
        replace_file("log", &self.path, kept.collect::<String>().as_bytes())?;
        let file = OpenOptions::new().append(true).open(&self.path);
        self.file = Some(file.map_err(|error| self.failed(&error))?);
        self.prepare(now);
        Ok(())
    }

    fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
        let before = self.before.take().filter(|_| now.step.is_multiple_of(self.every));
        if let (Some(before), Some(file)) = (before, &mut self.file) {
            let pairs = now.parameters.iter().zip(&before);
            let layers = no_grad(|| {
                pairs.map(|((name, x), old)| LayerNorms::of(name, x, old)).collect::<Vec<_>>()
            });
            let line = format!("{}\n", LayerRow { step: now.step, layers }.json());
            file.write_all(line.as_bytes()).map_err(|error| self.failed(&error))?;
        }
        self.prepare(now);
        Ok(LoopControl::Continue(()))
    }
}

fn rms(x: &Tensor) -> f64 {
    if x.is_empty() {
        return 0.0;
    }
    x.detach().cast(DType::F64).square().mean().sqrt().item()
}

impl LayerNorms {
    fn of(name: &str, x: &Tensor, old: &Tensor) -> LayerNorms {
        let (size, moved) = (rms(old), rms(&(&x.detach() - old)));
        LayerNorms {
            name: name.to_string(),
            count: x.len() as u64,
            gradient: x.grad().map_or(0.0, |grad| rms(&grad)),
            weight: rms(x),
            update: if moved == 0.0 { 0.0 } else { moved / size },
        }
    }
}

impl LayerRow {
    /// What is not finite is null.
    fn json(&self) -> Value {
        let norms = |n: &LayerNorms| json!([n.count, n.gradient, n.weight, n.update]);
        let layers: Map<String, Value> =
            self.layers.iter().map(|n| (n.name.clone(), norms(n))).collect();
        json!({ "step": self.step, "layers": layers })
    }

    fn from_json(text: &str) -> Option<LayerRow> {
        let value: Value = serde_json::from_str(text).ok()?;
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let norms = |(name, value): (&String, &Value)| {
            let [count, gradient, weight, update] = &value.as_array()?[..] else { return None };
            Some(LayerNorms {
                name: name.clone(),
                count: count.as_u64()?,
                gradient: number(gradient),
                weight: number(weight),
                update: number(update),
            })
        };
        let layers = value.get("layers")?.as_object()?.iter();
        Some(LayerRow {
            step: value.get("step")?.as_u64()?,
            layers: layers.map(norms).collect::<Option<_>>()?,
        })
    }
}

/// Reads the rows of a log that [`LayerLog`] wrote. An incomplete last line is left out.
///
/// ```
/// use pullback_nn::train::read_layers;
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("layers.jsonl");
/// std::fs::write(&path, "{\"step\": 5, \"layers\": {\"0.weight\": [64, 0.5, 1.0, 0.01]}}\n").unwrap();
/// let rows = read_layers(&path)?;
/// assert_eq!((rows[0].step, rows[0].layers[0].update), (5, 0.01));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read, or a line is not a row of such a log; the message names it.
pub fn read_layers(path: impl AsRef<Path>) -> Result<Vec<LayerRow>> {
    let path = path.as_ref();
    let wrong = |what: String| Error::argument("log", format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let row = |(i, line)| {
        LayerRow::from_json(line)
            .ok_or_else(|| wrong(format!("line {} is not a row of norms by layer", i + 1)))
    };
    whole.lines().enumerate().map(row).collect()
}
