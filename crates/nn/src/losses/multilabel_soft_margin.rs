//! [`MultilabelSoftMarginLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The multi-label soft margin loss: the mean over the classes of −y·log σ(x) − (1 − y)·log σ(−x).
/// PyTorch's `nn.MultiLabelSoftMarginLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{Loss, MultilabelSoftMarginLoss};
/// let (logits, y) = (Tensor::from([[0.0, 0.0, 0.0]]), Tensor::from([[1.0, 0.0, 1.0]]));
/// let loss = MultilabelSoftMarginLoss::new(Reduction::Mean).forward(&logits, &y);
/// assert!((loss.item::<f64>() - 2f64.ln()).abs() < 1e-12);
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[doc(alias = "MultiLabelSoftMarginLoss")]
pub struct MultilabelSoftMarginLoss {
    weight: Option<Tensor>,
    reduction: Reduction,
}

impl MultilabelSoftMarginLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, MultilabelSoftMarginLoss};
    /// let loss = MultilabelSoftMarginLoss::new(Reduction::None);
    /// // The mean is over the classes, so there is one loss for each row.
    /// assert_eq!(loss.forward(&Tensor::zeros([2, 3]), &Tensor::ones([2, 3])).shape(), [2]);
    /// ```
    pub fn new(reduction: Reduction) -> MultilabelSoftMarginLoss {
        MultilabelSoftMarginLoss { weight: None, reduction }
    }

    /// A weight for each class.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, MultilabelSoftMarginLoss};
    /// let loss = MultilabelSoftMarginLoss::new(Reduction::Mean).weight(&Tensor::from([1.0, 0.0]));
    /// let loss = loss.forward(&Tensor::from([[0.0, 9.0]]), &Tensor::from([[1.0, 0.0]]));
    /// assert!((loss.item::<f64>() - 0.5 * 2f64.ln()).abs() < 1e-12);
    /// ```
    pub fn weight(self, weight: &Tensor) -> MultilabelSoftMarginLoss {
        MultilabelSoftMarginLoss { weight: Some(weight.clone()), ..self }
    }
}

impl Loss for MultilabelSoftMarginLoss {
    /// # Panics
    /// Where [`losses::multilabel_soft_margin`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::multilabel_soft_margin(x, y, self.weight.as_ref(), self.reduction)
    }
}
