//! A function of an eval, ready to run, and how it is timed.

use pullback::Tensor;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Instant;

/// From the input of a message to something that runs.
pub(crate) type Function = fn(&Value) -> Result<Job, String>;

/// How often to run.
#[derive(Deserialize)]
pub(crate) struct Runs {
    #[serde(default = "one")]
    min_runs: u64,
    #[serde(default)]
    min_seconds: f64,
}

fn one() -> u64 {
    1
}

impl Runs {
    pub(crate) fn of(input: &Value) -> Result<Runs, String> {
        match input {
            // The eval `hello` sends a bare number.
            Value::Object(_) => read(input),
            _ => Ok(Runs { min_runs: 1, min_seconds: 0.0 }),
        }
    }
}

/// The input of a message as a type.
pub(crate) fn read<T: DeserializeOwned>(input: &Value) -> Result<T, String> {
    T::deserialize(input).map_err(|error| format!("the input does not fit: {error}"))
}

/// One evaluation, that can be run again and again.
pub(crate) struct Job {
    run: Box<dyn Run>,
}

trait Run {
    /// Runs once and gives the nanoseconds that took.
    fn run(&mut self) -> u128;
    /// The output of the last run.
    fn output(&self) -> Value;
}

struct Kept<F, O, S> {
    run: F,
    last: Option<O>,
    show: S,
}

impl<O, F: FnMut() -> O, S: Fn(&O) -> Value> Run for Kept<F, O, S> {
    fn run(&mut self) -> u128 {
        let start = Instant::now();
        let output = (self.run)();
        let time = start.elapsed().as_nanos();
        self.last = Some(output);
        time
    }

    fn output(&self) -> Value {
        self.last.as_ref().map_or(Value::Null, &self.show)
    }
}

impl Job {
    /// `run` is timed; `show`, which turns its result into JSON, is not.
    pub(crate) fn new<O: 'static>(
        run: impl FnMut() -> O + 'static,
        show: impl Fn(&O) -> Value + 'static,
    ) -> Job {
        Job { run: Box::new(Kept { run, last: None, show }) }
    }

    /// The output and the timings. The first run, in which functions are traced and compiled, is listed as `prepare`.
    pub(crate) fn measure(mut self, runs: Runs) -> Result<(Value, Value), String> {
        let mut timings = vec![json!({ "name": "prepare", "nanoseconds": self.run.run() as u64 })];
        let (mut count, mut total) = (0, 0.0);
        while count < runs.min_runs || total < runs.min_seconds {
            let nanoseconds = self.run.run() as u64;
            timings.push(json!({ "name": "evaluate", "nanoseconds": nanoseconds }));
            count += 1;
            total += nanoseconds as f64 * 1e-9;
        }
        Ok((self.run.output(), Value::Array(timings)))
    }
}

/// A tensor as JSON: a number, or lists of lists.
pub(crate) fn show(x: &Tensor) -> Value {
    fn nested(values: &[f64], shape: &[usize]) -> Value {
        match shape {
            [] => json!(values[0]),
            [_] => json!(values),
            [n, rest @ ..] => {
                let row = rest.iter().product::<usize>();
                (0..*n).map(|i| nested(&values[i * row..][..row], rest)).collect()
            }
        }
    }
    nested(&x.to_vec::<f64>(), x.shape())
}

/// Rows of numbers as a matrix.
pub(crate) fn matrix(name: &str, rows: &[Vec<f64>]) -> Result<Tensor, String> {
    let width = rows.first().map_or(0, Vec::len);
    if let Some(i) = rows.iter().position(|row| row.len() != width) {
        return Err(format!(
            "{name}: row {i} has {} numbers, and the first row {width}",
            rows[i].len()
        ));
    }
    Ok(Tensor::from_vec(rows.concat(), [rows.len(), width]))
}

/// A list of numbers as a vector.
pub(crate) fn vector(values: &[f64]) -> Tensor {
    Tensor::from_vec(values, [values.len()])
}
