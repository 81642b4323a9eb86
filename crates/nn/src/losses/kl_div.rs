//! [`KlDivLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The Kullback–Leibler divergence y·(log y − x) of log-probabilities x from probabilities y.
/// [`Reduction::BatchMean`] gives the mathematical definition. PyTorch's `nn.KLDivLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{KlDivLoss, Loss};
/// let y = Tensor::from([[0.5, 0.5]]);
/// let x = Tensor::from([[0.25, 0.75]]).log();
/// let loss = KlDivLoss::new(Reduction::BatchMean).forward(&x, &y);
/// assert!((loss.item::<f64>() - 0.5 * (4.0f64 / 3.0).ln()).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct KlDivLoss {
    log_target: bool,
    reduction: Reduction,
}

impl KlDivLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{KlDivLoss, Loss};
    /// let y = Tensor::from([[0.5, 0.5], [0.1, 0.9]]);
    /// assert!(KlDivLoss::new(Reduction::Sum).forward(&y.log(), &y).item::<f64>().abs() < 1e-12);
    /// ```
    pub fn new(reduction: Reduction) -> KlDivLoss {
        KlDivLoss { log_target: false, reduction }
    }

    /// The target is given as logarithms.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{KlDivLoss, Loss};
    /// let y = Tensor::from([[0.5, 0.5], [0.1, 0.9]]).log();
    /// let loss = KlDivLoss::new(Reduction::BatchMean).log_target().forward(&y, &y);
    /// assert!(loss.item::<f64>().abs() < 1e-12);
    /// ```
    pub fn log_target(self) -> KlDivLoss {
        KlDivLoss { log_target: true, ..self }
    }
}

impl Loss for KlDivLoss {
    /// # Panics
    /// Where [`losses::kl_div`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::kl_div(x, y, self.log_target, self.reduction)
    }
}
