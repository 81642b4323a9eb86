//! What compares a prediction with a target.

use pullback::Tensor;

/// A loss of one prediction and one target, so that a training loop can take any.
///
/// Losses of three tensors have a `forward` of their own.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{L1Loss, Loss, MseLoss};
/// fn step(loss: &dyn Loss, x: &Tensor, y: &Tensor) -> f64 {
///     loss.forward(x, y).item()
/// }
/// let (x, y) = (Tensor::from([1.0, 2.0]), Tensor::from([0.0, 4.0]));
/// assert_eq!(step(&MseLoss::new(Reduction::Mean), &x, &y), 2.5);
/// assert_eq!(step(&L1Loss::new(Reduction::Mean), &x, &y), 1.5);
/// ```
pub trait Loss {
    /// The loss of the prediction `x` against the target `y`.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{L1Loss, Loss};
    /// let loss = L1Loss::new(Reduction::None)
    ///     .forward(&Tensor::from([1.0, 2.0]), &Tensor::from([0.0, 4.0]));
    /// assert_eq!(loss.to_vec::<f64>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor;
}
