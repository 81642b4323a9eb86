//! Learning rate schedules, named as in `torch.optim.lr_scheduler`.
//!
//! A [`Schedule`] is a function of the step; a [`Scheduler`] writes its learning rates to an
//! optimiser. [`PlateauScheduler`] depends on a metric instead.
//!
//! | schedule | in PyTorch | the learning rate |
//! |---|---|---|
//! | [`ConstantLr`] | `ConstantLR` | a fraction of the base for some steps |
//! | [`LambdaLr`] | `LambdaLR` | the base times any function of the step |
//! | [`StepLr`], [`MultiStepLr`] | `StepLR`, `MultiStepLR` | times `gamma` every `step_size` steps, or at milestones |
//! | [`ExponentialLr`] | `ExponentialLR` | times `gamma` at each step |
//! | [`LinearLr`], [`PolynomialLr`] | `LinearLR`, `PolynomialLR` | between two values, linearly or as a power |
//! | [`CosineAnnealingLr`] | `CosineAnnealingLR` | half a cosine wave down |
//! | [`CosineAnnealingWarmRestarts`] | the same | half cosine waves, repeated |
//! | [`LinearWarmup`] | `SequentialLR` of `LinearLR` and another | linearly up, then another schedule |
//! | [`OneCycleLr`], [`CyclicLr`] | `OneCycleLR`, `CyclicLR` | up and down, once or repeated |
//! | [`SequentialLr`] | `SequentialLR` | one schedule after the other |
//! | [`ReduceLrOnPlateau`] | `ReduceLROnPlateau` | reduced when a metric stops improving |
//!
//! ```
//! use pullback::Tensor;
//! use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
//! use pullback_nn::schedule::{Scheduler, StepLr};
//!
//! let opt = Sgd { lr: 0.4, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
//! let mut scheduler = Scheduler::new(&opt, StepLr { step_size: 2, gamma: 0.5 });
//! for _ in 0..2 {
//!     // … loss, backward, opt.step()? …
//!     scheduler.step();
//! }
//! assert_eq!(opt.lrs()[0].item::<f64>(), 0.2);
//! # Ok::<(), pullback::Error>(())
//! ```

mod constant_lr;
mod cosine_annealing_lr;
mod cosine_annealing_warm_restarts;
mod cyclic_lr;
mod exponential_lr;
mod lambda_lr;
mod linear_lr;
mod multi_step_lr;
mod one_cycle_lr;
mod polynomial_lr;
mod reduce_lr_on_plateau;
#[allow(clippy::module_inception)]
mod schedule;
mod scheduler;
mod sequential_lr;
mod step_lr;
mod warmup;

pub use constant_lr::ConstantLr;
pub use cosine_annealing_lr::CosineAnnealingLr;
pub use cosine_annealing_warm_restarts::CosineAnnealingWarmRestarts;
pub use cyclic_lr::{CyclicLr, CyclicMode};
pub use exponential_lr::ExponentialLr;
pub use lambda_lr::LambdaLr;
pub use linear_lr::LinearLr;
pub use multi_step_lr::MultiStepLr;
pub use one_cycle_lr::{AnnealStrategy, OneCycleLr};
pub use polynomial_lr::PolynomialLr;
pub use reduce_lr_on_plateau::{PlateauScheduler, ReduceLrOnPlateau, ThresholdMode};
pub use schedule::Schedule;
pub use scheduler::Scheduler;
pub use sequential_lr::SequentialLr;
pub use step_lr::StepLr;
pub use warmup::LinearWarmup;
