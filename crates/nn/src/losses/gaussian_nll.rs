//! [`GaussianNllLoss`].

use pullback::{Reduction, Tensor, losses};

/// ½(log v + (x − y)²/v), the likelihood of y under a normal distribution of mean x and variance v.
/// PyTorch's `nn.GaussianNLLLoss`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct GaussianNllLoss {
    full: bool,
    eps: f64,
    reduction: Reduction,
}

impl GaussianNllLoss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> GaussianNllLoss {
        GaussianNllLoss { full: false, eps: 1e-6, reduction }
    }

    /// Adds the constant ½log 2π.
    pub fn full(self) -> GaussianNllLoss {
        GaussianNllLoss { full: true, ..self }
    }

    /// The least variance; 1e-6 by default.
    pub fn eps(self, eps: f64) -> GaussianNllLoss {
        GaussianNllLoss { eps, ..self }
    }

    /// The loss.
    ///
    /// # Panics
    /// With the operands and the caller's line, if they do not fit each other.
    #[track_caller]
    #[must_use]
    pub fn forward(&self, x: &Tensor, y: &Tensor, variance: &Tensor) -> Tensor {
        losses::gaussian_nll(x, y, variance, self.full, self.eps, self.reduction)
    }
}
