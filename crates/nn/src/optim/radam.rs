//! Adam with a rectified variance.

use super::adam::{moment_options, moments};
use super::{OptionRow, Update, UpdateRule};
use pullback::Tensor;
use serde::{Deserialize, Serialize};

/// RAdam: `torch.optim.RAdam`, with its meanings and defaults.
///
/// The variance of the mean square has a closed form in the step. While it is not tractable (ρ ≤ 5)
/// steps are those of momentum; after that they are those of Adam, shortened by how uncertain the
/// mean square still is. Which of both is selected by the count, which is a tensor, so one compiled
/// step is used for all.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, RAdam, UpdateRule};
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = RAdam { lr: 0.1, ..RAdam::default() }.over([x.clone()])?;
/// x.square().sum().backward()?;
/// opt.step()?;
/// // The first steps are those of momentum.
/// assert!(x.is_close(&Tensor::from([2.4, -3.2]), 0.0, 1e-6, false).all().item::<bool>());
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RAdam {
    /// The learning rate.
    pub lr: f64,
    /// Decay factors of the running means of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay: this times the parameter is added to the gradient or, if decoupled, `lr` times
    /// this times the parameter is subtracted from it.
    pub weight_decay: f64,
    /// Decay as in AdamW.
    pub decoupled_weight_decay: bool,
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for RAdam {
    fn default() -> RAdam {
        RAdam {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled_weight_decay: false,
            maximize: false,
        }
    }
}

impl UpdateRule for RAdam {
    const NAME: &'static str = "RAdam";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        moment_options(self.betas, self.eps, self.weight_decay)
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        moments(x)
    }

    fn step(&self, at: &Update) {
        let (x, g) = at.decay(self.maximize, self.weight_decay, self.decoupled_weight_decay);
        let mean = at.mean(0, self.betas.0, &g);
        let square = at.mean(1, self.betas.1, &g.square());
        let unbias = at.unbias(self.betas.1);
        let last = 2.0 / (1.0 - self.betas.1) - 1.0;
        let rho = last - at.count() * 2.0 * (1.0 - &unbias) / &unbias;
        // Below 4 a root of a negative number, which is not selected then.
        let rect =
            ((&rho - 4.0) * (&rho - 2.0) * last / (&rho * ((last - 4.0) * (last - 2.0)))).sqrt();
        let adaptive = at.number(&(rect * unbias.sqrt())) / (square.sqrt() + self.eps);
        let size = at.number(&(at.lr / at.unbias(self.betas.0)));
        at.set(&(x - mean * size * rho.gt(5.0).select(adaptive, 1.0)));
    }
}
