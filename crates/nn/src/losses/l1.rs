//! [`L1Loss`].

use super::Loss;
use pullback::{Reduction, Tensor, losses};

/// |x − y|. PyTorch's `nn.L1Loss`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct L1Loss {
    reduction: Reduction,
}

impl L1Loss {
    /// With this reduction.
    pub fn new(reduction: Reduction) -> L1Loss {
        L1Loss { reduction }
    }
}

impl Loss for L1Loss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        losses::l1(x, y, self.reduction)
    }
}
