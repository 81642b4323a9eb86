//! Gradient descent with momentum in plain tensors, by PyTorch's formula, written in place.

use super::grad;
use pullback::{Tensor, no_grad};

/// The optimiser and its state: each parameter with the sum of its gradients.
pub struct Sgd {
    rate: f64,
    momentum: f64,
    slots: Vec<(Tensor, Tensor)>,
}

impl Sgd {
    pub fn new(parameters: Vec<Tensor>, rate: f64, momentum: f64) -> Sgd {
        let slots = parameters.into_iter().map(|x| (x.clone(), x.detach().zeros_like()));
        Sgd { rate, momentum, slots: slots.collect() }
    }

    pub fn step(&self) {
        no_grad(|| {
            for (x, velocity) in &self.slots {
                velocity.mul_(self.momentum).add_(grad(x));
                x.sub_(velocity * self.rate);
            }
        });
    }
}
