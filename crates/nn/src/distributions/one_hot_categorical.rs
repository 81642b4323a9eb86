//! [`OneHotCategorical`].

use super::{Categorical, Distribution};
use crate::refuse::called;
use pullback::{Device, Key, Operand, Tensor};

/// A [`Categorical`] distribution whose values are one-hot vectors.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Distribution, OneHotCategorical};
/// let d = OneHotCategorical::new(Tensor::from([0.0, 1.0, 0.0]));
/// assert_eq!(d.sample(&[]).to_vec::<f64>(), [0.0, 1.0, 0.0]);
/// assert_eq!(d.event_shape(), [3]);
/// ```
#[derive(Clone, Debug)]
pub struct OneHotCategorical {
    /// The distribution of the class.
    pub base: Categorical,
}

impl OneHotCategorical {
    /// A distribution over one-hot vectors with these class probabilities `[.., k]`, which need not
    /// sum to 1.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, OneHotCategorical};
    /// let d = OneHotCategorical::new(Tensor::from([1.0, 3.0]));
    /// assert_eq!(d.mean().to_vec::<f64>(), [0.25, 0.75]);
    /// ```
    ///
    /// # Panics
    /// As [`Categorical::new`].
    #[track_caller]
    pub fn new(probs: impl Operand) -> OneHotCategorical {
        let _line = called();
        OneHotCategorical { base: Categorical::new(probs) }
    }

    /// A distribution over one-hot vectors with these unnormalised logarithms of the class
    /// probabilities `[.., k]`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, OneHotCategorical};
    /// let d = OneHotCategorical::with_logits(Tensor::from([7.0, 7.0]));
    /// assert_eq!(d.mean().to_vec::<f64>(), [0.5, 0.5]);
    /// ```
    ///
    /// # Panics
    /// As [`Categorical::with_logits`].
    #[doc(alias = "logits")]
    #[track_caller]
    pub fn with_logits(logits: impl Operand) -> OneHotCategorical {
        let _line = called();
        OneHotCategorical { base: Categorical::with_logits(logits) }
    }
}

impl Distribution for OneHotCategorical {
    fn name(&self) -> &'static str {
        "OneHotCategorical"
    }

    fn batch_shape(&self) -> &[usize] {
        self.base.batch_shape()
    }

    fn event_shape(&self) -> &[usize] {
        let probs = self.base.probs();
        &probs.shape()[probs.rank() - 1..]
    }

    fn device(&self) -> Device {
        self.base.device()
    }

    fn has_rsample(&self) -> bool {
        false
    }

    fn sample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let class = self.base.sample_with(key, sample_shape);
        class.one_hot(self.base.num_classes(), self.base.probs().dtype())
    }

    /// −∞ for what is not one 1 among zeros.
    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let ones = value.eq(1.0);
        let support = ones.logical_or(value.eq(0.0)).all_over(-1);
        let support = support.logical_and(ones.sum_over(-1).eq(1));
        let log = ones.select(self.base.logits(), 0.0).sum_over(-1);
        support.select(log, f64::NEG_INFINITY)
    }

    fn entropy(&self) -> Tensor {
        self.base.entropy()
    }

    fn mean(&self) -> Tensor {
        self.base.probs().clone()
    }

    fn variance(&self) -> Tensor {
        let probs = self.base.probs();
        probs * (1.0 - probs)
    }
}
