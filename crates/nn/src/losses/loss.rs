//! What compares a prediction with a target.

use pullback::Tensor;

/// A loss of one prediction and one target, so that a training loop can take any.
///
/// Losses of three tensors have a `forward` of their own.
pub trait Loss {
    /// The loss of the prediction `x` against the target `y`.
    ///
    /// # Panics
    /// With the operands and the caller's line, if they do not fit each other.
    #[track_caller]
    #[must_use]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor;
}
