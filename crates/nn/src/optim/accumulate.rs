//! Batches that are too large for memory, in parts.

use super::Optimizer;
use pullback::{Error, Result, Tensor};

/// Accumulates gradients over several backward passes, and steps after the last: as one batch of all parts, if losses are means over
/// parts of one size.
///
/// Gradients accumulate in `.grad()` anyway; this divides each loss by the number of parts, counts, steps, and forgets the gradients. A
/// loop that does so by hand is as good:
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Accumulate, Optimizer, Rule, Sgd};
///
/// let sgd = Sgd { rate: 0.1, ..Sgd::default() };
/// let (x, y) = (Tensor::from(1.0).requires_grad(), Tensor::from(1.0).requires_grad());
/// let mut parts = Accumulate::new(sgd.over([x.clone()])?, 4)?;
/// for t in 0..4 {
///     let stepped = parts.backward(&(&x * f64::from(t)))?;
///     assert_eq!(stepped, t == 3);
/// }
///
/// let opt = sgd.over([y.clone()])?;
/// for t in 0..4 {
///     (&y * f64::from(t) / 4.0).backward()?;
/// }
/// opt.step()?;
/// assert_eq!(x.item::<f64>(), y.item::<f64>());
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Accumulate<O> {
    optimizer: O,
    parts: usize,
    seen: usize,
}

impl<O: Optimizer> Accumulate<O> {
    /// Steps after every `parts` backward passes.
    ///
    /// # Errors
    /// If `parts` is 0.
    pub fn new(optimizer: O, parts: usize) -> Result<Accumulate<O>> {
        match parts {
            0 => Err(Error::argument("Accumulate", "a batch has at least 1 part, not 0")),
            _ => Ok(Accumulate { optimizer, parts, seen: 0 }),
        }
    }

    /// Goes backward from a part's loss, divided by the number of parts; after the last part steps and forgets the gradients. Gives whether
    /// it stepped.
    ///
    /// # Errors
    /// Of the backward pass or the step.
    pub fn backward(&mut self, loss: &Tensor) -> Result<bool> {
        self.backward_then(loss, |_| Ok(()))
    }

    /// The same, with something to do before the step, such as clipping the gradients.
    ///
    /// # Errors
    /// Of the backward pass, what is to be done, or the step.
    pub fn backward_then(
        &mut self,
        loss: &Tensor,
        before_step: impl FnOnce(&O) -> Result<()>,
    ) -> Result<bool> {
        (loss / self.parts as f64).backward()?;
        self.seen += 1;
        if self.seen < self.parts {
            return Ok(false);
        }
        before_step(&self.optimizer)?;
        self.flush()?;
        Ok(true)
    }

    /// Steps with the parts seen so far, if there are any, such as the last few of an epoch. Their gradients are not made larger.
    ///
    /// # Errors
    /// Of the step.
    pub fn flush(&mut self) -> Result<()> {
        if self.seen > 0 {
            self.optimizer.step()?;
            self.optimizer.zero_grad();
            self.seen = 0;
        }
        Ok(())
    }

    /// The optimiser that steps.
    pub fn optimizer(&self) -> &O {
        &self.optimizer
    }

    /// How many parts of the next step were seen. A checkpoint is best made where this is 0: gradients are not saved.
    pub fn seen(&self) -> usize {
        self.seen
    }
}
