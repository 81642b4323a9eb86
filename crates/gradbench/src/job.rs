//! A function of an eval, ready to run, and how it is timed.

use pullback::{Jit, JitOutput, Tensor, Tree};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Instant;

/// From the input of a message to something that runs.
pub(crate) type JobFactory = fn(&Value) -> Result<Job, String>;

/// How often to run, at least, and for how long.
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

/// The most runs of one message, and the longest time for them: every run is listed in the answer.
const RUNS: u64 = 10_000_000;
const SECONDS: f64 = 3600.0;

impl Runs {
    pub(crate) fn of(input: &Value) -> Result<Runs, String> {
        let runs = match input {
            Value::Object(_) => read(input)?,
            // The eval `hello` sends a bare number.
            _ => Runs { min_runs: 1, min_seconds: 0.0 },
        };
        if runs.min_runs > RUNS {
            return Err(format!("min_runs is {}, and {RUNS} are the most", runs.min_runs));
        }
        if !(0.0..=SECONDS).contains(&runs.min_seconds) {
            return Err(format!("min_seconds is {}, not from 0 to {SECONDS}", runs.min_seconds));
        }
        Ok(runs)
    }
}

/// The input of a message, an object, as a type.
pub(crate) fn read<T: DeserializeOwned>(input: &Value) -> Result<T, String> {
    if !input.is_object() {
        return Err("the input is not an object".into());
    }
    T::deserialize(input).map_err(|error| format!("the input does not fit: {error}"))
}

/// The input of a message that is a number.
pub(crate) fn number(input: &Value) -> Result<Tensor, String> {
    f64::deserialize(input).map(Tensor::from).map_err(|e| format!("the input does not fit: {e}"))
}

/// One evaluation, that can be run again and again.
pub(crate) struct Job {
    run: Box<dyn Runner>,
}

trait Runner {
    /// Compiles what is to be compiled.
    fn prepare(&mut self) -> pullback::Result<()>;
    /// Runs once and gives the nanoseconds that took.
    fn run(&mut self) -> u64;
    /// The output of the last run.
    fn output(&self) -> Value;
}

struct CachedFunction<P, F, O, S> {
    prepare: P,
    run: F,
    last: Option<O>,
    show: S,
}

impl<O, P, F, S> Runner for CachedFunction<P, F, O, S>
where
    P: FnMut() -> pullback::Result<()>,
    F: FnMut() -> O,
    S: Fn(&O) -> Value,
{
    fn prepare(&mut self) -> pullback::Result<()> {
        (self.prepare)()
    }

    fn run(&mut self) -> u64 {
        // Given back first, so that the next result takes the same memory and not fresh pages.
        self.last = None;
        let start = Instant::now();
        let output = (self.run)();
        let time = start.elapsed().as_nanos() as u64;
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
        Job { run: Box::new(CachedFunction { prepare: || Ok(()), run, last: None, show }) }
    }

    /// A compiled function of `x`.
    pub(crate) fn compiled<T, Y, F>(
        f: Jit<T, Y, F>,
        x: T,
        show: impl Fn(&Y::Value) -> Value + 'static,
    ) -> Job
    where
        T: Tree + 'static,
        Y: JitOutput<Value: 'static> + 'static,
        F: Fn(&T) -> Y + 'static,
    {
        Job::finished(f, x, |y| y, show)
    }

    /// A compiled function of `x`, and what is made of its result.
    pub(crate) fn finished<T, Y, F, O: 'static>(
        f: Jit<T, Y, F>,
        x: T,
        finish: impl Fn(Y::Value) -> O + 'static,
        show: impl Fn(&O) -> Value + 'static,
    ) -> Job
    where
        T: Tree + 'static,
        Y: JitOutput + 'static,
        F: Fn(&T) -> Y + 'static,
    {
        let (f, x) = (Rc::new(f), Rc::new(x));
        let (again, same) = (f.clone(), x.clone());
        let prepare = move || again.compile(&same);
        Job {
            run: Box::new(CachedFunction {
                prepare,
                run: move || finish(f.of(&x)),
                last: None,
                show,
            }),
        }
    }

    /// Compiles, and runs as often and as long as requested.
    pub(crate) fn measure(mut self, runs: &Runs) -> Result<Measured, String> {
        let start = Instant::now();
        self.run.prepare().map_err(|error| error.to_string())?;
        let prepare = start.elapsed().as_nanos() as u64;
        let (mut evaluate, mut total) = (Vec::new(), 0.0);
        // Once at least: there must be something to answer.
        while evaluate.len() < runs.min_runs.max(1) as usize
            || (total < runs.min_seconds && evaluate.len() < RUNS as usize)
        {
            evaluate.push(self.run.run());
            total += evaluate[evaluate.len() - 1] as f64 * 1e-9;
        }
        let output = self.run.output();
        match is_finite(&output) {
            true => Ok(Measured { output, timings: Timings { prepare, evaluate } }),
            false => Err("the result is not finite".into()),
        }
    }
}

/// What a job gave, and how long it took.
#[derive(Serialize)]
pub(crate) struct Measured {
    output: Value,
    timings: Timings,
}

/// Nanoseconds of compiling, and of every run.
struct Timings {
    prepare: u64,
    evaluate: Vec<u64>,
}

impl Serialize for Timings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Timing {
            name: &'static str,
            nanoseconds: u64,
        }
        let prepare = Timing { name: "prepare", nanoseconds: self.prepare };
        let runs = self.evaluate.iter();
        let runs = runs.map(|&nanoseconds| Timing { name: "evaluate", nanoseconds });
        serializer.collect_seq(std::iter::once(prepare).chain(runs))
    }
}

/// Whether an output has no number that JSON cannot say.
fn is_finite(output: &Value) -> bool {
    match output {
        Value::Null => false,
        Value::Array(items) => items.iter().all(is_finite),
        Value::Object(fields) => fields.values().all(is_finite),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// A tensor as JSON: a number, or lists of lists; what is not finite is null.
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
