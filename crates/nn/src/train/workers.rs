//! What the workers of a run tell each other.
//!
//! Every worker runs the same loop; whatever changes its course must be the same on all of them: a
//! worker that stops alone leaves the others waiting in the next collective. So after each step the
//! workers exchange a line each: what they measured, whether something asks them to stop, and what
//! went wrong. From the same lines all draw the same conclusions, in the same arithmetic. Logs,
//! progress and checkpoints are written by worker 0 alone.

use super::Metrics;
use crate::Module;
use crate::parallel::{agree, broadcast, gather_texts};
use crate::state::{json_of, number_in};
use pullback::{DType, Error, Group, Result, Tensor, catch, no_grad};
use serde_json::{Map, Value, json};

const OP: &str = "train";

/// The workers of a run; alone if there is no group.
#[derive(Clone, Default)]
pub(super) struct RunWorkers(pub Option<Group>);

/// What a worker tells the others after a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StatusLine {
    /// What went wrong.
    pub error: Option<String>,
    /// Why the run is to end.
    pub ended: Option<String>,
    /// The number of examples.
    pub examples: Option<u64>,
    pub metrics: Metrics,
}

/// How many seconds were waited for each worker.
pub(super) struct WaitTimes(Vec<f64>);

impl WaitTimes {
    /// In a larger group the slowest alone is logged.
    const LISTED: usize = 16;

    /// The worker that was waited for longest.
    pub fn slowest(&self) -> (usize, f64) {
        let all = self.0.iter().copied().enumerate();
        all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
    }

    /// As metrics.
    pub fn log(&self, metrics: &mut Metrics) {
        let (rank, seconds) = self.slowest();
        metrics.set("slowest_worker", rank as f64);
        metrics.set("waited_for_it", seconds);
        if self.0.len() <= WaitTimes::LISTED {
            for (rank, seconds) in self.0.iter().enumerate() {
                metrics.set(format!("waited_for_{rank}"), *seconds);
            }
        }
    }
}

impl StatusLine {
    fn text(&self) -> String {
        let metrics = self.metrics.iter().map(|(name, value)| (name.to_string(), json_of(value)));
        let metrics: Map<String, Value> = metrics.collect();
        json!({ "error": self.error, "ended": self.ended, "examples": self.examples, "metrics": metrics })
            .to_string()
    }

    fn read(text: &str) -> Option<StatusLine> {
        let value: Value = serde_json::from_str(text).ok()?;
        let word = |key: &str| value[key].as_str().map(str::to_string);
        let mut metrics = Metrics::new();
        for (name, value) in value["metrics"].as_object()? {
            metrics.set(name, number_in(value)?);
        }
        let examples = value["examples"].as_u64();
        Some(StatusLine { error: word("error"), ended: word("ended"), examples, metrics })
    }
}

impl RunWorkers {
    fn others(&self) -> Option<&Group> {
        self.0.as_ref().filter(|group| group.size() > 1)
    }

    /// Whether this worker writes files and prints.
    pub fn is_writer(&self) -> bool {
        self.0.as_ref().is_none_or(|group| group.rank() == 0)
    }

    /// The lines of all workers, in the order of ranks. An error of one is an error of all.
    fn exchange(&self, group: &Group, own: &StatusLine) -> Result<Vec<StatusLine>> {
        let texts = gather_texts(group, &own.text())?;
        let lines: Option<Vec<StatusLine>> =
            texts.iter().map(|text| StatusLine::read(text)).collect();
        let lines =
            lines.ok_or_else(|| Error::argument(OP, "a worker sent a malformed status message"))?;
        match lines.iter().enumerate().find_map(|(rank, line)| Some((rank, line.error.as_ref()?))) {
            None => Ok(lines),
            Some((rank, sentence)) => {
                Err(Error::argument(OP, format!("worker {rank} failed: {sentence}")))
            }
        }
    }

