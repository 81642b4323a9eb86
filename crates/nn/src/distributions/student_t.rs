//! [`StudentT`].

use super::arguments::{broadcast, extended, finite, positive};
use super::distribution::described;
use super::{Distribution, gamma_quantile};
use crate::refuse::called;
use pullback::{DType, Key, Operand, Tensor};
use std::f64::consts::PI;

/// Student's t-distribution with `df` degrees of freedom, centre `loc` and scale `scale`.
///
/// ```
/// use pullback_nn::distributions::{Distribution, StudentT};
/// let d = StudentT::new(3.0, 1.0, 2.0);
/// assert_eq!((d.mean().item::<f32>(), d.variance().item::<f32>()), (1.0, 12.0));
/// assert!(StudentT::new(1.0, 0.0, 1.0).mean().is_nan().item::<bool>());
/// ```
#[derive(Clone, Debug)]
pub struct StudentT {
    /// The degrees of freedom.
    pub df: Tensor,
    /// The centre.
    pub loc: Tensor,
    /// The scale.
    pub scale: Tensor,
}

impl StudentT {
    /// A Student's t-distribution with these degrees of freedom, centre and scale.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, StudentT};
    /// let d = StudentT::new(Tensor::from(4.0), 1.0, 2.0);
    /// assert_eq!((d.mean().item::<f64>(), d.variance().item::<f64>()), (1.0, 8.0));
    /// ```
    ///
    /// # Panics
    /// If the arguments do not broadcast, `loc` is not finite, or `df` or `scale` is not positive
    /// and finite.
    #[track_caller]
    pub fn new(df: impl Operand, loc: impl Operand, scale: impl Operand) -> StudentT {
        let _line = called();
        let [df, loc, scale] = broadcast("StudentT", [&df, &loc, &scale]);
        positive("StudentT", ("df", &df));
        finite("StudentT", ("loc", &loc));
        positive("StudentT", ("scale", &scale));
        StudentT { df, loc, scale }
    }
}

impl Distribution for StudentT {
    described!("StudentT", df);

    /// A normal variate over the root of a gamma variate, both with gradients.
    fn rsample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let shape = extended(sample_shape, self.df.shape(), &[]);
        let (normal, gamma) = key.split();
        let half = self.df.cast(DType::F64) * 0.5;
        let log = gamma_quantile::log_variate(&gamma, &half, &shape) - half.log();
        let z = normal.normal(&shape[..], DType::F64, 0.0, 1.0) * (log * -0.5).exp();
        &self.loc + &self.scale * z.cast(self.df.dtype())
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let (df, z) = (&self.df, (value - &self.loc) / &self.scale);
        let constant = ((df + 1.0) * 0.5).lgamma() - (df * 0.5).lgamma() - 0.5 * (df * PI).log();
        constant - self.scale.log() - (df + 1.0) * 0.5 * (z.square() / df).log1p()
    }

    fn entropy(&self) -> Tensor {
        let (half, more) = (&self.df * 0.5, (&self.df + 1.0) * 0.5);
        let betaln = half.betaln(&half.full_like(0.5));
        self.scale.log() + &more * (more.digamma() - half.digamma()) + 0.5 * self.df.log() + betaln
    }

    fn mean(&self) -> Tensor {
        self.df.gt(1.0).select(&self.loc, f64::NAN)
    }

    fn variance(&self) -> Tensor {
        let known = self.df.gt(2.0);
        let df = known.select(&self.df, 3.0);
        let variance = self.scale.square() * &df / (&df - 2.0);
        let none = self.df.gt(1.0).select(self.df.full_like(f64::INFINITY), f64::NAN);
        known.select(variance, none)
    }
}
