//! Probability distributions: samples, reparametrised samples, log-probabilities, entropies and
//! divergences, with PyTorch's names (`torch.distributions`).
//!
//! A distribution has arguments that are tensors or numbers and broadcast. Their common shape is
//! its [`batch_shape`](Distribution::batch_shape): so many independent distributions, side by side.
//! One draw of one of them has the [`event_shape`](Distribution::event_shape): `[]` for numbers,
//! `[k]` for vectors. A sample is `sample_shape + batch_shape + event_shape`, a log-probability
//! `sample_shape + batch_shape`. Numbers take the dtype of the tensors beside them.
//!
//! - **Samples**: [`Distribution::sample`] draws from the global generator,
//!   [`Distribution::sample_with`] from a key. `rsample` is a differentiable function of the
//!   arguments and of noise that does not depend on them: gradients of every order, in both modes,
//!   are those of that function. For gamma variates (and so for beta, Dirichlet and Student's
//!   distribution) it is the quantile function of a uniform number.
//! - **Values outside the support** have log-probability −∞ (PyTorch raises an error). Arguments
//!   are checked where their values are known: not inside `jit`.
//! - **Nothing is read**, so every method compiles, with the results of eager mode up to rounding.
//!
//! ```
//! use pullback::{Key, Tensor, grad};
//! use pullback_nn::distributions::{Distribution, Normal, kl_divergence};
//!
//! let (loc, scale) = (Tensor::from([0.0, 1.0]), Tensor::from([1.0, 2.0]));
//! let p = Normal::new(&loc, &scale);
//! assert_eq!(p.sample(&[5]).shape(), [5, 2]);
//! assert_eq!(p.log_prob(&Tensor::from(0.5)).shape(), [2]);
//! assert_eq!(kl_divergence(&p, &Normal::new(0.0, 1.0)).to_vec::<f64>()[0], 0.0);
//!
//! // The mean of x² is μ² + σ², with slope 2μ: estimated through samples.
//! let draw = |loc: &Tensor| Normal::new(loc, 1.0).rsample_with(&Key::new(0), &[10_000]);
//! let square = |loc: &Tensor| draw(loc).square().mean();
//! assert!((grad(square)(&Tensor::from(3.0)).item::<f64>() - 6.0).abs() < 0.1);
//! ```

mod arguments;
mod bernoulli;
mod beta;
mod binomial;
mod categorical;
mod dirichlet;
mod distribution;
mod exponential;
mod gamma;
mod gamma_quantile;
mod independent;
mod kl;
mod laplace;
mod log_normal;
mod multivariate_normal;
mod normal;
mod one_hot_categorical;
mod poisson;
mod student_t;
mod uniform;

pub use bernoulli::Bernoulli;
pub use beta::Beta;
pub use binomial::Binomial;
pub use categorical::Categorical;
pub use dirichlet::Dirichlet;
pub use distribution::Distribution;
pub use exponential::Exponential;
pub use gamma::Gamma;
pub use independent::Independent;
pub use kl::{KlDivergence, kl_divergence};
pub use laplace::Laplace;
pub use log_normal::LogNormal;
pub use multivariate_normal::MultivariateNormal;
pub use normal::Normal;
pub use one_hot_categorical::OneHotCategorical;
pub use poisson::Poisson;
pub use student_t::StudentT;
pub use uniform::Uniform;
