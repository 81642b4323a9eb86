//! Images at another size.

use crate::{Layer, module_scope};
use pullback::{Interpolate, IntoShape, Path, Resize, Tensor, Tree};

/// The axes after the channels at another size.
///
/// ```
/// use pullback::{Resize, Tensor};
/// use pullback_nn::{Layer, Upsample};
/// let layer = Upsample::scale_factor(2.0).mode(Resize::Linear);
/// assert_eq!(layer.forward(&Tensor::zeros([1, 3, 4, 5])).shape(), [1, 3, 8, 10]);
/// ```
#[derive(Clone, Debug)]
pub struct Upsample {
    options: Interpolate,
}

impl Upsample {
    /// Every axis after the channels longer by this factor, rounded down.
    #[must_use]
    pub fn scale_factor(factor: f64) -> Upsample {
        Upsample { options: Interpolate::by([factor]) }
    }

    /// To this size: a length for each axis after the channels, or one for all of them.
    #[track_caller]
    #[must_use]
    pub fn size(size: impl IntoShape) -> Upsample {
        Upsample { options: Interpolate::to(size) }
    }

    /// How values between the given ones are computed; [`Resize::Nearest`] by default.
    #[must_use]
    pub fn mode(self, mode: Resize) -> Upsample {
        Upsample { options: self.options.mode(mode) }
    }

    /// For linear and cubic: the first and last elements keep their places, rather than the outer
    /// edges of the image.
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
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(self.options.of(x))
    }
}
