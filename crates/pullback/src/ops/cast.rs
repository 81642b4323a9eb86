//! Changing the element type.

use crate::apply::apply;
use crate::{DType, Op, Tensor};

impl Tensor {
    /// The nearest values in another dtype; the same tensor if it has it already. Floats become
    /// integers by dropping the fraction, and `bool` by being non-zero.
    ///
    /// A view where the tensor has the dtype already: the tensor itself.
    /// Derivative: `dy` in the old dtype; none between integers.
    /// PyTorch's name: `to`.
    ///
    /// ```
    /// # use pullback::{DType, Tensor};
    /// assert_eq!(Tensor::from([1.7, -1.7]).cast(DType::I64).to_vec::<i64>(), [1, -1]);
    /// ```
    #[track_caller]
    #[must_use]
    pub fn cast(&self, dtype: DType) -> Tensor {
        match self.dtype() == dtype {
            true => self.clone(),
            false => apply(Op::Cast(dtype), &[self]),
        }
    }

    /// The same values in fresh, dense memory of their own, still part of the graph.
    ///
    /// Derivative: `dy`.
    /// PyTorch's name: `clone`.
    #[track_caller]
    #[must_use]
    pub fn deep_clone(&self) -> Tensor {
        apply(Op::Copy, &[self])
    }

    /// This tensor if its elements lie dense in row-major order, otherwise a dense copy.
    ///
    /// A view where the elements lie dense already: the tensor itself.
    /// Derivative: `dy`.
    #[track_caller]
    #[must_use]
    pub fn contiguous(&self) -> Tensor {
        match self.is_contiguous() {
            true => self.clone(),
            false => self.deep_clone(),
        }
    }
}
