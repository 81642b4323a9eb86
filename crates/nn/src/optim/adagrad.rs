//! Adagrad.

use super::{Bounds, OptionRow, Update, UpdateRule};
use pullback::Tensor;
use serde::{Deserialize, Serialize};

/// Adagrad: `torch.optim.Adagrad`, with its meanings and defaults.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Adagrad, Optimizer, UpdateRule};
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = Adagrad { lr: 0.1, ..Adagrad::default() }.over([x.clone()])?;
/// x.square().sum().backward()?;
/// opt.step()?;
/// // The first step moves every element by the learning rate; later ones are smaller.
/// assert!(x.is_close(&Tensor::from([2.9, -3.9]), 0.0, 1e-6, false).all().item::<bool>());
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adagrad {
    /// The learning rate.
    pub lr: f64,
    /// The learning rate of step t is divided by 1 + (t − 1)·`lr_decay`.
    pub lr_decay: f64,
    /// Weight decay (L2 penalty): this times the parameter is added to the gradient.
    pub weight_decay: f64,
    /// The initial sum of squares.
    pub initial_accumulator_value: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for Adagrad {
    fn default() -> Adagrad {
        Adagrad {
            lr: 1e-2,
            lr_decay: 0.0,
            weight_decay: 0.0,
            initial_accumulator_value: 0.0,
            eps: 1e-10,
            maximize: false,
        }
    }
}

impl UpdateRule for Adagrad {
    const NAME: &'static str = "Adagrad";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        vec![
            ("lr_decay", self.lr_decay, Bounds::NotNegative),
            ("weight_decay", self.weight_decay, Bounds::NotNegative),
            ("initial_accumulator_value", self.initial_accumulator_value, Bounds::NotNegative),
            ("eps", self.eps, Bounds::NotNegative),
        ]
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        vec![("sum", x.full_like(self.initial_accumulator_value))]
    }

    fn step(&self, at: &Update) {
        let g = at.gradient(self.maximize, self.weight_decay);
        let sum = at.remembered(0) + g.square();
        at.remember(0, &sum);
        let lr = at.lr / (1.0 + (at.count() - 1.0) * self.lr_decay);
        at.set(&(at.value() - g * at.number(&lr) / (sum.sqrt() + self.eps)));
    }
}
