//! Steps that are run again where they overflowed, to name the op.

use super::GradScaler;
use crate::Module;
use crate::optim::Optimizer;
use crate::precision::snapshot::Snapshot;
use pullback::{OverflowSource, Result, Tensor, detect_overflow};
use std::fmt;

/// The result of a step, and whether it was skipped.
#[derive(Clone, Debug)]
pub struct Stepped<R> {
    /// The result of the closure.
    pub value: R,
    /// Why the step was skipped, if it was.
    pub overflow: Option<Overflow>,
}

/// A step that was skipped because a gradient was not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Overflow {
    /// The scale that was too large.
    pub scale: f64,
    /// The scale of the next step.
    pub next: f64,
    /// The first op that made a value that is not finite of finite operands, forward or backward,
    /// and its line.
    pub source: Option<OverflowSource>,
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Overflow { scale, next, source } = self;
        write!(f, "gradients were not finite with a loss scale of {scale}: ")?;
        write!(f, "the step was skipped, and the next has {next}\n  ")?;
        match source {
            Some(source) => write!(f, "first: {source}"),
            None => write!(f, "the step did not overflow when it was run again op by op"),
        }
    }
}

impl GradScaler {
    /// A whole training step: clears the gradients, computes the loss, calls `backward` on the
    /// scaled loss, steps and updates. On overflow the loss is computed and differentiated a second
    /// time, op by op, to find the op and line that overflowed first: see [`GradScaler::watched`].
    ///
    /// ```
    /// use pullback::{DType, Tensor, Tree, autocast};
    /// use pullback_nn::Module;
    /// use pullback_nn::optim::{UpdateRule, Sgd};
    /// use pullback_nn::precision::{GradScaler, GradScalerOptions};
    ///
    /// #[derive(Tree)]
    /// struct Line {
    ///     slope: Tensor,
    /// }
    ///
    /// let model = Line { slope: Tensor::from([[1.0f32]]).requires_grad() };
    /// let opt = Sgd::default().over(model.parameters())?;
    /// let scaler = GradScaler::new(GradScalerOptions::default())?;
    /// let x = Tensor::from([[3.0f32]]);
    /// let stepped = scaler.run(&model, &opt, |m| {
    ///     Ok(autocast(DType::F16, || x.linear(&m.slope, None).sum()))
    /// })?;
    /// let overflow = stepped.overflow.unwrap();
    /// assert_eq!((overflow.scale, overflow.next), (65536.0, 32768.0));
    /// assert!(overflow.to_string().contains("made an infinity in f16[1,1]"), "{overflow}");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the closure, the backward pass or the optimiser fails.
    pub fn run<M: Module>(
        &self,
        model: &M,
        optimizer: &(impl Optimizer + ?Sized),
        loss: impl Fn(&M) -> Result<Tensor>,
    ) -> Result<Stepped<Tensor>> {
        self.watched(model, optimizer, || {
            optimizer.zero_grad();
            let loss = loss(model)?;
            self.scale(&loss).backward()?;
            self.step(optimizer)?;
            self.update()?;
            Ok(loss.detach())
        })
    }

    /// Runs your step, compiled or not, which must end with [`GradScaler::update`]. If it
    /// overflowed, the step is run again under [`detect_overflow`], op by op, from the same start:
    /// the parameters, the buffers, the random generator, the state of the optimiser and of the
    /// scaler are restored before it, and are afterwards as the first run left them. Anything else
    /// that the step changes is changed twice.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// # let w = Tensor::from(1f32).requires_grad();
    /// # let opt = Sgd { lr: 0.5, ..Sgd::default() }.over([w.clone()])?;
    /// let scaler = GradScaler::new(GradScalerOptions::default())?;
    /// let stepped = scaler.watched(&w, &opt, || {
    ///     opt.zero_grad();
    ///     scaler.scale(&(&w * 1e38)).backward()?;
    ///     scaler.step(&opt)?;
    ///     scaler.update()
    /// })?;
    /// let overflow = stepped.overflow.unwrap();
    /// assert_eq!((overflow.scale, overflow.next), (65536.0, 32768.0));
    /// println!("{overflow}"); // names the op and its line
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the step fails. What the scaler found in it is discarded then.
    pub fn watched<M: Module, R>(
        &self,
        model: &M,
        optimizer: &(impl Optimizer + ?Sized),
        step: impl Fn() -> Result<R>,
    ) -> Result<Stepped<R>> {
        self.watched_with(model, optimizer, Vec::new, step)
    }

    /// [`GradScaler::watched`], with other tensors that the second run leaves as the first left
    /// them.
    pub(crate) fn watched_with<M: Module, R>(
        &self,
        model: &M,
        optimizer: &(impl Optimizer + ?Sized),
        others: impl FnOnce() -> Vec<Tensor>,
        step: impl Fn() -> Result<R>,
    ) -> Result<Stepped<R>> {
        let own = || self.named_state().into_iter().map(|(_, x)| x);
        let tensors = |named: Vec<(String, Tensor)>| named.into_iter().map(|(_, x)| x);
        // A step that is skipped leaves parameters and the optimiser's state as they are.
        let before = Snapshot::of(tensors(model.named_buffers()).chain(own()), &[]);
        let count = self.skipped();
        let value = match step() {
            Ok(value) => value,
            Err(error) => {
                self.forget();
                return Err(error);
            }
        };
        // Inside a trace it is not known.
        let skipped = matches!((count, self.skipped()), (Ok(before), Ok(now)) if now > before);
        if !skipped {
            return Ok(Stepped { value, overflow: None });
        }
        let (scale, next) = (f64::from(self.last_scale.try_item::<f32>()?), self.current()?);
        let parameters: Vec<Tensor> = optimizer.groups().into_iter().flatten().collect();
        let state = tensors(optimizer.named_state());
        let all = tensors(model.named_state()).chain(own()).chain(state).chain(others());
        let after = Snapshot::of(all.chain(parameters.iter().cloned()), &parameters);
        let source = after.around(|| {
            before.put_back();
            optimizer.zero_grad();
            // Its error is ignored: the first run succeeded.
            detect_overflow(|| drop(step())).1
        });
        Ok(Stepped { value, overflow: Some(Overflow { scale, next, source }) })
    }
}
