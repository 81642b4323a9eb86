//! [`SmoothL1Loss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// ½(x − y)²/beta where |x − y| < beta, |x − y| − ½beta elsewhere. PyTorch's `nn.SmoothL1Loss`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SmoothL1Loss {
    beta: f64,
    reduction: Reduction,
}

impl SmoothL1Loss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> SmoothL1Loss {
        SmoothL1Loss { beta: 1.0, reduction }
    }

    /// Where the parabola ends; 1 by default.
    pub fn beta(self, beta: f64) -> SmoothL1Loss {
        SmoothL1Loss { beta, ..self }
    }
}

impl Loss for SmoothL1Loss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::smooth_l1(x, y, self.beta, self.reduction)
    }
}
