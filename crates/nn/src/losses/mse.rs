//! [`MseLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The squared error (x − y)². PyTorch's `nn.MSELoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{Loss, MseLoss};
/// let loss =
///     MseLoss::new(Reduction::Sum).forward(&Tensor::from([1.0, 2.0]), &Tensor::from([0.0, 4.0]));
/// assert_eq!(loss.item::<f64>(), 5.0);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct MseLoss {
    reduction: Reduction,
}

impl MseLoss {
    /// Creates the loss with this reduction.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, MseLoss};
    /// let (x, y) = (Tensor::from([1.0, 2.0]), Tensor::from([0.0, 4.0]));
    /// assert_eq!(MseLoss::new(Reduction::Mean).forward(&x, &y).item::<f64>(), 2.5);
    /// ```
    pub fn new(reduction: Reduction) -> MseLoss {
        MseLoss { reduction }
    }
}

impl Loss for MseLoss {
    /// # Panics
    /// Where [`losses::mse`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::mse(x, y, self.reduction)
    }
}
