//! Splitting of an axis.

use crate::{Layer, module_scope};
use pullback::{Tensor, Tree};

/// Splits an axis into several of these lengths, of which one may be −1.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Layer, Unflatten};
/// assert_eq!(Unflatten::new(1, [3, -1]).forward(&Tensor::zeros([8, 12])).shape(), [8, 3, 4]);
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Unflatten {
    /// The axis.
    pub dim: isize,
    /// The lengths.
    pub unflattened_size: Vec<isize>,
}

impl Unflatten {
    /// Splits the axis `dim` into axes of these lengths.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Layer, Unflatten};
    /// let layer = Unflatten::new(-1, [2, 3]);
    /// assert_eq!(layer.forward(&Tensor::zeros([8, 6])).shape(), [8, 2, 3]);
    /// ```
    #[must_use]
    pub fn new(dim: isize, lengths: impl AsRef<[isize]>) -> Unflatten {
        Unflatten { dim, unflattened_size: lengths.as_ref().to_vec() }
    }
}

impl Layer for Unflatten {
    /// # Panics
    /// If `x` does not have the axis, or the lengths do not multiply to its length.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(x.unflatten(self.dim, &self.unflattened_size[..]))
    }
}
