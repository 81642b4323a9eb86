//! [`MultivariateNormal`].

use super::Distribution;
use super::arguments::{axes, extended, finite, floats, require};
use crate::refuse::{called, refuse};
use pullback::linalg::{cholesky, solve_triangular};
use pullback::{Device, Error, Key, Operand, Tensor, catch};
use std::f64::consts::PI;

/// The multivariate normal distribution, of mean `loc` and a covariance matrix.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Distribution, MultivariateNormal};
/// let covariance = Tensor::from([[4.0, 1.0], [1.0, 2.0]]);
/// let d = MultivariateNormal::new(Tensor::from([1.0, -1.0]), &covariance);
/// assert_eq!((d.sample(&[5]).shape(), d.event_shape()), (&[5, 2][..], &[2][..]));
/// let peak = d.log_prob(&d.mean()).item::<f64>();
/// assert!((peak + (2.0 * std::f64::consts::PI * 7f64.sqrt()).ln()).abs() < 1e-14);
/// ```
#[derive(Clone, Debug)]
pub struct MultivariateNormal {
    /// The mean, `[.., k]`.
    pub loc: Tensor,
    /// The Cholesky factor: the lower triangular L with L·Lᵀ the covariance, `[.., k, k]`.
    pub scale_tril: Tensor,
}

const NAME: &str = "MultivariateNormal";

impl MultivariateNormal {
    /// A normal distribution with this mean `[.., k]` and covariance matrix `[.., k, k]`, of which
    /// the lower triangle is read.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, MultivariateNormal};
    /// let covariance = Tensor::from([[4.0, 1.0], [1.0, 2.0]]);
    /// let d = MultivariateNormal::new(Tensor::from([1.0, -1.0]), &covariance);
    /// assert_eq!(d.mean().to_vec::<f64>(), [1.0, -1.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, `loc` is not finite, or the matrix is not positive definite.
    #[track_caller]
    pub fn new(loc: impl Operand, covariance_matrix: impl Operand) -> MultivariateNormal {
        let _line = called();
        let [loc, covariance] = square([&loc, &covariance_matrix], "covariance_matrix");
        let factor = factored(&covariance, "covariance_matrix");
        MultivariateNormal::of(loc, factor)
    }

    /// A normal distribution with this mean and lower triangular Cholesky factor of the covariance.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, MultivariateNormal};
    /// let l = Tensor::from([[2.0, 0.0], [0.5, 1.0]]);
    /// let d = MultivariateNormal::with_scale_tril(Tensor::zeros([2]), &l);
    /// assert_eq!(d.covariance_matrix().to_vec::<f64>(), [4.0, 1.0, 1.0, 1.25]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or the diagonal is not positive. What is above it is not read.
    #[doc(alias = "scale_tril")]
    #[track_caller]
    pub fn with_scale_tril(loc: impl Operand, scale_tril: impl Operand) -> MultivariateNormal {
        let _line = called();
        let [loc, factor] = square([&loc, &scale_tril], "scale_tril");
        require(
            NAME,
            ("the diagonal of scale_tril", &factor.diagonal_of(0, -2, -1)),
            "positive",
            |x| x.gt(0.0),
        );
        MultivariateNormal::of(loc, factor.tril(0))
    }

    /// A normal distribution with this mean and precision matrix, the inverse of the covariance.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, MultivariateNormal};
    /// let precision = Tensor::from([[0.25, 0.0], [0.0, 1.0]]);
    /// let d = MultivariateNormal::with_precision_matrix(Tensor::zeros([2]), &precision);
    /// assert_eq!(d.variance().to_vec::<f64>(), [4.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not fit, or the matrix is not positive definite.
    #[doc(alias = "precision_matrix")]
    #[track_caller]
    pub fn with_precision_matrix(
        loc: impl Operand,
        precision_matrix: impl Operand,
    ) -> MultivariateNormal {
        let _line = called();
        let [loc, precision] = square([&loc, &precision_matrix], "precision_matrix");
        // With both axes reversed, P = U·Uᵀ for an upper triangle U: the covariance is L·Lᵀ with
        // L = U⁻ᵀ.
        let lower = factored(&precision.flip([-2, -1]), "precision_matrix");
        let upper = lower.flip([-2, -1]).transpose(-2, -1);
        let k = loc.shape()[loc.rank() - 1];
        let unit = Tensor::eye_with(k, k, loc.dtype()).to(loc.device());
        let factor = solve_triangular(&upper, &unit, false, true, false);
        MultivariateNormal::of(loc, factor)
    }

