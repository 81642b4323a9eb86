//! Root mean square normalisation.

use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{DType, IntoShape, Tensor, Tree};

/// Root mean square normalisation: divided by the root of the mean square over the last axes, then
/// `· weight`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, RmsNorm};
/// let layer = RmsNorm::new(16).eps(1e-6);
/// assert_eq!(layer.forward(&Tensor::randn([2, 5, 16])).shape(), [2, 5, 16]);
/// ```
#[derive(Clone, Tree)]
pub struct RmsNorm {
    /// Shaped as the axes that are normalised over, from ones.
    pub weight: Option<Tensor>,
    /// The lengths of the axes that are normalised over.
    pub normalized_shape: Vec<usize>,
    /// What is added to the mean square; the distance from 1 to the next number of the input's
    /// dtype, by default.
    pub eps: Option<f64>,
}

impl RmsNorm {
    /// Over the last axes, which have these lengths; over the last one, given its length.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, RmsNorm};
    /// let y = RmsNorm::new([2]).forward(&Tensor::from([[3f32, 3.0]]));
    /// assert_eq!(y.shape(), [1, 2]);
    /// assert!((y.at((0, 0)).item::<f32>() - 1.0).abs() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// If `normalized_shape` is empty.
    #[track_caller]
    #[must_use]
    pub fn new(normalized_shape: impl IntoShape) -> RmsNorm {
        let weight = Tensor::ones(normalized_shape).requires_grad();
        let normalized_shape = weight.shape().to_vec();
        demand(!normalized_shape.is_empty(), "RmsNorm", || "takes at least one axis".into());
        RmsNorm { weight: Some(weight), normalized_shape, eps: None }
    }

    /// The number added to the mean square.
    ///
    /// ```
    /// # use pullback_nn::RmsNorm;
    /// assert_eq!(RmsNorm::new([16]).eps(1e-6).eps, Some(1e-6));
    /// ```
    #[must_use]
    pub fn eps(self, eps: f64) -> RmsNorm {
        RmsNorm { eps: Some(eps), ..self }
    }

    /// Without a weight (PyTorch's `elementwise_affine=False`).
    ///
    /// ```
    /// # use pullback_nn::{Module, RmsNorm};
    /// assert_eq!(RmsNorm::new([16]).without_affine().parameter_count(), 0);
    /// ```
    #[must_use]
    #[doc(alias = "elementwise_affine")]
    pub fn without_affine(self) -> RmsNorm {
        RmsNorm { weight: None, ..self }
    }
}

impl Layer for RmsNorm {
    /// # Panics
    /// If the last axes of `x` are not `normalized_shape`, or float dtypes are mixed.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let eps = self.eps.unwrap_or(match x.dtype() {
            DType::F64 => f64::EPSILON,
            _ => f64::from(f32::EPSILON),
        });
        let shape = &self.normalized_shape[..];
        let axes = x.rank().checked_sub(shape.len());
        demand(axes.is_some_and(|lead| &x.shape()[lead..] == shape), "RmsNorm", || {
            format!("the last axes of {} are not {shape:?}", x.spec())
        });
        let y = match &self.weight {
            Some(weight) => x.rms_norm(weight, eps),
            None => x.rms_norm(&x.new_ones(shape), eps),
        };
        scope.output(y)
    }
}
