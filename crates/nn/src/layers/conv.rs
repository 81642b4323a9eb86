//! Convolutions over one, two and three axes.

use super::dimensions::{PerAxis, tree_by_axes};
use crate::init::default_weights;
use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{Conv, PadMode, Padding, Path, Tensor, Tree};

/// A convolution over one axis: `[n, channels, l]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Conv1d, Layer};
/// let layer = Conv1d::new(4, 8, 3);
/// assert_eq!(layer.forward(&Tensor::zeros([2, 4, 10])).shape(), [2, 8, 8]);
/// ```
pub type Conv1d = Convolution<1>;
/// A convolution over two axes: `[n, channels, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Conv2d, Layer};
/// let layer = Conv2d::new(3, 32, 3).stride(2).padding(1);
/// assert_eq!(layer.forward(&Tensor::zeros([8, 3, 28, 28])).shape(), [8, 32, 14, 14]);
/// ```
pub type Conv2d = Convolution<2>;
/// A convolution over three axes: `[n, channels, d, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Conv3d, Layer};
/// let layer = Conv3d::new(3, 8, 3).padding(1);
/// assert_eq!(layer.forward(&Tensor::zeros([2, 3, 4, 8, 8])).shape(), [2, 8, 4, 8, 8]);
/// ```
pub type Conv3d = Convolution<3>;

/// What the padding of a convolution is made of.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Conv1d, Layer, PaddingMode, init};
/// let layer = Conv1d::new(1, 1, 3).padding(1).padding_mode(PaddingMode::Replicate).without_bias();
/// init::ones_(&layer.weight);
/// let y = layer.forward(&Tensor::from([[[1f32, 2.0, 4.0]]]));
/// assert_eq!(y.to_vec::<f32>(), [4.0, 7.0, 10.0]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaddingMode {
    /// Zeros.
    #[default]
    Zeros,
    /// The input mirrored at its edges, which are not repeated.
    Reflect,
    /// The elements at the edges, repeated.
    Replicate,
    /// The input from the other end.
    Circular,
}

/// By hand: an option is not a part of a module and has no row in its summary.
impl Tree for PaddingMode {
    fn visit(&self, path: &mut Path, _: &mut dyn FnMut(&Path, &Tensor)) {
        path.note(self);
    }

    fn map(&self, _: &mut dyn FnMut(&Tensor) -> Tensor) -> PaddingMode {
        *self
    }
}

/// A convolution over the `N` axes after the channels; the batch axis may be missing. Known as
/// [`Conv1d`], [`Conv2d`] and [`Conv3d`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Convolution, Layer};
/// let layer = Convolution::<2>::new(3, 16, [3, 5]).padding([1, 2]);
/// assert_eq!(layer.weight.shape(), [16, 3, 3, 5]);
/// assert_eq!(layer.forward(&Tensor::zeros([8, 3, 28, 28])).shape(), [8, 16, 28, 28]);
/// ```
#[derive(Clone)]
pub struct Convolution<const N: usize> {
    /// `[outputs, inputs / groups, kernel …]`
    pub weight: Tensor,
    /// `[outputs]`
    pub bias: Option<Tensor>,
    /// The distance between neighbouring positions of the kernel.
    pub stride: [usize; N],
    /// Elements before and after each axis.
    pub padding: [usize; N],
    /// Whether the padding keeps the length, instead of `padding`.
    pub same: bool,
    /// The distance between neighbouring elements of the kernel.
    pub dilation: [usize; N],
    /// Groups of channels, convolved separately.
    pub groups: usize,
    /// The kind of padding.
    pub padding_mode: PaddingMode,
}

tree_by_axes!(Convolution is ["Conv1d", "Conv2d", "Conv3d"] {
    weight, bias, stride, padding, same, dilation, groups, padding_mode
});

