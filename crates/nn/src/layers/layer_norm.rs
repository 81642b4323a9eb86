//! Normalisation over the features of each example.

use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{IntoShape, Tensor, Tree};

/// Mean 0 and variance 1 over the last axes, then `· weight + bias`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, LayerNorm};
/// let layer = LayerNorm::new(16);
/// assert_eq!(layer.forward(&Tensor::randn([2, 5, 16])).shape(), [2, 5, 16]);
/// ```
#[derive(Clone, Tree)]
pub struct LayerNorm {
    /// Shaped as the axes that are normalised over, from ones.
    pub weight: Option<Tensor>,
    /// Shaped as the axes that are normalised over, from zeros.
    pub bias: Option<Tensor>,
    /// The lengths of the axes that are normalised over.
    pub normalized_shape: Vec<usize>,
    /// What is added to the variance.
    pub eps: f64,
}

impl LayerNorm {
    /// Over the last axes, which have these lengths; over the last one, given its length.
    ///
    /// # Panics
    /// If there are none.
    #[track_caller]
    #[must_use]
    pub fn new(normalized_shape: impl IntoShape) -> LayerNorm {
        let weight = Tensor::ones(normalized_shape).requires_grad();
        let normalized_shape = weight.shape().to_vec();
        demand(!normalized_shape.is_empty(), "LayerNorm", || "takes at least one axis".into());
        LayerNorm {
            weight: Some(weight),
            bias: Some(Tensor::zeros(&normalized_shape[..]).requires_grad()),
            normalized_shape,
            eps: 1e-5,
        }
    }

    /// What is added to the variance; 1e-5 by default.
    #[must_use]
    pub fn eps(self, eps: f64) -> LayerNorm {
        LayerNorm { eps, ..self }
    }

    /// Without a bias.
    #[must_use]
    #[doc(alias = "bias")]
    pub fn without_bias(self) -> LayerNorm {
        LayerNorm { bias: None, ..self }
    }

    /// Without weight and bias.
    #[must_use]
    #[doc(alias = "elementwise_affine")]
    pub fn without_affine(self) -> LayerNorm {
        LayerNorm { weight: None, bias: None, ..self }
    }
}

impl Layer for LayerNorm {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let shape = &self.normalized_shape[..];
        let (mut one, mut zero) = (None, None);
        let weight = self.weight.as_ref().unwrap_or_else(|| one.insert(x.new_ones(shape)));
        let bias = self.bias.as_ref().unwrap_or_else(|| zero.insert(x.new_zeros(shape)));
        scope.output(x.layer_norm(weight, bias, self.eps))
    }
}
