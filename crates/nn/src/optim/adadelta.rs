//! Adadelta.

use super::{Bounds, OptionRow, Update, UpdateRule};
use pullback::Tensor;
use serde::{Deserialize, Serialize};

/// Adadelta: `torch.optim.Adadelta`, with its meanings and defaults.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Adadelta, Optimizer, UpdateRule};
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = Adadelta::default().over([x.clone()])?;
/// x.square().sum().backward()?;
/// opt.step()?;
/// // The first steps are small: √(1e-6/0.1) here.
/// assert!(x.is_close(&Tensor::from([2.99684, -3.99684]), 0.0, 1e-5, false).all().item::<bool>());
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adadelta {
    /// The learning rate.
    pub lr: f64,
    /// The decay factor of the running mean squares.
    pub rho: f64,
    /// Added to the mean squares, under the root.
    pub eps: f64,
    /// Weight decay (L2 penalty): this times the parameter is added to the gradient.
    pub weight_decay: f64,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for Adadelta {
    fn default() -> Adadelta {
        Adadelta { lr: 1.0, rho: 0.9, eps: 1e-6, weight_decay: 0.0, maximize: false }
    }
}

impl UpdateRule for Adadelta {
    const NAME: &'static str = "Adadelta";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        vec![
            ("rho", self.rho, Bounds::UpToOne),
            ("eps", self.eps, Bounds::NotNegative),
            ("weight_decay", self.weight_decay, Bounds::NotNegative),
        ]
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        vec![("square_avg", x.zeros_like()), ("acc_delta", x.zeros_like())]
    }

    fn step(&self, at: &Update) {
        let g = at.gradient(self.maximize, self.weight_decay);
        let square = at.mean(0, self.rho, &g.square());
        let delta = (at.remembered(1) + self.eps).sqrt() / (square + self.eps).sqrt() * g;
        at.mean(1, self.rho, &delta.square());
        at.set(&(at.value() - delta * at.lr()));
    }
}
