//! Training in 16 bits: loss scaling, the report of what a low dtype loses, and snapshots to
//! restore.
//!
//! [`pullback::autocast`] decides which ops run in a low dtype; weights, gradients and optimisers
//! stay in `f32`. What is left to do here concerns `f16`, whose numbers go from 6·10⁻⁸ to 65504
//! only: gradients are small, and many would become zero. [`GradScaler`] multiplies the loss, and
//! so every gradient, by a number that is as large as it can be without one of them becoming
//! infinite, finds that number as it goes, and skips the steps in which it was too large. `bf16`
//! has the range of `f32` and needs none of this.
//!
//! | | |
//! |---|---|
//! | [`GradScaler`] | scales the loss; skips and backs off on overflow; grows after a while |
//! | [`PrecisionReport`] | per parameter, what share of its gradient a low dtype loses, and which scale would help |
//! | [`Overflow`] | that a step was skipped, and the op and line that overflowed first |

mod grad_scaler;
mod report;
mod snapshot;

pub use grad_scaler::{GradScaler, GradScalerOptions, Overflow, Stepped};
pub use report::{LayerPrecision, PrecisionReport};
