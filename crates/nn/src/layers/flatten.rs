//! Flattening of axes.

use crate::{Layer, module_scope};
use pullback::{Tensor, Tree};

/// Flattens the axes from `start_dim` to `end_dim` into one: by default, all but the batch.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Flatten, Layer};
/// assert_eq!(Flatten::new().forward(&Tensor::zeros([8, 3, 4, 4])).shape(), [8, 48]);
/// ```
#[derive(Clone, Copy, Debug, Tree)]
pub struct Flatten {
    /// The first axis.
    pub start_dim: isize,
    /// The last axis.
    pub end_dim: isize,
}

impl Default for Flatten {
    fn default() -> Flatten {
        Flatten::new()
    }
}

impl Flatten {
    /// Flattens all axes but the first.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Flatten, Layer};
    /// assert_eq!(Flatten::new().forward(&Tensor::zeros([8, 1, 28, 28])).shape(), [8, 784]);
    /// ```
    #[must_use]
    pub fn new() -> Flatten {
        Flatten { start_dim: 1, end_dim: -1 }
    }

    /// Flattens these axes and those between them; negative ones count from the end.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Flatten, Layer};
    /// assert_eq!(Flatten::over(0, 1).forward(&Tensor::zeros([8, 3, 4])).shape(), [24, 4]);
    /// assert_eq!(Flatten::over(-2, -1).forward(&Tensor::zeros([8, 3, 4])).shape(), [8, 12]);
    /// ```
    #[must_use]
    pub fn over(start_dim: isize, end_dim: isize) -> Flatten {
        Flatten { start_dim, end_dim }
    }
}

impl Layer for Flatten {
    /// # Panics
    /// If `x` does not have the axes.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(x.flatten(self.start_dim, self.end_dim))
    }
}
