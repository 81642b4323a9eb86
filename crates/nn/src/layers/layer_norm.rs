//! Layer normalisation.

use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{IntoShape, Tensor, Tree};

/// Layer normalisation: to mean 0 and variance 1 over the last axes, then `· weight + bias`.
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
    /// The number added to the variance.
    pub eps: f64,
}

impl LayerNorm {
    /// Over the last axes, which have these lengths; over the last one, given its length.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, LayerNorm};
    /// let layer = LayerNorm::new([4, 4]);
    /// assert_eq!(layer.weight.as_ref().unwrap().shape(), [4, 4]);
    /// assert_eq!(layer.forward(&Tensor::randn([2, 3, 4, 4])).shape(), [2, 3, 4, 4]);
    /// ```
    ///
    /// # Panics
    /// If `normalized_shape` is empty.
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

    /// The number added to the variance; 1e-5 by default.
    ///
    /// ```
    /// # use pullback_nn::LayerNorm;
    /// assert_eq!(LayerNorm::new([16]).eps(1e-12).eps, 1e-12);
    /// ```
    #[must_use]
    pub fn eps(self, eps: f64) -> LayerNorm {
        LayerNorm { eps, ..self }
    }

    /// Without a bias.
    ///
    /// ```
    /// # use pullback_nn::{LayerNorm, Module};
    /// assert_eq!(LayerNorm::new([16]).without_bias().parameter_count(), 16);
    /// ```
    #[must_use]
    #[doc(alias = "bias")]
    pub fn without_bias(self) -> LayerNorm {
        LayerNorm { bias: None, ..self }
    }

    /// Without weight and bias (PyTorch's `elementwise_affine=False`).
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, LayerNorm, Module};
    /// let layer = LayerNorm::new([2]).without_affine();
    /// assert_eq!(layer.parameter_count(), 0);
    /// let y = layer.forward(&Tensor::from([[1f32, 3.0]]));
    /// assert!(y.is_close(&Tensor::from([[-1f32, 1.0]]), 0.0, 1e-4, false).all().item::<bool>());
    /// ```
    #[must_use]
    #[doc(alias = "elementwise_affine")]
    pub fn without_affine(self) -> LayerNorm {
        LayerNorm { weight: None, bias: None, ..self }
    }
}

impl Layer for LayerNorm {
    /// # Panics
    /// If the last axes of `x` are not `normalized_shape`, or float dtypes are mixed.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let shape = &self.normalized_shape[..];
        let (mut one, mut zero) = (None, None);
        let weight = self.weight.as_ref().unwrap_or_else(|| one.insert(x.new_ones(shape)));
        let bias = self.bias.as_ref().unwrap_or_else(|| zero.insert(x.new_zeros(shape)));
        scope.output(x.layer_norm(weight, bias, self.eps))
    }
}
