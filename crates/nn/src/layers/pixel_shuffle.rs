//! Channels as pixels, and back.

use crate::{Layer, seen};
use pullback::{Tensor, Tree};

/// `[.., c·r², h, w]` as `[.., c, h·r, w·r]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, PixelShuffle};
/// assert_eq!(PixelShuffle::new(2).forward(&Tensor::zeros([1, 8, 3, 3])).shape(), [1, 2, 6, 6]);
/// ```
#[derive(Clone, Copy, Debug, Tree)]
pub struct PixelShuffle {
    /// The factor r.
    pub upscale_factor: usize,
}

/// `[.., c, h·r, w·r]` as `[.., c·r², h, w]`.
#[derive(Clone, Copy, Debug, Tree)]
pub struct PixelUnshuffle {
    /// The factor r.
    pub downscale_factor: usize,
}

impl PixelShuffle {
    /// By this factor.
    #[must_use]
    pub fn new(upscale_factor: usize) -> PixelShuffle {
        PixelShuffle { upscale_factor }
    }
}

impl PixelUnshuffle {
    /// By this factor.
    #[must_use]
    pub fn new(downscale_factor: usize) -> PixelUnshuffle {
        PixelUnshuffle { downscale_factor }
    }
}

impl Layer for PixelShuffle {
    fn forward(&self, x: &Tensor) -> Tensor {
        seen(self, x.pixel_shuffle(self.upscale_factor))
    }
}

impl Layer for PixelUnshuffle {
    fn forward(&self, x: &Tensor) -> Tensor {
        seen(self, x.pixel_unshuffle(self.downscale_factor))
    }
}
