//! [`PoissonNllLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The negative log-likelihood of counts y under a Poisson distribution: eˣ − y·x for the logarithm
/// x of its rate. PyTorch's `nn.PoissonNLLLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{Loss, PoissonNllLoss};
/// let (log_rate, counts) = (Tensor::from([0.0, 0.0]), Tensor::from([0.0, 3.0]));
/// let loss = PoissonNllLoss::new(Reduction::None).forward(&log_rate, &counts);
/// assert_eq!(loss.to_vec::<f64>(), [1.0, 1.0]);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct PoissonNllLoss {
    raw_input: bool,
    full: bool,
    eps: f64,
    reduction: Reduction,
}

impl PoissonNllLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, PoissonNllLoss};
    /// let (log_rate, counts) = (Tensor::from([1.0]), Tensor::from([2.0]));
    /// let loss = PoissonNllLoss::new(Reduction::Mean).forward(&log_rate, &counts);
    /// assert!((loss.item::<f64>() - (1f64.exp() - 2.0)).abs() < 1e-12);
    /// ```
    pub fn new(reduction: Reduction) -> PoissonNllLoss {
        PoissonNllLoss { raw_input: false, full: false, eps: 1e-8, reduction }
    }

    /// x is the rate itself, not its logarithm: x − y·log(x + eps).
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, PoissonNllLoss};
    /// let (rate, counts) = (Tensor::from([2.0]), Tensor::from([3.0]));
    /// let loss = PoissonNllLoss::new(Reduction::Mean).raw_input().forward(&rate, &counts);
    /// assert!((loss.item::<f64>() - (2.0 - 3.0 * 2f64.ln())).abs() < 1e-6);
    /// ```
    #[doc(alias = "log_input")]
    pub fn raw_input(self) -> PoissonNllLoss {
        PoissonNllLoss { raw_input: true, ..self }
    }

    /// Adds Stirling's approximation of log y! for y above 1.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, PoissonNllLoss};
    /// let (log_rate, counts) = (Tensor::from([0.0]), Tensor::from([5.0]));
    /// let loss = PoissonNllLoss::new(Reduction::Mean).full().forward(&log_rate, &counts);
    /// // 1 + log 5!, up to the error of the approximation.
    /// assert!((loss.item::<f64>() - (1.0 + 120f64.ln())).abs() < 0.02);
    /// ```
    pub fn full(self) -> PoissonNllLoss {
        PoissonNllLoss { full: true, ..self }
    }

    /// The number added to a rate before its logarithm is taken, with
    /// [`PoissonNllLoss::raw_input`]; 1e-8 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{Loss, PoissonNllLoss};
    /// let (rate, counts) = (Tensor::from([0.0]), Tensor::from([1.0]));
    /// let loss = PoissonNllLoss::new(Reduction::Mean).raw_input().eps(1e-3);
    /// assert!((loss.forward(&rate, &counts).item::<f64>() + 1e-3f64.ln()).abs() < 1e-9);
    /// ```
    pub fn eps(self, eps: f64) -> PoissonNllLoss {
        PoissonNllLoss { eps, ..self }
    }
}

impl Loss for PoissonNllLoss {
    /// # Panics
    /// Where [`losses::poisson_nll`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::poisson_nll(x, y, !self.raw_input, self.full, self.eps, self.reduction)
    }
}
