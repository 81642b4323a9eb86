//! A small convolutional network.

use crate::{BatchNorm2d, Conv2d, Layer, Linear, MaxPool2d, module_scope};
use pullback::{Tensor, Tree};

/// A small convolutional network for images: 3×3 convolutions, each with batch normalisation and
/// relu, max-pooling by two before the last, global average pooling, and a linear layer. From
/// `[batch, channels, height, width]` to `[batch, classes]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, models::Cnn};
/// let net = Cnn::new(3, &[32, 64, 128], 10);
/// assert_eq!(net.forward(&Tensor::zeros([2, 3, 32, 32])).shape(), [2, 10]);
/// ```
#[derive(Clone, Tree)]
pub struct Cnn {
    /// The convolutions.
    pub convs: Vec<Conv2d>,
    /// The normalisation after each.
    pub norms: Vec<BatchNorm2d>,
    /// The linear layer from channels to classes.
    pub head: Linear,
}

impl Cnn {
    /// For images with `inputs` channels, with these numbers of channels in the convolutions, to
    /// this many classes.
    ///
    /// ```
    /// # use pullback_nn::Module;
    /// # use pullback_nn::models::Cnn;
    /// let net = Cnn::new(1, &[8, 16], 10);
    /// assert_eq!(net.convs.len(), 2);
    /// assert_eq!(net.head.weight.shape(), [10, 16]);
    /// ```
    ///
    /// # Panics
    /// If one of the numbers is 0.
    #[track_caller]
    #[must_use]
    pub fn new(inputs: usize, channels: &[usize], classes: usize) -> Cnn {
        let (mut convs, mut norms, mut last) = (Vec::new(), Vec::new(), inputs);
        for &width in channels {
            convs.push(Conv2d::new(last, width, 3).padding(1));
            norms.push(BatchNorm2d::new(width));
            last = width;
        }
        Cnn { convs, norms, head: Linear::new(last, classes) }
    }
}

impl Layer for Cnn {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _scope = module_scope(self);
        let (mut x, pool) = (x.clone(), MaxPool2d::new(2));
        for (i, (conv, norm)) in self.convs.iter().zip(&self.norms).enumerate() {
            if i > 0 && i + 1 == self.convs.len() {
                x = pool.forward(&x);
            }
            x = norm.forward(&conv.forward(&x)).relu();
        }
        self.head.forward(&x.mean_over([2, 3]))
    }
}
