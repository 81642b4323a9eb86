//! [`SmoothL1Loss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The smooth L1 loss: ½(x − y)²/beta where |x − y| < beta, |x − y| − ½beta elsewhere. PyTorch's
/// `nn.SmoothL1Loss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{Loss, SmoothL1Loss};
/// let (x, y) = (Tensor::from([0.5, 3.0]), Tensor::from([0.0, 0.0]));
/// let loss = SmoothL1Loss::new(Reduction::None).forward(&x, &y);
/// assert_eq!(loss.to_vec::<f64>(), [0.125, 2.5]);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SmoothL1Loss {
    beta: f64,
    reduction: Reduction,
}

impl SmoothL1Loss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, SmoothL1Loss};
    /// let (x, y) = (Tensor::from([3.0, 1.0]), Tensor::from([0.0, 1.0]));
    /// assert_eq!(SmoothL1Loss::new(Reduction::Mean).forward(&x, &y).item::<f64>(), 1.25);
    /// ```
    pub fn new(reduction: Reduction) -> SmoothL1Loss {
        SmoothL1Loss { beta: 1.0, reduction }
    }

    /// The distance up to which the loss is quadratic; 1 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, SmoothL1Loss};
    /// let (x, y) = (Tensor::from([3.0]), Tensor::from([0.0]));
    /// let loss = SmoothL1Loss::new(Reduction::Mean).beta(2.0).forward(&x, &y);
    /// assert_eq!(loss.item::<f64>(), 2.0);
    /// ```
    pub fn beta(self, beta: f64) -> SmoothL1Loss {
        SmoothL1Loss { beta, ..self }
    }
}

impl Loss for SmoothL1Loss {
    /// # Panics
    /// Where [`losses::smooth_l1`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::smooth_l1(x, y, self.beta, self.reduction)
    }
}
