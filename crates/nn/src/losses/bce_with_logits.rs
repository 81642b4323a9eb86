//! [`BceWithLogitsLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// [`BceLoss`](super::BceLoss) of sigmoid(x), without overflow. PyTorch's `nn.BCEWithLogitsLoss`.
#[derive(Clone, Debug)]
#[must_use]
pub struct BceWithLogitsLoss {
    weight: Option<Tensor>,
    pos_weight: Option<Tensor>,
    reduction: Reduction,
}

impl BceWithLogitsLoss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> BceWithLogitsLoss {
        BceWithLogitsLoss { weight: None, pos_weight: None, reduction }
    }

    /// A weight for each element; it broadcasts.
    pub fn weight(self, weight: &Tensor) -> BceWithLogitsLoss {
        BceWithLogitsLoss { weight: Some(weight.clone()), ..self }
    }

    /// A weight of the positives, such as one for each class; it broadcasts.
    pub fn pos_weight(self, pos_weight: &Tensor) -> BceWithLogitsLoss {
        BceWithLogitsLoss { pos_weight: Some(pos_weight.clone()), ..self }
    }
}

impl Loss for BceWithLogitsLoss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::binary_cross_entropy_with_logits(
            x,
            y,
            self.weight.as_ref(),
            self.pos_weight.as_ref(),
            self.reduction,
        )
    }
}
