//! Adaptive average pooling.

use super::dimensions::{Lengths, tree_by_axes};
use crate::{Layer, module_scope};
use pullback::Tensor;

/// [`AdaptiveAvgPool`] over one axis: `[n, channels, l]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AdaptiveAvgPool1d, Layer};
/// let y = AdaptiveAvgPool1d::new(2).forward(&Tensor::from([[[1.0, 3.0, 5.0, 7.0]]]));
/// assert_eq!((y.shape(), y.to_vec::<f64>()), (&[1, 1, 2][..], vec![2.0, 6.0]));
/// ```
pub type AdaptiveAvgPool1d = AdaptiveAvgPool<1>;
/// [`AdaptiveAvgPool`] over two axes: `[n, channels, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AdaptiveAvgPool2d, Layer};
/// assert_eq!(
///     AdaptiveAvgPool2d::new(1).forward(&Tensor::zeros([2, 3, 7, 5])).shape(),
///     [2, 3, 1, 1]
/// );
/// ```
pub type AdaptiveAvgPool2d = AdaptiveAvgPool<2>;
/// [`AdaptiveAvgPool`] over three axes: `[n, channels, d, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AdaptiveAvgPool3d, Layer};
/// let y = AdaptiveAvgPool3d::new([1, 2, 3]).forward(&Tensor::zeros([2, 3, 4, 8, 9]));
/// assert_eq!(y.shape(), [2, 3, 1, 2, 3]);
/// ```
pub type AdaptiveAvgPool3d = AdaptiveAvgPool<3>;

/// Adaptive average pooling over the last `N` axes: each is divided into as many windows as the
/// output is long. Known as [`AdaptiveAvgPool1d`], [`AdaptiveAvgPool2d`] and [`AdaptiveAvgPool3d`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AdaptiveAvgPool, Layer};
/// // Global average pooling.
/// let pool = AdaptiveAvgPool::<2>::new(1);
/// assert_eq!(pool.forward(&Tensor::zeros([2, 3, 7, 5])).shape(), [2, 3, 1, 1]);
/// ```
#[derive(Clone, Debug)]
pub struct AdaptiveAvgPool<const N: usize> {
    /// The lengths of the output; `None` keeps that of the input.
    pub output_size: [Option<usize>; N],
}

tree_by_axes!(AdaptiveAvgPool is ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d"] {
    output_size
});

impl<const N: usize> AdaptiveAvgPool<N> {
    /// To this output size: one number for all axes, one for each, or `None` to keep the length of
    /// an axis.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AdaptiveAvgPool2d, Layer};
    /// let x = Tensor::zeros([2, 3, 8, 6]);
    /// assert_eq!(AdaptiveAvgPool2d::new([4, 2]).forward(&x).shape(), [2, 3, 4, 2]);
    /// assert_eq!(AdaptiveAvgPool2d::new([Some(1), None]).forward(&x).shape(), [2, 3, 1, 6]);
    /// ```
    #[must_use]
    pub fn new(output_size: impl Lengths<N>) -> Self {
        AdaptiveAvgPool { output_size: output_size.lengths() }
    }
}

impl<const N: usize> Layer for AdaptiveAvgPool<N> {
    /// # Panics
    /// If `x` is not `[n, c, …]` with one, two or three more axes, or that without `n`.
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
