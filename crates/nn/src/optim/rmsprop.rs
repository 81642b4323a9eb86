//! RMSprop.

use super::{Bounds, OptionRow, Update, UpdateRule};
use pullback::Tensor;
use serde::{Deserialize, Serialize};

/// RMSprop: `torch.optim.RMSprop`, with its meanings and defaults.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, RmsProp, UpdateRule};
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = RmsProp { lr: 0.01, ..RmsProp::default() }.over([x.clone()])?;
/// x.square().sum().backward()?;
/// opt.step()?;
/// // The first mean square is 0.01·g², so the step is ten times the learning rate.
/// assert!(x.is_close(&Tensor::from([2.9, -3.9]), 0.0, 1e-6, false).all().item::<bool>());
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RmsProp {
    /// The learning rate.
    pub lr: f64,
    /// The decay factor of the running mean square.
    pub alpha: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay (L2 penalty): this times the parameter is added to the gradient.
    pub weight_decay: f64,
    /// The momentum factor.
    pub momentum: f64,
    /// Divides by the standard deviation: the square of the mean is taken off the mean square.
    pub centered: bool,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for RmsProp {
    fn default() -> RmsProp {
        RmsProp {
            lr: 1e-2,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
            maximize: false,
        }
    }
}

impl UpdateRule for RmsProp {
    const NAME: &'static str = "RmsProp";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        vec![
            ("alpha", self.alpha, Bounds::UpToOne),
            ("eps", self.eps, Bounds::NotNegative),
            ("weight_decay", self.weight_decay, Bounds::NotNegative),
            ("momentum", self.momentum, Bounds::NotNegative),
        ]
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        let mut state = vec![("square_avg", x.zeros_like())];
        if self.centered {
            state.push(("grad_avg", x.zeros_like()));
        }
        if self.momentum != 0.0 {
            state.push(("momentum_buffer", x.zeros_like()));
        }
        state
    }

    fn step(&self, at: &Update) {
        let g = at.gradient(self.maximize, self.weight_decay);
        let mut square = at.mean(0, self.alpha, &g.square());
        if self.centered {
            square -= at.mean(1, self.alpha, &g).square();
        }
        let mut by = g / (square.sqrt() + self.eps);
        if self.momentum != 0.0 {
            let buffer = at.state.len() - 1;
            by += at.remembered(buffer) * self.momentum;
            at.remember(buffer, &by);
        }
        at.set(&(at.value() - by * at.lr()));
    }
}
