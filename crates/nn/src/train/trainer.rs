//! The options of the training loop, which is in `run.rs`.

use super::overflows::NAMED;
use super::{Batches, Callback, EarlyStop, Every, Metrics, Outcome, Scheduled, run};
use crate::Module;
use crate::optim::Optimizer;
use crate::precision::GradScaler;
use crate::state::Checkpoints;
use pullback::{DType, Result, Tensor};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The name under which checkpoints keep the state of a scaler.
const SCALER: &str = "scaler";

/// An evaluation: how often, and what.
pub(super) type Evaluation<'a, M> = (Every, Box<dyn FnMut(&M) -> Result<Metrics> + 'a>);

/// Trains a model: takes batches, calls a step function on each, and evaluates, logs and saves in
/// between.
///
/// The step function is yours: it clears the gradients, computes the loss, runs backward, and steps
/// the optimiser; compiled with [`jit`](pullback::jit) or not. It gives the loss, or several
/// [`Metrics`].
///
/// ```
/// use pullback::{Tensor, Tree, jit};
/// use pullback_nn::Module;
/// use pullback_nn::optim::{Optimizer, UpdateRule, Sgd};
/// use pullback_nn::train::{Every, Trainer};
///
/// #[derive(Tree)]
/// struct Line {
///     slope: Tensor,
/// }
///
/// let model = Line { slope: Tensor::from(0.0).requires_grad() };
/// let optimizer = Sgd { lr: 0.1, ..Sgd::default() }.over(model.parameters())?;
/// let step = jit(|(x, y): &(Tensor, Tensor)| {
///     optimizer.zero_grad();
///     let loss = (x * &model.slope - y).square().mean();
///     loss.backward()?;
///     optimizer.step()?;
///     Ok(loss)
/// });
/// let batches = vec![(Tensor::from([1.0, 2.0]), Tensor::from([3.0, 6.0]))];
/// let outcome = Trainer::new(&model, &optimizer)
///     .epochs(50)
///     .evaluate(Every::Epochs(10), |model| Ok((&model.slope - 3.0).abs()))
///     .run(&batches, |batch| step.call(batch))?;
/// assert_eq!(outcome.step, 50);
/// assert!(outcome.metrics.get("val_loss").unwrap() < 1e-6);
/// # Ok::<(), pullback::Error>(())
/// ```
#[must_use]
pub struct Trainer<'a, M> {
    pub(super) model: &'a M,
    pub(super) optimizer: &'a dyn Optimizer,
    pub(super) until: Every,
    pub(super) evaluation: Option<Evaluation<'a, M>>,
    pub(super) schedule: Option<(Every, Box<dyn Scheduled + 'a>)>,
    pub(super) checkpoints: Option<(Every, Checkpoints)>,
    pub(super) resume: bool,
    pub(super) early_stop: Option<EarlyStop>,
    pub(super) callbacks: Vec<Box<dyn Callback + 'a>>,
    pub(super) stop: Option<Arc<AtomicBool>>,
    pub(super) handle_interrupt: bool,
    pub(super) batch_size: Option<u64>,
    pub(super) allow_non_finite: bool,
    pub(super) config: Value,
    pub(super) kept: Vec<(String, Vec<(String, Tensor)>)>,
    pub(super) precision: Option<DType>,
    pub(super) scaler: Option<&'a GradScaler>,
    pub(super) name_overflows: u64,
}

