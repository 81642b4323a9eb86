//! The largest element of each window.

use super::dimensions::{PerAxis, tree_by_axes};
use crate::{Layer, module_scope};
use pullback::{Pool, Tensor};

/// The largest of each window over one axis.
pub type MaxPool1d = MaxPool<1>;
/// The largest of each window over two axes.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, MaxPool2d};
/// assert_eq!(MaxPool2d::new(2).forward(&Tensor::zeros([1, 3, 8, 8])).shape(), [1, 3, 4, 4]);
/// ```
pub type MaxPool2d = MaxPool<2>;
/// The largest of each window over three axes.
pub type MaxPool3d = MaxPool<3>;

/// The largest element of each window over the last `N` axes. Known as [`MaxPool1d`], [`MaxPool2d`]
/// and [`MaxPool3d`].
#[derive(Clone, Debug)]
pub struct MaxPool<const N: usize> {
    /// The size of a window.
    pub kernel_size: [usize; N],
    /// The distance between neighbouring windows.
    pub stride: [usize; N],
    /// Positions around the input that count as nothing; at most half a window.
    pub padding: [usize; N],
    /// The distance between neighbouring elements of a window.
    pub dilation: [usize; N],
    /// Whether a last window that reaches over the end counts.
    pub ceil_mode: bool,
}

tree_by_axes!(MaxPool is ["MaxPool1d", "MaxPool2d", "MaxPool3d"] {
    kernel_size, stride, padding, dilation, ceil_mode
});

impl<const N: usize> MaxPool<N> {
    /// Windows of this size that do not overlap.
    #[must_use]
    pub fn new(kernel_size: impl PerAxis<N>) -> Self {
        let kernel_size = kernel_size.per_axis();
        let (padding, dilation) = ([0; N], [1; N]);
        MaxPool { kernel_size, stride: kernel_size, padding, dilation, ceil_mode: false }
    }

    /// The distance between neighbouring windows.
    #[must_use]
    pub fn stride(self, stride: impl PerAxis<N>) -> Self {
        MaxPool { stride: stride.per_axis(), ..self }
    }

    /// Positions around the input that count as nothing; at most half a window.
    #[must_use]
    pub fn padding(self, padding: impl PerAxis<N>) -> Self {
        MaxPool { padding: padding.per_axis(), ..self }
    }

    /// The distance between neighbouring elements of a window.
    #[must_use]
    pub fn dilation(self, dilation: impl PerAxis<N>) -> Self {
        MaxPool { dilation: dilation.per_axis(), ..self }
    }

    /// Whether a last window that reaches over the end counts.
    #[must_use]
    pub fn ceil_mode(self, ceil_mode: bool) -> Self {
        MaxPool { ceil_mode, ..self }
    }
}

impl<const N: usize> Layer for MaxPool<N> {
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
