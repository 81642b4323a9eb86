//! [`MultiMarginLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The multi-class margin loss of scores x against the class y: the sum over the other classes i of
/// `max(0, margin − x[y] + x[i])ᵖ`, divided by the number of classes. PyTorch's
/// `nn.MultiMarginLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{Loss, MultiMarginLoss};
/// let scores = Tensor::from([[0.5, 1.0, 0.0, 0.0]]);
/// let loss = MultiMarginLoss::new(Reduction::Mean).forward(&scores, &Tensor::from([1i64]));
/// assert_eq!(loss.item::<f64>(), 0.125);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct MultiMarginLoss {
    p: u32,
    margin: f64,
    weight: Option<Tensor>,
    reduction: Reduction,
}

impl MultiMarginLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, MultiMarginLoss};
    /// let loss = MultiMarginLoss::new(Reduction::None);
    /// let each = loss.forward(&Tensor::zeros([3, 4]), &Tensor::from([0i64, 1, 2]));
    /// assert_eq!(each.to_vec::<f32>(), [0.75; 3]);
    /// ```
    pub fn new(reduction: Reduction) -> MultiMarginLoss {
        MultiMarginLoss { p: 1, margin: 1.0, weight: None, reduction }
    }

    /// The power, 1 or 2; 1 by default. `forward` panics for another one.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, MultiMarginLoss};
    /// let scores = Tensor::from([[0.5, 1.0, 0.0, 0.0]]);
    /// let loss =
    ///     MultiMarginLoss::new(Reduction::Mean).p(2).forward(&scores, &Tensor::from([1i64]));
    /// assert_eq!(loss.item::<f64>(), 0.0625);
    /// ```
    pub fn p(self, p: u32) -> MultiMarginLoss {
        MultiMarginLoss { p, ..self }
    }

    /// The margin; 1 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, MultiMarginLoss};
    /// let scores = Tensor::from([[0.5, 1.0, 0.0, 0.0]]);
    /// let loss = MultiMarginLoss::new(Reduction::Mean).margin(2.0);
    /// assert_eq!(loss.forward(&scores, &Tensor::from([1i64])).item::<f64>(), 0.875);
    /// ```
    pub fn margin(self, margin: f64) -> MultiMarginLoss {
        MultiMarginLoss { margin, ..self }
    }

    /// A weight for each class.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, MultiMarginLoss};
    /// let loss = MultiMarginLoss::new(Reduction::None).weight(&Tensor::from([1.0, 2.0]));
    /// let scores = Tensor::from([[0.0, 0.0], [0.0, 0.0]]);
    /// assert_eq!(loss.forward(&scores, &Tensor::from([0i64, 1])).to_vec::<f64>(), [0.5, 1.0]);
    /// ```
    pub fn weight(self, weight: &Tensor) -> MultiMarginLoss {
        MultiMarginLoss { weight: Some(weight.clone()), ..self }
    }
}

impl Loss for MultiMarginLoss {
    /// # Panics
    /// Where [`losses::multi_margin`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::multi_margin(x, y, self.p, self.margin, self.weight.as_ref(), self.reduction)
    }
}
