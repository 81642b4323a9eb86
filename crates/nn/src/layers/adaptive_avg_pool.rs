//! The mean of each of a given number of pieces.

use super::dimensions::{Lengths, tree_by_axes};
use crate::{Layer, module_scope};
use pullback::Tensor;

/// [`AdaptiveAvgPool`] over one axis.
pub type AdaptiveAvgPool1d = AdaptiveAvgPool<1>;
/// [`AdaptiveAvgPool`] over two axes.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AdaptiveAvgPool2d, Layer};
/// assert_eq!(AdaptiveAvgPool2d::new(1).forward(&Tensor::zeros([2, 3, 7, 5])).shape(), [2, 3, 1, 1]);
/// ```
pub type AdaptiveAvgPool2d = AdaptiveAvgPool<2>;
/// [`AdaptiveAvgPool`] over three axes.
pub type AdaptiveAvgPool3d = AdaptiveAvgPool<3>;

/// The mean of each piece, where the last `N` axes are cut into as many pieces as the output is
/// long. Known as [`AdaptiveAvgPool1d`], [`AdaptiveAvgPool2d`] and [`AdaptiveAvgPool3d`].
#[derive(Clone, Debug)]
pub struct AdaptiveAvgPool<const N: usize> {
    /// The lengths of the output; `None` keeps that of the input.
    pub output_size: [Option<usize>; N],
}

tree_by_axes!(AdaptiveAvgPool is ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d"] {
    output_size
});

impl<const N: usize> AdaptiveAvgPool<N> {
    /// To these lengths.
    #[must_use]
    pub fn new(output_size: impl Lengths<N>) -> Self {
        AdaptiveAvgPool { output_size: output_size.lengths() }
    }
}

impl<const N: usize> Layer for AdaptiveAvgPool<N> {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = match N {
            1 => x.adaptive_avg_pool1d(self.output_size),
            2 => x.adaptive_avg_pool2d(self.output_size),
            _ => x.adaptive_avg_pool3d(self.output_size),
        };
        scope.output(y)
    }
}
