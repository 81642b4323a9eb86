//! Transposed convolutions over one, two and three axes.

use super::conv::{demand_sizes, positive, weights, whole_groups};
use super::dimensions::{PerAxis, tree_by_axes};
use crate::{Layer, module_scope};
use pullback::{Conv, Tensor};

/// A transposed convolution over one axis: `[n, channels, l]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{ConvTranspose1d, Layer};
/// let layer = ConvTranspose1d::new(4, 8, 3);
/// assert_eq!(layer.forward(&Tensor::zeros([2, 4, 10])).shape(), [2, 8, 12]);
/// ```
pub type ConvTranspose1d = TransposedConvolution<1>;
/// A transposed convolution over two axes: `[n, channels, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{ConvTranspose2d, Layer};
/// let layer = ConvTranspose2d::new(16, 8, 3).stride(2).padding(1).output_padding(1);
/// assert_eq!(layer.forward(&Tensor::zeros([2, 16, 7, 7])).shape(), [2, 8, 14, 14]);
/// ```
pub type ConvTranspose2d = TransposedConvolution<2>;
/// A transposed convolution over three axes: `[n, channels, d, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{ConvTranspose3d, Layer};
/// let layer = ConvTranspose3d::new(3, 8, 2).stride(2);
/// assert_eq!(layer.forward(&Tensor::zeros([2, 3, 4, 8, 8])).shape(), [2, 8, 8, 16, 16]);
/// ```
pub type ConvTranspose3d = TransposedConvolution<3>;

/// The transpose of a convolution over `N` axes, with the input and output shapes of that
/// convolution exchanged. Known as [`ConvTranspose1d`], [`ConvTranspose2d`] and
/// [`ConvTranspose3d`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Conv2d, Layer, TransposedConvolution};
/// let (down, up) =
///     (Conv2d::new(3, 8, 4).stride(2), TransposedConvolution::<2>::new(8, 3, 4).stride(2));
/// let x = Tensor::zeros([1, 3, 10, 10]);
/// assert_eq!(down.forward(&x).shape(), [1, 8, 4, 4]);
/// assert_eq!(up.forward(&down.forward(&x)).shape(), [1, 3, 10, 10]);
/// ```
#[derive(Clone)]
pub struct TransposedConvolution<const N: usize> {
    /// `[inputs, outputs / groups, kernel …]`
    pub weight: Tensor,
    /// `[outputs]`
    pub bias: Option<Tensor>,
    /// The distance between neighbouring positions of the kernel on the output.
    pub stride: [usize; N],
    /// The number of elements removed from both ends of each axis of the output.
    pub padding: [usize; N],
    /// Elements at the end of each axis of the output: which of the lengths to go back to that the
    /// convolution maps to one.
    pub output_padding: [usize; N],
    /// The distance between neighbouring elements of the kernel.
    pub dilation: [usize; N],
    /// Groups of channels, convolved separately.
    pub groups: usize,
}

tree_by_axes!(TransposedConvolution is ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"] {
    weight, bias, stride, padding, output_padding, dilation, groups
});

impl<const N: usize> TransposedConvolution<N> {
    /// With a kernel of this size, stride 1, no padding, dilation 1 and one group. Weights and
    /// biases are drawn uniformly from ±1/√fan, where the fan is the number of output channels
    /// times the kernel size, as in PyTorch.
    ///
    /// ```
    /// # use pullback_nn::ConvTranspose2d;
    /// let layer = ConvTranspose2d::new(16, 8, 3);
    /// assert_eq!(layer.weight.shape(), [16, 8, 3, 3]);
    /// ```
    ///
    /// # Panics
    /// If a number is 0.
    #[track_caller]
    #[must_use]
    pub fn new(in_channels: usize, out_channels: usize, kernel_size: impl PerAxis<N>) -> Self {
        let kernel_size = kernel_size.per_axis();
        demand_sizes(Self::NAME, in_channels, out_channels, &kernel_size);
        let (weight, bias) = weights(in_channels, out_channels, &kernel_size, out_channels);
        TransposedConvolution {
            weight,
            bias: Some(bias),
            stride: [1; N],
            padding: [0; N],
            output_padding: [0; N],
            dilation: [1; N],
            groups: 1,
        }
    }

