//! [`MarginRankingLoss`].

use pullback::{Reduction, Tensor, losses};

/// max(0, margin − y·(a − b)): a is to be ranked above b where y is 1, below it where y is −1.
/// PyTorch's `nn.MarginRankingLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::MarginRankingLoss;
/// let (a, b) = (Tensor::from([2.0, 2.0]), Tensor::from([1.0, 1.0]));
/// let loss = MarginRankingLoss::new(Reduction::None).forward(&a, &b, &Tensor::from([1.0, -1.0]));
/// assert_eq!(loss.to_vec::<f64>(), [0.0, 1.0]);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct MarginRankingLoss {
    margin: f64,
    reduction: Reduction,
}

impl MarginRankingLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::MarginRankingLoss;
    /// let (a, b) = (Tensor::from([2.0, 2.0]), Tensor::from([1.0, 1.0]));
    /// let loss =
    ///     MarginRankingLoss::new(Reduction::Mean).forward(&a, &b, &Tensor::from([1.0, -1.0]));
    /// assert_eq!(loss.item::<f64>(), 0.5);
    /// ```
    pub fn new(reduction: Reduction) -> MarginRankingLoss {
        MarginRankingLoss { margin: 0.0, reduction }
    }

    /// The margin; 0 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::MarginRankingLoss;
    /// let (a, b) = (Tensor::from([2.0]), Tensor::from([1.0]));
    /// let loss = MarginRankingLoss::new(Reduction::Mean).margin(1.5);
    /// assert_eq!(loss.forward(&a, &b, &Tensor::from([1.0])).item::<f64>(), 0.5);
    /// ```
    pub fn margin(self, margin: f64) -> MarginRankingLoss {
        MarginRankingLoss { margin, ..self }
    }

    /// The loss of the scores `a` and `b`, with `y` of 1 or −1 for each pair.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::MarginRankingLoss;
    /// let (a, b, y) =
    ///     (Tensor::from([0.5, 3.0]), Tensor::from([1.0, 1.0]), Tensor::from([1.0, 1.0]));
    /// let loss = MarginRankingLoss::new(Reduction::None).forward(&a, &b, &y);
    /// assert_eq!(loss.to_vec::<f64>(), [0.5, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
    #[track_caller]
    #[must_use]
    pub fn forward(&self, a: &Tensor, b: &Tensor, y: &Tensor) -> Tensor {
        losses::margin_ranking(a, b, y, self.margin, self.reduction)
    }
}
