//! What takes a tensor and gives one.

use pullback::{Tensor, Tree};

/// A module with one input and one output, so that it can be chained.
///
/// Layers with more of either (attention, recurrent layers) have a `forward` of their own.
pub trait Layer: Tree {
    /// The output for this input.
    ///
    /// # Panics
    /// With the op, the operands and the caller's line, if the input does not fit.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor;
}
