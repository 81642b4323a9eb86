//! Lion: sign momentum.

use super::{Bounds, OptionRow, Update, UpdateRule};
use pullback::Tensor;
use serde::{Deserialize, Serialize};

/// Lion, the evolved sign momentum of Chen et al. (2023), with the paper's meanings: x takes a step
/// of length `lr` against the sign of β₁·m + (1 − β₁)·g, after which m becomes β₂·m + (1 − β₂)·g.
/// Decay is decoupled. PyTorch has no such optimiser.
///
/// Its updates are larger than Adam's: the paper recommends a third to a tenth of AdamW's learning
/// rate, and three to ten times its weight decay.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Lion, Optimizer, UpdateRule};
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = Lion { lr: 0.1, ..Lion::default() }.over([x.clone()])?;
/// x.square().sum().backward()?;
/// opt.step()?;
/// // Every step moves every element by the learning rate.
/// assert!(x.is_close(&Tensor::from([2.9, -3.9]), 0.0, 1e-6, false).all().item::<bool>());
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lion {
    /// The learning rate.
    pub lr: f64,
    /// Decay factors of the momentum in the update, and of the momentum itself.
    pub betas: (f64, f64),
    /// Decoupled weight decay: `lr` times this times the parameter is subtracted from it.
    pub weight_decay: f64,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for Lion {
    fn default() -> Lion {
        Lion { lr: 1e-4, betas: (0.9, 0.99), weight_decay: 0.0, maximize: false }
    }
}

impl UpdateRule for Lion {
    const NAME: &'static str = "Lion";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        vec![
            ("betas.0", self.betas.0, Bounds::Fraction),
            ("betas.1", self.betas.1, Bounds::Fraction),
            ("weight_decay", self.weight_decay, Bounds::NotNegative),
        ]
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        vec![("exp_avg", x.zeros_like())]
    }

    fn step(&self, at: &Update) {
        let (x, g) = at.decay(self.maximize, self.weight_decay, true);
        let ahead = at.remembered(0) * self.betas.0 + &g * (1.0 - self.betas.0);
        at.mean(0, self.betas.1, &g);
        at.set(&(x - ahead.sign() * at.lr()));
    }
}