    /// What all workers measured in a step, on average, weighted by their examples where these are
    /// known; and the number of all examples.
    pub fn mean(
        &self,
        own: Result<Metrics>,
        examples: Option<u64>,
    ) -> Result<(Metrics, Option<u64>)> {
        let Some(group) = self.others() else { return Ok((own?, examples)) };
        let own = match own {
            Ok(own) => own,
            Err(error) => {
                // The others may be in the middle of their step, and wait for a gradient.
                group.communicator().fail(&error.to_string());
                return Err(error);
            }
        };
        let line = StatusLine { examples, metrics: own.clone(), ..StatusLine::default() };
        let lines = self.exchange(group, &line)?;
        let all: Option<u64> = lines.iter().map(|line| line.examples).sum();
        let mut means = Metrics::new();
        for (name, value) in own.iter() {
            let values = lines.iter().filter_map(|line| {
                let weight = line.examples.filter(|_| all.is_some()).map_or(1.0, |n| n as f64);
                Some((line.metrics.get(name)?, weight))
            });
            means.set(name, weighted_mean(value, &values.collect::<Vec<_>>()));
        }
        Ok((means, all))
    }

    /// Why the run ends, if any worker says so: the reason of the first.
    pub fn decide(&self, own: Result<Option<String>>) -> Result<Option<String>> {
        let Some(group) = self.others() else { return own };
        let line = match &own {
            Ok(ended) => StatusLine { ended: ended.clone(), ..StatusLine::default() },
            Err(error) => StatusLine { error: Some(error.to_string()), ..StatusLine::default() },
        };
        let lines = self.exchange(group, &line);
        own?;
        Ok(lines?.into_iter().find_map(|line| line.ended))
    }

    /// Gives every worker the buffers of worker 0, which are those that are saved.
    pub fn share_buffers(&self, model: &impl Module) -> Result<()> {
        match self.others() {
            Some(group) => broadcast(&model.named_buffers(), group),
            None => Ok(()),
        }
    }

    /// Refuses a checkpoint that worker 0 cannot write for all: where parameters or the optimiser's
    /// state are spread over workers, or have drifted apart. What is compared is the sum of each
    /// tensor.
    pub fn same_state(&self, state: Vec<(String, Tensor)>) -> Result<()> {
        let Some(group) = self.others() else { return Ok(()) };
        let mut lines = Vec::new();
        for (name, x) in state {
            let sum = catch(|| no_grad(|| x.detach().cast(DType::F64).sum()))?;
            lines.push(format!("{name} with the sum {:e}", sum.try_item::<f64>()?));
        }
        agree(group, OP, "the tensors to be saved", lines).map_err(|error| {
            error
                .hint("worker 0 saves for all; what is spread: `Trainer::sharded`, `fully_sharded`")
        })
    }

    /// How many seconds were waited for each worker so far, where the engine counts: by the one
    /// that waited longest for it, as the slowest worker does not wait. Every worker calls it.
    pub fn waits(&self) -> Result<Option<WaitTimes>> {
        let Some(group) = self.others() else { return Ok(None) };
        let own = group.communicator().waited();
        let own: Vec<String> = own.iter().map(|time| time.as_nanos().to_string()).collect();
        let mut longest = vec![0f64; group.size()];
        for text in gather_texts(group, &own.join(" "))? {
            let seconds = text.split_whitespace().filter_map(|n| n.parse::<f64>().ok());
            for (longest, nanos) in longest.iter_mut().zip(seconds) {
                *longest = longest.max(nanos / 1e9);
            }
        }
        Ok((!own.is_empty()).then_some(WaitTimes(longest)))
    }

    /// An error of one worker is an error of all.
    pub fn together<T>(&self, own: Result<T>) -> Result<T> {
        match self.others() {
            Some(group) => crate::parallel::together(group, OP, own),
            None => own,
        }
    }
}

/// The mean; exactly the worker's own value, where all are the same.
fn weighted_mean(own: f64, values: &[(f64, f64)]) -> f64 {
    if values.windows(2).all(|pair| pair[0].0 == pair[1].0) {
        return own;
    }
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    values.iter().map(|(value, weight)| value * weight).sum::<f64>() / total
}
