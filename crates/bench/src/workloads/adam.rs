//! Adam and AdamW over a model's parameters, as `torch.optim` has them.

use super::grad;
use pullback::update::{self, Moments, adam_};
use pullback::{Tensor, no_grad};

/// The optimiser and its state.
pub struct Adam {
    how: update::Adam,
    rate: Tensor,
    steps: Tensor,
    slots: Vec<Slot>,
}

/// A parameter with the means of its gradient and of its gradient's square.
struct Slot {
    x: Tensor,
    mean: Tensor,
    square: Tensor,
}

impl Adam {
    /// Decay is decoupled; without any it is plain Adam.
    pub fn new(parameters: Vec<Tensor>, rate: f64, decay: f64) -> Adam {
        let slot =
            |x: Tensor| Slot { mean: x.detach().zeros_like(), square: x.detach().zeros_like(), x };
        let how = update::Adam { decay, decoupled: true, ..update::Adam::default() };
        Adam {
            how,
            rate: Tensor::from(rate),
            steps: Tensor::from(0i64),
            slots: parameters.into_iter().map(slot).collect(),
        }
    }

    pub fn step(&self) {
        no_grad(|| {
            self.steps.add_(1);
            for Slot { x, mean, square } in &self.slots {
                let state = Moments { mean, square, largest: None };
                adam_(&self.how, &self.rate, x, &grad(x), state, &self.steps);
            }
        });
    }
}
