//! ResNet-50 as torchvision has it, with the stride in the 3×3 convolutions, on 128 images of
//! 224 × 224.

use super::training::train;
use crate::measure::{Measurement, Protocol, rounded};
use crate::quick;
use pullback::{DType, Key, Tensor, Tree, autocast, cross_entropy, manual_seed};
use pullback_nn::init::{Fan, Nonlinearity, kaiming_normal_};
use pullback_nn::optim::Sgd;
use pullback_nn::{BatchNorm2d, Conv2d, Layer, Linear, MaxPool2d, Module};

/// A convolution without a bias, and the normalisation of its result.
#[derive(Clone, Tree)]
struct Normed {
    conv: Conv2d,
    norm: BatchNorm2d,
}

impl Normed {
    fn new(inputs: usize, outputs: usize, kernel: usize, stride: usize) -> Normed {
        let conv = Conv2d::new(inputs, outputs, kernel).stride(stride).padding(kernel / 2);
        Normed { conv: conv.without_bias(), norm: BatchNorm2d::new(outputs) }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        self.norm.forward(&self.conv.forward(x))
    }
}

#[derive(Clone, Tree)]
struct Bottleneck {
    narrow: Normed,
    middle: Normed,
    wide: Normed,
    shortcut: Option<Normed>,
}

/// A block has so many times as many channels outside as in its middle.
const EXPANSION: usize = 4;

impl Bottleneck {
    fn new(inputs: usize, channels: usize, stride: usize) -> Bottleneck {
        let outputs = EXPANSION * channels;
        let differs = stride != 1 || inputs != outputs;
        Bottleneck {
            narrow: Normed::new(inputs, channels, 1, 1),
            middle: Normed::new(channels, channels, 3, stride),
            wide: Normed::new(channels, outputs, 1, 1),
            shortcut: differs.then(|| Normed::new(inputs, outputs, 1, stride)),
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let y = self.narrow.forward(x).relu();
        let y = self.wide.forward(&self.middle.forward(&y).relu());
        match &self.shortcut {
            Some(shortcut) => (y + shortcut.forward(x)).relu(),
            None => (y + x).relu(),
        }
    }
}

#[derive(Clone, Tree)]
struct ResNet {
    stem: Normed,
    pool: MaxPool2d,
    blocks: Vec<Bottleneck>,
    head: Linear,
}

impl ResNet {
    /// With so many channels after the stem and so many blocks in each of the stages.
    fn new(channels: usize, stages: &[usize], classes: usize) -> ResNet {
        let (mut blocks, mut inputs) = (Vec::new(), channels);
        for (stage, &count) in stages.iter().enumerate() {
            let middle = channels << stage;
            for i in 0..count {
                let stride = if i == 0 && stage > 0 { 2 } else { 1 };
                blocks.push(Bottleneck::new(inputs, middle, stride));
                inputs = EXPANSION * middle;
            }
        }
        let net = ResNet {
            stem: Normed::new(3, channels, 7, 2),
            pool: MaxPool2d::new(3).stride(2).padding(1),
            blocks,
            head: Linear::new(inputs, classes),
        };
        for weight in net.parameters().iter().filter(|x| x.rank() == 4) {
            kaiming_normal_(weight, Fan::Out, Nonlinearity::Relu);
        }
        net
    }
}

impl Layer for ResNet {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.pool.forward(&self.stem.forward(x).relu());
        let x = self.blocks.iter().fold(x, |x, block| block.forward(&x));
        self.head.forward(&x.mean_over([2, 3]))
    }
}

pub fn step() -> Vec<Measurement> {
    manual_seed(0);
    let [batch, pixels, channels, classes] = quick::size([128, 224, 64, 1000], [4, 32, 4, 10]);
    let net = ResNet::new(channels, quick::size(&[3, 4, 6, 3], &[1, 2]), classes);
    let x = Tensor::randn([batch, 3, pixels, pixels]);
    let y = Key::new(1).randint([batch], 0, classes as i64);
    let rule = Sgd { lr: 0.1, momentum: 0.9, ..Sgd::default() };
    let trained = train(&net, rule, &Protocol::counted(5, 10), || {
        autocast(DType::BF16, || cross_entropy(&net.forward(&x), &y))
    });
    // With this rate the loss rises at first, on one batch of noise.
    let guess = (classes as f64).ln();
    let (first, last) = (trained.first, trained.last);
    assert!((first - guess).abs() < 2.0, "the first loss is {first}, and guessing has {guess}");
    assert!(last.is_finite(), "the last loss is {last}");
    let rate = rounded(batch as f64 / trained.row.ms() * 1e3, 0);
    vec![trained.row.with("check", first).with("images_per_s", rate)]
}
