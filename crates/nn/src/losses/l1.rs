//! [`L1Loss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The absolute error |x − y|. PyTorch's `nn.L1Loss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{L1Loss, Loss};
/// let (x, y) = (Tensor::from([1.0, 2.0]), Tensor::from([0.0, 4.0]));
/// assert_eq!(L1Loss::new(Reduction::Mean).forward(&x, &y).item::<f64>(), 1.5);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct L1Loss {
    reduction: Reduction,
}

impl L1Loss {
    /// Creates the loss with this reduction.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{L1Loss, Loss};
    /// let (x, y) = (Tensor::from([1.0, 2.0]), Tensor::from([0.0, 4.0]));
    /// assert_eq!(L1Loss::new(Reduction::Sum).forward(&x, &y).item::<f64>(), 3.0);
    /// ```
    pub fn new(reduction: Reduction) -> L1Loss {
        L1Loss { reduction }
    }
}

impl Loss for L1Loss {
    /// # Panics
    /// Where [`losses::l1`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::l1(x, y, self.reduction)
    }
}
