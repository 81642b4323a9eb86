//! [`Uniform`].

use super::Distribution;
use super::arguments::{broadcast, extended, finite, require, within};
use super::distribution::described;
use crate::refuse::called;
use pullback::{Key, Operand, Tensor};

/// The uniform distribution on [low, high).
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Distribution, Uniform};
/// let d = Uniform::new(-1.0, Tensor::from([1.0, 3.0]));
/// assert_eq!(d.cdf(&Tensor::from(0.0)).to_vec::<f64>(), [0.5, 0.25]);
/// ```
#[derive(Clone, Debug)]
pub struct Uniform {
    /// The lower end.
    pub low: Tensor,
    /// The upper end.
    pub high: Tensor,
}

impl Uniform {
    /// A uniform distribution on the interval between these ends.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Uniform};
    /// let d = Uniform::new(0.0, Tensor::from([1.0, 4.0]));
    /// assert_eq!(d.mean().to_vec::<f64>(), [0.5, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the arguments do not broadcast or are not finite, or `low` is not below `high`.
    #[track_caller]
    pub fn new(low: impl Operand, high: impl Operand) -> Uniform {
        let _line = called();
        let [low, high] = broadcast("Uniform", [&low, &high]);
        finite("Uniform", ("low", &low));
        finite("Uniform", ("high", &high));
        require("Uniform", ("low", &low), "below high", |low| low.lt(high.detach()));
        Uniform { low, high }
    }

    fn length(&self) -> Tensor {
        &self.high - &self.low
    }
}

impl Distribution for Uniform {
    described!("Uniform", low);

    fn rsample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let shape = extended(sample_shape, self.low.shape(), &[]);
        &self.low + self.length() * key.uniform(&shape[..], self.low.dtype(), 0.0, 1.0)
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let support = value.ge(&self.low).logical_and(value.lt(&self.high));
        within(&support, &-self.length().log())
    }

    fn entropy(&self) -> Tensor {
        self.length().log()
    }

    fn mean(&self) -> Tensor {
        (&self.low + &self.high) * 0.5
    }

    fn variance(&self) -> Tensor {
        self.length().square() / 12.0
    }

    fn cdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        ((value - &self.low) / self.length()).clamp(0.0, 1.0)
    }

    fn icdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let inside = value.ge(0.0).logical_and(value.le(1.0));
        inside.select(&self.low + self.length() * value, f64::NAN)
    }
}
