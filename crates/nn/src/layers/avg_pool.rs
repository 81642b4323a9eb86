//! Average pooling.

use super::dimensions::{PerAxis, tree_by_axes};
use crate::{Layer, module_scope};
use pullback::{Pool, Tensor};

/// Average pooling over one axis: `[n, channels, l]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AvgPool1d, Layer};
/// let y = AvgPool1d::new(2).forward(&Tensor::from([[[1.0, 3.0, 5.0, 7.0]]]));
/// assert_eq!((y.shape(), y.to_vec::<f64>()), (&[1, 1, 2][..], vec![2.0, 6.0]));
/// ```
pub type AvgPool1d = AvgPool<1>;
/// Average pooling over two axes: `[n, channels, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AvgPool2d, Layer};
/// assert_eq!(AvgPool2d::new(2).forward(&Tensor::zeros([1, 3, 8, 8])).shape(), [1, 3, 4, 4]);
/// ```
pub type AvgPool2d = AvgPool<2>;
/// Average pooling over three axes: `[n, channels, d, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AvgPool3d, Layer};
/// let y = AvgPool3d::new(2).forward(&Tensor::zeros([1, 3, 4, 8, 8]));
/// assert_eq!(y.shape(), [1, 3, 2, 4, 4]);
/// ```
pub type AvgPool3d = AvgPool<3>;

/// Average pooling over the last `N` axes. Known as [`AvgPool1d`], [`AvgPool2d`] and [`AvgPool3d`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AvgPool, Layer};
/// let pool = AvgPool::<2>::new(3).stride(2).padding(1);
/// assert_eq!(pool.forward(&Tensor::zeros([1, 3, 8, 8])).shape(), [1, 3, 4, 4]);
/// ```
#[derive(Clone, Debug)]
pub struct AvgPool<const N: usize> {
    /// The size of a window.
    pub kernel_size: [usize; N],
    /// The distance between neighbouring windows.
    pub stride: [usize; N],
    /// Zeros around the input; at most half a window.
    pub padding: [usize; N],
    /// Whether a last window that reaches beyond the end counts.
    pub ceil_mode: bool,
    /// Whether the zeros count in the mean.
    pub count_include_pad: bool,
    /// The number by which sums are divided, instead of the number of elements.
    pub divisor_override: Option<i64>,
}

tree_by_axes!(AvgPool is ["AvgPool1d", "AvgPool2d", "AvgPool3d"] {
    kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
});

impl<const N: usize> AvgPool<N> {
    /// With windows of this size that do not overlap: the stride is the kernel size.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AvgPool2d, Layer};
    /// let y = AvgPool2d::new([2, 4]).forward(&Tensor::zeros([1, 3, 8, 8]));
    /// assert_eq!(y.shape(), [1, 3, 4, 2]);
    /// ```
    #[must_use]
    pub fn new(kernel_size: impl PerAxis<N>) -> Self {
        let kernel_size = kernel_size.per_axis();
        AvgPool {
            kernel_size,
            stride: kernel_size,
            padding: [0; N],
            ceil_mode: false,
            count_include_pad: true,
            divisor_override: None,
        }
    }

    /// The distance between neighbouring windows; the kernel size by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AvgPool1d, Layer};
    /// let y = AvgPool1d::new(2).stride(1).forward(&Tensor::from([[[1.0, 3.0, 5.0, 7.0]]]));
    /// assert_eq!(y.to_vec::<f64>(), [2.0, 4.0, 6.0]);
    /// ```
    #[must_use]
    pub fn stride(self, stride: impl PerAxis<N>) -> Self {
        AvgPool { stride: stride.per_axis(), ..self }
    }

    /// Zeros before and after each axis; at most half a window.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AvgPool1d, Layer};
    /// let y = AvgPool1d::new(2).padding(1).forward(&Tensor::from([[[4.0, 2.0, 6.0, 8.0]]]));
    /// assert_eq!(y.to_vec::<f64>(), [2.0, 4.0, 4.0]);
    /// ```
    #[must_use]
    pub fn padding(self, padding: impl PerAxis<N>) -> Self {
        AvgPool { padding: padding.per_axis(), ..self }
    }

    /// Whether a last window that reaches beyond the end counts; false by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AvgPool1d, Layer};
    /// let x = Tensor::zeros([1, 1, 5]);
    /// assert_eq!(AvgPool1d::new(2).forward(&x).shape(), [1, 1, 2]);
    /// assert_eq!(AvgPool1d::new(2).ceil_mode(true).forward(&x).shape(), [1, 1, 3]);
    /// ```
    #[must_use]
    pub fn ceil_mode(self, ceil_mode: bool) -> Self {
        AvgPool { ceil_mode, ..self }
    }

    /// Whether the padding counts in the mean; true by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AvgPool1d, Layer};
    /// let pool = AvgPool1d::new(2).padding(1).count_include_pad(false);
    /// let y = pool.forward(&Tensor::from([[[4.0, 2.0, 6.0, 8.0]]]));
    /// assert_eq!(y.to_vec::<f64>(), [4.0, 4.0, 8.0]);
    /// ```
    #[must_use]
    pub fn count_include_pad(self, count_include_pad: bool) -> Self {
        AvgPool { count_include_pad, ..self }
    }

    /// The number by which sums are divided, instead of the number of elements of a window.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{AvgPool1d, Layer};
    /// let y = AvgPool1d::new(2).divisor_override(1).forward(&Tensor::from([[[1.0, 3.0]]]));
    /// assert_eq!(y.to_vec::<f64>(), [4.0]);
    /// ```
    #[must_use]
    pub fn divisor_override(self, divisor: i64) -> Self {
        AvgPool { divisor_override: Some(divisor), ..self }
    }
}

impl<const N: usize> Layer for AvgPool<N> {
    /// # Panics
    /// If `x` is not `[n, c, …]` with one, two or three more axes, or that without `n`; if the
    /// windows do not fit it; or if the divisor is 0.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let mut pool = Pool::new(self.kernel_size)
            .stride(self.stride)
            .padding(self.padding)
            .ceil_mode(self.ceil_mode)
            .count_include_pad(self.count_include_pad);
        if let Some(divisor) = self.divisor_override {
            pool = pool.divisor(divisor);
        }
        let y = match N {
            1 => x.avg_pool1d(&pool),
            2 => x.avg_pool2d(&pool),
            _ => x.avg_pool3d(&pool),
        };
        scope.output(y)
    }
}
