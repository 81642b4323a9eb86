//! Gradient accumulation.

use super::Optimizer;
use pullback::{Error, Result, Tensor, catch, no_grad};

/// Accumulates gradients over several backward passes, and steps after the last: as one batch of
/// all parts, if losses are means over parts of one size.
///
/// Gradients accumulate in `.grad()` anyway; this divides each loss by the number of parts, counts,
/// steps, and clears the gradients. The same by hand:
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::optim::{Accumulate, Optimizer, UpdateRule, Sgd};
///
/// let sgd = Sgd { lr: 0.1, ..Sgd::default() };
/// let (x, y) = (Tensor::from(1.0).requires_grad(), Tensor::from(1.0).requires_grad());
/// let parts = Accumulate::new(sgd.over([x.clone()])?, 4)?;
/// for t in 0..4 {
///     let stepped = parts.backward(&(&x * f64::from(t)))?;
///     assert_eq!(stepped.item::<bool>(), t == 3);
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
///
/// The count is a tensor, so a step that contains this compiles, to the same program for all parts
/// after the first: there the optimiser steps at every part, and its parameters and state are
/// restored where the part is not the last. Compiled, `before_step` therefore runs at every part
/// too: what else it writes (a moving average, a counter) is kept, so guard it with a `select` by
/// the result of [`Accumulate::backward`]. Gradients are zeros after a step, not `None`. A clone
/// shares the count.
///
/// ```
/// use pullback::{Tensor, jit};
/// use pullback_nn::optim::{Accumulate, UpdateRule, Sgd};
///
/// let x = Tensor::from(1.0).requires_grad();
/// let parts = Accumulate::new(Sgd { lr: 0.1, ..Sgd::default() }.over([x.clone()])?, 2)?;
/// let step = jit(|t: &Tensor| parts.backward(&(&x * t)));
/// for stepped in [false, true, false, true] {
///     assert_eq!(step.call(&Tensor::from(3.0))?.item::<bool>(), stepped);
/// }
/// assert!((x.item::<f64>() - 0.4).abs() < 1e-12);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Accumulate<O> {
    optimizer: O,
    parts: usize,
    /// How many parts were processed: `i64[]`.
    seen: Tensor,
}

impl<O: Optimizer> Accumulate<O> {
    /// Steps after every `parts` backward passes.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Accumulate, Sgd, UpdateRule};
    /// let opt = || Sgd::default().over([Tensor::from(1.0).requires_grad()]);
    /// assert!(Accumulate::new(opt()?, 4).is_ok());
    /// assert!(Accumulate::new(opt()?, 0).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `parts` is 0.
    pub fn new(optimizer: O, parts: usize) -> Result<Accumulate<O>> {
        match parts {
            0 => Err(Error::argument("Accumulate", "a batch has at least 1 part, not 0")),
            _ => {
                let seen = match optimizer.lrs().first() {
                    Some(lr) => lr.new_tensor(0i64),
                    None => Tensor::from(0i64),
                };
                Ok(Accumulate { optimizer, parts, seen })
            }
        }
    }

    /// Runs backward from a part's loss, divided by the number of parts; after the last part steps
    /// and clears the gradients. Gives whether it stepped: `bool[]`, whose value is not known
    /// inside a trace.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Accumulate, Sgd, UpdateRule};
    /// let x = Tensor::from(1.0).requires_grad();
    /// let parts = Accumulate::new(Sgd { lr: 0.1, ..Sgd::default() }.over([x.clone()])?, 2)?;
    /// assert!(!parts.backward(&(&x * 2.0))?.item::<bool>());
    /// assert!(parts.backward(&(&x * 4.0))?.item::<bool>());
    /// // One step with the mean gradient, 3.
    /// assert!((x.item::<f64>() - 0.7).abs() < 1e-12);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of the backward pass or the step.
    #[track_caller]
    pub fn backward(&self, loss: &Tensor) -> Result<Tensor> {
        self.backward_then(loss, |_| Ok(()))
    }

