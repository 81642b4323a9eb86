//! Learning rates that change over time: a [`Schedule`] is a function of the step, and a [`Scheduler`] writes its rates to an optimiser.
//! [`PlateauScheduler`] looks at a metric instead.

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
