//! Adam and AdamW in plain tensors, by PyTorch's formula, written in place.

use super::grad;
use pullback::{Tensor, no_grad};

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPS: f64 = 1e-8;

/// The optimiser and its state.
pub struct Adam {
    rate: f64,
    /// Shrinks the parameters by this much times the rate; zero is plain Adam.
    decay: f64,
    steps: i32,
    slots: Vec<Slot>,
}

/// A parameter with the means of its gradient and of its gradient's square.
struct Slot {
    x: Tensor,
    mean: Tensor,
    square: Tensor,
}

impl Adam {
    pub fn new(parameters: Vec<Tensor>, rate: f64, decay: f64) -> Adam {
        let slot =
            |x: Tensor| Slot { mean: x.detach().zeros_like(), square: x.detach().zeros_like(), x };
        Adam { rate, decay, steps: 0, slots: parameters.into_iter().map(slot).collect() }
    }

    pub fn step(&mut self) {
        self.steps += 1;
        // The means start at zero; these undo that.
        let (unbias1, unbias2) = (1.0 - BETA1.powi(self.steps), 1.0 - BETA2.powi(self.steps));
        no_grad(|| {
            for Slot { x, mean, square } in &self.slots {
                let g = grad(x);
                if self.decay != 0.0 {
                    x.mul_(1.0 - self.rate * self.decay);
                }
                mean.mul_(BETA1).add_(&g * (1.0 - BETA1));
                square.mul_(BETA2).add_(g.square().mul_(1.0 - BETA2));
                let scale = square.sqrt();
                scale.div_(unbias2.sqrt()).add_(EPS);
                x.sub_((mean / scale).mul_(self.rate / unbias1));
            }
        });
    }
}
