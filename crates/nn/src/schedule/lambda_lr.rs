//! Any function of the step.

use super::Schedule;

/// The base times a function of the step (PyTorch's `lr_lambda`):
/// `torch.optim.lr_scheduler.LambdaLR`.
///
/// ```
/// use pullback_nn::schedule::{LambdaLr, Schedule};
/// let inverse_root = LambdaLr(|step| 1.0 / (1.0 + step as f64).sqrt());
/// assert_eq!(inverse_root.lr(0.4, 3), 0.2);
/// ```
#[doc(alias = "lr_lambda")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LambdaLr<F>(pub F);

impl<F: Fn(u64) -> f64> Schedule for LambdaLr<F> {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * (self.0)(step)
    }
}
