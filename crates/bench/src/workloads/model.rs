//! What is timed about a model: a step of training, and what its gradients cost beside its loss.

use super::backward;
use crate::compiled;
use crate::measure::{Row, measure, rounded};
use pullback::{Tensor, no_grad};

/// A model with its data.
pub trait Model {
    /// The loss on the workload's one batch.
    fn loss(&self) -> Tensor;

    /// The parameters; the data is not among them.
    fn parameters(&self) -> Vec<Tensor>;
}

/// A whole step: clear the gradients, loss, backward, update. The check is the loss of the fifth.
pub fn train(model: &impl Model, update: impl Fn()) -> Vec<Row> {
    let parameters = model.parameters();
    let mut losses = Vec::new();
    let step = compiled::step(|| {
        parameters.iter().for_each(Tensor::zero_grad);
        let loss = model.loss();
        backward(&loss);
        update();
        loss
    });
    let row = measure(|| {
        let loss = step();
        if losses.len() < 5 {
            losses.push(f64::from(loss.item::<f32>()));
        }
    });
    vec![row.with("check", losses[4])]
}

/// The loss alone, and with gradients.
pub fn ratio(model: &impl Model) -> Vec<Row> {
    let parameters = model.parameters();
    let loss = compiled::step(|| no_grad(|| model.loss()));
    let forward = measure(|| drop(loss()));
    let step = compiled::step(|| {
        parameters.iter().for_each(Tensor::zero_grad);
        backward(&model.loss());
    });
    let both = measure(step);
    let ratio = rounded(both.ms() / forward.ms(), 3);
    vec![forward.named("_fwd"), both.with("ratio", ratio).named("_fwdbwd")]
}
