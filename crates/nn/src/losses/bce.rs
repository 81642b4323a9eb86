//! [`BceLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// −y·log(x) − (1 − y)·log(1 − x) for probabilities x; logarithms are taken as at least −100.
/// PyTorch's `nn.BCELoss`.
#[derive(Clone, Debug)]
#[must_use]
pub struct BceLoss {
    weight: Option<Tensor>,
    reduction: Reduction,
}

impl BceLoss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> BceLoss {
        BceLoss { weight: None, reduction }
    }

    /// A weight for each element; it broadcasts.
    pub fn weight(self, weight: &Tensor) -> BceLoss {
        BceLoss { weight: Some(weight.clone()), ..self }
    }
}

impl Loss for BceLoss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::binary_cross_entropy(x, y, self.weight.as_ref(), self.reduction)
    }
}
