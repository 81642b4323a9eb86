//! Resilient propagation.

use super::{Bounds, OptionRow, Update, UpdateRule};
use pullback::{Error, Result, Tensor};
use serde::{Deserialize, Serialize};

/// Resilient propagation: `torch.optim.Rprop`, with its meanings and defaults. The learning rate is
/// the length of the first step; later ones follow from it.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Optimizer, Rprop, UpdateRule};
/// let x = Tensor::from([3.0, -4.0]).requires_grad();
/// let opt = Rprop { lr: 0.1, ..Rprop::default() }.over([x.clone()])?;
/// for _ in 0..2 {
///     opt.zero_grad();
///     x.square().sum().backward()?;
///     opt.step()?;
/// }
/// // The gradient kept its sign, so the second step is 1.2 times as long as the first.
/// assert!(x.is_close(&Tensor::from([2.78, -3.78]), 0.0, 1e-6, false).all().item::<bool>());
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rprop {
    /// The length of the first step.
    pub lr: f64,
    /// The factors of step sizes where the gradient changed its sign, and where it kept it.
    pub etas: (f64, f64),
    /// The shortest and the longest step.
    pub step_sizes: (f64, f64),
    /// Maximises instead of minimising.
    pub maximize: bool,
}

impl Default for Rprop {
    fn default() -> Rprop {
        Rprop { lr: 1e-2, etas: (0.5, 1.2), step_sizes: (1e-6, 50.0), maximize: false }
    }
}

impl UpdateRule for Rprop {
    const NAME: &'static str = "Rprop";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn options(&self) -> Vec<OptionRow> {
        vec![
            ("etas.0", self.etas.0, Bounds::Fraction),
            ("etas.1", self.etas.1, Bounds::AtLeastOne),
            ("step_sizes.0", self.step_sizes.0, Bounds::NotNegative),
            ("step_sizes.1", self.step_sizes.1, Bounds::NotNegative),
        ]
    }

    fn accepts(&self, _: &Tensor) -> Result<()> {
        let (shortest, longest) = self.step_sizes;
        if shortest > longest {
            let message = format!("`step_sizes` go from {shortest} down to {longest}");
            return Err(Error::argument(Rprop::NAME, message));
        }
        Ok(())
    }

    fn state(&self, x: &Tensor) -> Vec<(&'static str, Tensor)> {
        vec![("prev", x.zeros_like()), ("step_size", x.full_like(self.lr))]
    }

    fn step(&self, at: &Update) {
        let g = at.gradient(self.maximize, 0.0);
        let kept = &g * at.remembered(0);
        let turned = kept.lt(0.0);
        let factor = turned.select(self.etas.0, kept.gt(0.0).select(g.full_like(self.etas.1), 1.0));
        let size = at.step.le(1).select(at.lr(), at.remembered(1)) * factor;
        let size = size.clamp(self.step_sizes.0, self.step_sizes.1);
        at.remember(1, &size);
        let g = turned.select(0.0, g);
        at.remember(0, &g);
        at.set(&(at.value() - g.sign() * size));
    }
}
