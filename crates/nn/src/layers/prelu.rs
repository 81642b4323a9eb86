//! Parametric relu.

use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{Tensor, Tree};

/// A relu with a learned slope: x above 0, `weight · x` below, with one weight for all or one per
/// channel (axis 1). Any shape in, the same shape out.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, PRelu};
/// assert_eq!(PRelu::new().forward(&Tensor::from([-2f32, 2.0])).to_vec::<f32>(), [-0.5, 2.0]);
/// ```
#[derive(Clone, Tree)]
pub struct PRelu {
    /// `[1]` or `[channels]`
    pub weight: Tensor,
}

impl Default for PRelu {
    fn default() -> PRelu {
        PRelu::new()
    }
}

impl PRelu {
    /// One slope, initially 0.25.
    ///
    /// ```
    /// # use pullback_nn::{Module, PRelu};
    /// assert_eq!(PRelu::new().parameter_count(), 1);
    /// ```
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn new() -> PRelu {
        PRelu { weight: (Tensor::ones([1]) * 0.25).requires_grad() }
    }

    /// A slope for each channel, initially 0.25.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, PRelu};
    /// let layer = PRelu::per_channel(3);
    /// assert_eq!(layer.weight.to_vec::<f32>(), [0.25; 3]);
    /// assert_eq!(layer.forward(&Tensor::ones([2, 3, 4])).shape(), [2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// If `channels` is 0.
    #[track_caller]
    #[must_use]
    pub fn per_channel(channels: usize) -> PRelu {
        demand(channels > 0, "PRelu", || "takes at least one channel".into());
        PRelu { weight: (Tensor::ones([channels]) * 0.25).requires_grad() }
    }
}

impl Layer for PRelu {
    /// # Panics
    /// If there are several slopes, and not one for each channel (axis 1); or float dtypes are
    /// mixed.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(x.prelu(&self.weight))
    }
}
