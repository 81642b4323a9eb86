//! Transforms: functions that turn a function into its derivative.
//!
//! They run the same ops on the same tape as everything else, so they nest freely: `grad` of
//! `grad`, `jvp` of `grad`, `grad` of `jvp`. The function may branch on values; what ran is what is
//! differentiated.

mod associative;
mod jacobian;
pub(crate) mod levels;
mod linearize;
mod modes;
pub(crate) mod reach;
mod vmap;

pub use associative::{associative_scan, associative_scan_reverse};
pub use jacobian::{
    Jacobians, hessian, hessian_tree, hvp, jacfwd, jacobian, jacobian_tree, jacrev,
};
pub use linearize::{linear_transpose, linearize};
pub(crate) use modes::pushforward;
pub use modes::{grad, grad_aux, jvp, jvp_aux, value_and_grad, value_and_grad_aux, vjp, vjp_aux};
pub(crate) use vmap::evaluate_batched;
pub use vmap::{BatchAxes, vmap};
