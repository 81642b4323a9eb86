//! Adam, and AMSGrad.

use super::{Bounds, OptionRow, Update, UpdateRule};
use pullback::{Tensor, update};
use serde::{Deserialize, Serialize};

/// Adam: `torch.optim.Adam`, with its meanings and defaults.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = Adam { lr: 0.1, ..Adam::default() }.over([x.clone()])?;
/// x.square().sum().backward()?;
/// opt.step()?;
/// // The first step moves every element by the learning rate.
/// assert!(x.is_close(&Tensor::from([2.9, -3.9]), 0.0, 1e-6, false).all().item::<bool>());
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adam {
    /// The learning rate.
    pub lr: f64,
    /// Decay factors of the running means of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay (L2 penalty): this times the parameter is added to the gradient.
    pub weight_decay: f64,
    /// Divides by the root of the largest mean square so far (AMSGrad).
    pub amsgrad: bool,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for Adam {
    fn default() -> Adam {
        let (betas, weight_decay) = ((0.9, 0.999), 0.0);
        Adam { lr: 1e-3, betas, eps: 1e-8, weight_decay, amsgrad: false, maximize: false }
    }
}

impl UpdateRule for Adam {
    const NAME: &'static str = "Adam";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        moment_options(self.betas, self.eps, self.weight_decay)
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        let mut state = moments(x);
        if self.amsgrad {
            state.push(("max_exp_avg_sq", x.zeros_like()));
        }
        state
    }

    fn step(&self, at: &Update) {
        self.fused(at, false);
    }
}

impl Adam {
    /// The step in one pass over memory.
    pub(super) fn fused(&self, at: &Update, decoupled: bool) {
        let Adam { betas, eps, weight_decay, maximize, .. } = *self;
        let how = update::AdamOptions { betas, eps, weight_decay, decoupled, maximize };
        let (mean, square) = (&at.state[0].1, &at.state[1].1);
        let largest = at.state.get(2).map(|(_, largest)| largest);
        update::adam_(
            &how,
            at.lr,
            at.x,
            at.grad,
            update::Moments { mean, square, largest },
            at.step,
        );
    }
}

/// The running means of the gradient and of its square.
pub(super) fn moments(x: &Tensor) -> Vec<(&'static str, Tensor)> {
    vec![("exp_avg", x.zeros_like()), ("exp_avg_sq", x.zeros_like())]
}

/// The options that Adam and its relatives share.
pub(super) fn moment_options(betas: (f64, f64), eps: f64, weight_decay: f64) -> Vec<OptionRow> {
    vec![
        ("betas.0", betas.0, Bounds::Fraction),
        ("betas.1", betas.1, Bounds::Fraction),
        ("eps", eps, Bounds::NotNegative),
        ("weight_decay", weight_decay, Bounds::NotNegative),
    ]
}
