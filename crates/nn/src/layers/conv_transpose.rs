//! Transposed convolutions over one, two and three axes.

use super::conv::{demand_sizes, positive, weights, whole_groups};
use super::dimensions::{PerAxis, tree_by_axes};
use crate::{Layer, module_scope};
use pullback::{Conv, Tensor};

/// A transposed convolution over one axis: `[n, channels, l]`.
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
pub type ConvTranspose3d = TransposedConvolution<3>;

/// The transpose of a convolution over `N` axes: it goes from what that gives to what that takes.
/// Known as [`ConvTranspose1d`], [`ConvTranspose2d`] and [`ConvTranspose3d`].
#[derive(Clone)]
pub struct TransposedConvolution<const N: usize> {
    /// `[inputs, outputs / groups, kernel …]`
    pub weight: Tensor,
    /// `[outputs]`
    pub bias: Option<Tensor>,
    /// The distance between neighbouring places of the kernel on the output.
    pub stride: [usize; N],
    /// Elements that are cut off before and after each axis.
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
    /// A kernel of this size, with stride 1, no padding, dilation 1 and one group. Weights and
    /// biases are spread evenly over ±1/√fan, where the fan is the number of outputs times the size
    /// of the kernel, as in PyTorch.
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

    /// The distance between neighbouring places of the kernel on the output.
    ///
    /// # Panics
    /// If it is 0.
    #[track_caller]
    #[must_use]
    pub fn stride(self, stride: impl PerAxis<N>) -> Self {
        TransposedConvolution { stride: positive(Self::NAME, "stride", stride.per_axis()), ..self }
    }

    /// Elements that are cut off before and after each axis.
    #[must_use]
    pub fn padding(self, padding: impl PerAxis<N>) -> Self {
        TransposedConvolution { padding: padding.per_axis(), ..self }
    }

    /// Elements at the end of each axis of the output, fewer than the stride or the dilation.
    #[must_use]
    pub fn output_padding(self, padding: impl PerAxis<N>) -> Self {
        TransposedConvolution { output_padding: padding.per_axis(), ..self }
    }

    /// The distance between neighbouring elements of the kernel.
    ///
    /// # Panics
    /// If it is 0.
    #[track_caller]
    #[must_use]
    pub fn dilation(self, dilation: impl PerAxis<N>) -> Self {
        let dilation = positive(Self::NAME, "dilation", dilation.per_axis());
        TransposedConvolution { dilation, ..self }
    }

    /// Groups of channels, convolved separately. Draws new weights, as there are fewer.
    ///
    /// # Panics
    /// If the channels do not fall into that many groups.
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
    #[must_use]
    #[doc(alias = "bias")]
    pub fn without_bias(self) -> Self {
        TransposedConvolution { bias: None, ..self }
    }
}

impl<const N: usize> Layer for TransposedConvolution<N> {
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
