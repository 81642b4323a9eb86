//! Averaged stochastic gradient descent.

use super::{Bounds, OptionRow, Update, UpdateRule};
use pullback::Tensor;
use serde::{Deserialize, Serialize};

/// Averaged stochastic gradient descent: `torch.optim.ASGD`, with its meanings and defaults. The
/// averages are the states `ax`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Asgd, Optimizer, UpdateRule};
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = Asgd { lr: 0.1, lambd: 0.0, ..Asgd::default() }.over([x.clone()])?;
/// x.square().sum().backward()?;
/// opt.step()?;
/// assert!(x.is_close(&Tensor::from([2.4, -3.2]), 0.0, 1e-6, false).all().item::<bool>());
/// assert_eq!(opt.named_state()[4].0, "0.0.ax");
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Asgd {
    /// The learning rate.
    pub lr: f64,
    /// The decay of the parameter, relative to the step size; also of the step size.
    pub lambd: f64,
    /// The step size of step t is divided by (1 + `lambd`·lr·t) to this power.
    pub alpha: f64,
    /// The step at which averaging begins.
    pub t0: f64,
    /// Weight decay (L2 penalty): this times the parameter is added to the gradient.
    pub weight_decay: f64,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for Asgd {
    fn default() -> Asgd {
        Asgd { lr: 1e-2, lambd: 1e-4, alpha: 0.75, t0: 1e6, weight_decay: 0.0, maximize: false }
    }
}

impl UpdateRule for Asgd {
    const NAME: &'static str = "Asgd";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        vec![
            ("lambd", self.lambd, Bounds::NotNegative),
            ("alpha", self.alpha, Bounds::NotNegative),
            ("t0", self.t0, Bounds::NotNegative),
            ("weight_decay", self.weight_decay, Bounds::NotNegative),
        ]
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        vec![("eta", x.new_tensor(self.lr)), ("mu", x.new_tensor(1.0)), ("ax", x.zeros_like())]
    }

    fn step(&self, at: &Update) {
        let g = at.gradient(self.maximize, self.weight_decay);
        // The first step size is the learning rate at that time.
        let eta = at.step.le(1).select(at.lr, at.remembered(0));
        let x = at.value() * at.number(&(1.0 - &eta * self.lambd)) - g * at.number(&eta);
        let (mu, average) = (at.remembered(1), at.remembered(2));
        let moved = &average + (&x - &average) * at.number(&mu);
        at.remember(2, &mu.eq(1.0).select(&x, moved));
        let slower = (1.0 + at.lr * at.count() * self.lambd).powf(self.alpha);
        at.remember(0, &(at.lr / slower));
        at.remember(1, &(at.count() - self.t0).clamp_min(1.0).recip());
        at.set(&x);
    }
}
