//! Adam with Nesterov momentum.

use super::adam::{moment_options, moments};
use super::{Bounds, OptionRow, Update, UpdateRule};
use pullback::Tensor;
use serde::{Deserialize, Serialize};

/// NAdam: `torch.optim.NAdam`, with its meanings and defaults.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{NAdam, Optimizer, UpdateRule};
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = NAdam { lr: 0.1, ..NAdam::default() }.over([x.clone()])?;
/// for _ in 0..100 {
///     opt.zero_grad();
///     x.square().sum().backward()?;
///     opt.step()?;
/// }
/// assert!(x.to_vec::<f64>().iter().all(|x| x.abs() < 0.1));
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NAdam {
    /// The learning rate.
    pub lr: f64,
    /// Decay factors of the running means of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay: this times the parameter is added to the gradient or, if decoupled, `lr` times
    /// this times the parameter is subtracted from it.
    pub weight_decay: f64,
    /// How fast the momentum rises from half of β₁ to all of it.
    pub momentum_decay: f64,
    /// Decay as in AdamW.
    pub decoupled_weight_decay: bool,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for NAdam {
    fn default() -> NAdam {
        NAdam {
            lr: 2e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            momentum_decay: 4e-3,
            decoupled_weight_decay: false,
            maximize: false,
        }
    }
}

impl UpdateRule for NAdam {
    const NAME: &'static str = "NAdam";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        let mut rows = moment_options(self.betas, self.eps, self.weight_decay);
        rows.push(("momentum_decay", self.momentum_decay, Bounds::NotNegative));
        rows
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        let mut state = moments(x);
        state.push(("mu_product", x.new_tensor(1.0)));
        state
    }

    fn step(&self, at: &Update) {
        let (x, g) = at.decay(self.maximize, self.weight_decay, self.decoupled_weight_decay);
        let momentum = |t: Tensor| {
            let missing = t.new_tensor(0.96).pow(t * self.momentum_decay) * 0.5;
            (1.0 - missing) * self.betas.0
        };
        let (now, next) = (momentum(at.count()), momentum(at.count() + 1.0));
        let product = at.remembered(2) * &now;
        at.remember(2, &product);
        let mean = at.mean(0, self.betas.0, &g);
        let square = at.mean(1, self.betas.1, &g.square());
        let root = (square / at.number(&at.unbias(self.betas.1))).sqrt() + self.eps;
        let of_grad = at.lr * (1.0 - &now) / (1.0 - &product);
        let of_mean = at.lr * &next / (1.0 - product * &next);
        at.set(&(x - (g * at.number(&of_grad) + mean * at.number(&of_mean)) / root));
    }
}
