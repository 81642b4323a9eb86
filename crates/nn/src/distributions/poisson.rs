//! [`Poisson`].

use super::Distribution;
use super::arguments::{broadcast, extended, or_safe, require, within};
use super::distribution::described;
use crate::refuse::{called, refuse};
use pullback::{DType, Error, Key, Operand, Tensor, no_grad};

/// Halvings of the interval in which a draw is looked for: enough for rates up to 10¹².
const HALVINGS: usize = 26;

/// The Poisson distribution, of mean `rate`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Distribution, Poisson};
/// let d = Poisson::new(2.0);
/// let p = d.log_prob(&Tensor::from([0.0, 2.0])).exp().to_vec::<f64>();
/// assert!((p[0] - (-2f64).exp()).abs() < 1e-7 && (p[1] / p[0] - 2.0).abs() < 1e-6);
/// ```
#[derive(Clone, Debug)]
pub struct Poisson {
    /// The mean.
    pub rate: Tensor,
}

impl Poisson {
    /// A Poisson distribution with this mean.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Poisson};
    /// let d = Poisson::new(Tensor::from([0.0, 4.0]));
    /// assert_eq!(d.variance().to_vec::<f64>(), [0.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If `rate` is negative or not finite.
    #[track_caller]
    pub fn new(rate: impl Operand) -> Poisson {
        let _line = called();
        let [rate] = broadcast("Poisson", [&rate]);
        require("Poisson", ("rate", &rate), "at least 0 and finite", |x| {
            x.ge(0.0).logical_and(x.is_finite())
        });
        Poisson { rate }
    }
}

impl Distribution for Poisson {
    described!("Poisson", rate);

    fn has_rsample(&self) -> bool {
        false
    }

    /// The smallest k whose cumulative probability, Q(k + 1, rate), is at least a uniform number.
    fn sample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let shape = extended(sample_shape, self.rate.shape(), &[]);
        let u = key.uniform(&shape[..], DType::F64, 0.0, 1.0);
        let drawn = no_grad(|| {
            let rate = self.rate.detach().cast(DType::F64).expand(&shape[..]);
            let spread = rate.sqrt() * 12.0 + 60.0;
            // Not above `low`, and at most `high`.
            let mut low = (&rate - &spread).floor().clamp_min(-1.0);
            let mut high = (&rate + spread).ceil();
            for _ in 0..HALVINGS {
                let middle = ((&low + &high) * 0.5).floor();
                let apart = (&high - &low).gt(1.0);
                let enough = (&middle + 1.0).clamp_min(1.0).gammaincc(&rate).ge(&u);
                high = apart.logical_and(&enough).select(&middle, &high);
                low = apart.logical_and(enough.logical_not()).select(middle, low);
            }
            high
        });
        drawn.cast(self.rate.dtype())
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let value = value.cast(value.dtype().promote(self.rate.dtype()));
        let support = value.ge(0.0).logical_and(value.floor().eq(&value));
        let k = or_safe(&support, &value, 0.0);
        within(&support, &(k.xlogy(&self.rate) - &self.rate - (&k + 1.0).lgamma()))
    }

    /// Refused: it has no closed form.
    fn entropy(&self) -> Tensor {
        refuse(Error::argument("Poisson", "the entropy has no closed form"))
    }

    fn mean(&self) -> Tensor {
        self.rate.clone()
    }

    fn variance(&self) -> Tensor {
        self.rate.clone()
    }

    /// Q(⌊k⌋ + 1, rate).
    fn cdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let value = value.cast(value.dtype().promote(self.rate.dtype()));
        let support = value.ge(0.0);
        let k = or_safe(&support, &value.floor().detach(), 0.0);
        support.select((k + 1.0).gammaincc(&self.rate), 0.0)
    }
}