impl<const N: usize> Convolution<N> {
    /// With a kernel of this size, stride 1, no padding, dilation 1 and one group. Weights and
    /// biases are drawn uniformly from ±1/√fan, where the fan is the number of input channels times
    /// the kernel size.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Conv2d, Layer};
    /// let layer = Conv2d::new(1, 32, 3);
    /// assert_eq!(layer.weight.shape(), [32, 1, 3, 3]);
    /// assert_eq!(layer.forward(&Tensor::zeros([8, 1, 28, 28])).shape(), [8, 32, 26, 26]);
    /// ```
    ///
    /// # Panics
    /// If a number is 0.
    #[track_caller]
    #[must_use]
    pub fn new(
        in_channels: usize,
        out_channels: usize,
        kernel_size: impl PerAxis<N>,
    ) -> Convolution<N> {
        let kernel_size = kernel_size.per_axis();
        demand_sizes(Self::NAME, in_channels, out_channels, &kernel_size);
        let (weight, bias) = weights(out_channels, in_channels, &kernel_size, out_channels);
        Convolution {
            weight,
            bias: Some(bias),
            stride: [1; N],
            padding: [0; N],
            same: false,
            dilation: [1; N],
            groups: 1,
            padding_mode: PaddingMode::Zeros,
        }
    }

    /// The distance between neighbouring positions of the kernel; 1 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Conv2d, Layer};
    /// let layer = Conv2d::new(1, 32, 3).stride([1, 2]);
    /// assert_eq!(layer.forward(&Tensor::zeros([8, 1, 28, 28])).shape(), [8, 32, 26, 13]);
    /// ```
    ///
    /// # Panics
    /// If it is 0.
    #[track_caller]
    #[must_use]
    pub fn stride(self, stride: impl PerAxis<N>) -> Self {
        Convolution { stride: positive(Self::NAME, "stride", stride.per_axis()), ..self }
    }

    /// The number of elements added before and after each axis; 0 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Conv2d, Layer};
    /// let layer = Conv2d::new(1, 32, 3).padding(1);
    /// assert_eq!(layer.forward(&Tensor::zeros([8, 1, 28, 28])).shape(), [8, 32, 28, 28]);
    /// ```
    #[must_use]
    pub fn padding(self, padding: impl PerAxis<N>) -> Self {
        Convolution { padding: padding.per_axis(), same: false, ..self }
    }

    /// Padding that keeps the length, for a stride of 1; the odd element comes last (PyTorch's
    /// `padding="same"`).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Conv1d, Layer};
    /// let layer = Conv1d::new(1, 2, 4).same();
    /// assert_eq!(layer.forward(&Tensor::zeros([8, 1, 28])).shape(), [8, 2, 28]);
    /// ```
    #[must_use]
    pub fn same(self) -> Self {
        Convolution { same: true, ..self }
    }

    /// The distance between neighbouring elements of the kernel; 1 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Conv1d, Layer};
    /// // Three elements, two apart, reach over five.
    /// let layer = Conv1d::new(1, 2, 3).dilation(2);
    /// assert_eq!(layer.forward(&Tensor::zeros([8, 1, 28])).shape(), [8, 2, 24]);
    /// ```
    ///
    /// # Panics
    /// If it is 0.
    #[track_caller]
    #[must_use]
    pub fn dilation(self, dilation: impl PerAxis<N>) -> Self {
        Convolution { dilation: positive(Self::NAME, "dilation", dilation.per_axis()), ..self }
    }

    /// The number of groups of channels, which are convolved separately; 1 by default. Draws new
    /// weights, as there are fewer.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Conv2d, Layer};
    /// // A depthwise convolution.
    /// let layer = Conv2d::new(8, 8, 3).groups(8);
    /// assert_eq!(layer.weight.shape(), [8, 1, 3, 3]);
    /// assert_eq!(layer.forward(&Tensor::zeros([1, 8, 5, 5])).shape(), [1, 8, 3, 3]);
    /// ```
    ///
    /// # Panics
    /// If the numbers of input and output channels are not multiples of `groups`.
    #[track_caller]
    #[must_use]
    pub fn groups(self, groups: usize) -> Self {
        let (outputs, inputs) = (self.weight.shape()[0], self.weight.shape()[1] * self.groups);
        whole_groups(Self::NAME, inputs, outputs, groups);
        let kernel = &self.weight.shape()[2..];
        let (weight, bias) = weights(outputs, inputs / groups, kernel, outputs);
        Convolution { weight, bias: self.bias.map(|_| bias), groups, ..self }
    }

