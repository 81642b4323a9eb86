//! Learning rates that change over time: a [`Schedule`] is a function of the step, and a [`Scheduler`] writes its rates to an optimiser.
//! [`PlateauScheduler`] looks at a metric instead.
//!
//! | schedule | in PyTorch | the rate |
//! |---|---|---|
//! | [`Constant`], [`Factor`] | –, `LambdaLR` | the base, or any function of the step times it |
//! | [`Held`] | `ConstantLR` | a fraction for a while |
//! | [`Steps`], [`Milestones`], [`Exponential`] | `StepLR`, `MultiStepLR`, `ExponentialLR` | multiplied now and then, or always |
//! | [`Linear`], [`Polynomial`] | `LinearLR`, `PolynomialLR` | from here to there |
//! | [`Cosine`], [`CosineRestarts`] | `CosineAnnealingLR`, `CosineAnnealingWarmRestarts` | half a wave down, once or again and again |
//! | [`WarmUp`] | `SequentialLR` of `LinearLR` and another | up, then another schedule |
//! | [`OneCycle`], [`Cyclic`] | `OneCycleLR`, `CyclicLR` | up and down, once or again and again |
//! | [`Sequential`] | `SequentialLR` | one schedule after the other |
//! | [`Plateau`] | `ReduceLROnPlateau` | lower where a metric stays the same |

mod cosine;
mod cyclic;
mod function;
mod one_cycle;
mod plateau;
mod ramps;
mod scheduler;
mod sequential;
mod steps;
mod warm_up;

pub use cosine::{Cosine, CosineRestarts};
pub use cyclic::{Cyclic, Height};
pub use function::Schedule;
pub use one_cycle::OneCycle;
pub use plateau::{Plateau, PlateauScheduler, Threshold};
pub use ramps::{Linear, Polynomial};
pub use scheduler::Scheduler;
pub use sequential::Sequential;
pub use steps::{Constant, Exponential, Factor, Held, Milestones, Steps};
pub use warm_up::WarmUp;
