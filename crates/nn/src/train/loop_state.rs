//! Where a training loop is.

use super::{Mean, Metrics};
use crate::state::{json_of, number_in};
use serde_json::{Map, Value, json};

/// The state of the loop.
#[derive(Default)]
pub(super) struct LoopState {
    pub step: u64,
    pub epoch: u64,
    /// How many batches of this epoch were taken.
    pub batch: u64,
    /// The means of this epoch so far.
    pub means: Vec<(String, Mean)>,
    /// Seconds before this process.
    pub seconds: f64,
    /// The step of the last checkpoint.
    pub saved: Option<u64>,
}

impl LoopState {
    pub fn add(&mut self, metrics: &Metrics) {
        for (name, value) in metrics.iter() {
            match self.means.iter_mut().find(|(known, _)| known == name) {
                Some((_, mean)) => mean.add(value, 1.0),
                None => {
                    let mut mean = Mean::new();
                    mean.add(value, 1.0);
                    self.means.push((name.to_string(), mean));
                }
            }
        }
    }

    /// Ends an epoch: gives its means.
    pub fn end_epoch(&mut self) -> Metrics {
        (self.epoch, self.batch) = (self.epoch + 1, 0);
        let means = std::mem::take(&mut self.means);
        means.into_iter().fold(Metrics::new(), |all, (name, mean)| all.with(name, mean.value()))
    }

    pub fn state(&self, seconds: f64) -> Value {
        let parts = |(name, mean): &(String, Mean)| {
            let (sum, weight) = mean.parts();
            (name.clone(), json!([json_of(sum), json_of(weight)]))
        };
        let means: Map<String, Value> = self.means.iter().map(parts).collect();
        json!({ "batch": self.batch, "means": means, "seconds": seconds })
    }

    pub fn restore(&mut self, state: &Value) -> Option<()> {
        self.batch = state["batch"].as_u64()?;
        self.seconds = state["seconds"].as_f64()?;
        let mean = |(name, parts): (&String, &Value)| {
            Some((name.clone(), Mean::from_parts(number_in(&parts[0])?, number_in(&parts[1])?)))
        };
        self.means = state["means"].as_object()?.iter().map(mean).collect::<Option<_>>()?;
        Some(())
    }
}
