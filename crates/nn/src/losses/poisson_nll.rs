//! [`PoissonNllLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The likelihood of counts y: eˣ − y·x for the logarithm x of their rate. PyTorch's
/// `nn.PoissonNLLLoss`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct PoissonNllLoss {
    raw_input: bool,
    full: bool,
    eps: f64,
    reduction: Reduction,
}

impl PoissonNllLoss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> PoissonNllLoss {
        PoissonNllLoss { raw_input: false, full: false, eps: 1e-8, reduction }
    }

    /// x is the rate itself, not its logarithm: x − y·log(x + eps).
    #[doc(alias = "log_input")]
    pub fn raw_input(self) -> PoissonNllLoss {
        PoissonNllLoss { raw_input: true, ..self }
    }

    /// Adds Stirling's term, for y above 1.
    pub fn full(self) -> PoissonNllLoss {
        PoissonNllLoss { full: true, ..self }
    }

    /// What is added to a rate before its logarithm is taken; 1e-8 by default.
    pub fn eps(self, eps: f64) -> PoissonNllLoss {
        PoissonNllLoss { eps, ..self }
    }
}

impl Loss for PoissonNllLoss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::poisson_nll(x, y, !self.raw_input, self.full, self.eps, self.reduction)
    }
}
