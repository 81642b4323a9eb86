//! [`Normal`].

use super::Distribution;
use super::arguments::{broadcast, extended, finite, positive};
use super::distribution::described;
use crate::refuse::called;
use pullback::{Key, Operand, Tensor};
use std::f64::consts::PI;

/// The normal distribution of mean `loc` and standard deviation `scale`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Distribution, Normal};
/// let d = Normal::new(1.0, Tensor::from([1.0, 2.0]));
/// let y = d.log_prob(&Tensor::from(1.0)).to_vec::<f64>();
/// assert!((y[0] + 0.9189385332046727).abs() < 1e-15);
/// assert!((y[1] + 0.9189385332046727 + 2f64.ln()).abs() < 1e-15);
/// ```
#[derive(Clone, Debug)]
pub struct Normal {
    /// The mean.
    pub loc: Tensor,
    /// The standard deviation.
    pub scale: Tensor,
}

impl Normal {
    /// A normal distribution with this mean and standard deviation.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Normal};
    /// let d = Normal::new(1.0, Tensor::from([1.0, 2.0]));
    /// assert_eq!(d.variance().to_vec::<f64>(), [1.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If the arguments do not broadcast, `loc` is not finite, or `scale` is not positive and
    /// finite.
    #[track_caller]
    pub fn new(loc: impl Operand, scale: impl Operand) -> Normal {
        let _line = called();
        let [loc, scale] = broadcast("Normal", [&loc, &scale]);
        finite("Normal", ("loc", &loc));
        positive("Normal", ("scale", &scale));
        Normal { loc, scale }
    }
}

/// The standard normal distribution.
impl Default for Normal {
    fn default() -> Normal {
        Normal::new(0.0, 1.0)
    }
}

impl Distribution for Normal {
    described!("Normal", loc);

    fn rsample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let shape = extended(sample_shape, self.loc.shape(), &[]);
        &self.loc + &self.scale * key.normal(&shape[..], self.loc.dtype(), 0.0, 1.0)
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let z = (value - &self.loc) / &self.scale;
        z.square() * -0.5 - self.scale.log() - 0.5 * (2.0 * PI).ln()
    }

    fn entropy(&self) -> Tensor {
        self.scale.log() + 0.5 * (1.0 + (2.0 * PI).ln())
    }

    fn mean(&self) -> Tensor {
        self.loc.clone()
    }

    fn variance(&self) -> Tensor {
        self.scale.square()
    }

    fn stddev(&self) -> Tensor {
        self.scale.clone()
    }

    fn cdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        ((value - &self.loc) / &self.scale).ndtr()
    }

    fn icdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        &self.loc + &self.scale * value.ndtri()
    }
}
