//! [`CrossEntropyLoss`].

use super::Loss;
use pullback::{CrossEntropy, Reduction, Tensor};

/// The cross-entropy of logits `[n, c, …]` against classes `[n, …]` (integers), or against
/// probabilities shaped as the logits. The mean over classes is over their weights. PyTorch's
/// `nn.CrossEntropyLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::{CrossEntropyLoss, Loss};
/// let loss = CrossEntropyLoss::new(Reduction::Mean).label_smoothing(0.1);
/// let loss = loss.forward(&Tensor::zeros([4, 10]), &Tensor::from([1i64, 2, 3, 4]));
/// assert!((loss.item::<f32>() - 10f32.ln()).abs() < 1e-6);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct CrossEntropyLoss(CrossEntropy);

impl CrossEntropyLoss {
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{CrossEntropyLoss, Loss};
    /// let loss = CrossEntropyLoss::new(Reduction::None);
    /// let each = loss.forward(&Tensor::zeros([2, 4]), &Tensor::from([0i64, 3]));
    /// assert_eq!(each.shape(), [2]);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn new(reduction: Reduction) -> CrossEntropyLoss {
        CrossEntropyLoss(CrossEntropy::new().reduction(reduction))
    }

    /// A weight for each class.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{CrossEntropyLoss, Loss};
    /// // The mean is weighted too: only the first row counts.
    /// let loss = CrossEntropyLoss::new(Reduction::Mean).weight(&Tensor::from([1.0, 0.0]));
    /// let logits = Tensor::from([[0.0, 0.0], [7.0, 0.0]]);
    /// let loss = loss.forward(&logits, &Tensor::from([0i64, 1]));
    /// assert!((loss.item::<f64>() - 2f64.ln()).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// Never; `forward` checks its shape.
    pub fn weight(self, weight: &Tensor) -> CrossEntropyLoss {
        CrossEntropyLoss(self.0.weight(weight))
    }

    /// Elements of this class are ignored; −100 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{CrossEntropyLoss, Loss};
    /// let loss = CrossEntropyLoss::new(Reduction::None).ignore_index(0);
    /// let loss = loss.forward(&Tensor::zeros([2, 4]), &Tensor::from([0i64, 3])).to_vec::<f32>();
    /// assert_eq!(loss[0], 0.0);
    /// assert!((loss[1] - 4f32.ln()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn ignore_index(self, class: i64) -> CrossEntropyLoss {
        CrossEntropyLoss(self.0.ignore_index(class))
    }

    /// Mixes the target with the uniform distribution: 0 keeps the target, 1 is the uniform
    /// distribution.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::{CrossEntropyLoss, Loss};
    /// let (logits, y) = (Tensor::from([[50.0, 0.0]]), Tensor::from([0i64]));
    /// let loss = CrossEntropyLoss::new(Reduction::Mean).label_smoothing(0.1).forward(&logits, &y);
    /// // The wrong class has the probability 0.05 in the target.
    /// assert!((loss.item::<f64>() - 0.05 * 50.0).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// Never; `forward` checks that it is from 0 to 1.
    pub fn label_smoothing(self, amount: f64) -> CrossEntropyLoss {
        CrossEntropyLoss(self.0.label_smoothing(amount))
    }
}

impl Loss for CrossEntropyLoss {
    /// # Panics
    /// Where [`CrossEntropy::of`] does.
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        self.0.of(x, y)
    }
}
