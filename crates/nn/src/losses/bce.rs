//! [`BceLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The binary cross-entropy of probabilities x, −y·log(x) − (1 − y)·log(1 − x); logarithms are at
/// least −100. PyTorch's `nn.BCELoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{BceLoss, Loss};
/// let (x, y) = (Tensor::from([0.9, 0.2]), Tensor::from([1.0, 0.0]));
/// let loss = BceLoss::new(Reduction::None).forward(&x, &y).to_vec::<f64>();
/// assert!((loss[0] + 0.9f64.ln()).abs() < 1e-12);
/// assert!((loss[1] + 0.8f64.ln()).abs() < 1e-12);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct BceLoss {
    weight: Option<Tensor>,
    reduction: Reduction,
}

impl BceLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{BceLoss, Loss};
    /// let loss = BceLoss::new(Reduction::Mean);
    /// let loss = loss.forward(&Tensor::from([0.5, 0.5]), &Tensor::from([0.0, 1.0]));
    /// assert!((loss.item::<f64>() - 2f64.ln()).abs() < 1e-12);
    /// ```
    pub fn new(reduction: Reduction) -> BceLoss {
        BceLoss { weight: None, reduction }
    }

    /// A weight for each element; it broadcasts.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{BceLoss, Loss};
    /// let loss = BceLoss::new(Reduction::None).weight(&Tensor::from([1.0, 3.0]));
    /// let loss =
    ///     loss.forward(&Tensor::from([0.5, 0.5]), &Tensor::from([0.0, 1.0])).to_vec::<f64>();
    /// assert!((loss[1] - 3.0 * loss[0]).abs() < 1e-12);
    /// ```
    pub fn weight(self, weight: &Tensor) -> BceLoss {
        BceLoss { weight: Some(weight.clone()), ..self }
    }
}

impl Loss for BceLoss {
    /// # Panics
    /// Where [`losses::binary_cross_entropy`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::binary_cross_entropy(x, y, self.weight.as_ref(), self.reduction)
    }
}
