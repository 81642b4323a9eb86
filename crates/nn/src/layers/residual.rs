//! Residual connections.

use crate::{Layer, module_scope};
use pullback::{Tensor, Tree};

/// A residual connection, `x + inner(x)`. The inner layer keeps the shape.
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
    /// Adds a residual connection around this layer.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Relu, Residual};
    /// let block = Residual::new(Relu);
    /// assert_eq!(block.forward(&Tensor::from([-1.0, 2.0])).to_vec::<f64>(), [-1.0, 4.0]);
    /// ```
    #[must_use]
    pub fn new(inner: L) -> Residual<L> {
        Residual { inner }
    }
}

impl<L: Layer> Layer for Residual<L> {
    /// # Panics
    /// Where the `forward` of the layer does, or if its output does not broadcast with `x`.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(x + self.inner.forward(x))
    }
}