    /// [`Accumulate::backward`] with a function that runs before the step, such as gradient
    /// clipping.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Accumulate, Optimizer, Sgd, UpdateRule, clip_grad_norm_};
    /// let x = Tensor::from(1.0).requires_grad();
    /// let parts = Accumulate::new(Sgd { lr: 0.1, ..Sgd::default() }.over([x.clone()])?, 2)?;
    /// for _ in 0..2 {
    ///     parts.backward_then(&(&x * 100.0), |opt| {
    ///         clip_grad_norm_(&opt.groups()[0], 1.0).map(drop)
    ///     })?;
    /// }
    /// assert!((x.item::<f64>() - 0.9).abs() < 1e-6);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of the backward pass, the function, or the step.
    #[track_caller]
    pub fn backward_then(
        &self,
        loss: &Tensor,
        before_step: impl FnOnce(&O) -> Result<()>,
    ) -> Result<Tensor> {
        (loss / self.parts as f64).backward()?;
        let due = untracked(|| {
            self.seen.add_(1i64);
            self.seen.ge(self.parts as i64)
        })?;
        self.step_where(&due, before_step)?;
        Ok(due)
    }

    /// Steps with the parts seen so far, if there are any, such as the last few of an epoch. The
    /// gradients are still divided by the full number of parts.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Accumulate, Sgd, UpdateRule};
    /// let x = Tensor::from(1.0).requires_grad();
    /// let parts = Accumulate::new(Sgd { lr: 0.1, ..Sgd::default() }.over([x.clone()])?, 4)?;
    /// parts.backward(&(&x * 4.0))?;
    /// parts.flush()?;
    /// assert!((x.item::<f64>() - 0.9).abs() < 1e-12);
    /// assert_eq!(parts.seen()?, 0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of the step.
    pub fn flush(&self) -> Result<()> {
        let due = untracked(|| self.seen.gt(0i64))?;
        self.step_where(&due, |_| Ok(()))
    }

    /// Steps, clears the gradients and resets the count, where `due`.
    fn step_where(&self, due: &Tensor, before_step: impl FnOnce(&O) -> Result<()>) -> Result<()> {
        let step = || {
            before_step(&self.optimizer)?;
            self.optimizer.step()
        };
        match due.try_item::<bool>() {
            Ok(false) => return Ok(()),
            Ok(true) => {
                step()?;
                self.optimizer.zero_grad();
            }
            // Not known while a function is traced: everything that a step writes is chosen
            // afterwards, element by element.
            Err(_) => {
                let lrs = self.optimizer.lrs();
                let is_lr = |x: &Tensor| lrs.iter().any(|lr| lr.is_same(x));
                let parameters: Vec<Tensor> =
                    self.optimizer.groups().into_iter().flatten().collect();
                let state = self.optimizer.named_state().into_iter().map(|(_, x)| x);
                let written: Vec<Tensor> =
                    parameters.iter().cloned().chain(state.filter(|x| !is_lr(x))).collect();
                let gradients: Vec<Tensor> = parameters.iter().filter_map(Tensor::grad).collect();
                let copies = |all: &[Tensor]| {
                    all.iter().map(|x| x.detach().deep_clone()).collect::<Vec<_>>()
                };
                let (before, added) = untracked(|| (copies(&written), copies(&gradients)))?;
                step()?;
                untracked(|| {
                    for (x, before) in written.iter().zip(&before) {
                        x.copy_(due.select(x.detach(), before));
                    }
                    for (x, added) in gradients.iter().zip(&added) {
                        x.copy_(due.select(added.zeros_like(), added));
                    }
                })?;
            }
        }
        untracked(|| drop(self.seen.copy_(due.select(0i64, &self.seen))))
    }

    /// The wrapped optimiser.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Accumulate, Optimizer, Sgd, UpdateRule};
    /// let opt = Sgd { lr: 0.1, ..Sgd::default() }.over([Tensor::from(1.0).requires_grad()])?;
    /// let parts = Accumulate::new(opt, 4)?;
    /// assert_eq!(parts.optimizer().lrs()[0].item::<f64>(), 0.1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn optimizer(&self) -> &O {
        &self.optimizer
    }

    /// How many backward passes were made since the last step. Save checkpoints where this is 0:
    /// gradients are not saved.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Accumulate, Sgd, UpdateRule};
    /// let x = Tensor::from(1.0).requires_grad();
    /// let parts = Accumulate::new(Sgd::default().over([x.clone()])?, 4)?;
    /// parts.backward(&x.square())?;
    /// assert_eq!(parts.seen()?, 1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// Inside a trace, where it is not known.
    pub fn seen(&self) -> Result<usize> {
        self.seen.try_item::<i64>().map(|n| n as usize)
    }
}

/// Unrecorded, with panics as errors.
fn untracked<R>(f: impl FnOnce() -> R) -> Result<R> {
    catch(|| no_grad(f))
}
