//! Pixel shuffle and its inverse.

use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{Tensor, Tree};

/// Rearranges `[.., c·r², h, w]` to `[.., c, h·r, w·r]`.
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

/// Rearranges `[.., c, h·r, w·r]` to `[.., c·r², h, w]`: the inverse of [`PixelShuffle`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, PixelUnshuffle};
/// assert_eq!(PixelUnshuffle::new(2).forward(&Tensor::zeros([1, 2, 6, 6])).shape(), [1, 8, 3, 3]);
/// ```
#[derive(Clone, Copy, Debug, Tree)]
pub struct PixelUnshuffle {
    /// The factor r.
    pub downscale_factor: usize,
}

impl PixelShuffle {
    /// With this factor r; `forward` panics if it is 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, PixelShuffle};
    /// let y = PixelShuffle::new(3).forward(&Tensor::zeros([9, 4, 5]));
    /// assert_eq!(y.shape(), [1, 12, 15]);
    /// ```
    #[must_use]
    pub fn new(upscale_factor: usize) -> PixelShuffle {
        PixelShuffle { upscale_factor }
    }
}

impl PixelUnshuffle {
    /// With this factor r; `forward` panics if it is 0.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, PixelShuffle, PixelUnshuffle};
    /// let x = Tensor::randn([4, 3, 3]);
    /// let y = PixelUnshuffle::new(2).forward(&PixelShuffle::new(2).forward(&x));
    /// assert_eq!(y.to_vec::<f32>(), x.to_vec::<f32>());
    /// ```
    #[must_use]
    pub fn new(downscale_factor: usize) -> PixelUnshuffle {
        PixelUnshuffle { downscale_factor }
    }
}

impl Layer for PixelShuffle {
    /// # Panics
    /// If `x` is not `[.., c, h, w]` with `c` a multiple of r², or r is 0.
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
    /// # Panics
    /// If `x` is not `[.., c, h, w]` with `h` and `w` multiples of r, or r is 0.
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
