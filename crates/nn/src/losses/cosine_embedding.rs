//! [`CosineEmbeddingLoss`].

use pullback::{Reduction, Tensor, losses};

/// 1 − cos(a, b) over the last axis where y is 1, max(0, cos(a, b) − margin) where y is −1.
/// PyTorch's `nn.CosineEmbeddingLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::CosineEmbeddingLoss;
/// let a = Tensor::from([[1.0, 0.0], [1.0, 0.0]]);
/// let b = Tensor::from([[0.0, 1.0], [2.0, 0.0]]);
/// let y = Tensor::from([1.0, -1.0]);
/// let loss = CosineEmbeddingLoss::new(Reduction::None).forward(&a, &b, &y).to_vec::<f64>();
/// assert!((loss[0] - 1.0).abs() < 1e-6 && (loss[1] - 1.0).abs() < 1e-6);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct CosineEmbeddingLoss {
    margin: f64,
    reduction: Reduction,
}

impl CosineEmbeddingLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::CosineEmbeddingLoss;
    /// let (a, y) = (Tensor::from([[3.0, 4.0]]), Tensor::from([1.0]));
    /// let loss = CosineEmbeddingLoss::new(Reduction::Mean).forward(&a, &a, &y);
    /// assert!(loss.item::<f64>().abs() < 1e-6);
    /// ```
    pub fn new(reduction: Reduction) -> CosineEmbeddingLoss {
        CosineEmbeddingLoss { margin: 0.0, reduction }
    }

    /// The margin; 0 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::CosineEmbeddingLoss;
    /// let (a, y) = (Tensor::from([[3.0, 4.0]]), Tensor::from([-1.0]));
    /// let loss = CosineEmbeddingLoss::new(Reduction::Mean).margin(0.25).forward(&a, &a, &y);
    /// assert!((loss.item::<f64>() - 0.75).abs() < 1e-6);
    /// ```
    pub fn margin(self, margin: f64) -> CosineEmbeddingLoss {
        CosineEmbeddingLoss { margin, ..self }
    }

    /// The loss of vectors `a` and `b`, `[n, features]`, with `y` of 1 or −1 for each pair, `[n]`.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::CosineEmbeddingLoss;
    /// let (a, b) = (Tensor::from([[1.0, 0.0]]), Tensor::from([[-1.0, 0.0]]));
    /// let loss = CosineEmbeddingLoss::new(Reduction::Sum).forward(&a, &b, &Tensor::from([1.0]));
    /// assert!((loss.item::<f64>() - 2.0).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn forward(&self, a: &Tensor, b: &Tensor, y: &Tensor) -> Tensor {
        losses::cosine_embedding(a, b, y, self.margin, self.reduction)
    }
}
