//! [`CosineEmbeddingLoss`].

use pullback::{Reduction, Tensor, losses};

/// 1 − cos(a, b) over the last axis where y is 1, max(0, cos(a, b) − margin) where y is −1.
/// PyTorch's `nn.CosineEmbeddingLoss`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct CosineEmbeddingLoss {
    margin: f64,
    reduction: Reduction,
}

impl CosineEmbeddingLoss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> CosineEmbeddingLoss {
        CosineEmbeddingLoss { margin: 0.0, reduction }
    }

    /// The margin; 0 by default.
    pub fn margin(self, margin: f64) -> CosineEmbeddingLoss {
        CosineEmbeddingLoss { margin, ..self }
    }

    /// The loss.
    ///
    /// # Panics
    /// With the operands and the caller's line, if they do not fit each other.
    #[track_caller]
    #[must_use]
    pub fn forward(&self, a: &Tensor, b: &Tensor, y: &Tensor) -> Tensor {
        losses::cosine_embedding(a, b, y, self.margin, self.reduction)
    }
}
