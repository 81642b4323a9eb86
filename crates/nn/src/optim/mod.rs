//! Optimisers, one a file: each is a struct of options with PyTorch's names and an [`UpdateRule`],
//! which [`Stepper`] applies to groups of parameters.
//!
//! | optimiser | in PyTorch | its step |
//! |---|---|---|
//! | [`Sgd`] | `SGD` | along the gradient, or its momentum |
//! | [`Adam`], [`AdamW`] | `Adam`, `AdamW` | the mean gradient divided by the root of its mean square, or of the largest of those (AMSGrad) |
//! | [`NAdam`], [`RAdam`], [`Adamax`] | the same | Adam with Nesterov's momentum; with a rectified variance; by the infinity norm |
//! | [`RmsProp`], [`Adagrad`], [`Adadelta`] | `RMSprop`, the same | the gradient divided by the root of a mean, a sum, a ratio of squares |
//! | [`Adafactor`] | the same | Adam with a small state |
//! | [`Lion`] | – | along the sign of the momentum |
//! | [`Muon`] | the same | along the orthogonalised momentum: for matrices only |
//! | [`Rprop`], [`Asgd`] | `Rprop`, `ASGD` | by the sign of the gradient; along the gradient, with averaged parameters |
//! | [`Lbfgs`] | `LBFGS` | quasi-Newton: to the minimum of a quadratic model; takes a closure |
//!
//! A list (`Vec`) of optimisers is one. [`clip_grad_norm_`] and [`clip_grad_value_`] go between
//! backward and step, [`Ema`] after it; [`Accumulate`] makes one step of several backward passes.
//! Learning rates are changed by [`schedule`](crate::schedule).
//!
//! ```
//! use pullback::{Tensor, jit};
//! use pullback_nn::optim::{Optimizer, UpdateRule, Sgd};
//!
//! let w = Tensor::from([0.0, 0.0]).requires_grad();
//! let opt = Sgd { lr: 0.1, momentum: 0.5, ..Sgd::default() }.over([w.clone()])?;
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

/// Declares the optimisers: one row each with the module, the type, and the learning rate that does
/// what `lr` does for AdamW on the same network, the default of programs that let the user choose.
/// A row expands to `pub use sgd::Sgd;` and a line of the table behind [`named`]. (`mod sgd;` is
/// below, as `cargo fmt` finds no modules inside a macro.)
macro_rules! optimizers {
    ($($module:ident :: $Type:ident, $lr:expr;)*) => {
        $(pub use $module::$Type;)*
        #[rustfmt::skip]
        const TABLE: &[named::OptimizerRow] = &[
            $(named::OptimizerRow { name: stringify!($module), make: named::make::<$Type>, lr: $lr },)*
        ];
    };
}

optimizers! {
    adadelta::Adadelta,   |_| 1.0;
    adafactor::Adafactor, |lr| lr;
    adagrad::Adagrad,     |lr| 10.0 * lr;
    adam::Adam,           |lr| lr;
    adamax::Adamax,       |lr| lr;
    adamw::AdamW,         |lr| lr;
    asgd::Asgd,           |lr| 50.0 * lr;
    lion::Lion,           |lr| lr / 5.0;
    muon::Muon,           |lr| 10.0 * lr;
    nadam::NAdam,         |lr| lr;
    radam::RAdam,         |lr| lr;
    rmsprop::RmsProp,     |lr| lr;
    rprop::Rprop,         |lr| lr;
    sgd::Sgd,             |lr| 50.0 * lr;
}

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
mod line_search;
mod lion;
mod muon;
mod nadam;
mod named;
mod optimizer;
mod radam;
mod rmsprop;
mod rprop;
mod sgd;
mod stepper;
mod update_rule;

pub use accumulate::Accumulate;
pub use clip::{ClipNorm, clip_grad_norm_, clip_grad_value_};
pub use ema::Ema;
pub use lbfgs::{Lbfgs, LbfgsStepper, LineSearch};
pub use muon::AdjustLr;
pub use named::{lr_like_adamw, named, names};
pub use optimizer::Optimizer;
pub use stepper::Stepper;
pub use update_rule::{Bounds, OptionRow, Update, UpdateRule};
