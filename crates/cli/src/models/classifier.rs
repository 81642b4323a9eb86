//! Networks for images `[n, 1, 8, 8]`. Their parts are called by name, a line each, so that a
//! report of memory by line distinguishes them.

use super::{Block, Blocks, Size};
use pullback::{Group, Result, Tensor, Tree};
use pullback_nn::parallel::FullSharding;
use pullback_nn::{BatchNorm2d, Conv2d, Dropout, Layer, Linear, MaxPool2d};

/// Pixels on each side of a digit.
const SIDE: usize = 8;
/// Digits there are.
const CLASSES: usize = 10;

/// A multilayer perceptron: hidden layers of one width, with relu between them.
#[derive(Tree)]
pub struct Mlp {
    layers: Vec<Block<Linear>>,
    dropout: Dropout,
    head: Block<Linear>,
}

impl Mlp {
    /// A network for digits.
    pub fn new(size: &Size) -> Mlp {
        let inputs = |layer: usize| if layer == 0 { SIDE * SIDE } else { size.width };
        Mlp {
            layers: (0..size.layers)
                .map(|layer| Block::Whole(Linear::new(inputs(layer), size.width)))
                .collect(),
            dropout: Dropout::new(size.dropout),
            head: Block::Whole(Linear::new(inputs(size.layers), CLASSES)),
        }
    }
}

impl Blocks for Mlp {
    fn spread(self, sharding: &FullSharding) -> Result<Mlp> {
        let layers = self.layers.spread(sharding)?;
        Ok(Mlp { layers, dropout: self.dropout, head: self.head.spread(sharding)? })
    }
}

impl Layer for Mlp {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.scores(x)
    }
}

impl Mlp {
    // Apart from `forward`, whose lines count as its caller's.
    fn scores(&self, x: &Tensor) -> Tensor {
        let mut x = x.flatten(1, -1);
        for layer in &self.layers {
            x = layer.forward(&x);
            x = x.relu();
            x = self.dropout.forward(&x);
        }
        self.head.forward(&x)
    }
}

/// Convolutions with batch normalisation. The image is halved after the first and after the last;
/// all but the first have twice the channels.
#[derive(Tree)]
pub struct Cnn {
    layers: Vec<Block<Conv2d>>,
    norms: Vec<Block<BatchNorm2d>>,
    dropout: Dropout,
    head: Block<Linear>,
}

impl Cnn {
    /// A network for digits.
    pub fn new(size: &Size) -> Cnn {
        let channels = |layer: usize| match layer {
            0 => 1,
            1 => size.width,
            _ => 2 * size.width,
        };
        let side = if size.layers > 1 { SIDE / 4 } else { SIDE / 2 };
        Cnn {
            layers: (0..size.layers)
                .map(|i| Block::Whole(Conv2d::new(channels(i), channels(i + 1), 3).padding(1)))
                .collect(),
            norms: (0..size.layers)
                .map(|i| Block::Whole(BatchNorm2d::new(channels(i + 1))))
                .collect(),
            dropout: Dropout::new(size.dropout),
            head: Block::Whole(Linear::new(channels(size.layers) * side * side, CLASSES)),
        }
    }

    /// With the batches of all workers normalised as one. (Before blocks are spread.)
    #[must_use]
    pub fn synchronised(self, workers: &Group) -> Cnn {
        let norms = self.norms.into_iter().map(|norm| match norm {
            Block::Whole(norm) => Block::Whole(norm.synchronised(workers)),
            spread => spread,
        });
        Cnn { norms: norms.collect(), ..self }
    }
}

impl Blocks for Cnn {
    fn spread(self, sharding: &FullSharding) -> Result<Cnn> {
        let mut cnn = Cnn { layers: Vec::new(), norms: Vec::new(), ..self };
        for (layer, norm) in self.layers.into_iter().zip(self.norms) {
            cnn.layers.push(layer.spread(sharding)?);
            cnn.norms.push(norm.spread(sharding)?);
        }
        Ok(Cnn { head: cnn.head.spread(sharding)?, ..cnn })
    }
}

impl Layer for Cnn {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.scores(x)
    }
}

impl Cnn {
    // Apart from `forward`, as above.
    fn scores(&self, x: &Tensor) -> Tensor {
        let mut x = x.clone();
        for (i, (conv, norm)) in self.layers.iter().zip(&self.norms).enumerate() {
            x = conv.forward(&x);
            x = norm.forward(&x);
            x = x.relu();
            if i == 0 || i + 1 == self.layers.len() {
                x = MaxPool2d::new(2).forward(&x);
            }
        }
        let x = self.dropout.forward(&x.flatten(1, -1));
        self.head.forward(&x)
    }
}
