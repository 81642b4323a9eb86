//! [`NllLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The negative log-likelihood: minus the log-probability `[n, c, …]` of each class `[n, …]`; the
/// mean is weighted by the classes' weights. PyTorch's `nn.NLLLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{Loss, NllLoss};
/// let log_p = Tensor::from([[0.25, 0.75], [0.5, 0.5]]).log();
/// let loss =
///     NllLoss::new(Reduction::Mean).ignore_index(1).forward(&log_p, &Tensor::from([0i64, 1]));
/// assert!((loss.item::<f64>() - 4f64.ln()).abs() < 1e-15);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct NllLoss {
    weight: Option<Tensor>,
    ignore_index: Option<i64>,
    reduction: Reduction,
}

impl NllLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, NllLoss};
    /// let log_p = Tensor::from([[0.25, 0.75], [0.5, 0.5]]).log();
    /// let loss = NllLoss::new(Reduction::Sum).forward(&log_p, &Tensor::from([0i64, 1]));
    /// assert!((loss.item::<f64>() - 8f64.ln()).abs() < 1e-12);
    /// ```
    pub fn new(reduction: Reduction) -> NllLoss {
        NllLoss { weight: None, ignore_index: None, reduction }
    }

    /// A weight for each class.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, NllLoss};
    /// let log_p = Tensor::from([[0.25, 0.75], [0.5, 0.5]]).log();
    /// let loss = NllLoss::new(Reduction::Mean).weight(&Tensor::from([1.0, 3.0]));
    /// let loss = loss.forward(&log_p, &Tensor::from([0i64, 1])).item::<f64>();
    /// assert!((loss - (4f64.ln() + 3.0 * 2f64.ln()) / 4.0).abs() < 1e-12);
    /// ```
    pub fn weight(self, weight: &Tensor) -> NllLoss {
        NllLoss { weight: Some(weight.clone()), ..self }
    }

    /// Elements of this class are ignored; −100 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, NllLoss};
    /// let loss = NllLoss::new(Reduction::None).ignore_index(2);
    /// let each = loss.forward(&Tensor::full([2, 3], -1.0), &Tensor::from([0i64, 2]));
    /// assert_eq!(each.to_vec::<f64>(), [1.0, 0.0]);
    /// ```
    pub fn ignore_index(self, class: i64) -> NllLoss {
        NllLoss { ignore_index: Some(class), ..self }
    }
}

impl Loss for NllLoss {
    /// # Panics
    /// Where [`losses::nll`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::nll(x, y, self.weight.as_ref(), self.ignore_index, self.reduction)
    }
}
