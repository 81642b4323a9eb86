//! [`BceWithLogitsLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// [`BceLoss`](super::BceLoss) of sigmoid(x), without overflow. PyTorch's `nn.BCEWithLogitsLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{BceWithLogitsLoss, Loss};
/// let (logits, y) = (Tensor::from([0.0, 200.0]), Tensor::from([1.0, 0.0]));
/// let loss = BceWithLogitsLoss::new(Reduction::None).forward(&logits, &y).to_vec::<f64>();
/// assert!((loss[0] - 2f64.ln()).abs() < 1e-12);
/// // log(1 + e²⁰⁰) does not overflow, and is not cut off at 100.
/// assert_eq!(loss[1], 200.0);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct BceWithLogitsLoss {
    weight: Option<Tensor>,
    pos_weight: Option<Tensor>,
    reduction: Reduction,
}

impl BceWithLogitsLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{BceWithLogitsLoss, Loss};
    /// let loss = BceWithLogitsLoss::new(Reduction::Sum);
    /// let loss = loss.forward(&Tensor::from([0.0, 0.0]), &Tensor::from([0.0, 1.0]));
    /// assert!((loss.item::<f64>() - 2.0 * 2f64.ln()).abs() < 1e-12);
    /// ```
    pub fn new(reduction: Reduction) -> BceWithLogitsLoss {
        BceWithLogitsLoss { weight: None, pos_weight: None, reduction }
    }

    /// A weight for each element; it broadcasts.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{BceWithLogitsLoss, Loss};
    /// let loss = BceWithLogitsLoss::new(Reduction::None).weight(&Tensor::from([1.0, 0.0]));
    /// let loss =
    ///     loss.forward(&Tensor::from([0.0, 5.0]), &Tensor::from([1.0, 0.0])).to_vec::<f64>();
    /// assert_eq!(loss[1], 0.0);
    /// ```
    pub fn weight(self, weight: &Tensor) -> BceWithLogitsLoss {
        BceWithLogitsLoss { weight: Some(weight.clone()), ..self }
    }

    /// A weight of the positives, such as one for each class; it broadcasts.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{BceWithLogitsLoss, Loss};
    /// // Ten times as many negatives as positives.
    /// let loss = BceWithLogitsLoss::new(Reduction::None).pos_weight(&Tensor::from([10.0]));
    /// let loss =
    ///     loss.forward(&Tensor::from([0.0, 0.0]), &Tensor::from([1.0, 0.0])).to_vec::<f64>();
    /// assert!((loss[0] - 10.0 * loss[1]).abs() < 1e-12);
    /// ```
    pub fn pos_weight(self, pos_weight: &Tensor) -> BceWithLogitsLoss {
        BceWithLogitsLoss { pos_weight: Some(pos_weight.clone()), ..self }
    }
}

impl Loss for BceWithLogitsLoss {
    /// # Panics
    /// Where [`losses::binary_cross_entropy_with_logits`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::binary_cross_entropy_with_logits(
            x,
            y,
            self.weight.as_ref(),
            self.pos_weight.as_ref(),
            self.reduction,
        )
    }
}
