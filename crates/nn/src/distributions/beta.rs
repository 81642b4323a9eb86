//! [`Beta`].

use super::arguments::{bounds_of_unit, broadcast, extended, or_safe, positive, within};
use super::distribution::described;
use super::{Distribution, gamma_quantile};
use crate::refuse::called;
use pullback::{Key, Operand, Tensor};

/// The beta distribution on (0, 1): of density proportional to x^(concentration1 − 1) ·
/// (1 − x)^(concentration0 − 1).
///
/// ```
/// use pullback_nn::distributions::{Beta, Distribution};
/// let d = Beta::new(2.0, 6.0);
/// assert_eq!(d.mean().item::<f32>(), 0.25);
/// ```
#[derive(Clone, Debug)]
pub struct Beta {
    /// The first concentration, often called α.
    pub concentration1: Tensor,
    /// The second, often called β.
    pub concentration0: Tensor,
}

impl Beta {
    /// A beta distribution with concentrations α and β.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Beta, Distribution};
    /// let d = Beta::new(Tensor::from([1.0, 2.0]), 3.0);
    /// assert_eq!(d.mean().to_vec::<f64>(), [0.25, 0.4]);
    /// ```
    ///
    /// # Panics
    /// If the arguments do not broadcast, or are not positive and finite.
    #[track_caller]
    pub fn new(concentration1: impl Operand, concentration0: impl Operand) -> Beta {
        let _line = called();
        let [a, b] = broadcast("Beta", [&concentration1, &concentration0]);
        positive("Beta", ("concentration1", &a));
        positive("Beta", ("concentration0", &b));
        Beta { concentration1: a, concentration0: b }
    }

    pub(super) fn total(&self) -> Tensor {
        &self.concentration1 + &self.concentration0
    }
}

impl Distribution for Beta {
    described!("Beta", concentration1);

    /// G₁/(G₁ + G₀) of two gamma variates, strictly between 0 and 1.
    fn rsample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let (a, b) = (&self.concentration1, &self.concentration0);
        let shape = extended(sample_shape, a.shape(), &[]);
        let (first, second) = key.split();
        let log = gamma_quantile::log_variate(&first, a, &shape)
            - gamma_quantile::log_variate(&second, b, &shape);
        let (low, high) = bounds_of_unit(a.dtype());
        log.sigmoid().cast(a.dtype()).clamp(low, high)
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let (a, b) = (&self.concentration1, &self.concentration0);
        let support = value.ge(0.0).logical_and(value.le(1.0));
        let x = or_safe(&support, value, 0.5);
        let y = (a - 1.0).xlogy(&x) + (b - 1.0).xlog1py(&-x) - a.betaln(b);
        within(&support, &y)
    }

    fn entropy(&self) -> Tensor {
        let (a, b, total) = (&self.concentration1, &self.concentration0, self.total());
        a.betaln(b) - (a - 1.0) * a.digamma() - (b - 1.0) * b.digamma()
            + (&total - 2.0) * total.digamma()
    }

    fn mean(&self) -> Tensor {
        &self.concentration1 / self.total()
    }

    fn variance(&self) -> Tensor {
        let total = self.total();
        &self.concentration1 * &self.concentration0 / (total.square() * (&total + 1.0))
    }
}
