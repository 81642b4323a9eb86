//! The mean of each window.

use super::dimensions::{PerAxis, tree_by_axes};
use crate::{Layer, module_scope};
use pullback::{Pool, Tensor};

/// The mean of each window over one axis.
pub type AvgPool1d = AvgPool<1>;
/// The mean of each window over two axes.
pub type AvgPool2d = AvgPool<2>;
/// The mean of each window over three axes.
pub type AvgPool3d = AvgPool<3>;

/// The mean of each window over the last `N` axes. Known as [`AvgPool1d`], [`AvgPool2d`] and
/// [`AvgPool3d`].
#[derive(Clone, Debug)]
pub struct AvgPool<const N: usize> {
    /// The size of a window.
    pub kernel_size: [usize; N],
    /// The distance between neighbouring windows.
    pub stride: [usize; N],
    /// Zeros around the input; at most half a window.
    pub padding: [usize; N],
    /// Whether a last window that reaches over the end counts.
    pub ceil_mode: bool,
    /// Whether the zeros count in the mean.
    pub count_include_pad: bool,
    /// What the sums are divided by, instead of the number of elements.
    pub divisor_override: Option<i64>,
}

tree_by_axes!(AvgPool is ["AvgPool1d", "AvgPool2d", "AvgPool3d"] {
    kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
});

impl<const N: usize> AvgPool<N> {
    /// Windows of this size that do not overlap.
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

    /// The distance between neighbouring windows.
    #[must_use]
    pub fn stride(self, stride: impl PerAxis<N>) -> Self {
        AvgPool { stride: stride.per_axis(), ..self }
    }

    /// Zeros around the input; at most half a window.
    #[must_use]
    pub fn padding(self, padding: impl PerAxis<N>) -> Self {
        AvgPool { padding: padding.per_axis(), ..self }
    }

    /// Whether a last window that reaches over the end counts.
    #[must_use]
    pub fn ceil_mode(self, ceil_mode: bool) -> Self {
        AvgPool { ceil_mode, ..self }
    }

    /// Whether the zeros count in the mean; they do by default.
    #[must_use]
    pub fn count_include_pad(self, count_include_pad: bool) -> Self {
        AvgPool { count_include_pad, ..self }
    }

    /// What the sums are divided by, instead of the number of elements.
    #[must_use]
    pub fn divisor_override(self, divisor: i64) -> Self {
        AvgPool { divisor_override: Some(divisor), ..self }
    }
}

impl<const N: usize> Layer for AvgPool<N> {
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
