//! Live memory over a forward and a backward pass: plain, checkpointed, and within a budget.
//!
//! The chain is run, with the ledger of `memory_report` on: what is shown was allocated and freed.

use super::cost::least;
use super::versioned;
use crate::error::{Answer, ExplorerError};
use pullback::{
    DType, Key, MemoryBudget, MemoryPhase, MemoryReport, Result, Tensor, checkpoint, memory_report,
};
use serde_json::{Value, json};
use std::time::Duration;

/// What can be asked for.
pub const LAYERS: u64 = 128;
/// Features, at most.
pub const WIDTH: u64 = 256;
/// Rows, at most.
pub const BATCH: u64 = 256;
/// Segment lengths that are tried, at most.
const TRIED: usize = 32;
/// For how long a way is run again, to time it.
const TIMED: Duration = Duration::from_millis(2);

/// A chain of layers.
struct LayerChain {
    weights: Vec<Tensor>,
    x: Tensor,
}

/// How it is run.
#[derive(Clone, Copy)]
enum MemoryMode {
    Plain,
    Checkpointed(usize),
    Budget(usize),
}

/// `POST /api/memory`.
///
/// # Errors
/// If a number is outside the limits, or a budget cannot be met.
pub fn answer(body: &Value) -> Answer<Value> {
    let number = |name: &str, most: u64, usual: u64| -> Answer<u64> {
        let given = match body.get(name) {
            None | Some(Value::Null) => Some(usual),
            Some(value) => value.as_u64(),
        };
        given.filter(|n| (1..=most).contains(n)).ok_or_else(|| {
            let message = format!("`{name}` must be a whole number from 1 to {most}");
            ExplorerError::request(message).about(name)
        })
    };
    let layers = number("layers", LAYERS, 16)?;
    let (width, batch) = (number("width", WIDTH, 64)?, number("batch", BATCH, 32)?);
    let given = |name: &str| body.get(name).is_some_and(|value| !value.is_null());
    let chain = LayerChain::new(layers as usize, width as usize, batch as usize);
    let (mut plain, expected) = chain.run(MemoryMode::Plain)?;
    plain["seconds"] = json!(chain.seconds(MemoryMode::Plain)?);
    let mut runs = vec![plain];
    let mut others = Vec::new();
    if given("segment") {
        others.push(MemoryMode::Checkpointed(number("segment", layers, 1)? as usize));
    }
    if given("budget") {
        others.push(MemoryMode::Budget(number("budget", 1 << 32, 1)? as usize));
    }
    for way in others {
        let (mut run, gradients) = chain.run(way)?;
        same(&expected, &gradients)?;
        run["seconds"] = json!(chain.seconds(way)?);
        runs.push(run);
    }
    let mut segments = Vec::new();
    let stride = (layers as usize).div_ceil(TRIED);
    for segment in (1..=layers as usize).step_by(stride) {
        let (run, gradients) = chain.run(MemoryMode::Checkpointed(segment))?;
        same(&expected, &gradients)?;
        segments.push(json!({
            "segment": segment, "peak": run["peak"], "kept": run["kept"],
            "recomputed": run["recomputed"],
        }));
    }
    Ok(versioned(json!({
        "layers": layers, "width": width, "batch": batch, "runs": runs, "segments": segments,
    })))
}

impl LayerChain {
    fn new(layers: usize, width: usize, batch: usize) -> LayerChain {
        let scale = 1.5 / (width as f64).sqrt();
        let weight = |i: usize| {
            let key = Key::new(i as u64 + 1);
            key.uniform([width, width], DType::F32, -scale, scale).requires_grad()
        };
        let x = Key::new(0).uniform([batch, width], DType::F32, -1.0, 1.0);
        LayerChain { weights: (0..layers).map(weight).collect(), x }
    }

    fn layer(x: &Tensor, w: &Tensor) -> Tensor {
        x.matmul(w).tanh()
    }

