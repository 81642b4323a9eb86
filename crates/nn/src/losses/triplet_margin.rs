//! [`TripletMarginLoss`].

use pullback::{Reduction, Tensor, losses};

/// max(0, margin + |anchor − near| − |anchor − far|), over the last axis. PyTorch's
/// `nn.TripletMarginLoss`.
///
/// ```
/// use pullback::{Reduction, Tensor};
/// use pullback_nn::losses::TripletMarginLoss;
/// let [anchor, near, far] = [0.0, 1.0, 1.5].map(|x| Tensor::from([[x, 0.0]]));
/// let loss = TripletMarginLoss::new(Reduction::Mean).forward(&anchor, &near, &far);
/// assert!((loss.item::<f64>() - 0.5).abs() < 1e-5);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct TripletMarginLoss {
    margin: f64,
    p: f64,
    eps: f64,
    swap: bool,
    reduction: Reduction,
}

impl TripletMarginLoss {
    /// With this reduction and default options.
    pub fn new(reduction: Reduction) -> TripletMarginLoss {
        TripletMarginLoss { margin: 1.0, p: 2.0, eps: 1e-6, swap: false, reduction }
    }

    /// The margin; 1 by default.
    pub fn margin(self, margin: f64) -> TripletMarginLoss {
        TripletMarginLoss { margin, ..self }
    }

    /// The order of the norm; 2 by default.
    pub fn p(self, p: f64) -> TripletMarginLoss {
        TripletMarginLoss { p, ..self }
    }

    /// What is added to differences, so that a distance of 0 has a slope; 1e-6 by default.
    pub fn eps(self, eps: f64) -> TripletMarginLoss {
        TripletMarginLoss { eps, ..self }
    }

    /// Takes the distance from `far` to the nearer of anchor and `near`.
    pub fn swap(self) -> TripletMarginLoss {
        TripletMarginLoss { swap: true, ..self }
    }

    /// The loss.
    ///
    /// # Panics
    /// With the operands and the caller's line, if they do not fit each other.
    #[track_caller]
    #[must_use]
    pub fn forward(&self, anchor: &Tensor, near: &Tensor, far: &Tensor) -> Tensor {
        losses::triplet_margin(
            anchor,
            near,
            far,
            (self.margin, self.p, self.eps),
            self.swap,
            self.reduction,
        )
    }
}
