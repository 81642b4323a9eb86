//! [`GaussianNllLoss`].

use pullback::{Reduction, Tensor, losses};

/// The negative log-likelihood ½(log v + (x − y)²/v) of y under a normal distribution of mean x and
/// variance v, without its constant. PyTorch's `nn.GaussianNLLLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::GaussianNllLoss;
/// let (x, y, v) = (Tensor::from([1.0, 1.0]), Tensor::from([3.0, 1.0]), Tensor::from([1.0, 1.0]));
/// let loss = GaussianNllLoss::new(Reduction::None).forward(&x, &y, &v);
/// assert_eq!(loss.to_vec::<f64>(), [2.0, 0.0]);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct GaussianNllLoss {
    full: bool,
    eps: f64,
    reduction: Reduction,
}

impl GaussianNllLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::GaussianNllLoss;
    /// let one = Tensor::from([1.0]);
    /// assert_eq!(
    ///     GaussianNllLoss::new(Reduction::Mean).forward(&one, &one, &one).item::<f64>(),
    ///     0.0
    /// );
    /// ```
    pub fn new(reduction: Reduction) -> GaussianNllLoss {
        GaussianNllLoss { full: false, eps: 1e-6, reduction }
    }

    /// Adds the constant ½log 2π.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::GaussianNllLoss;
    /// let one = Tensor::from([1.0]);
    /// let loss = GaussianNllLoss::new(Reduction::Mean).full().forward(&one, &one, &one);
    /// assert!((loss.item::<f64>() - 0.5 * (2.0 * std::f64::consts::PI).ln()).abs() < 1e-12);
    /// ```
    pub fn full(self) -> GaussianNllLoss {
        GaussianNllLoss { full: true, ..self }
    }

    /// The smallest variance that is used; 1e-6 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::GaussianNllLoss;
    /// let (one, zero) = (Tensor::from([1.0]), Tensor::from([0.0]));
    /// let loss = GaussianNllLoss::new(Reduction::Mean).eps(1e-2).forward(&one, &one, &zero);
    /// assert!((loss.item::<f64>() - 0.5 * 1e-2f64.ln()).abs() < 1e-12);
    /// ```
    pub fn eps(self, eps: f64) -> GaussianNllLoss {
        GaussianNllLoss { eps, ..self }
    }

    /// The loss of the mean `x` and the `variance` against the target `y`.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::GaussianNllLoss;
    /// let (x, y, v) = (Tensor::from([0.0]), Tensor::from([2.0]), Tensor::from([4.0]));
    /// let loss = GaussianNllLoss::new(Reduction::Sum).forward(&x, &y, &v);
    /// assert!((loss.item::<f64>() - 0.5 * (4f64.ln() + 1.0)).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn forward(&self, x: &Tensor, y: &Tensor, variance: &Tensor) -> Tensor {
        losses::gaussian_nll(x, y, variance, self.full, self.eps, self.reduction)
    }
}