impl<'a, M: Module> Trainer<'a, M> {
    /// One epoch, and nothing else.
    pub fn new(model: &'a M, optimizer: &'a dyn Optimizer) -> Trainer<'a, M> {
        Trainer {
            model,
            optimizer,
            until: Every::Epochs(1),
            evaluation: None,
            schedule: None,
            checkpoints: None,
            resume: false,
            early_stop: None,
            callbacks: Vec::new(),
            stop: None,
            handle_interrupt: true,
            batch_size: None,
            allow_non_finite: false,
            config: Value::Null,
            kept: Vec::new(),
            precision: None,
            scaler: None,
            name_overflows: NAMED,
        }
    }

    /// How many epochs, those before resuming included.
    pub fn epochs(self, count: u64) -> Self {
        Trainer { until: Every::Epochs(count), ..self }
    }

    /// How many steps, those before resuming included, over as many epochs as it takes.
    pub fn steps(self, count: u64) -> Self {
        Trainer { until: Every::Steps(count), ..self }
    }

    /// Evaluates this often, and after the last step, in evaluation mode and without recording. Its
    /// metrics are named `val_…`.
    pub fn evaluate<R: Into<Metrics>>(
        self,
        every: Every,
        mut evaluate: impl FnMut(&M) -> Result<R> + 'a,
    ) -> Self {
        let evaluate = Box::new(move |model: &M| {
            let measured = evaluate(model)?;
            pullback::catch(|| measured.into())
        });
        Trainer { evaluation: Some((every, evaluate)), ..self }
    }

    /// Steps a schedule this often, usually at every step.
    pub fn schedule(self, every: Every, schedule: impl Scheduled + 'a) -> Self {
        Trainer { schedule: Some((every, Box::new(schedule))), ..self }
    }

    /// Saves checkpoints this often, at the end, and when it is interrupted.
    pub fn checkpoints(self, every: Every, checkpoints: Checkpoints) -> Self {
        Trainer { checkpoints: Some((every, checkpoints)), ..self }
    }

    /// Resumes from the newest valid checkpoint, if there is one.
    pub fn resume(self, resume: bool) -> Self {
        Trainer { resume, ..self }
    }

    /// Stops when a metric stops improving.
    pub fn early_stop(self, stop: EarlyStop) -> Self {
        Trainer { early_stop: Some(stop), ..self }
    }

    /// Adds a callback.
    pub fn callback(mut self, callback: impl Callback + 'a) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Whether Ctrl-C stops the run, as it does unless this is `false`: after the step that is
    /// running, with a checkpoint (if there are [`Trainer::checkpoints`]), and a sentence on
    /// standard error that says how to resume. [`Outcome::ended`] is then
    /// [`Ended::Interrupted`](super::Ended::Interrupted). A second Ctrl-C ends the process at once,
    /// with exit code 130.
    ///
    /// Where the program handles or ignores Ctrl-C already, that stays. A program that sets its
    /// handler later, with the `ctrlc` crate, turns this off, and stops the run by
    /// [`Trainer::stop_at`].
    pub fn handle_interrupt(self, handle: bool) -> Self {
        Trainer { handle_interrupt: handle, ..self }
    }

    /// Checks this between steps too, and stops where it is true: a signal that the program handles
    /// itself, a button.
    pub fn stop_at(self, stop: Arc<AtomicBool>) -> Self {
        Trainer { stop: Some(stop), ..self }
    }

    /// How many examples a step takes, to report how many a second there are:
    /// `examples_per_second`. Loaders report their own number: the last batch of a
    /// [`DataLoader`](crate::data::DataLoader)'s epoch may have fewer.
    ///
    /// It is the number of examples since the last evaluation or end of an epoch, divided by the
    /// seconds in which they were loaded and trained on: evaluations, callbacks and checkpoints
    /// take none of that time.
    pub fn batch_size(self, examples: u64) -> Self {
        Trainer { batch_size: Some(examples), ..self }
    }

    /// Continues where the loss is NaN or infinite, instead of stopping with an error.
    pub fn allow_non_finite(self, allow: bool) -> Self {
        Trainer { allow_non_finite: allow, ..self }
    }

    /// The configuration of the run, for checkpoints.
    pub fn config(self, config: Value) -> Self {
        Trainer { config, ..self }
    }

    /// Saves other tensors in checkpoints too, under their own name, and restores them when
    /// resuming: an average of the weights, the state of a second optimiser.
    pub fn keep(mut self, group: &str, named: Vec<(String, Tensor)>) -> Self {
        self.kept.push((group.to_string(), named));
        self
    }

    /// Steps run inside [`autocast`](pullback::autocast) with this dtype, `bf16` or `f16`: forward
    /// passes are in mixed precision, parameters and the optimiser stay in `f32`. A step that was
    /// compiled is compiled for it. Evaluation is not affected.
    pub fn precision(self, dtype: DType) -> Self {
        Trainer { precision: Some(dtype), ..self }
    }

    /// The scaler that the step function scales with, and updates. Its state is kept in
    /// checkpoints, under the name `scaler`. A step that it skipped may have a loss that is not
    /// finite, and does not count in the means of the epoch; metrics have the `scale` of the next
    /// step.
    ///
    /// The first 3 steps that are skipped are run a second time, op by op, as
    /// [`GradScaler::watched`] does, and the op and line that overflowed first are reported: to
    /// callbacks at once ([`TrainState::overflow`](super::TrainState::overflow)), and in
    /// [`Outcome::notes`]. The model, the optimiser, the scaler, the random generator and what is
    /// kept ([`Trainer::keep`]) are afterwards as the first run left them; what else the step
    /// function changes, it changes twice. [`Trainer::name_overflows`] says how many.
    pub fn scaler(mut self, scaler: &'a GradScaler) -> Self {
        self.scaler = Some(scaler);
        self.keep(SCALER, scaler.named_state())
    }

    /// How many skipped steps are run again to name the op that overflowed. With 0 no step is ever
    /// run twice.
    pub fn name_overflows(self, count: u64) -> Self {
        Trainer { name_overflows: count, ..self }
    }

    /// Trains.
    ///
    /// # Errors
    /// What the step, the evaluation, the data or a callback fails with; a loss that is not finite;
    /// a checkpoint that cannot be written or does not fit.
    pub fn run<B: Batches, R: Into<Metrics>>(
        self,
        batches: &B,
        step: impl FnMut(&B::Batch) -> Result<R>,
    ) -> Result<Outcome> {
        run::run(self, batches, step)
    }
}
