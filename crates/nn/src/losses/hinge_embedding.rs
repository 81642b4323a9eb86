//! [`HingeEmbeddingLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The hinge embedding loss of distances x: x where y is 1, max(0, margin − x) where y is −1.
/// PyTorch's `nn.HingeEmbeddingLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{HingeEmbeddingLoss, Loss};
/// let (x, y) = (Tensor::from([0.5, 0.25, 3.0]), Tensor::from([1.0, -1.0, -1.0]));
/// let loss = HingeEmbeddingLoss::new(Reduction::None).forward(&x, &y);
/// assert_eq!(loss.to_vec::<f64>(), [0.5, 0.75, 0.0]);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct HingeEmbeddingLoss {
    margin: f64,
    reduction: Reduction,
}

impl HingeEmbeddingLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{HingeEmbeddingLoss, Loss};
    /// let (x, y) = (Tensor::from([0.5, 0.5]), Tensor::from([1.0, -1.0]));
    /// assert_eq!(HingeEmbeddingLoss::new(Reduction::Sum).forward(&x, &y).item::<f64>(), 1.0);
    /// ```
    pub fn new(reduction: Reduction) -> HingeEmbeddingLoss {
        HingeEmbeddingLoss { margin: 1.0, reduction }
    }

    /// The margin; 1 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{HingeEmbeddingLoss, Loss};
    /// let (x, y) = (Tensor::from([0.5]), Tensor::from([-1.0]));
    /// let loss = HingeEmbeddingLoss::new(Reduction::Mean).margin(2.0).forward(&x, &y);
    /// assert_eq!(loss.item::<f64>(), 1.5);
    /// ```
    pub fn margin(self, margin: f64) -> HingeEmbeddingLoss {
        HingeEmbeddingLoss { margin, ..self }
    }
}

impl Loss for HingeEmbeddingLoss {
    /// # Panics
    /// Where [`losses::hinge_embedding`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::hinge_embedding(x, y, self.margin, self.reduction)
    }
}
