//! A small convolutional network on a batch of 32 images [3, 32, 32]: three 3×3 convolutions with batch normalisation and
//! ReLU (3-32-64-128 channels, max-pooling after the second), the mean over pixels, a linear head, cross-entropy.

use super::layer::Linear;
use super::model::{self, Model};
use super::sgd::Sgd;
use crate::data::{Init, labels, tensor};
use crate::measure::Row;
use pullback::{Conv, Pool, Tensor, Tree, cross_entropy};

/// A convolution with a bias, and a batch normalisation.
#[derive(Tree)]
struct Layer {
    kernel: Tensor,
    bias: Tensor,
    scale: Tensor,
    shift: Tensor,
}

impl Layer {
    fn new(init: &mut Init, inputs: usize, outputs: usize) -> Layer {
        Layer {
            kernel: init.next(&[outputs, inputs, 3, 3], inputs * 9),
            bias: init.next(&[outputs], inputs * 9),
            scale: Tensor::ones([outputs]),
            shift: Tensor::zeros([outputs]),
        }
    }

    fn of(&self, x: &Tensor) -> Tensor {
        let y = x.conv2d(&self.kernel, Some(&self.bias), &Conv::new().padding(1));
        y.batch_norm(Some(&self.scale), Some(&self.shift), 1e-5).relu()
    }
}

/// The parameters.
#[derive(Tree)]
struct Cnn {
    layers: [Layer; 3],
    head: Linear,
}

impl Cnn {
    fn new() -> Cnn {
        let mut init = Init::new();
        let layers = [(3, 32), (32, 64), (64, 128)].map(|(i, o)| Layer::new(&mut init, i, o));
        Cnn { layers, head: Linear::new(&mut init, 128, 10) }
    }
}

/// The model with its data.
struct Case {
    cnn: Cnn,
    x: Tensor,
    y: Tensor,
}

impl Case {
    fn new() -> Case {
        let cnn = Cnn::new().map(&mut |p| p.clone().requires_grad());
        Case { cnn, x: tensor(&[32, 3, 32, 32], 1), y: Tensor::from(labels(32, 2, 10)) }
    }
}

impl Model for Case {
    fn loss(&self) -> Tensor {
        let [first, second, third] = &self.cnn.layers;
        let x = second.of(&first.of(&self.x)).max_pool2d(&Pool::new(2));
        let features = third.of(&x).mean_over([2, 3]);
        cross_entropy(&self.cnn.head.of(&features), &self.y)
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.cnn.leaves()
    }
}

pub fn step() -> Vec<Row> {
    let case = Case::new();
    let sgd = Sgd::new(case.parameters(), 0.01, 0.9);
    model::train(&case, || sgd.step())
}

pub fn ratio() -> Vec<Row> {
    model::ratio(&Case::new())
}
