//! Random zeros while training: of elements, and for selu networks.

use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{Flag, Tensor, Tree, next_key_on};

/// While training, each element becomes 0 with probability `p` and is divided by 1 − p otherwise;
/// after it, nothing happens, and the result is the tensor it was given.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Dropout, Layer, Module};
/// let layer = Dropout::new(0.5);
/// let x = Tensor::ones([100]);
/// assert!(layer.forward(&x).eq(0.0).any().item::<bool>());
/// layer.eval();
/// assert_eq!(layer.forward(&x).to_vec::<f32>(), x.to_vec::<f32>());
/// ```
#[derive(Clone, Tree)]
pub struct Dropout {
    /// The probability of a zero.
    pub p: f64,
    /// Whether it drops.
    pub training: Flag,
}

/// [`Dropout`] for selu networks: a dropped element becomes the value that selu tends to, and mean
/// and variance stay.
#[derive(Clone, Tree)]
pub struct AlphaDropout {
    /// The probability of being dropped.
    pub p: f64,
    /// Whether it drops.
    pub training: Flag,
}

/// A probability, or a refusal.
#[track_caller]
pub(super) fn probability(layer: &'static str, p: f64) -> f64 {
    demand((0.0..=1.0).contains(&p), layer, || {
        format!("a probability must be between 0 and 1, not {p}")
    });
    p
}

impl Dropout {
    /// Zeros with probability `p`.
    ///
    /// # Panics
    /// If it is not a probability.
    #[track_caller]
    #[must_use]
    pub fn new(p: f64) -> Dropout {
        Dropout { p: probability("Dropout", p), training: Flag::new(true) }
    }
}

impl AlphaDropout {
    /// Dropped with probability `p`.
    ///
    /// # Panics
    /// If it is not a probability.
    #[track_caller]
    #[must_use]
    pub fn new(p: f64) -> AlphaDropout {
        AlphaDropout { p: probability("AlphaDropout", p), training: Flag::new(true) }
    }
}

impl Layer for Dropout {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = match self.training.get() && self.p > 0.0 {
            true => x.dropout(self.p, Some(&next_key_on(x.device()))),
            false => x.clone(),
        };
        scope.output(y)
    }
}

impl Layer for AlphaDropout {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = match self.training.get() && self.p > 0.0 {
            true => x.alpha_dropout(self.p, Some(&next_key_on(x.device()))),
            false => x.clone(),
        };
        scope.output(y)
    }
}
