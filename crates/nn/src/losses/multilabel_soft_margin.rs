//! [`MultilabelSoftMarginLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The mean over the classes of −y·log σ(x) − (1 − y)·log σ(−x). PyTorch's
/// `nn.MultiLabelSoftMarginLoss`.
#[derive(Clone, Debug)]
#[must_use]
pub struct MultilabelSoftMarginLoss {
    weight: Option<Tensor>,
    reduction: Reduction,
}

impl MultilabelSoftMarginLoss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> MultilabelSoftMarginLoss {
        MultilabelSoftMarginLoss { weight: None, reduction }
    }

    /// A weight for each class.
    pub fn weight(self, weight: &Tensor) -> MultilabelSoftMarginLoss {
        MultilabelSoftMarginLoss { weight: Some(weight.clone()), ..self }
    }
}

impl Loss for MultilabelSoftMarginLoss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::multilabel_soft_margin(x, y, self.weight.as_ref(), self.reduction)
    }
}
