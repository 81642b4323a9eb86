//! [`HuberLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The Huber loss: ½(x − y)² where |x − y| < delta, delta·(|x − y| − ½delta) elsewhere. PyTorch's
/// `nn.HuberLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{HuberLoss, Loss};
/// let (x, y) = (Tensor::from([0.5, 3.0]), Tensor::from([0.0, 0.0]));
/// let loss = HuberLoss::new(Reduction::None).forward(&x, &y);
/// assert_eq!(loss.to_vec::<f64>(), [0.125, 2.5]);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct HuberLoss {
    delta: f64,
    reduction: Reduction,
}

impl HuberLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{HuberLoss, Loss};
    /// let (x, y) = (Tensor::from([0.5, 3.0]), Tensor::from([0.5, 0.0]));
    /// assert_eq!(HuberLoss::new(Reduction::Mean).forward(&x, &y).item::<f64>(), 1.25);
    /// ```
    pub fn new(reduction: Reduction) -> HuberLoss {
        HuberLoss { delta: 1.0, reduction }
    }

    /// The distance up to which the loss is quadratic; 1 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{HuberLoss, Loss};
    /// let (x, y) = (Tensor::from([3.0]), Tensor::from([0.0]));
    /// let loss = HuberLoss::new(Reduction::Mean).delta(2.0).forward(&x, &y);
    /// assert_eq!(loss.item::<f64>(), 4.0);
    /// ```
    pub fn delta(self, delta: f64) -> HuberLoss {
        HuberLoss { delta, ..self }
    }
}

impl Loss for HuberLoss {
    /// # Panics
    /// Where [`losses::huber`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::huber(x, y, self.delta, self.reduction)
    }
}