    #[track_caller]
    fn of(loc: Tensor, scale_tril: Tensor) -> MultivariateNormal {
        finite(NAME, ("loc", &loc));
        // One batch for both.
        let batch = (loc.select_at(-1, 0) + scale_tril.select_at(-1, 0).select_at(-1, 0)).detach();
        let with = |x: &Tensor, axes: usize| {
            x.expand(&extended(batch.shape(), &x.shape()[x.rank() - axes..], &[])[..])
        };
        MultivariateNormal { loc: with(&loc, 1), scale_tril: with(&scale_tril, 2) }
    }

    /// The covariance matrix, `[.., k, k]`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::MultivariateNormal;
    /// let l = Tensor::from([[2.0, 0.0], [0.5, 1.0]]);
    /// let d = MultivariateNormal::with_scale_tril(0.0, &l);
    /// assert_eq!(d.covariance_matrix().to_vec::<f64>(), [4.0, 1.0, 1.0, 1.25]);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn covariance_matrix(&self) -> Tensor {
        self.scale_tril.matmul(&self.scale_tril.transpose(-2, -1))
    }

    /// The precision matrix, the inverse of the covariance, `[.., k, k]`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::MultivariateNormal;
    /// let d = MultivariateNormal::new(0.0, Tensor::from([[4.0, 0.0], [0.0, 1.0]]));
    /// assert_eq!(d.precision_matrix().to_vec::<f64>(), [0.25, 0.0, 0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn precision_matrix(&self) -> Tensor {
        pullback::linalg::cholesky_inverse(&self.scale_tril, false)
    }

    /// Half the logarithm of the determinant of the covariance.
    pub(super) fn half_log_det(&self) -> Tensor {
        self.scale_tril.diagonal_of(0, -2, -1).log().sum_over(-1)
    }

    /// |L⁻¹·x|² for vectors x.
    pub(super) fn mahalanobis(&self, x: &Tensor) -> Tensor {
        let white = solve_triangular(&self.scale_tril, &x.unsqueeze(-1), false, true, false);
        white.squeeze_axis(-1).square().sum_over(-1)
    }

    fn dimension(&self) -> f64 {
        self.loc.shape()[self.loc.rank() - 1] as f64
    }
}

/// A vector and a matrix that fit each other. A number stands for a vector of it.
#[track_caller]
fn square(arguments: [&dyn Operand; 2], matrix: &str) -> [Tensor; 2] {
    let [loc, m] = floats(arguments);
    axes(NAME, (matrix, &m), 2);
    let k = m.shape()[m.rank() - 1];
    let loc = if loc.rank() == 0 { loc.expand([k]) } else { loc };
    axes(NAME, ("loc", &loc), 1);
    let batches = catch(|| loc.select_at(-1, 0) + m.select_at(-1, 0).select_at(-1, 0));
    if m.shape()[m.rank() - 2] != k || loc.shape()[loc.rank() - 1] != k || batches.is_err() {
        let message = format!("{matrix} {} does not fit loc {}", m.spec(), loc.spec());
        refuse(Error::shape(NAME, message));
    }
    [loc, m]
}

#[track_caller]
fn factored(matrix: &Tensor, argument: &str) -> Tensor {
    match catch(|| cholesky(matrix, false)) {
        Ok(factor) => factor,
        Err(why) => {
            let message = format!("{argument} must be positive definite");
            refuse(Error::argument(NAME, message).on([matrix.spec()]).because(why))
        }
    }
}

impl Distribution for MultivariateNormal {
    fn name(&self) -> &'static str {
        NAME
    }

    fn batch_shape(&self) -> &[usize] {
        &self.loc.shape()[..self.loc.rank() - 1]
    }

    fn event_shape(&self) -> &[usize] {
        &self.loc.shape()[self.loc.rank() - 1..]
    }

    fn device(&self) -> Device {
        self.loc.device()
    }

    fn rsample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let shape = extended(sample_shape, self.loc.shape(), &[]);
        let noise = key.normal(&shape[..], self.loc.dtype(), 0.0, 1.0);
        &self.loc + self.scale_tril.matmul(&noise.unsqueeze(-1)).squeeze_axis(-1)
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let squares = self.mahalanobis(&(value - &self.loc));
        squares * -0.5 - self.half_log_det() - 0.5 * self.dimension() * (2.0 * PI).ln()
    }

    fn entropy(&self) -> Tensor {
        self.half_log_det() + 0.5 * self.dimension() * (1.0 + (2.0 * PI).ln())
    }

    fn mean(&self) -> Tensor {
        self.loc.clone()
    }

    fn variance(&self) -> Tensor {
        self.scale_tril.square().sum_over(-1)
    }
}
