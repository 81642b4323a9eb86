//! Dropout and alpha dropout.

use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{Flag, Tensor, Tree, next_key_on};

/// In training, sets each element to 0 with probability `p` and divides the others by 1 − p; in
/// evaluation, gives its input. Any shape in, the same shape out.
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
    /// The dropout probability.
    pub p: f64,
    /// Whether it is in training mode, in which elements are dropped.
    pub training: Flag,
}

/// [`Dropout`] for networks with [`Selu`](crate::Selu): a dropped element becomes selu's limit at
/// −∞, and the result is scaled so that mean and variance are preserved.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{AlphaDropout, Layer, Module};
/// let layer = AlphaDropout::new(0.25);
/// let y = layer.forward(&Tensor::randn([10_000]));
/// assert_eq!(y.shape(), [10_000]);
/// assert!(y.mean().item::<f32>().abs() < 0.1 && (y.std().item::<f32>() - 1.0).abs() < 0.1);
/// layer.eval();
/// assert_eq!(layer.forward(&Tensor::ones([2])).to_vec::<f32>(), [1.0, 1.0]);
/// ```
#[derive(Clone, Tree)]
pub struct AlphaDropout {
    /// The dropout probability.
    pub p: f64,
    /// Whether it is in training mode, in which elements are dropped.
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
    /// Drops elements with probability `p`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Dropout, Layer};
    /// let y = Dropout::new(0.5).forward(&Tensor::ones([100]));
    /// assert!(y.to_vec::<f32>().iter().all(|&y| y == 0.0 || y == 2.0));
    /// ```
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[track_caller]
    #[must_use]
    pub fn new(p: f64) -> Dropout {
        Dropout { p: probability("Dropout", p), training: Flag::new(true) }
    }
}

impl AlphaDropout {
    /// Drops elements with probability `p`.
    ///
    /// ```
    /// # use pullback_nn::AlphaDropout;
    /// assert_eq!(AlphaDropout::new(0.25).p, 0.25);
    /// ```
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[track_caller]
    #[must_use]
    pub fn new(p: f64) -> AlphaDropout {
        AlphaDropout { p: probability("AlphaDropout", p), training: Flag::new(true) }
    }
}

impl Layer for Dropout {
    /// # Panics
    /// In training, if the probability is not between 0 and 1.
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
    /// # Panics
    /// In training, if the probability is not between 0 and 1.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = match self.training.get() && self.p > 0.0 {
            true => x.alpha_dropout(self.p, Some(&next_key_on(x.device()))),
            false => x.clone(),
        };
        scope.output(y)
    }
}
