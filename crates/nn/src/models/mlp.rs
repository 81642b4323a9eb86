//! The multi-layer perceptron.

use crate::{Layer, Linear, module_scope};
use pullback::{Tensor, Tree};

/// A multi-layer perceptron: linear layers with relu between them. Inputs are `[batch, …]`; the
/// axes after the first are flattened.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, Module, models::Mlp};
/// let net = Mlp::new(&[784, 512, 10]);
/// assert_eq!(net.forward(&Tensor::zeros([32, 1, 28, 28])).shape(), [32, 10]);
/// assert_eq!(net.parameter_count(), 784 * 512 + 512 + 512 * 10 + 10);
/// ```
#[derive(Clone, Tree)]
pub struct Mlp {
    /// The linear layers.
    pub layers: Vec<Linear>,
}

impl Mlp {
    /// With these numbers of input features, hidden features, and outputs.
    ///
    /// ```
    /// # use pullback_nn::models::Mlp;
    /// let net = Mlp::new(&[4, 8, 2]);
    /// assert_eq!(net.layers.len(), 2);
    /// assert_eq!(net.layers[1].weight.shape(), [2, 8]);
    /// ```
    ///
    /// # Panics
    /// If one of them is 0.
    #[track_caller]
    #[must_use]
    pub fn new(widths: &[usize]) -> Mlp {
        let mut layers = Vec::new();
        for pair in widths.windows(2) {
            layers.push(Linear::new(pair[0], pair[1]));
        }
        Mlp { layers }
    }
}

impl Layer for Mlp {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _scope = module_scope(self);
        let mut x = if x.rank() > 2 { x.flatten(1, -1) } else { x.clone() };
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&if i > 0 { x.relu() } else { x });
        }
        x
    }
}
