//! [`MarginRankingLoss`].

use pullback::{Reduction, Tensor, losses};

/// max(0, margin − y·(a − b)): a is to be ranked above b where y is 1, below it where y is −1.
/// PyTorch's `nn.MarginRankingLoss`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct MarginRankingLoss {
    margin: f64,
    reduction: Reduction,
}

impl MarginRankingLoss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> MarginRankingLoss {
        MarginRankingLoss { margin: 0.0, reduction }
    }

    /// The margin; 0 by default.
    pub fn margin(self, margin: f64) -> MarginRankingLoss {
        MarginRankingLoss { margin, ..self }
    }

    /// The loss.
    ///
    /// # Panics
    /// With the operands and the caller's line, if they do not fit each other.
    #[track_caller]
    #[must_use]
    pub fn forward(&self, a: &Tensor, b: &Tensor, y: &Tensor) -> Tensor {
        losses::margin_ranking(a, b, y, self.margin, self.reduction)
    }
}
