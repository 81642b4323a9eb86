//! [`LogNormal`].

use super::arguments::{or_safe, within};
use super::{Distribution, Normal};
use crate::refuse::called;
use pullback::{Device, Key, Operand, Tensor};

/// The log-normal distribution: that of eᶻ where z is normal with mean `loc` and standard deviation
/// `scale`.
///
/// ```
/// use pullback_nn::distributions::{Distribution, LogNormal};
/// let d = LogNormal::new(0.5, 1.0);
/// assert!((d.mean().item::<f32>() - 1f32.exp()).abs() < 1e-6);
/// ```
#[derive(Clone, Debug)]
pub struct LogNormal {
    /// The distribution of the logarithm.
    pub base: Normal,
}

impl LogNormal {
    /// A log-normal distribution with this mean and standard deviation of the logarithm.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, LogNormal};
    /// let d = LogNormal::new(Tensor::from(0.0), 1.0);
    /// assert_eq!(d.cdf(&Tensor::from(1.0)).item::<f64>(), 0.5);
    /// ```
    ///
    /// # Panics
    /// If the arguments do not broadcast, `loc` is not finite, or `scale` is not positive and
    /// finite.
    #[track_caller]
    pub fn new(loc: impl Operand, scale: impl Operand) -> LogNormal {
        let _line = called();
        LogNormal { base: Normal::new(loc, scale) }
    }
}

impl Distribution for LogNormal {
    fn name(&self) -> &'static str {
        "LogNormal"
    }

    fn batch_shape(&self) -> &[usize] {
        self.base.batch_shape()
    }

    fn device(&self) -> Device {
        self.base.device()
    }

    fn rsample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        self.base.rsample_with(key, sample_shape).exp()
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let support = value.gt(0.0);
        let log = or_safe(&support, value, 1.0).log();
        within(&support, &(self.base.log_prob(&log) - log))
    }

    fn entropy(&self) -> Tensor {
        self.base.entropy() + &self.base.loc
    }

    fn mean(&self) -> Tensor {
        (&self.base.loc + self.base.variance() * 0.5).exp()
    }

    fn variance(&self) -> Tensor {
        let square = self.base.variance();
        square.expm1() * (&self.base.loc * 2.0 + square).exp()
    }

    fn cdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let support = value.gt(0.0);
        let below = self.base.cdf(&or_safe(&support, value, 1.0).log());
        support.select(below, 0.0)
    }

    fn icdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        self.base.icdf(value).exp()
    }
}
