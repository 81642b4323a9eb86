//! Networks for images `[n, 1, 8, 8]`. Their parts are called by name, a line each, so that a
//! report of memory by line distinguishes them.

use super::{BlockNetwork, ModelBlock, ModelSize};
use pullback::{Group, Result, Tensor, Tree};
use pullback_nn::parallel::FullSharding;
use pullback_nn::{BatchNorm2d, Conv2d, Dropout, Layer, Linear, MaxPool2d};

/// Pixels on each side of a digit.
const SIDE: usize = 8;
/// Digits there are.
const CLASSES: usize = 10;

/// A multilayer perceptron: hidden layers of one width, with relu between them.
#[derive(Tree)]
pub struct BlockMlp {
    layers: Vec<ModelBlock<Linear>>,
    dropout: Dropout,
    head: ModelBlock<Linear>,
}

impl BlockMlp {
    /// A network for digits.
    pub fn new(size: &ModelSize) -> BlockMlp {
        let inputs = |layer: usize| if layer == 0 { SIDE * SIDE } else { size.width };
        BlockMlp {
            layers: (0..size.layers)
                .map(|layer| ModelBlock::Whole(Linear::new(inputs(layer), size.width)))
                .collect(),
            dropout: Dropout::new(size.dropout),
            head: ModelBlock::Whole(Linear::new(inputs(size.layers), CLASSES)),
        }
    }
}

impl BlockNetwork for BlockMlp {
    fn spread(self, sharding: &FullSharding) -> Result<BlockMlp> {
        let layers = self.layers.spread(sharding)?;
        Ok(BlockMlp { layers, dropout: self.dropout, head: self.head.spread(sharding)? })
    }
}

impl Layer for BlockMlp {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.scores(x)
    }
}

impl BlockMlp {
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
pub struct BlockCnn {
    layers: Vec<ModelBlock<Conv2d>>,
    norms: Vec<ModelBlock<BatchNorm2d>>,
    dropout: Dropout,
    head: ModelBlock<Linear>,
}

impl BlockCnn {
    /// A network for digits.
    pub fn new(size: &ModelSize) -> BlockCnn {
        let channels = |layer: usize| match layer {
            0 => 1,
            1 => size.width,
            _ => 2 * size.width,
        };
        let side = if size.layers > 1 { SIDE / 4 } else { SIDE / 2 };
        BlockCnn {
            layers: (0..size.layers)
                .map(|i| ModelBlock::Whole(Conv2d::new(channels(i), channels(i + 1), 3).padding(1)))
                .collect(),
            norms: (0..size.layers)
                .map(|i| ModelBlock::Whole(BatchNorm2d::new(channels(i + 1))))
                .collect(),
            dropout: Dropout::new(size.dropout),
            head: ModelBlock::Whole(Linear::new(channels(size.layers) * side * side, CLASSES)),
        }
    }

    /// With the batches of all workers normalised as one. (Before blocks are spread.)
    #[must_use]
    pub fn synchronised(self, workers: &Group) -> BlockCnn {
        let norms = self.norms.into_iter().map(|norm| match norm {
            ModelBlock::Whole(norm) => ModelBlock::Whole(norm.synchronised(workers)),
            spread => spread,
        });
        BlockCnn { norms: norms.collect(), ..self }
    }
}

impl BlockNetwork for BlockCnn {
    fn spread(self, sharding: &FullSharding) -> Result<BlockCnn> {
        let mut cnn = BlockCnn { layers: Vec::new(), norms: Vec::new(), ..self };
        for (layer, norm) in self.layers.into_iter().zip(self.norms) {
            cnn.layers.push(layer.spread(sharding)?);
            cnn.norms.push(norm.spread(sharding)?);
        }
        Ok(BlockCnn { head: cnn.head.spread(sharding)?, ..cnn })
    }
}

impl Layer for BlockCnn {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.scores(x)
    }
}

impl BlockCnn {
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
