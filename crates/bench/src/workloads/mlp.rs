//! A multilayer perceptron: 784-512-512-10, ReLU, a batch of 128, cross-entropy.

use super::model::{self, Case};
use crate::data::{labels, tensor};
use crate::measure::Measurement;
use pullback::{Tensor, cross_entropy};
use pullback_nn::Layer;
use pullback_nn::models::Mlp;
use pullback_nn::optim::Adam;

/// The model with the peers' numbers.
pub fn mlp() -> Mlp {
    model::filled(Mlp::new(&[784, 512, 512, 10]))
}

/// The mean loss on a batch.
pub fn loss(mlp: &Mlp, x: &Tensor, y: &Tensor) -> Tensor {
    cross_entropy(&mlp.forward(x), y)
}

/// The batch: images and classes.
pub fn batch() -> (Tensor, Tensor) {
    (tensor(&[128, 784], 1), Tensor::from(labels(128, 2, 10)))
}

fn case() -> Case<Mlp> {
    Case { model: mlp(), batch: batch(), loss }
}

pub fn step() -> Vec<Measurement> {
    model::train(&case(), Adam::default())
}

pub fn ratio() -> Vec<Measurement> {
    model::ratio(&case())
}