    fn forward(&self, way: MemoryMode) -> Tensor {
        let all = |x: &Tensor, weights: &[Tensor]| {
            weights.iter().fold(x.clone(), |x, w| LayerChain::layer(&x, w))
        };
        match way {
            MemoryMode::Plain | MemoryMode::Budget(_) => all(&self.x, &self.weights).sum(),
            MemoryMode::Checkpointed(segment) => {
                let segments = self.weights.chunks(segment);
                let run = |x: Tensor, weights: &[Tensor]| {
                    let weights = weights.to_vec();
                    checkpoint(move |x: &Tensor| all(x, &weights), &x)
                };
                segments.fold(self.x.clone(), run).sum()
            }
        }
    }

    fn budget(way: MemoryMode) -> Option<MemoryBudget> {
        match way {
            MemoryMode::Plain | MemoryMode::Checkpointed(_) => None,
            MemoryMode::Budget(bytes) => Some(MemoryBudget::new(bytes)),
        }
    }

    /// A forward and a backward pass.
    fn step(&self, way: MemoryMode, budget: Option<&MemoryBudget>) -> Result<()> {
        self.weights.iter().for_each(Tensor::zero_grad);
        match budget {
            None => self.forward(way).backward(),
            Some(budget) => budget.run(|| self.forward(way)).backward(),
        }
    }

    /// The time of a step: warm, as the first of several ways would look slow else, and without the
    /// report, which costs more than a small op.
    fn seconds(&self, way: MemoryMode) -> Answer<f64> {
        let mut failed = None;
        let step = || failed = self.step(way, LayerChain::budget(way).as_ref()).err();
        let seconds = least(TIMED, step).0;
        failed.map_or(Ok(seconds), |error| Err(error.into()))
    }

    /// Runs it, and gives the run and its gradients.
    fn run(&self, way: MemoryMode) -> Answer<(Value, Vec<Tensor>)> {
        let budget = LayerChain::budget(way);
        let ((), report) = memory_report(|| self.step(way, budget.as_ref()))?;
        let gradients = self.weights.iter().filter_map(Tensor::grad).collect();
        let mut run = timeline(&report);
        // The timeline also has what the running op has just saved, before anything is dropped.
        if let Some(budget) = &budget {
            run["kept"] = json!(budget.used().kept);
        }
        let (name, field, size) = match way {
            MemoryMode::Plain => ("plain", None, 0),
            MemoryMode::Checkpointed(segment) => ("checkpointed", Some("segment"), segment),
            MemoryMode::Budget(bytes) => ("budget", Some("budget"), bytes),
        };
        run["name"] = json!(name);
        if let Some(field) = field {
            run[field] = json!(size);
        }
        Ok((run, gradients))
    }
}

fn timeline(report: &MemoryReport) -> Value {
    let (mut entries, mut layer, mut recomputed) = (Vec::new(), 0usize, 0usize);
    let (mut peak, mut kept) = (0, 0);
    for moment in &report.timeline {
        let alive = &moment.alive;
        // What the way of running it decides: parameters and their gradients are as large in all.
        let bytes = alive.activations + alive.temporaries;
        (peak, kept) = (peak.max(bytes), kept.max(alive.activations));
        recomputed += usize::from(moment.again);
        let forward = moment.phase == MemoryPhase::Forward && !moment.again;
        entries.push(json!({
            "op": moment.op, "phase": moment.phase.name(), "bytes": bytes,
            "kept": alive.activations, "layer": forward.then_some(layer),
            "recomputed": moment.again,
        }));
        layer += usize::from(forward && moment.op == "tanh");
    }
    json!({ "peak": peak, "kept": kept, "recomputed": recomputed, "timeline": entries })
}

/// Gradients of two runs, bit for bit.
fn same(a: &[Tensor], b: &[Tensor]) -> Answer {
    let bits = |x: &Tensor| x.to_vec::<f32>().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    match a.len() == b.len() && a.iter().zip(b).all(|(a, b)| bits(a) == bits(b)) {
        true => Ok(()),
        false => Err(ExplorerError::engine("the gradients of two runs differ: please report this")),
    }
}
