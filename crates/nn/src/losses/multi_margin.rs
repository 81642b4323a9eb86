//! [`MultiMarginLoss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// Σ over the other classes i of `max(0, margin − x[y] + x[i])ᵖ` / classes. PyTorch's
/// `nn.MultiMarginLoss`.
#[derive(Clone, Debug)]
#[must_use]
pub struct MultiMarginLoss {
    p: u32,
    margin: f64,
    weight: Option<Tensor>,
    reduction: Reduction,
}

impl MultiMarginLoss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> MultiMarginLoss {
        MultiMarginLoss { p: 1, margin: 1.0, weight: None, reduction }
    }

    /// The power, 1 or 2; 1 by default.
    pub fn p(self, p: u32) -> MultiMarginLoss {
        MultiMarginLoss { p, ..self }
    }

    /// The margin; 1 by default.
    pub fn margin(self, margin: f64) -> MultiMarginLoss {
        MultiMarginLoss { margin, ..self }
    }

    /// A weight for each class.
    pub fn weight(self, weight: &Tensor) -> MultiMarginLoss {
        MultiMarginLoss { weight: Some(weight.clone()), ..self }
    }
}

impl Loss for MultiMarginLoss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::multi_margin(x, y, self.p, self.margin, self.weight.as_ref(), self.reduction)
    }
}
