//! [`KlDivLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// The Kullback–Leibler divergence y·(log y − x) of log-probabilities x from probabilities y. That
/// of its definition is with [`Reduction::BatchMean`]. PyTorch's `nn.KLDivLoss`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct KlDivLoss {
    log_target: bool,
    reduction: Reduction,
}

impl KlDivLoss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> KlDivLoss {
        KlDivLoss { log_target: false, reduction }
    }

    /// The target is given as logarithms.
    pub fn log_target(self) -> KlDivLoss {
        KlDivLoss { log_target: true, ..self }
    }
}

impl Loss for KlDivLoss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::kl_div(x, y, self.log_target, self.reduction)
    }
}
