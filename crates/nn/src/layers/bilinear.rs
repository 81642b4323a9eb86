//! The bilinear layer.

use crate::init::uniform_;
use crate::module_scope;
use crate::refuse::demand;
use pullback::{Tensor, Tree};

/// A bilinear layer, `Σᵢⱼ aᵢ · weightₖᵢⱼ · bⱼ + biasₖ` over the last axes of two inputs: from `[..,
/// first]` and `[.., second]` to `[.., outputs]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::Bilinear;
/// let layer = Bilinear::new(4, 3, 5);
/// assert_eq!(layer.forward(&Tensor::zeros([8, 4]), &Tensor::zeros([8, 3])).shape(), [8, 5]);
/// ```
#[derive(Clone, Tree)]
pub struct Bilinear {
    /// `[outputs, first inputs, second inputs]`
    pub weight: Tensor,
    /// `[outputs]`
    pub bias: Option<Tensor>,
}

impl Bilinear {
    /// With weights and biases drawn uniformly from ±1/√in1_features.
    ///
    /// ```
    /// # use pullback_nn::Bilinear;
    /// let layer = Bilinear::new(4, 3, 5);
    /// assert_eq!(layer.weight.shape(), [5, 4, 3]);
    /// ```
    ///
    /// # Panics
    /// If a size is 0.
    #[track_caller]
    #[must_use]
    pub fn new(in1_features: usize, in2_features: usize, out_features: usize) -> Bilinear {
        demand(in1_features > 0 && in2_features > 0 && out_features > 0, "Bilinear", || {
            format!(
                "takes sizes of at least 1, not {in1_features}, {in2_features} and {out_features}"
            )
        });
        let weight = Tensor::zeros([out_features, in1_features, in2_features]).requires_grad();
        let bias = Tensor::zeros([out_features]).requires_grad();
        let bound = 1.0 / (in1_features as f64).sqrt();
        uniform_(&weight, -bound, bound);
        uniform_(&bias, -bound, bound);
        Bilinear { weight, bias: Some(bias) }
    }

    /// Without a bias.
    ///
    /// ```
    /// # use pullback_nn::{Bilinear, Module};
    /// assert_eq!(Bilinear::new(4, 3, 5).without_bias().parameter_count(), 5 * 4 * 3);
    /// ```
    #[must_use]
    #[doc(alias = "bias")]
    pub fn without_bias(self) -> Bilinear {
        Bilinear { bias: None, ..self }
    }

    /// The output `[.., outputs]` for the inputs `[.., in1]` and `[.., in2]`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Bilinear, init};
    /// let layer = Bilinear::new(2, 2, 1).without_bias();
    /// init::eye_(&layer.weight.at(0));
    /// let y = layer.forward(&Tensor::from([[2f32, 3.0]]), &Tensor::from([[4f32, 5.0]]));
    /// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 1][..], vec![23.0]));
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn forward(&self, a: &Tensor, b: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = a.bilinear(b, &self.weight, self.bias.as_ref());
        scope.output_with_macs(y, |y| y.len() * self.weight.len() / self.weight.shape()[0])
    }
}
