//! [`MultilabelMarginLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// Σ over the labels j of a row and the other classes i of `max(0, 1 − x[j] + x[i])` / classes; −1
/// ends the labels of a row. PyTorch's `nn.MultiLabelMarginLoss`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct MultilabelMarginLoss {
    reduction: Reduction,
}

impl MultilabelMarginLoss {
    /// With this reduction.
    pub fn new(reduction: Reduction) -> MultilabelMarginLoss {
        MultilabelMarginLoss { reduction }
    }
}

impl Loss for MultilabelMarginLoss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::multilabel_margin(x, y, self.reduction)
    }
}
