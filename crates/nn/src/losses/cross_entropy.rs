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
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> CrossEntropyLoss {
        CrossEntropyLoss(CrossEntropy::new().reduction(reduction))
    }

    /// A weight for each class.
    pub fn weight(self, weight: &Tensor) -> CrossEntropyLoss {
        CrossEntropyLoss(self.0.weight(weight))
    }

    /// Elements of this class are ignored; −100 by default.
    pub fn ignore_index(self, class: i64) -> CrossEntropyLoss {
        CrossEntropyLoss(self.0.ignore_index(class))
    }

    /// Mixes the target with the uniform distribution: 0 is none, 1 is all.
    pub fn label_smoothing(self, amount: f64) -> CrossEntropyLoss {
        CrossEntropyLoss(self.0.label_smoothing(amount))
    }
}

impl Loss for CrossEntropyLoss {
    #[track_caller]
    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        self.0.of(x, y)
    }
}
