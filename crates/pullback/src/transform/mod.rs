//! Transforms: functions that turn a function into its derivative.
//!
//! They run the same ops on the same tape as everything else, so they nest freely: `grad` of `grad`, `jvp`
//! of `grad`, `grad` of `jvp`. The function may branch on values; what ran is what is differentiated.

mod jacobian;
pub(crate) mod levels;
mod modes;
mod vmap;

pub use jacobian::{hessian, hessian_tree, hvp, jacfwd, jacobian, jacrev};
pub(crate) use modes::pushforward;
pub use modes::{grad, jvp, value_and_grad, vjp};
pub(crate) use vmap::evaluate_batched;
pub use vmap::{BatchAxes, vmap};
