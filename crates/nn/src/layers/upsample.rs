//! Upsampling by interpolation.

use crate::{Layer, module_scope};
use pullback::{Interpolate, InterpolateMode, IntoShape, Path, Tensor, Tree};

/// Resizes the axes after the channels: from `[n, channels, …]` to `[n, channels, …]`.
///
/// ```
/// use pullback::{InterpolateMode, Tensor};
/// use pullback_nn::{Layer, Upsample};
/// let layer = Upsample::scale_factor(2.0).mode(InterpolateMode::Linear);
/// assert_eq!(layer.forward(&Tensor::zeros([1, 3, 4, 5])).shape(), [1, 3, 8, 10]);
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "interpolate")]
pub struct Upsample {
    options: Interpolate,
}

impl Upsample {
    /// Multiplies the length of every axis after the channels by this factor, rounded down.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Upsample};
    /// let y = Upsample::scale_factor(2.0).forward(&Tensor::from([[[1.0, 2.0]]]));
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 1.0, 2.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// Never; `forward` checks the factor.
    #[must_use]
    pub fn scale_factor(factor: f64) -> Upsample {
        Upsample { options: Interpolate::by([factor]) }
    }

    /// To this size: a length for each axis after the channels, or one for all of them.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Upsample};
    /// let y = Upsample::size([7, 9]).forward(&Tensor::zeros([1, 3, 4, 5]));
    /// assert_eq!(y.shape(), [1, 3, 7, 9]);
    /// ```
    ///
    /// # Panics
    /// If a length is negative.
    #[track_caller]
    #[must_use]
    pub fn size(size: impl IntoShape) -> Upsample {
        Upsample { options: Interpolate::to(size) }
    }

    /// The interpolation; [`InterpolateMode::Nearest`] by default.
    ///
    /// ```
    /// # use pullback::{InterpolateMode, Tensor};
    /// # use pullback_nn::{Layer, Linear, Upsample};
    /// let layer = Upsample::scale_factor(2.0).mode(InterpolateMode::Linear);
    /// assert_eq!(
    ///     layer.forward(&Tensor::from([[[0.0, 4.0]]])).to_vec::<f64>(),
    ///     [0.0, 1.0, 3.0, 4.0]
    /// );
    /// ```
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn mode(self, mode: InterpolateMode) -> Upsample {
        Upsample { options: self.options.mode(mode) }
    }

    /// For linear and cubic interpolation: whether the first and last elements keep their places,
    /// rather than the outer edges of the image; false by default.
    ///
    /// ```
    /// # use pullback::{InterpolateMode, Tensor};
    /// # use pullback_nn::{Layer, Linear, Upsample};
    /// let layer = Upsample::size([3]).mode(InterpolateMode::Linear).align_corners(true);
    /// assert_eq!(layer.forward(&Tensor::from([[[0.0, 4.0]]])).to_vec::<f64>(), [0.0, 2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn align_corners(self, yes: bool) -> Upsample {
        Upsample { options: self.options.align_corners(yes) }
    }
}

/// By hand: the options are those of the op, which is not a tree, and a compiled function depends
/// on them.
impl Tree for Upsample {
    fn visit(&self, path: &mut Path, _: &mut dyn FnMut(&Path, &Tensor)) {
        path.kind("Upsample");
        path.note(&self.options);
    }

    fn map(&self, _: &mut dyn FnMut(&Tensor) -> Tensor) -> Upsample {
        self.clone()
    }
}

impl Layer for Upsample {
    /// # Panics
    /// If `x` does not have one to three axes after the channels, or the size or factor does not
    /// fit it.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(self.options.of(x))
    }
}