    /// The distance between neighbouring positions of the kernel on the output; 1 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{ConvTranspose1d, Layer};
    /// let layer = ConvTranspose1d::new(4, 8, 2).stride(2);
    /// assert_eq!(layer.forward(&Tensor::zeros([2, 4, 10])).shape(), [2, 8, 20]);
    /// ```
    ///
    /// # Panics
    /// If it is 0.
    #[track_caller]
    #[must_use]
    pub fn stride(self, stride: impl PerAxis<N>) -> Self {
        TransposedConvolution { stride: positive(Self::NAME, "stride", stride.per_axis()), ..self }
    }

    /// The number of elements removed from both ends of each axis of the output; 0 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{ConvTranspose1d, Layer};
    /// let layer = ConvTranspose1d::new(4, 8, 3).padding(1);
    /// assert_eq!(layer.forward(&Tensor::zeros([2, 4, 10])).shape(), [2, 8, 10]);
    /// ```
    #[must_use]
    pub fn padding(self, padding: impl PerAxis<N>) -> Self {
        TransposedConvolution { padding: padding.per_axis(), ..self }
    }

    /// The number of elements added to the end of each axis of the output, less than the stride or
    /// the dilation; 0 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{ConvTranspose1d, Layer};
    /// let layer = ConvTranspose1d::new(4, 8, 3).stride(2).padding(1);
    /// assert_eq!(layer.forward(&Tensor::zeros([2, 4, 10])).shape(), [2, 8, 19]);
    /// let layer = layer.output_padding(1);
    /// assert_eq!(layer.forward(&Tensor::zeros([2, 4, 10])).shape(), [2, 8, 20]);
    /// ```
    #[must_use]
    pub fn output_padding(self, padding: impl PerAxis<N>) -> Self {
        TransposedConvolution { output_padding: padding.per_axis(), ..self }
    }

    /// The distance between neighbouring elements of the kernel; 1 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{ConvTranspose1d, Layer};
    /// let layer = ConvTranspose1d::new(4, 8, 3).dilation(2);
    /// assert_eq!(layer.forward(&Tensor::zeros([2, 4, 10])).shape(), [2, 8, 14]);
    /// ```
    ///
    /// # Panics
    /// If it is 0.
    #[track_caller]
    #[must_use]
    pub fn dilation(self, dilation: impl PerAxis<N>) -> Self {
        let dilation = positive(Self::NAME, "dilation", dilation.per_axis());
        TransposedConvolution { dilation, ..self }
    }

    /// The number of groups of channels, which are convolved separately; 1 by default. Draws new
    /// weights, as there are fewer.
    ///
    /// ```
    /// # use pullback_nn::ConvTranspose2d;
    /// let layer = ConvTranspose2d::new(16, 8, 3).groups(4);
    /// assert_eq!(layer.weight.shape(), [16, 2, 3, 3]);
    /// ```
    ///
    /// # Panics
    /// If the numbers of input and output channels are not multiples of `groups`.
    #[track_caller]
    #[must_use]
    pub fn groups(self, groups: usize) -> Self {
        let (inputs, outputs) = (self.weight.shape()[0], self.weight.shape()[1] * self.groups);
        whole_groups(Self::NAME, inputs, outputs, groups);
        let kernel = &self.weight.shape()[2..];
        let (weight, bias) = weights(inputs, outputs / groups, kernel, outputs);
        TransposedConvolution { weight, bias: self.bias.map(|_| bias), groups, ..self }
    }

    /// Without a bias.
    ///
    /// ```
    /// # use pullback_nn::{ConvTranspose2d, Module};
    /// assert_eq!(ConvTranspose2d::new(3, 8, 3).without_bias().parameter_count(), 3 * 8 * 9);
    /// ```
    #[must_use]
    #[doc(alias = "bias")]
    pub fn without_bias(self) -> Self {
        TransposedConvolution { bias: None, ..self }
    }
}

impl<const N: usize> Layer for TransposedConvolution<N> {
    /// # Panics
    /// If the channels of `x` or its number of axes do not fit, float dtypes are mixed, or the
    /// output padding is too large.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let options = Conv::new()
            .stride(self.stride)
            .padding(self.padding)
            .output_padding(self.output_padding)
            .dilation(self.dilation)
            .groups(self.groups);
        let (w, b) = (&self.weight, self.bias.as_ref());
        let y = match N {
            1 => x.conv_transpose1d(w, b, &options),
            2 => x.conv_transpose2d(w, b, &options),
            _ => x.conv_transpose3d(w, b, &options),
        };
        scope.output_with_macs(y, |_| x.len() * w.len() / w.shape()[0])
    }
}
