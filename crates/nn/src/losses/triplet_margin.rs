//! [`TripletMarginLoss`].

use pullback::{Reduction, Tensor, losses};

/// The triplet margin loss: max(0, margin + |anchor − near| − |anchor − far|), over the last axis.
/// PyTorch's `nn.TripletMarginLoss`.
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
    /// Creates the loss with this reduction and the default options.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::TripletMarginLoss;
    /// let [anchor, near, far] = [0.0, 1.0, 9.0].map(|x| Tensor::from([[x, 0.0]]));
    /// let loss = TripletMarginLoss::new(Reduction::Mean).forward(&anchor, &near, &far);
    /// assert_eq!(loss.item::<f64>(), 0.0);
    /// ```
    pub fn new(reduction: Reduction) -> TripletMarginLoss {
        TripletMarginLoss { margin: 1.0, p: 2.0, eps: 1e-6, swap: false, reduction }
    }

    /// The margin; 1 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::TripletMarginLoss;
    /// let [anchor, near, far] = [0.0, 1.0, 1.5].map(|x| Tensor::from([[x, 0.0]]));
    /// let loss =
    ///     TripletMarginLoss::new(Reduction::Mean).margin(3.0).forward(&anchor, &near, &far);
    /// assert!((loss.item::<f64>() - 2.5).abs() < 1e-5);
    /// ```
    pub fn margin(self, margin: f64) -> TripletMarginLoss {
        TripletMarginLoss { margin, ..self }
    }

    /// The order of the norm; 2 by default.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::TripletMarginLoss;
    /// let [anchor, near, far] = [0.0, 3.0, 1.0].map(|x| Tensor::from([[x, x]]));
    /// let loss = TripletMarginLoss::new(Reduction::Mean).p(1.0).forward(&anchor, &near, &far);
    /// // 1 + 6 − 2: distances are sums of absolute values.
    /// assert!((loss.item::<f64>() - 5.0).abs() < 1e-4);
    /// ```
    pub fn p(self, p: f64) -> TripletMarginLoss {
        TripletMarginLoss { p, ..self }
    }

    /// The number added to differences, so that a distance of 0 has a gradient; 1e-6 by default.
    ///
    /// ```
    /// # use pullback::{DType, Reduction, Tensor};
    /// # use pullback_nn::losses::TripletMarginLoss;
    /// let x = Tensor::from([[0.0, 0.0]]).requires_grad();
    /// let loss = TripletMarginLoss::new(Reduction::Mean).eps(1e-4);
    /// loss.forward(&x, &Tensor::zeros([1, 2]).cast(DType::F64), &Tensor::from([[3.0, 0.0]]))
    ///     .backward()?;
    /// assert!(x.grad().unwrap().to_vec::<f64>().iter().all(|g| g.is_finite()));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn eps(self, eps: f64) -> TripletMarginLoss {
        TripletMarginLoss { eps, ..self }
    }

    /// Uses the smaller of the distances from `far` to the anchor and to `near`.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::TripletMarginLoss;
    /// let [anchor, near, far] = [0.0, 1.0, 1.5].map(|x| Tensor::from([[x, 0.0]]));
    /// let loss = TripletMarginLoss::new(Reduction::Mean).swap().forward(&anchor, &near, &far);
    /// // `far` is 0.5 away from `near`.
    /// assert!((loss.item::<f64>() - 1.5).abs() < 1e-5);
    /// ```
    pub fn swap(self) -> TripletMarginLoss {
        TripletMarginLoss { swap: true, ..self }
    }

    /// The loss of vectors `[.., features]`.
    ///
    /// ```
    /// # use pullback::{Reduction, Tensor};
    /// # use pullback_nn::losses::TripletMarginLoss;
    /// let [anchor, near, far] = [0.0, 1.0, 1.5].map(|x| Tensor::from([[x, 0.0], [x, 0.0]]));
    /// let loss = TripletMarginLoss::new(Reduction::None).forward(&anchor, &near, &far);
    /// assert_eq!(loss.shape(), [2]);
    /// ```
    ///
    /// # Panics
    /// If shapes or dtypes do not fit; the message names the operands and the caller's line.
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
