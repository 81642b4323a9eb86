//! Adam with decoupled weight decay.

use super::{Adam, OptionRow, Update, UpdateRule};
use pullback::Tensor;
use serde::{Deserialize, Serialize};

/// AdamW: `torch.optim.AdamW`, with its meanings and defaults.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
///
/// let x = Tensor::from([1.0, -1.0]).requires_grad();
/// let opt = AdamW { lr: 0.1, ..AdamW::default() }.over([x.clone()])?;
/// for _ in 0..100 {
///     opt.zero_grad();
///     x.square().sum().backward()?;
///     opt.step()?;
/// }
/// assert!(x.to_vec::<f64>().iter().all(|x| x.abs() < 0.01));
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamW {
    /// The learning rate.
    pub lr: f64,
    /// Decay factors of the running means of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Decoupled weight decay: `lr` times this times the parameter is subtracted from it.
    pub weight_decay: f64,
    /// Divides by the root of the largest mean square so far (AMSGrad).
    pub amsgrad: bool,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for AdamW {
    fn default() -> AdamW {
        let (betas, weight_decay) = ((0.9, 0.999), 1e-2);
        AdamW { lr: 1e-3, betas, eps: 1e-8, weight_decay, amsgrad: false, maximize: false }
    }
}

impl AdamW {
    /// The same options with the decay in the gradient.
    fn coupled(&self) -> Adam {
        let AdamW { lr, betas, eps, weight_decay, amsgrad, maximize } = *self;
        Adam { lr, betas, eps, weight_decay, amsgrad, maximize }
    }
}

impl UpdateRule for AdamW {
    const NAME: &'static str = "AdamW";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        self.coupled().options()
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        self.coupled().state(x)
    }

    fn step(&self, at: &Update) {
        self.coupled().fused(at, true);
    }
}
