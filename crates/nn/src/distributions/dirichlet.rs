//! [`Dirichlet`].

use super::arguments::{axes, bounds_of_unit, extended, floats, or_safe, positive, within};
use super::{Distribution, gamma_quantile};
use crate::refuse::called;
use pullback::{Device, Key, Operand, Tensor};

/// The Dirichlet distribution over vectors of probabilities: the last axis of `concentration` is
/// that of the vectors.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Dirichlet, Distribution};
/// let d = Dirichlet::new(Tensor::from([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]]));
/// assert_eq!((d.batch_shape(), d.event_shape()), (&[2][..], &[3][..]));
/// let x = d.sample(&[4]);
/// assert!((x.sum_over(-1) - 1.0).abs().max().item::<f64>() < 1e-12);
/// ```
#[derive(Clone, Debug)]
pub struct Dirichlet {
    /// The concentrations, `[.., k]`.
    pub concentration: Tensor,
}

impl Dirichlet {
    /// A Dirichlet distribution with these concentrations `[.., k]`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Dirichlet, Distribution};
    /// let d = Dirichlet::new(Tensor::from([1.0, 1.0, 2.0]));
    /// assert_eq!(d.mean().to_vec::<f64>(), [0.25, 0.25, 0.5]);
    /// ```
    ///
    /// # Panics
    /// If `concentration` has no axis, or is not positive and finite.
    #[track_caller]
    pub fn new(concentration: impl Operand) -> Dirichlet {
        let _line = called();
        let [concentration] = floats([&concentration]);
        axes("Dirichlet", ("concentration", &concentration), 1);
        positive("Dirichlet", ("concentration", &concentration));
        Dirichlet { concentration }
    }
}

impl Distribution for Dirichlet {
    fn name(&self) -> &'static str {
        "Dirichlet"
    }

    fn batch_shape(&self) -> &[usize] {
        &self.concentration.shape()[..self.concentration.rank() - 1]
    }

    fn event_shape(&self) -> &[usize] {
        &self.concentration.shape()[self.concentration.rank() - 1..]
    }

    fn device(&self) -> Device {
        self.concentration.device()
    }

    fn rsample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let a = &self.concentration;
        let log = gamma_quantile::log_variate(key, a, &extended(sample_shape, a.shape(), &[]));
        log.softmax(-1).cast(a.dtype()).clamp_min(bounds_of_unit(a.dtype()).0)
    }

    /// Whether the values sum to 1 is not checked; they must be from 0 to 1.
    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let a = &self.concentration;
        let support = value.ge(0.0).logical_and(value.le(1.0));
        let x = or_safe(&support, value, 0.5);
        let y =
            (a - 1.0).xlogy(&x).sum_over(-1) + a.sum_over(-1).lgamma() - a.lgamma().sum_over(-1);
        within(&support.all_over(-1), &y)
    }

    fn entropy(&self) -> Tensor {
        let a = &self.concentration;
        let (k, total) = (self.event_shape()[0] as f64, a.sum_over(-1));
        a.lgamma().sum_over(-1)
            - total.lgamma()
            - (k - &total) * total.digamma()
            - ((a - 1.0) * a.digamma()).sum_over(-1)
    }

    fn mean(&self) -> Tensor {
        &self.concentration / self.concentration.sum_keep(-1)
    }

    fn variance(&self) -> Tensor {
        let mean = self.mean();
        &mean * (1.0 - &mean) / (self.concentration.sum_keep(-1) + 1.0)
    }
}
