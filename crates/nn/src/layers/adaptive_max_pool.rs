//! The largest element of each of a given number of pieces.

use super::dimensions::{Lengths, tree_by_axes};
use crate::{Layer, module_scope};
use pullback::Tensor;

/// [`AdaptiveMaxPool`] over one axis.
pub type AdaptiveMaxPool1d = AdaptiveMaxPool<1>;
/// [`AdaptiveMaxPool`] over two axes.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AdaptiveMaxPool2d, Layer};
/// assert_eq!(AdaptiveMaxPool2d::new(1).forward(&Tensor::zeros([2, 3, 7, 5])).shape(), [2, 3, 1, 1]);
/// ```
pub type AdaptiveMaxPool2d = AdaptiveMaxPool<2>;
/// [`AdaptiveMaxPool`] over three axes.
pub type AdaptiveMaxPool3d = AdaptiveMaxPool<3>;

/// The largest element of each piece, where the last `N` axes are cut into as many pieces as the
/// output is long. Known as [`AdaptiveMaxPool1d`], [`AdaptiveMaxPool2d`] and [`AdaptiveMaxPool3d`].
#[derive(Clone, Debug)]
pub struct AdaptiveMaxPool<const N: usize> {
    /// The lengths of the output; `None` keeps that of the input.
    pub output_size: [Option<usize>; N],
}

tree_by_axes!(AdaptiveMaxPool is ["AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d"] {
    output_size
});

impl<const N: usize> AdaptiveMaxPool<N> {
    /// To these lengths.
    #[must_use]
    pub fn new(output_size: impl Lengths<N>) -> Self {
        AdaptiveMaxPool { output_size: output_size.lengths() }
    }
}

impl<const N: usize> Layer for AdaptiveMaxPool<N> {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = match N {
            1 => x.adaptive_max_pool1d(self.output_size),
            2 => x.adaptive_max_pool2d(self.output_size),
            _ => x.adaptive_max_pool3d(self.output_size),
        };
        scope.output(y)
    }
}
