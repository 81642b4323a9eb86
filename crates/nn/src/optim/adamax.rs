//! Adamax: Adam with the infinity norm.

use super::adam::moment_options;
use super::{OptionRow, Update, UpdateRule};
use pullback::Tensor;
use serde::{Deserialize, Serialize};

/// Adamax: `torch.optim.Adamax`, with its meanings and defaults.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Adamax, Optimizer, UpdateRule};
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = Adamax { lr: 0.1, ..Adamax::default() }.over([x.clone()])?;
/// x.square().sum().backward()?;
/// opt.step()?;
/// // The first step moves every element by the learning rate.
/// assert!(x.is_close(&Tensor::from([2.9, -3.9]), 0.0, 1e-6, false).all().item::<bool>());
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adamax {
    /// The learning rate.
    pub lr: f64,
    /// Decay factors of the running mean of the gradient and of its infinity norm.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay (L2 penalty): this times the parameter is added to the gradient.
    pub weight_decay: f64,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for Adamax {
    fn default() -> Adamax {
        let betas = (0.9, 0.999);
        Adamax { lr: 2e-3, betas, eps: 1e-8, weight_decay: 0.0, maximize: false }
    }
}

impl UpdateRule for Adamax {
    const NAME: &'static str = "Adamax";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        moment_options(self.betas, self.eps, self.weight_decay)
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        vec![("exp_avg", x.zeros_like()), ("exp_inf", x.zeros_like())]
    }

    fn step(&self, at: &Update) {
        let g = at.gradient(self.maximize, self.weight_decay);
        let mean = at.mean(0, self.betas.0, &g);
        let largest = (at.remembered(1) * self.betas.1).maximum(&(g.abs() + self.eps));
        at.remember(1, &largest);
        let size = at.number(&(at.lr / at.unbias(self.betas.0)));
        at.set(&(at.value() - mean * size / largest));
    }
}
