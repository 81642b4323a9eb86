//! Channels as pixels, and back.

use crate::refuse::demand;
use crate::{Layer, module_scope};
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
        let scope = module_scope(self);
        let r = self.upscale_factor;
        let fits = r > 0 && x.rank() >= 3 && x.shape()[x.rank() - 3].is_multiple_of(r * r);
        demand(fits, "PixelShuffle", || {
            format!("takes [.., c, h, w] with c a multiple of {r}², not {}", x.spec())
        });
        scope.output(x.pixel_shuffle(r))
    }
}

impl Layer for PixelUnshuffle {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let r = self.downscale_factor;
        let fits =
            r > 0 && x.rank() >= 3 && x.shape()[x.rank() - 2..].iter().all(|n| n.is_multiple_of(r));
        demand(fits, "PixelUnshuffle", || {
            format!("takes [.., c, h, w] with h and w multiples of {r}, not {}", x.spec())
        });
        scope.output(x.pixel_unshuffle(r))
    }
}
