//! [`CtcLoss`].

use pullback::losses::{self, Ctc};
use pullback::{Reduction, Tensor};

/// The connectionist temporal classification loss: −log of the probability of the labels. The mean
/// is over the batch, of each loss divided by its number of labels. PyTorch's `nn.CTCLoss`.
///
/// Lengths that are numbers are constants of a compiled function; a compiled step that takes them
/// as tensors calls [`CtcLoss::forward_by`].
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::CtcLoss;
/// let log_p = Tensor::full([2, 1, 2], 0.5f64.ln());
/// let loss = CtcLoss::new(Reduction::Sum).forward(&log_p, &Tensor::from([[1i64]]), &[2], &[1]);
/// assert!((loss.item::<f64>() - (4.0f64 / 3.0).ln()).abs() < 1e-6);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct CtcLoss(Ctc);

impl CtcLoss {
    /// Creates the loss with this reduction; class 0 is the blank.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::CtcLoss;
    /// let log_p = Tensor::full([3, 2, 4], 0.25f64.ln());
    /// let labels = Tensor::from([[1i64, 2], [3, 3]]);
    /// let each = CtcLoss::new(Reduction::None).forward(&log_p, &labels, &[3, 3], &[2, 2]);
    /// assert_eq!(each.shape(), [2]);
    /// ```
    pub fn new(reduction: Reduction) -> CtcLoss {
        CtcLoss(Ctc { reduction, ..Ctc::default() })
    }

    /// The index of the blank class; 0 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::CtcLoss;
    /// let log_p = Tensor::full([2, 1, 2], 0.5f64.ln());
    /// let loss = CtcLoss::new(Reduction::Sum).blank(1);
    /// let loss = loss.forward(&log_p, &Tensor::from([[0i64]]), &[2], &[1]);
    /// assert!((loss.item::<f64>() - (4.0f64 / 3.0).ln()).abs() < 1e-6);
    /// ```
    pub fn blank(self, blank: usize) -> CtcLoss {
        CtcLoss(Ctc { blank, ..self.0 })
    }

    /// A loss that is infinite (the labels do not fit into the sequence) counts as 0, and so does
    /// its gradient.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::CtcLoss;
    /// let log_p = Tensor::full([1, 1, 3], (1.0f64 / 3.0).ln());
    /// let labels = Tensor::from([[1i64, 2]]);
    /// // Two labels do not fit into one step.
    /// let loss = CtcLoss::new(Reduction::Sum).forward(&log_p, &labels, &[1], &[2]);
    /// assert_eq!(loss.item::<f64>(), f64::INFINITY);
    /// let loss =
    ///     CtcLoss::new(Reduction::Sum).zero_infinity().forward(&log_p, &labels, &[1], &[2]);
    /// assert_eq!(loss.item::<f64>(), 0.0);
    /// ```
    pub fn zero_infinity(self) -> CtcLoss {
        CtcLoss(Ctc { zero_infinity: true, ..self.0 })
    }

    /// The loss of log-probabilities `[t, n, classes]` (or `[t, classes]`) against labels `[n,
    /// most]`, or all labels concatenated in one vector, with the lengths of both.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::CtcLoss;
    /// let log_p = Tensor::randn([5, 2, 4]).log_softmax(-1);
    /// let (padded, flat) = (Tensor::from([[1i64, 2], [3, 0]]), Tensor::from([1i64, 2, 3]));
    /// let loss = CtcLoss::new(Reduction::Mean);
    /// let a = loss.forward(&log_p, &padded, &[5, 4], &[2, 1]).item::<f32>();
    /// assert_eq!(a, loss.forward(&log_p, &flat, &[5, 4], &[2, 1]).item::<f32>());
    /// ```
    ///
    /// # Panics
    /// If shapes and lengths do not fit each other, or a label is not a class.
    #[track_caller]
    #[must_use]
    pub fn forward(
        &self,
        log_p: &Tensor,
        labels: &Tensor,
        times: &[usize],
        counts: &[usize],
    ) -> Tensor {
        losses::ctc(log_p, labels, times, counts, self.0)
    }

    /// [`CtcLoss::forward`] with labels `[n, most]`, and both lengths as tensors of integers `[n]`:
    /// see [`losses::ctc_by`].
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::CtcLoss;
    /// let log_p = Tensor::randn([5, 2, 4]).log_softmax(-1);
    /// let labels = Tensor::from([[1i64, 2], [3, 0]]);
    /// let (times, counts) = (Tensor::from([5i64, 4]), Tensor::from([2i64, 1]));
    /// let loss = CtcLoss::new(Reduction::Mean);
    /// let a = loss.forward_by(&log_p, &labels, &times, &counts).item::<f32>();
    /// assert!((a - loss.forward(&log_p, &labels, &[5, 4], &[2, 1]).item::<f32>()).abs() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// If shapes do not fit each other, or a label is not a class.
    #[track_caller]
    #[must_use]
    pub fn forward_by(
        &self,
        log_p: &Tensor,
        labels: &Tensor,
        times: &Tensor,
        counts: &Tensor,
    ) -> Tensor {
        losses::ctc_by(log_p, labels, times, counts, self.0)
    }
}
