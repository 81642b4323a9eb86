//! Learning rates that change over time: a [`Schedule`] is a function of the step, and a [`Scheduler`] writes its rates to an optimiser.

mod cosine;
mod function;
mod scheduler;
mod warm_up;

pub use cosine::Cosine;
pub use function::Schedule;
pub use scheduler::Scheduler;
pub use warm_up::WarmUp;
