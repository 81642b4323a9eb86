//! The linear (fully connected) layer.

use crate::init::default_weights;
use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{Tensor, Tree};

/// A linear (fully connected) layer, `x·weightᵀ + bias` over the last axis: from `[.., inputs]` to
/// `[.., outputs]`.
///
/// As in every layer, the parameters have the default dtype, `f32`, and an input of another float
/// dtype is refused. `Tensor::from([[1.0, 2.0]])` is `f64`: `cast` it, or the layer with
/// [`Module::to_dtype`](crate::Module::to_dtype), or make the layer inside
/// [`with_default_dtype`](pullback::with_default_dtype).
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, Linear};
/// let layer = Linear::new(784, 128);
/// assert_eq!(layer.forward(&Tensor::zeros([32, 784])).shape(), [32, 128]);
/// ```
#[derive(Clone, Tree)]
pub struct Linear {
    /// `[outputs, inputs]`
    pub weight: Tensor,
    /// `[outputs]`
    pub bias: Option<Tensor>,
}

impl Linear {
    /// With weights and biases drawn uniformly from ±1/√inputs.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// let layer = Linear::new(4, 3);
    /// assert_eq!(layer.weight.shape(), [3, 4]);
    /// assert!(layer.weight.to_vec::<f32>().iter().all(|w| w.abs() <= 0.5));
    /// ```
    ///
    /// # Panics
    /// If one of the numbers is 0.
    #[track_caller]
    #[must_use]
    pub fn new(in_features: usize, out_features: usize) -> Linear {
        demand(in_features > 0 && out_features > 0, "Linear", || {
            format!("takes at least one input and one output, not {in_features} and {out_features}")
        });
        let weight = Tensor::zeros([out_features, in_features]).requires_grad();
        let bias = Some(Tensor::zeros([out_features]).requires_grad());
        default_weights(&weight, bias.as_ref());
        Linear { weight, bias }
    }

    /// Without a bias.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Linear};
    /// let layer = Linear::new(4, 3).without_bias();
    /// assert!(layer.bias.is_none());
    /// assert_eq!(layer.forward(&Tensor::zeros([1, 4])).to_vec::<f32>(), [0.0; 3]);
    /// ```
    #[must_use]
    #[doc(alias = "bias")]
    pub fn without_bias(self) -> Linear {
        Linear { bias: None, ..self }
    }
}

impl Layer for Linear {
    /// # Panics
    /// If the last axis of `x` is not `in_features` long, or float dtypes are mixed.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = x.linear(&self.weight, self.bias.as_ref());
        scope.output_with_macs(y, |y| y.len() * self.weight.shape()[1])
    }
}
