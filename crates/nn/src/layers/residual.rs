//! What a layer adds to its input.

use crate::{Layer, module_scope};
use pullback::{Tensor, Tree};

/// `x + inner(x)`
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, Linear, Relu, Residual};
/// let block = Residual::new((Linear::new(8, 8), Relu));
/// assert_eq!(block.forward(&Tensor::zeros([2, 8])).shape(), [2, 8]);
/// ```
#[derive(Clone, Tree)]
pub struct Residual<L> {
    /// The layer.
    pub inner: L,
}

impl<L: Layer> Residual<L> {
    /// Around this layer.
    #[must_use]
    pub fn new(inner: L) -> Residual<L> {
        Residual { inner }
    }
}

impl<L: Layer> Layer for Residual<L> {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(x + self.inner.forward(x))
    }
}
