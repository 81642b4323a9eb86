//! A small convolutional network on a batch of 32 images [3, 32, 32]: three 3×3 convolutions with
//! batch normalisation and ReLU (3-32-64-128 channels, max-pooling after the second), the mean over
//! pixels, a linear head, cross-entropy.

use super::model::{self, Case};
use crate::data::{labels, tensor};
use crate::measure::Measurement;
use pullback::{Tensor, cross_entropy};
use pullback_nn::Layer;
use pullback_nn::models::Cnn;
use pullback_nn::optim::Sgd;

fn case() -> Case<Cnn> {
    Case {
        model: model::filled(Cnn::new(3, &[32, 64, 128], 10)),
        batch: (tensor(&[32, 3, 32, 32], 1), Tensor::from(labels(32, 2, 10))),
        loss: |cnn, x, y| cross_entropy(&cnn.forward(x), y),
    }
}

pub fn step() -> Vec<Measurement> {
    model::train(&case(), Sgd { lr: 0.01, momentum: 0.9, ..Sgd::default() })
}

pub fn ratio() -> Vec<Measurement> {
    model::ratio(&case())
}
