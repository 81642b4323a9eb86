//! [`HingeEmbeddingLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// x where y is 1, max(0, margin − x) where y is −1. PyTorch's `nn.HingeEmbeddingLoss`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct HingeEmbeddingLoss {
    margin: f64,
    reduction: Reduction,
}

impl HingeEmbeddingLoss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> HingeEmbeddingLoss {
        HingeEmbeddingLoss { margin: 1.0, reduction }
    }

    /// The margin; 1 by default.
    pub fn margin(self, margin: f64) -> HingeEmbeddingLoss {
        HingeEmbeddingLoss { margin, ..self }
    }
}

impl Loss for HingeEmbeddingLoss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::hinge_embedding(x, y, self.margin, self.reduction)
    }
}
