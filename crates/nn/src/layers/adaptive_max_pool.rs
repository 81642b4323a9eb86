//! Adaptive max pooling.

use super::dimensions::{Lengths, tree_by_axes};
use crate::{Layer, module_scope};
use pullback::Tensor;

/// [`AdaptiveMaxPool`] over one axis: `[n, channels, l]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AdaptiveMaxPool1d, Layer};
/// let y = AdaptiveMaxPool1d::new(2).forward(&Tensor::from([[[1.0, 3.0, 7.0, 5.0]]]));
/// assert_eq!((y.shape(), y.to_vec::<f64>()), (&[1, 1, 2][..], vec![3.0, 7.0]));
/// ```
pub type AdaptiveMaxPool1d = AdaptiveMaxPool<1>;
/// [`AdaptiveMaxPool`] over two axes: `[n, channels, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AdaptiveMaxPool2d, Layer};
/// assert_eq!(
///     AdaptiveMaxPool2d::new(1).forward(&Tensor::zeros([2, 3, 7, 5])).shape(),
///     [2, 3, 1, 1]
/// );
/// ```
pub type AdaptiveMaxPool2d = AdaptiveMaxPool<2>;
/// [`AdaptiveMaxPool`] over three axes: `[n, channels, d, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AdaptiveMaxPool3d, Layer};
/// let y = AdaptiveMaxPool3d::new([1, 2, 3]).forward(&Tensor::zeros([2, 3, 4, 8, 9]));
/// assert_eq!(y.shape(), [2, 3, 1, 2, 3]);
/// ```
pub type AdaptiveMaxPool3d = AdaptiveMaxPool<3>;

/// Adaptive max pooling over the last `N` axes: each is divided into as many windows as the output
/// is long. Known as [`AdaptiveMaxPool1d`], [`AdaptiveMaxPool2d`] and [`AdaptiveMaxPool3d`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AdaptiveMaxPool, Layer};
/// let pool = AdaptiveMaxPool::<2>::new(1);
/// assert_eq!(pool.forward(&Tensor::zeros([2, 3, 7, 5])).shape(), [2, 3, 1, 1]);
/// ```
#[derive(Clone, Debug)]
pub struct AdaptiveMaxPool<const N: usize> {
    /// The lengths of the output; `None` keeps that of the input.
    pub output_size: [Option<usize>; N],
}

tree_by_axes!(AdaptiveMaxPool is ["AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d"] {
    output_size
});

impl<const N: usize> AdaptiveMaxPool<N> {
    /// To this output size: one number for all axes, one for each, or `None` to keep the length of
    /// an axis.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AdaptiveMaxPool2d, Layer};
    /// let x = Tensor::zeros([2, 3, 8, 6]);
    /// assert_eq!(AdaptiveMaxPool2d::new([4, 2]).forward(&x).shape(), [2, 3, 4, 2]);
    /// assert_eq!(AdaptiveMaxPool2d::new([Some(1), None]).forward(&x).shape(), [2, 3, 1, 6]);
    /// ```
    #[must_use]
    pub fn new(output_size: impl Lengths<N>) -> Self {
        AdaptiveMaxPool { output_size: output_size.lengths() }
    }
}

impl<const N: usize> Layer for AdaptiveMaxPool<N> {
    /// # Panics
    /// If `x` is not `[n, c, …]` with one, two or three more axes, or that without `n`.
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
