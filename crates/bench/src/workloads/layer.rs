//! The layers the models share.

use crate::data::Init;
use pullback::{Tensor, Tree};

/// x·Wᵀ + b.
#[derive(Tree)]
pub struct Linear {
    pub weight: Tensor,
    pub bias: Tensor,
}

impl Linear {
    pub fn new(init: &mut Init, inputs: usize, outputs: usize) -> Linear {
        Linear {
            weight: init.next(&[outputs, inputs], inputs),
            bias: init.next(&[outputs], inputs),
        }
    }

    pub fn of(&self, x: &Tensor) -> Tensor {
        x.matmul(&self.weight.t()) + &self.bias
    }
}

/// Layer normalisation over the last axis.
#[derive(Tree)]
pub struct Norm {
    pub weight: Tensor,
    pub bias: Tensor,
}

impl Norm {
    pub fn new(width: usize) -> Norm {
        Norm { weight: Tensor::ones([width]), bias: Tensor::zeros([width]) }
    }

    pub fn of(&self, x: &Tensor) -> Tensor {
        x.layer_norm(&self.weight, &self.bias, 1e-5)
    }
}
