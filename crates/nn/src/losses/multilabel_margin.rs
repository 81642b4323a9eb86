//! [`MultilabelMarginLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The multi-label margin loss: the sum over the labels j of a row and the other classes i of
/// `max(0, 1 − x[j] + x[i])`, divided by the number of classes; −1 ends the labels of a row.
/// PyTorch's `nn.MultiLabelMarginLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{Loss, MultilabelMarginLoss};
/// let scores = Tensor::from([[0.1, 0.2, 0.4, 0.8]]);
/// // The labels 3 and 0.
/// let labels = Tensor::from([[3i64, 0, -1, 1]]);
/// let loss = MultilabelMarginLoss::new(Reduction::Mean).forward(&scores, &labels);
/// assert!((loss.item::<f64>() - 0.85).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
#[doc(alias = "MultiLabelMarginLoss")]
pub struct MultilabelMarginLoss {
    reduction: Reduction,
}

impl MultilabelMarginLoss {
    /// Creates the loss with this reduction.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, MultilabelMarginLoss};
    /// let loss = MultilabelMarginLoss::new(Reduction::None);
    /// let each = loss.forward(&Tensor::zeros([2, 2]), &Tensor::from([[0i64, -1], [0, 1]]));
    /// assert_eq!(each.to_vec::<f32>(), [0.5, 0.0]);
    /// ```
    pub fn new(reduction: Reduction) -> MultilabelMarginLoss {
        MultilabelMarginLoss { reduction }
    }
}

impl Loss for MultilabelMarginLoss {
    /// # Panics
    /// Where [`losses::multilabel_margin`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::multilabel_margin(x, y, self.reduction)
    }
}
