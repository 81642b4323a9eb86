//! Dropout and random slopes: applied in training only. Each takes a key in training and `None` in
//! evaluation.

use crate::{Error, Key, Tensor};

/// −λ·α of selu: what a dropped element becomes in alpha dropout.
const ALPHA: f64 = -1.758_099_340_847_376_6;

impl Tensor {
    /// 1 where an element stays, 0 where it is dropped (with probability `p`); one draw per
    /// element, or per channel.
    #[track_caller]
    fn kept_by(&self, p: f64, key: &Key, channels: Option<usize>) -> Tensor {
        let mut shape = self.shape().to_vec();
        if let Some(lead) = channels {
            shape[lead..].fill(1);
        }
        key.bernoulli_mask(shape, 1.0 - p).cast(self.real_dtype())
    }

    #[track_caller]
    fn check_rate(&self, op: &'static str, p: f64) {
        if !(0.0..=1.0).contains(&p) {
            let message = format!("a probability must be between 0 and 1, not {p}");
            self.checked(Err(Error::argument(op, message).on([self.spec()])))
        }
    }

    #[track_caller]
    fn dropped(
        &self,
        op: &'static str,
        p: f64,
        key: Option<&Key>,
        channels: Option<usize>,
    ) -> Tensor {
        self.check_rate(op, p);
        match key {
            None => self.clone(),
            Some(_) if p == 0.0 => self.clone(),
            Some(_) if p == 1.0 => self * 0.0,
            Some(key) => self * (self.kept_by(p, key, channels) * (1.0 / (1.0 - p))),
        }
    }

    /// Each element 0 with probability `p`, else divided by 1 − p, so that its expectation is
    /// unchanged; without a key (evaluation) it is the identity.
    ///
    /// A view where nothing is dropped (no key, or a `p` of 0): the tensor itself, as in PyTorch.
    /// Derivative: dx = dy where the element stays, divided by 1 − p; 0 elsewhere.
    ///
    /// ```
    /// # use pullback::{Key, Tensor};
    /// let x = Tensor::ones([1000]);
    /// let y = x.dropout(0.25, Some(&Key::new(0)));
    /// assert!((y.mean().item::<f32>() - 1.0).abs() < 0.1);
    /// assert_eq!(x.dropout(0.25, None).to_vec::<f32>(), x.to_vec::<f32>());
    /// ```
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[track_caller]
    #[must_use]
    pub fn dropout(&self, p: f64, key: Option<&Key>) -> Tensor {
        self.dropped("dropout", p, key, None)
    }

    /// [`Tensor::dropout`] of whole channels: one draw for each of the leading axes `[n, c]`, or
    /// `[c]` of an image without batch. `spatial` is the number of axes after the channels.
    ///
    /// A view where nothing is dropped (no key, or a `p` of 0): the tensor itself, as in PyTorch.
    /// Derivative: dx = dy where the channel stays, divided by 1 − p; 0 elsewhere.
    ///
    /// ```
    /// use pullback::{Key, Tensor};
    /// let y = Tensor::ones([1, 4, 2]).channel_dropout(0.5, 1, Some(&Key::new(0)));
    /// // A channel is dropped as a whole, or doubled.
    /// assert_eq!(y.min_over(2).to_vec::<f32>(), y.max_over(2).to_vec::<f32>());
    /// ```
    ///
    /// # Panics
    /// If `p` is not between 0 and 1, or the tensor does not have that many axes besides its
    /// channels.
    #[doc(alias = "dropout1d")]
    #[doc(alias = "dropout2d")]
    #[doc(alias = "dropout3d")]
    #[track_caller]
    #[must_use]
    pub fn channel_dropout(&self, p: f64, spatial: usize, key: Option<&Key>) -> Tensor {
        let lead = self.channels_before("channel_dropout", spatial);
        self.dropped("channel_dropout", p, key, Some(lead))
    }

    #[track_caller]
    fn channels_before(&self, op: &'static str, spatial: usize) -> usize {
        match self.rank().checked_sub(spatial) {
            Some(lead @ 1..=2) => lead,
            _ => {
                let message =
                    format!("takes [n, c] and {spatial} more axes, or no n, not {}", self.spec());
                self.checked(Err(Error::shape(op, message).on([self.spec()])))
            }
        }
    }

    #[track_caller]
    fn alpha_dropped(
        &self,
        op: &'static str,
        p: f64,
        key: Option<&Key>,
        lead: Option<usize>,
    ) -> Tensor {
        self.check_rate(op, p);
        match key {
            None => self.clone(),
            Some(_) if p == 0.0 => self.clone(),
            Some(_) if p == 1.0 => self * 0.0,
            Some(key) => {
                let kept = self.kept_by(p, key, lead);
                // Mean and variance are preserved.
                let a = 1.0 / ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt();
                let filler = (&kept - 1.0) * (-ALPHA * a) - ALPHA * a * p;
                self * (kept * a) + filler
            }
        }
    }

