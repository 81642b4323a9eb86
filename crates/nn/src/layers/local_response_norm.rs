//! Local response normalisation.

use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{Tensor, Tree};

/// Local response normalisation, x / (k + alpha · mean of x² over neighbouring channels)^beta, of
/// `[n, channels, …]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, LocalResponseNorm};
/// let layer = LocalResponseNorm::new(5);
/// assert_eq!(layer.forward(&Tensor::ones([1, 8, 4])).shape(), [1, 8, 4]);
/// ```
#[derive(Clone, Copy, Debug, Tree)]
pub struct LocalResponseNorm {
    /// The number of neighbouring channels.
    pub size: usize,
    /// The weight of their mean square.
    pub alpha: f64,
    /// The power.
    pub beta: f64,
    /// The number added to it.
    pub k: f64,
}

impl LocalResponseNorm {
    /// Over `size` channels, with PyTorch's defaults: alpha 1e-4, beta 0.75 and k 1.
    ///
    /// ```
    /// # use pullback_nn::LocalResponseNorm;
    /// let layer = LocalResponseNorm::new(5);
    /// assert_eq!((layer.alpha, layer.beta, layer.k), (1e-4, 0.75, 1.0));
    /// ```
    ///
    /// # Panics
    /// If `size` is 0.
    #[track_caller]
    #[must_use]
    pub fn new(size: usize) -> LocalResponseNorm {
        demand(size > 0, "LocalResponseNorm", || "takes at least one channel".into());
        LocalResponseNorm { size, alpha: 1e-4, beta: 0.75, k: 1.0 }
    }
}

impl Layer for LocalResponseNorm {
    /// # Panics
    /// If `x` is not `[n, c, …]` with an axis after the channels.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(x.local_response_norm(self.size, self.alpha, self.beta, self.k))
    }
}
