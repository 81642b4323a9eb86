//! Max pooling.

use super::dimensions::{PerAxis, tree_by_axes};
use crate::{Layer, module_scope};
use pullback::{Pool, Tensor};

/// Max pooling over one axis: `[n, channels, l]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, MaxPool1d};
/// let y = MaxPool1d::new(2).forward(&Tensor::from([[[1.0, 3.0, 7.0, 5.0]]]));
/// assert_eq!((y.shape(), y.to_vec::<f64>()), (&[1, 1, 2][..], vec![3.0, 7.0]));
/// ```
pub type MaxPool1d = MaxPool<1>;
/// Max pooling over two axes: `[n, channels, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, MaxPool2d};
/// assert_eq!(MaxPool2d::new(2).forward(&Tensor::zeros([1, 3, 8, 8])).shape(), [1, 3, 4, 4]);
/// ```
pub type MaxPool2d = MaxPool<2>;
/// Max pooling over three axes: `[n, channels, d, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, MaxPool3d};
/// let y = MaxPool3d::new(2).forward(&Tensor::zeros([1, 3, 4, 8, 8]));
/// assert_eq!(y.shape(), [1, 3, 2, 4, 4]);
/// ```
pub type MaxPool3d = MaxPool<3>;

/// Max pooling over the last `N` axes. Known as [`MaxPool1d`], [`MaxPool2d`] and [`MaxPool3d`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, MaxPool};
/// let pool = MaxPool::<2>::new(3).stride(2).padding(1);
/// assert_eq!(pool.forward(&Tensor::zeros([1, 3, 8, 8])).shape(), [1, 3, 4, 4]);
/// ```
#[derive(Clone, Debug)]
pub struct MaxPool<const N: usize> {
    /// The size of a window.
    pub kernel_size: [usize; N],
    /// The distance between neighbouring windows.
    pub stride: [usize; N],
    /// Positions of −∞ around the input; at most half a window.
    pub padding: [usize; N],
    /// The distance between neighbouring elements of a window.
    pub dilation: [usize; N],
    /// Whether a last window that reaches beyond the end counts.
    pub ceil_mode: bool,
}

tree_by_axes!(MaxPool is ["MaxPool1d", "MaxPool2d", "MaxPool3d"] {
    kernel_size, stride, padding, dilation, ceil_mode
});

impl<const N: usize> MaxPool<N> {
    /// With windows of this size that do not overlap: the stride is the kernel size.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, MaxPool2d};
    /// let y = MaxPool2d::new([2, 4]).forward(&Tensor::zeros([1, 3, 8, 8]));
    /// assert_eq!(y.shape(), [1, 3, 4, 2]);
    /// ```
    #[must_use]
    pub fn new(kernel_size: impl PerAxis<N>) -> Self {
        let kernel_size = kernel_size.per_axis();
        let (padding, dilation) = ([0; N], [1; N]);
        MaxPool { kernel_size, stride: kernel_size, padding, dilation, ceil_mode: false }
    }

    /// The distance between neighbouring windows; the kernel size by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, MaxPool1d};
    /// let y = MaxPool1d::new(2).stride(1).forward(&Tensor::from([[[1.0, 3.0, 7.0, 5.0]]]));
    /// assert_eq!(y.to_vec::<f64>(), [3.0, 7.0, 7.0]);
    /// ```
    #[must_use]
    pub fn stride(self, stride: impl PerAxis<N>) -> Self {
        MaxPool { stride: stride.per_axis(), ..self }
    }

    /// Positions of −∞ before and after each axis; at most half a window.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, MaxPool1d};
    /// let y = MaxPool1d::new(2).padding(1).forward(&Tensor::from([[[-4.0, 2.0, 6.0, -8.0]]]));
    /// assert_eq!(y.to_vec::<f64>(), [-4.0, 6.0, -8.0]);
    /// ```
    #[must_use]
    pub fn padding(self, padding: impl PerAxis<N>) -> Self {
        MaxPool { padding: padding.per_axis(), ..self }
    }

    /// The distance between neighbouring elements of a window; 1 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, MaxPool1d};
    /// let pool = MaxPool1d::new(2).stride(1).dilation(2);
    /// assert_eq!(
    ///     pool.forward(&Tensor::from([[[1.0, 9.0, 7.0, 5.0]]])).to_vec::<f64>(),
    ///     [7.0, 9.0]
    /// );
    /// ```
    #[must_use]
    pub fn dilation(self, dilation: impl PerAxis<N>) -> Self {
        MaxPool { dilation: dilation.per_axis(), ..self }
    }

    /// Whether a last window that reaches beyond the end counts; false by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, MaxPool1d};
    /// let x = Tensor::zeros([1, 1, 5]);
    /// assert_eq!(MaxPool1d::new(2).forward(&x).shape(), [1, 1, 2]);
    /// assert_eq!(MaxPool1d::new(2).ceil_mode(true).forward(&x).shape(), [1, 1, 3]);
    /// ```
    #[must_use]
    pub fn ceil_mode(self, ceil_mode: bool) -> Self {
        MaxPool { ceil_mode, ..self }
    }
}

impl<const N: usize> Layer for MaxPool<N> {
    /// # Panics
    /// If `x` is not `[n, c, …]` with one, two or three more axes, or that without `n`, or the
    /// windows do not fit it.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let pool = Pool::new(self.kernel_size)
            .stride(self.stride)
            .padding(self.padding)
            .dilation(self.dilation)
            .ceil_mode(self.ceil_mode);
        let y = match N {
            1 => x.max_pool1d(&pool),
            2 => x.max_pool2d(&pool),
            _ => x.max_pool3d(&pool),
        };
        scope.output(y)
    }
}
