//! A step of training, as the peers' scripts take it: loss, backward, update, gradients cleared.

use super::super::backward;
use crate::compiled;
use crate::measure::{Measurement, Protocol, rounded};
use pullback::Tensor;
use pullback_nn::Module;
use pullback_nn::optim::{Optimizer, UpdateRule};

/// What training gave.
pub struct Trained {
    /// The times, with the first step in seconds, as the peers give it.
    pub row: Measurement,
    /// The loss of the first step.
    pub first: f64,
    /// The loss of the last step.
    pub last: f64,
}

impl Trained {
    /// The row, if the first loss is near that of guessing among so many classes and the last is
    /// lower. Its check is the last.
    ///
    /// # Panics
    /// If that is not so.
    pub fn learned(self, classes: usize) -> Measurement {
        let Trained { row, first, last } = self;
        let guess = (classes as f64).ln();
        assert!((first - guess).abs() < 1.0, "the first loss is {first}, and guessing has {guess}");
        assert!(last < first, "the loss went from {first} to {last}");
        row.with("check", last)
    }
}

/// Trains on one batch, whose loss is given, and times the steps.
pub fn train(
    model: &impl Module,
    rule: impl UpdateRule,
    protocol: &Protocol,
    loss: impl Fn() -> Tensor,
) -> Trained {
    let optimizer = rule.over(model.parameters()).expect("parameters and options that fit");
    let step = compiled::step(|| {
        let loss = loss();
        backward(&loss);
        optimizer.step().expect("gradients that fit");
        optimizer.zero_grad();
        loss
    });
    let value = |loss: &Tensor| f64::from(loss.item::<f32>());
    let (mut first, mut last) = (f64::NAN, None);
    let row = protocol.measure(|| {
        let loss = step();
        if first.is_nan() {
            first = value(&loss);
        }
        last = Some(loss);
    });
    let seconds = rounded(row.get("first_ms").unwrap_or(f64::NAN) / 1e3, 1);
    let last = last.as_ref().map_or(f64::NAN, value);
    Trained { row: row.with("first_step_s", seconds), first, last }
}
