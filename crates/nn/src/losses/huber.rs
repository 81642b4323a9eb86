//! [`HuberLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// ½(x − y)² where |x − y| < delta, delta·(|x − y| − ½delta) elsewhere. PyTorch's `nn.HuberLoss`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct HuberLoss {
    delta: f64,
    reduction: Reduction,
}

impl HuberLoss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> HuberLoss {
        HuberLoss { delta: 1.0, reduction }
    }

    /// Where the parabola ends; 1 by default.
    pub fn delta(self, delta: f64) -> HuberLoss {
        HuberLoss { delta, ..self }
    }
}

impl Loss for HuberLoss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::huber(x, y, self.delta, self.reduction)
    }
}
