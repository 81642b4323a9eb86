//! Mixed precision training: loss scaling, and a report of what a low dtype loses of the gradients.
//!
//! [`pullback::autocast`] decides which ops run in a low dtype; weights, gradients and optimisers
//! stay in `f32`. The range of `f16` is only 6·10⁻⁸ to 65504, so small gradients underflow to zero.
//! [`GradScaler`] multiplies the loss, and so every gradient, by the largest scale with which none
//! overflows. It adapts the scale during training, and skips the steps in which it was too large.
//! `bf16` has the range of `f32` and needs no scaling.
//!
//! | | |
//! |---|---|
//! | [`GradScaler`] | scales the loss; skips and backs off on overflow; grows after a while |
//! | [`PrecisionReport`] | what a low dtype loses of each gradient, and which scale helps |
//! | [`Overflow`] | that a step was skipped, and the op and line that overflowed first |

mod grad_scaler;
mod report;
mod snapshot;

pub use grad_scaler::{GradScaler, GradScalerOptions, Overflow, Stepped};
pub use report::{LayerPrecision, PrecisionReport};
