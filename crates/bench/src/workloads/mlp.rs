//! A multilayer perceptron: 784-512-512-10, ReLU, a batch of 128, cross-entropy.

use super::adam::Adam;
use super::layer::Linear;
use super::model::{self, Model};
use crate::data::{Init, labels, tensor};
use crate::measure::Row;
use pullback::{Tensor, Tree, cross_entropy};

/// The parameters.
#[derive(Tree)]
pub struct Mlp {
    layers: [Linear; 3],
}

impl Mlp {
    pub fn new() -> Mlp {
        let mut init = Init::new();
        Mlp {
            layers: [(784, 512), (512, 512), (512, 10)].map(|(i, o)| Linear::new(&mut init, i, o)),
        }
    }

    /// The mean loss on a batch.
    pub fn loss(&self, x: &Tensor, y: &Tensor) -> Tensor {
        let [first, second, last] = &self.layers;
        cross_entropy(&last.of(&second.of(&first.of(x).relu()).relu()), y)
    }
}

/// The batch: images and classes.
pub fn batch() -> (Tensor, Tensor) {
    (tensor(&[128, 784], 1), Tensor::from(labels(128, 2, 10)))
}

/// The model with its data.
struct Case {
    mlp: Mlp,
    x: Tensor,
    y: Tensor,
}

impl Case {
    fn new() -> Case {
        let (x, y) = batch();
        Case { mlp: Mlp::new().map(&mut |p| p.clone().requires_grad()), x, y }
    }
}

impl Model for Case {
    fn loss(&self) -> Tensor {
        self.mlp.loss(&self.x, &self.y)
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.mlp.leaves()
    }
}

pub fn step() -> Vec<Row> {
    let case = Case::new();
    let adam = Adam::new(case.parameters(), 1e-3, 0.0);
    model::train(&case, || adam.step())
}

pub fn ratio() -> Vec<Row> {
    model::ratio(&Case::new())
}
