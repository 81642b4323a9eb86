//! [`Laplace`].

use super::Distribution;
use super::arguments::{broadcast, extended, finite, or_safe, positive};
use super::distribution::described;
use crate::refuse::called;
use pullback::{Key, Operand, Tensor};
use std::f64::consts::{LN_2, SQRT_2};

/// The Laplace distribution, of density exp(−|x − loc|/scale) / (2·scale).
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Distribution, Laplace};
/// let d = Laplace::new(0.0, 1.0);
/// assert_eq!(d.variance().item::<f32>(), 2.0);
/// assert_eq!(d.icdf(&Tensor::from(0.5)).item::<f64>(), 0.0);
/// ```
#[derive(Clone, Debug)]
pub struct Laplace {
    /// The mean.
    pub loc: Tensor,
    /// The scale: the mean absolute deviation.
    pub scale: Tensor,
}

impl Laplace {
    /// A Laplace distribution with this mean and scale.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Laplace};
    /// let d = Laplace::new(1.0, Tensor::from([1.0, 3.0]));
    /// assert_eq!(d.variance().to_vec::<f64>(), [2.0, 18.0]);
    /// ```
    ///
    /// # Panics
    /// If the arguments do not broadcast, `loc` is not finite, or `scale` is not positive and
    /// finite.
    #[track_caller]
    pub fn new(loc: impl Operand, scale: impl Operand) -> Laplace {
        let _line = called();
        let [loc, scale] = broadcast("Laplace", [&loc, &scale]);
        finite("Laplace", ("loc", &loc));
        positive("Laplace", ("scale", &scale));
        Laplace { loc, scale }
    }

    /// The value at `u` from −1 to 1.
    fn at(&self, u: &Tensor) -> Tensor {
        &self.loc - &self.scale * (u.sign() * (-u.abs()).log1p())
    }
}

impl Distribution for Laplace {
    described!("Laplace", loc);

    fn rsample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let (dtype, shape) = (self.loc.dtype(), extended(sample_shape, self.loc.shape(), &[]));
        let (size, sign) = key.split();
        let size = -(-size.uniform(&shape[..], dtype, 0.0, 1.0)).log1p();
        let sign = sign.uniform(&shape[..], dtype, -1.0, 1.0);
        &self.loc + &self.scale * size.copysign(sign)
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        -(value - &self.loc).abs() / &self.scale - self.scale.log() - LN_2
    }

    fn entropy(&self) -> Tensor {
        self.scale.log() + (1.0 + LN_2)
    }

    fn mean(&self) -> Tensor {
        self.loc.clone()
    }

    fn variance(&self) -> Tensor {
        self.scale.square() * 2.0
    }

    fn stddev(&self) -> Tensor {
        &self.scale * SQRT_2
    }

    fn cdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let away = value - &self.loc;
        0.5 - away.sign() * (-away.abs() / &self.scale).expm1() * 0.5
    }

    fn icdf(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let inside = value.ge(0.0).logical_and(value.le(1.0));
        inside.select(self.at(&(or_safe(&inside, value, 0.5) * 2.0 - 1.0)), f64::NAN)
    }
}
