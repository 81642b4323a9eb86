//! [`SoftMarginLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The logistic loss log(1 + exp(−y·x)), for y of 1 and −1. PyTorch's `nn.SoftMarginLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{Loss, SoftMarginLoss};
/// let (x, y) = (Tensor::from([0.0, 3.0]), Tensor::from([1.0, -1.0]));
/// let loss = SoftMarginLoss::new(Reduction::None).forward(&x, &y).to_vec::<f64>();
/// assert!((loss[0] - 2f64.ln()).abs() < 1e-12);
/// assert!((loss[1] - (1.0 + 3f64.exp()).ln()).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SoftMarginLoss {
    reduction: Reduction,
}

impl SoftMarginLoss {
    /// Creates the loss with this reduction.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, SoftMarginLoss};
    /// let (x, y) = (Tensor::from([0.0, 0.0]), Tensor::from([1.0, -1.0]));
    /// let loss = SoftMarginLoss::new(Reduction::Mean).forward(&x, &y);
    /// assert!((loss.item::<f64>() - 2f64.ln()).abs() < 1e-12);
    /// ```
    pub fn new(reduction: Reduction) -> SoftMarginLoss {
        SoftMarginLoss { reduction }
    }
}

impl Loss for SoftMarginLoss {
    /// # Panics
    /// Where [`losses::soft_margin`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::soft_margin(x, y, self.reduction)
    }
}
