//! A relu whose slope below 0 is learned.

use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{Tensor, Tree};

/// x above 0, `weight · x` below, with one weight for all or one per channel (axis 1).
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
    /// One slope, from 0.25.
    #[must_use]
    pub fn new() -> PRelu {
        PRelu { weight: (Tensor::ones([1]) * 0.25).requires_grad() }
    }

    /// A slope for each channel, from 0.25.
    ///
    /// # Panics
    /// If there are none.
    #[track_caller]
    #[must_use]
    pub fn per_channel(channels: usize) -> PRelu {
        demand(channels > 0, "PRelu", || "takes at least one channel".into());
        PRelu { weight: (Tensor::ones([channels]) * 0.25).requires_grad() }
    }
}

impl Layer for PRelu {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(x.prelu(&self.weight))
    }
}
