//! [`Exponential`].

use super::Distribution;
use super::arguments::{broadcast, extended, or_safe, positive, within};
use super::distribution::described;
use crate::refuse::called;
use pullback::{Key, Operand, Tensor};

/// The exponential distribution, of mean 1/`rate`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Distribution, Exponential};
/// let d = Exponential::new(2.0);
/// let y = d.icdf(&Tensor::from(0.5)).item::<f64>();
/// assert!((y - 2f64.ln() / 2.0).abs() < 1e-15);
/// ```
#[derive(Clone, Debug)]
pub struct Exponential {
    /// One over the mean.
    pub rate: Tensor,
}

impl Exponential {
    /// An exponential distribution with this rate.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Exponential};
    /// let d = Exponential::new(Tensor::from([1.0, 4.0]));
    /// assert_eq!(d.mean().to_vec::<f64>(), [1.0, 0.25]);
    /// ```
    ///
    /// # Panics
    /// If `rate` is not positive and finite.
    #[track_caller]
    pub fn new(rate: impl Operand) -> Exponential {
        let _line = called();
        let [rate] = broadcast("Exponential", [&rate]);
        positive("Exponential", ("rate", &rate));
        Exponential { rate }
    }
}

impl Distribution for Exponential {
    described!("Exponential", rate);

    fn rsample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let shape = extended(sample_shape, self.rate.shape(), &[]);
        let u = key.uniform(&shape[..], self.rate.dtype(), 0.0, 1.0);
        -(-u).log1p() / &self.rate
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let support = value.ge(0.0);
        within(&support, &(self.rate.log() - &self.rate * or_safe(&support, value, 0.0)))
    }

    fn entropy(&self) -> Tensor {
        1.0 - self.rate.log()
    }

    fn mean(&self) -> Tensor {
        self.rate.recip()
    }

    fn variance(&self) -> Tensor {
        self.rate.square().recip()
    }

    fn stddev(&self) -> Tensor {
        self.rate.recip()
    }

    fn cdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let support = value.ge(0.0);
        support.select(-(-&self.rate * or_safe(&support, value, 0.0)).expm1(), 0.0)
    }

    fn icdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let inside = value.ge(0.0).logical_and(value.le(1.0));
        inside.select(-(-or_safe(&inside, value, 0.5)).log1p() / &self.rate, f64::NAN)
    }
}
