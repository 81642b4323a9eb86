//! Optimisers, one a file: each is a struct of options and a [`Rule`], which [`Stepper`] applies to groups of parameters.
//!
//! | optimiser | in PyTorch | its step |
//! |---|---|---|
//! | [`Sgd`] | `SGD` | along the gradient, or its momentum |
//! | [`Adam`], [`AdamW`] | `Adam`, `AdamW` | the mean gradient by the root of its mean square, or of the largest of those (AMSGrad) |
//! | [`NAdam`], [`RAdam`], [`Adamax`] | the same | Adam with Nesterov's momentum; with a careful start; by the largest gradient |
//! | [`RmsProp`], [`Adagrad`], [`Adadelta`] | `RMSprop`, the same | the gradient by the root of a mean, a sum, a ratio of squares |
//! | [`Adafactor`] | the same | Adam with a small state |
//! | [`Lion`] | – | along the sign of the momentum |
//! | [`Muon`] | the same | along the momentum made orthogonal: matrices alone |
//! | [`Rprop`], [`Asgd`] | `Rprop`, `ASGD` | by signs of the whole gradient; along the gradient, with an average |
//! | [`Lbfgs`] | `LBFGS` | to where a quadratic model is lowest: takes a closure |
//!
//! A list (`Vec`) of optimisers is one. [`clip_grad_norm_`] and [`clip_grad_value_`] go between backward and step, [`Ema`] after it;
//! [`Accumulate`] makes one step of several backward passes. Rates are changed by [`schedule`](crate::schedule).
//!
//! ```
//! use pullback::{Tensor, jit};
//! use pullback_nn::optim::{Optimizer, Rule, Sgd};
//!
//! let w = Tensor::from([0.0, 0.0]).requires_grad();
//! let opt = Sgd { rate: 0.1, momentum: 0.5, ..Sgd::default() }.over([w.clone()])?;
//! let step = jit(|(x, y): &(Tensor, Tensor)| {
//!     opt.zero_grad();
//!     let loss = (x.matmul(&w) - y).square().mean();
//!     loss.backward()?;
//!     opt.step()?;
//!     Ok(loss)
//! });
//! let data = (Tensor::from([[1.0, 0.0], [0.0, 1.0]]), Tensor::from([1.0, -1.0]));
//! let first = step.call(&data)?.item::<f64>();
//! for _ in 0..50 {
//!     step.call(&data)?;
//! }
//! assert!(step.call(&data)?.item::<f64>() < 1e-4 * first);
//! # Ok::<(), pullback::Error>(())
//! ```

mod accumulate;
mod adadelta;
mod adafactor;
mod adagrad;
mod adam;
mod adamax;
mod adamw;
mod asgd;
mod clip;
mod ema;
mod lbfgs;
mod lion;
mod muon;
mod nadam;
mod named;
mod optimizer;
mod radam;
mod rmsprop;
mod rprop;
mod rule;
mod sgd;
mod stepper;
mod wolfe;

pub use accumulate::Accumulate;
pub use adadelta::Adadelta;
pub use adafactor::Adafactor;
pub use adagrad::Adagrad;
pub use adam::Adam;
pub use adamax::Adamax;
pub use adamw::AdamW;
pub use asgd::Asgd;
pub use clip::{ClipNorm, clip_grad_norm_, clip_grad_value_};
pub use ema::Ema;
pub use lbfgs::{Lbfgs, LbfgsStepper};
pub use lion::Lion;
pub use muon::{AdjustRate, Muon};
pub use nadam::NAdam;
pub use named::{named, names};
pub use optimizer::Optimizer;
pub use radam::RAdam;
pub use rmsprop::RmsProp;
pub use rprop::Rprop;
pub use rule::{OptionRow, Rule, Update, Within};
pub use sgd::Sgd;
pub use stepper::Stepper;
