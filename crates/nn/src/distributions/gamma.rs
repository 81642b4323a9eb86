//! [`Gamma`].

use super::arguments::{bounds_of_unit, broadcast, extended, floats, or_safe, positive, within};
use super::distribution::described;
use super::{Distribution, gamma_quantile};
use crate::refuse::called;
use pullback::{DType, Key, Operand, Tensor, broadcast_tensors};

/// The gamma distribution of shape `concentration` and rate `rate`: its mean is their quotient.
///
/// Reparametrised samples have gradients with respect to both arguments, and so has the
/// distribution function.
///
/// ```
/// use pullback::{Key, Tensor, grad};
/// use pullback_nn::distributions::{Distribution, Gamma};
/// // The mean of the draws is the concentration: its slope is 1.
/// let mean = |a: &Tensor| Gamma::new(a, 1.0).rsample_with(&Key::new(0), &[20_000]).mean();
/// assert!((grad(mean)(&Tensor::from(2.5)).item::<f64>() - 1.0).abs() < 0.02);
/// ```
#[derive(Clone, Debug)]
pub struct Gamma {
    /// The shape.
    pub concentration: Tensor,
    /// The rate: one over the scale.
    pub rate: Tensor,
}

impl Gamma {
    /// A gamma distribution with this shape and rate.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Gamma};
    /// let d = Gamma::new(Tensor::from([1.0, 3.0]), 2.0);
    /// assert_eq!(d.mean().to_vec::<f64>(), [0.5, 1.5]);
    /// ```
    ///
    /// # Panics
    /// If the arguments do not broadcast, or are not positive and finite.
    #[track_caller]
    pub fn new(concentration: impl Operand, rate: impl Operand) -> Gamma {
        let _line = called();
        let [concentration, rate] = broadcast("Gamma", [&concentration, &rate]);
        positive("Gamma", ("concentration", &concentration));
        positive("Gamma", ("rate", &rate));
        Gamma { concentration, rate }
    }
}

impl Distribution for Gamma {
    described!("Gamma", concentration);

    /// A draw that would be 0 in its dtype is the smallest positive number instead.
    fn rsample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let (a, dtype) = (&self.concentration, self.rate.dtype());
        let log = gamma_quantile::log_variate(key, a, &extended(sample_shape, a.shape(), &[]));
        let x = (log - self.rate.cast(DType::F64).log()).exp();
        x.cast(dtype).clamp_min(bounds_of_unit(dtype).0)
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let (a, rate) = (&self.concentration, &self.rate);
        let support = value.ge(0.0);
        let x = or_safe(&support, value, 1.0);
        within(&support, &((a * rate.log() + (a - 1.0).xlogy(&x)) - rate * x - a.lgamma()))
    }

    fn entropy(&self) -> Tensor {
        let a = &self.concentration;
        a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()
    }

    fn mean(&self) -> Tensor {
        &self.concentration / &self.rate
    }

    fn variance(&self) -> Tensor {
        &self.concentration / self.rate.square()
    }

    fn cdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let [value] = floats([value]);
        let support = value.ge(0.0);
        let x = or_safe(&support, &value, 0.0) * &self.rate;
        let both = broadcast_tensors(&[&self.concentration, &x]);
        let below = gamma_quantile::cdf(&both[0].cast(DType::F64), &both[1].cast(DType::F64));
        support.select(below.cast(x.dtype()), 0.0)
    }

    fn icdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let [value] = floats([value]);
        let dtype = value.dtype().promote(self.rate.dtype());
        let u = value.cast(DType::F64);
        let both = broadcast_tensors(&[&self.concentration.cast(DType::F64), &u]);
        let (a, u) = (&both[0], &both[1]);
        let inside = u.gt(0.0).logical_and(u.lt(1.0));
        let x = gamma_quantile::log_quantile(a, &or_safe(&inside, u, 0.5)).exp();
        let end = u.eq(0.0).select(0.0, u.eq(1.0).select(u.full_like(f64::INFINITY), f64::NAN));
        (inside.select(x, end) / self.rate.cast(DType::F64)).cast(dtype)
    }
}