    /// [`Tensor::dropout`] for selu networks: a dropped element becomes −λα, and the whole is
    /// scaled and moved so that mean and variance stay.
    ///
    /// A view where nothing is dropped (no key, or a `p` of 0): the tensor itself, as in PyTorch.
    /// Derivative: dx = a·dy where the element stays, with the scale a; 0 elsewhere.
    ///
    /// ```
    /// use pullback::{Key, Tensor};
    /// let x = Tensor::zeros([8]);
    /// assert_eq!(x.alpha_dropout(0.5, Some(&Key::new(0))).shape(), [8]);
    /// // Without a key (evaluation) nothing is dropped.
    /// assert_eq!(x.alpha_dropout(0.5, None).to_vec::<f32>(), [0.0; 8]);
    /// ```
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[track_caller]
    #[must_use]
    pub fn alpha_dropout(&self, p: f64, key: Option<&Key>) -> Tensor {
        self.alpha_dropped("alpha_dropout", p, key, None)
    }

    /// [`Tensor::alpha_dropout`] of whole channels (axis 1).
    ///
    /// A view where nothing is dropped (no key, or a `p` of 0): the tensor itself, as in PyTorch.
    /// Derivative: dx = a·dy where the channel stays, with the scale a; 0 elsewhere.
    ///
    /// ```
    /// use pullback::{Key, Tensor};
    /// let y = Tensor::zeros([1, 4, 2]).feature_alpha_dropout(0.5, Some(&Key::new(0)));
    /// assert_eq!(y.min_over(2).to_vec::<f32>(), y.max_over(2).to_vec::<f32>());
    /// ```
    ///
    /// # Panics
    /// If `p` is not between 0 and 1, or there is no axis 1.
    #[track_caller]
    #[must_use]
    pub fn feature_alpha_dropout(&self, p: f64, key: Option<&Key>) -> Tensor {
        if key.is_some() && self.rank() < 2 {
            let message = format!("takes [n, c, …], not {}", self.spec());
            let error = Error::shape("feature_alpha_dropout", message);
            return self.checked(Err(error.on([self.spec()])));
        }
        self.alpha_dropped("feature_alpha_dropout", p, key, Some(2))
    }

    /// x above 0, slope · x below, with a slope drawn for each element between `lower` and `upper`;
    /// without a key (evaluation) their mean.
    ///
    /// Derivative: 1 above 0, the slope elsewhere.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([-2.0, 3.0]);
    /// assert_eq!(x.rrelu(0.25, 0.75, None).to_vec::<f64>(), [-1.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If `lower` is above `upper`.
    #[track_caller]
    #[must_use]
    pub fn rrelu(&self, lower: f64, upper: f64, key: Option<&Key>) -> Tensor {
        if lower.is_nan() || upper.is_nan() || lower > upper {
            let message =
                format!("the lower slope must not be above the upper one: {lower}, {upper}");
            return self.checked(Err(Error::argument("rrelu", message).on([self.spec()])));
        }
        match key {
            None => self.leaky_relu((lower + upper) / 2.0),
            Some(key) => {
                let slope = key.uniform(self.shape(), self.real_dtype(), 0.0, 1.0)
                    * (upper - lower)
                    + lower;
                self.gt(0.0).select(self, &(self * slope))
            }
        }
    }

    /// A sample of a categorical distribution that can be differentiated: softmax((x + g)/tau)
    /// along an axis, with Gumbel noise g. With `hard` the value is one-hot, while the gradient is
    /// still that of the softmax: a [straight-through](Tensor::straight_through) estimator.
    ///
    /// Derivative: of softmax, divided by tau.
    ///
    /// ```
    /// # use pullback::{Key, Tensor};
    /// let y = Tensor::zeros([2, 4]).gumbel_softmax(1.0, true, -1, &Key::new(0));
    /// assert_eq!(y.sum().item::<f32>(), 2.0);
    /// ```
    ///
    /// # Panics
    /// If `tau` is not a positive number, or the axis is empty and `hard` is set.
    #[track_caller]
    #[must_use]
    pub fn gumbel_softmax(&self, tau: f64, hard: bool, axis: isize, key: &Key) -> Tensor {
        self.check_positive("gumbel_softmax", "the temperature", tau);
        let x = self.wide();
        // −log(−log u): a draw of exactly 0 is clamped to the smallest number.
        let u =
            key.uniform(self.shape(), x.dtype(), 0.0, 1.0).clamp_min(f64::from(f32::MIN_POSITIVE));
        let noise = -(-u.log()).log();
        let soft = ((x + noise) / tau).softmax(axis);
        let y = match hard && self.rank() > 0 {
            true => {
                let axis = soft.axis("gumbel_softmax", axis);
                let classes = soft.shape()[axis];
                if classes == 0 {
                    let error = Error::shape("gumbel_softmax", "there is nothing to choose from");
                    self.checked(Err(error.on([self.spec()])))
                }
                soft.straight_through(move |soft| {
                    let best = soft.argmax(axis as isize).one_hot_unchecked(classes, soft.dtype());
                    best.move_axis(-1, axis as isize)
                })
            }
            false => soft,
        };
        y.cast(self.real_dtype())
    }
}