    /// The kind of padding; zeros by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Conv1d, Layer, PaddingMode, init};
    /// let layer =
    ///     Conv1d::new(1, 1, 3).padding(1).padding_mode(PaddingMode::Circular).without_bias();
    /// init::ones_(&layer.weight);
    /// let y = layer.forward(&Tensor::from([[[1f32, 2.0, 4.0]]]));
    /// assert_eq!(y.to_vec::<f32>(), [7.0, 7.0, 7.0]);
    /// ```
    #[must_use]
    pub fn padding_mode(self, padding_mode: PaddingMode) -> Self {
        Convolution { padding_mode, ..self }
    }

    /// Without a bias.
    ///
    /// ```
    /// # use pullback_nn::{Conv2d, Module};
    /// assert_eq!(Conv2d::new(3, 8, 3).without_bias().parameter_count(), 3 * 8 * 9);
    /// ```
    #[must_use]
    #[doc(alias = "bias")]
    pub fn without_bias(self) -> Self {
        Convolution { bias: None, ..self }
    }

    /// Elements before and after each axis.
    fn sides(&self) -> [(usize, usize); N] {
        std::array::from_fn(|i| match self.same {
            true => {
                let total = (self.weight.shape()[2 + i] - 1) * self.dilation[i];
                (total / 2, total - total / 2)
            }
            false => (self.padding[i], self.padding[i]),
        })
    }
}

impl<const N: usize> Layer for Convolution<N> {
    /// # Panics
    /// If the channels of `x` or its number of axes do not fit, the kernel is longer than the
    /// padded input, float dtypes are mixed, or `same` is set with a stride other than 1.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let unit_stride = self.stride.iter().all(|&s| s == 1);
        demand(!self.same || unit_stride, Self::NAME, || {
            format!("padding that keeps the length takes stride 1, not {:?}", self.stride)
        });
        let options = Conv::new().stride(self.stride).dilation(self.dilation).groups(self.groups);
        let sides = self.sides();
        let (x, options) = match border(self.padding_mode) {
            None => (x.clone(), options.padding(Padding::Sides(sides.to_vec()))),
            // An input without the axes is refused by the convolution.
            Some(_) if x.rank() < N => (x.clone(), options),
            Some(border) => {
                let mut pads = vec![(0, 0); x.rank() - N];
                pads.extend(sides);
                (x.pad_by(&pads, border), options)
            }
        };
        let (w, b) = (&self.weight, self.bias.as_ref());
        let y = match N {
            1 => x.conv1d(w, b, &options),
            2 => x.conv2d(w, b, &options),
            _ => x.conv3d(w, b, &options),
        };
        scope.output_with_macs(y, |y| y.len() * w.len() / w.shape()[0])
    }
}

fn border(mode: PaddingMode) -> Option<PadMode> {
    match mode {
        PaddingMode::Zeros => None,
        PaddingMode::Reflect => Some(PadMode::Reflect),
        PaddingMode::Replicate => Some(PadMode::Replicate),
        PaddingMode::Circular => Some(PadMode::Circular),
    }
}

/// Refuses channels and kernels of which a size is 0.
#[track_caller]
pub(super) fn demand_sizes(name: &'static str, inputs: usize, outputs: usize, kernel: &[usize]) {
    demand(inputs > 0 && outputs > 0 && !kernel.contains(&0), name, || {
        format!("takes channels and a kernel, not {inputs} to {outputs} by {kernel:?}")
    });
}

/// A kernel `[first, second, kernel …]` and a bias, with PyTorch's initialisation.
#[track_caller]
pub(super) fn weights(
    first: usize,
    second: usize,
    kernel: &[usize],
    outputs: usize,
) -> (Tensor, Tensor) {
    let weight = Tensor::zeros([&[first, second], kernel].concat()).requires_grad();
    let bias = Tensor::zeros([outputs]).requires_grad();
    default_weights(&weight, Some(&bias));
    (weight, bias)
}

/// Sizes of which none is 0.
#[track_caller]
pub(super) fn positive<const N: usize>(
    layer: &'static str,
    what: &str,
    sizes: [usize; N],
) -> [usize; N] {
    demand(!sizes.contains(&0), layer, || format!("a {what} must be at least 1, not {sizes:?}"));
    sizes
}

#[track_caller]
pub(super) fn whole_groups(layer: &'static str, inputs: usize, outputs: usize, groups: usize) {
    let fits = groups > 0 && inputs.is_multiple_of(groups) && outputs.is_multiple_of(groups);
    demand(fits, layer, || {
        format!("{inputs} inputs and {outputs} outputs are not divisible by {groups} groups")
    });
}
