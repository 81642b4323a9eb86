//! [`SoftMarginLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// log(1 + exp(−y·x)), for y of 1 and −1. PyTorch's `nn.SoftMarginLoss`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SoftMarginLoss {
    reduction: Reduction,
}

impl SoftMarginLoss {
    /// With this reduction.
    pub fn new(reduction: Reduction) -> SoftMarginLoss {
        SoftMarginLoss { reduction }
    }
}

impl Loss for SoftMarginLoss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::soft_margin(x, y, self.reduction)
    }
}
