//! [`CtcLoss`].

use pullback::losses::{self, Ctc};
use pullback::{Reduction, Tensor};

/// −log of the probability of labels, by connectionist temporal classification. The mean is over
/// the batch, of each loss divided by its number of labels. PyTorch's `nn.CTCLoss`.
///
/// Lengths that are numbers are part of what is compiled; a compiled step that takes them as
/// tensors calls [`CtcLoss::forward_by`].
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
    /// Reduced in this way; class 0 is the blank.
    pub fn new(reduction: Reduction) -> CtcLoss {
        CtcLoss(Ctc { reduction, ..Ctc::default() })
    }

    /// The blank class.
    pub fn blank(self, blank: usize) -> CtcLoss {
        CtcLoss(Ctc { blank, ..self.0 })
    }

    /// A loss that is infinite (the labels do not fit into the sequence) counts as 0, and so does
    /// its gradient.
    pub fn zero_infinity(self) -> CtcLoss {
        CtcLoss(Ctc { zero_infinity: true, ..self.0 })
    }

    /// The loss of log-probabilities `[t, n, classes]` (or `[t, classes]`) against labels
    /// `[n, most]`, or all of them in one vector, with the lengths of both.
    ///
    /// # Panics
    /// With the operands and the caller's line, if they do not fit each other.
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
    /// # Panics
    /// With the operands and the caller's line, if they do not fit each other.
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
