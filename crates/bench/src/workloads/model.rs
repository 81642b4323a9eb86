//! What is timed about a model: a step of training, and what its gradients cost relative to its
//! loss.

use super::backward;
use crate::compiled;
use crate::data::Init;
use crate::measure::{Measurement, measure, rounded};
use pullback::{Tensor, no_grad};
use pullback_nn::Module;
use pullback_nn::optim::{Optimizer, UpdateRule};

/// A model with the workload's one batch and its loss on it.
pub struct Case<M> {
    pub model: M,
    pub batch: (Tensor, Tensor),
    pub loss: fn(&M, &Tensor, &Tensor) -> Tensor,
}

impl<M> Case<M> {
    fn loss(&self) -> Tensor {
        (self.loss)(&self.model, &self.batch.0, &self.batch.1)
    }
}

/// The model with the peers' numbers: weights and biases uniform in ±1/√fan-in, one stream each, in
/// order. Norms stay as they begin.
pub fn filled<M: Module>(model: M) -> M {
    let (mut init, mut fan_in) = (Init::new(), 1);
    for (name, x) in model.named_parameters() {
        if name.contains("norm") {
            continue;
        }
        if x.rank() > 1 {
            fan_in = x.shape()[1..].iter().product();
        }
        no_grad(|| x.copy_(init.next(x.shape(), fan_in)));
    }
    model
}

/// A whole step: clear the gradients, loss, backward, update. The check is the loss of the fifth.
pub fn train<M: Module>(case: &Case<M>, rule: impl UpdateRule) -> Vec<Measurement> {
    let optimizer = rule.over(case.model.parameters()).expect("parameters and options that fit");
    let mut losses = Vec::new();
    let step = compiled::step(|| {
        optimizer.zero_grad();
        let loss = case.loss();
        backward(&loss);
        optimizer.step().expect("gradients that fit");
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
pub fn ratio<M: Module>(case: &Case<M>) -> Vec<Measurement> {
    let parameters = case.model.parameters();
    let loss = compiled::step(|| no_grad(|| case.loss()));
    let forward = measure(|| drop(loss()));
    let step = compiled::step(|| {
        parameters.iter().for_each(Tensor::zero_grad);
        backward(&case.loss());
    });
    let both = measure(step);
    let ratio = rounded(both.ms() / forward.ms(), 3);
    vec![forward.named("_fwd"), both.with("ratio", ratio).named("_fwdbwd")]
}
