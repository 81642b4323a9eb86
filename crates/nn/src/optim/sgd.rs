//! Stochastic gradient descent.

use super::{Bounds, OptionRow, Update, UpdateRule};
use pullback::{Error, Result, Tensor, update};
use serde::{Deserialize, Serialize};

/// Stochastic gradient descent, with momentum: `torch.optim.SGD`, with its meanings and defaults.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
/// let x = Tensor::from(1.0).requires_grad();
/// let opt = Sgd { lr: 0.1, momentum: 0.9, ..Sgd::default() }.over([x.clone()])?;
/// for _ in 0..2 {
///     opt.zero_grad();
///     x.square().backward()?;
///     opt.step()?;
/// }
/// // Gradients of 2 and 1.6, and a momentum of 0.9·2 + 1.6.
/// assert!((x.item::<f64>() - (1.0 - 0.1 * 2.0 - 0.1 * 3.4)).abs() < 1e-12);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sgd {
    /// The learning rate.
    pub lr: f64,
    /// The momentum factor.
    pub momentum: f64,
    /// The momentum takes (1 − `dampening`) times the gradient.
    pub dampening: f64,
    /// Weight decay (L2 penalty): this times the parameter is added to the gradient.
    pub weight_decay: f64,
    /// Nesterov momentum.
    pub nesterov: bool,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for Sgd {
    fn default() -> Sgd {
        let (momentum, dampening, weight_decay) = (0.0, 0.0, 0.0);
        Sgd { lr: 1e-3, momentum, dampening, weight_decay, nesterov: false, maximize: false }
    }
}

impl UpdateRule for Sgd {
    const NAME: &'static str = "Sgd";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        vec![
            ("momentum", self.momentum, Bounds::NotNegative),
            ("dampening", self.dampening, Bounds::Anywhere),
            ("weight_decay", self.weight_decay, Bounds::NotNegative),
        ]
    }

    fn accepts(&self, _: &Tensor) -> Result<()> {
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            let message = "`nesterov` needs a `momentum` and no `dampening`";
            return Err(Error::argument(Sgd::NAME, message));
        }
        Ok(())
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        match self.momentum == 0.0 {
            true => Vec::new(),
            false => vec![("momentum_buffer", x.zeros_like())],
        }
    }

    fn step(&self, at: &Update) {
        let how = update::SgdOptions {
            momentum: self.momentum,
            dampening: self.dampening,
            weight_decay: self.weight_decay,
            nesterov: self.nesterov,
            maximize: self.maximize,
        };
        let momentum = at.state.first().map(|(_, buffer)| (buffer, at.step));
        update::sgd_(&how, at.lr, at.x, at.grad, momentum);
    }
}
