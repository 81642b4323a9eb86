//! The options of the training loop, which is in `run.rs`.

use super::overflows::NAMED;
use super::spread::Spread;
use super::throughput::Content;
use super::{Batches, Callback, EarlyStop, Every, Metrics, Outcome, Scheduled, run};
use crate::Module;
use crate::optim::Optimizer;
use crate::precision::GradScaler;
use crate::state::Checkpoints;
use pullback::{DType, Group, Result, Tensor};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The name under which checkpoints keep the state of a scaler.
const SCALER: &str = "scaler";

/// An evaluation: how often, and what.
pub(super) type Evaluation<'a, M> = (Every, Box<dyn FnMut(&M) -> Result<Metrics> + 'a>);

/// The training loop: calls a step function on each batch, and evaluates, logs and saves in
/// between.
///
/// You write the step function: it clears the gradients, computes the loss, calls `backward`, and
/// steps the optimiser; compiled with [`jit`](pullback::jit) or not. It returns the loss, or
/// several [`Metrics`].
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
    pub(super) content: Content,
    pub(super) allow_non_finite: bool,
    pub(super) config: Value,
    pub(super) states: Vec<(String, Vec<(String, Tensor)>)>,
    pub(super) precision: Option<DType>,
    pub(super) scaler: Option<&'a GradScaler>,
    pub(super) name_overflows: u64,
    pub(super) workers: Option<Group>,
    pub(super) spread: Option<Spread<'a>>,
}

impl<'a, M: Module> Trainer<'a, M> {
    /// Trains for one epoch, and does nothing else. The methods below set the options.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::Trainer;
    /// let outcome = Trainer::new(&model, &opt).run(&batches, step)?;
    /// assert_eq!((outcome.step, outcome.metrics.get("loss")), (1, Some(22.5)));
    /// # Ok::<(), pullback::Error>(())
    /// ```
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
            content: Content::default(),
            allow_non_finite: false,
            config: Value::Null,
            states: Vec::new(),
            precision: None,
            scaler: None,
            name_overflows: NAMED,
            workers: None,
            spread: None,
        }
    }

    /// The number of epochs, those before resuming included; 1 by default.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::Trainer;
    /// let outcome = Trainer::new(&model, &opt).epochs(20).run(&batches, step)?;
    /// assert_eq!(outcome.epoch, 20);
    /// assert!((model[0].item::<f32>() - 3.0).abs() < 1e-4);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn epochs(self, count: u64) -> Self {
        Trainer { until: Every::Epochs(count), ..self }
    }

    /// The number of steps, those before resuming included, over as many epochs as it takes.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::Trainer;
    /// let batches = [batches.clone(), batches].concat(); // two batches in an epoch
    /// let outcome = Trainer::new(&model, &opt).steps(5).run(&batches, step)?;
    /// assert_eq!((outcome.step, outcome.epoch), (5, 2));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn steps(self, count: u64) -> Self {
        Trainer { until: Every::Steps(count), ..self }
    }

    /// Evaluates this often, and after the last step, in evaluation mode and without recording for
    /// gradients. The metrics are named `val_…`. An `Err` ends the run.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::{Every, Trainer};
    /// let outcome = Trainer::new(&model, &opt)
    ///     .epochs(4)
    ///     .evaluate(Every::Epochs(2), |model| Ok([("error", (&model[0] - 3.0).abs())]))
    ///     .run(&batches, step)?;
    /// assert!(outcome.metrics.get("val_error").unwrap() < 0.2);
    /// # Ok::<(), pullback::Error>(())
    /// ```
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

    /// Steps a learning-rate schedule this often, usually at every step.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::schedule::{ExponentialLr, Scheduler};
    /// use pullback_nn::train::{Every, Trainer};
    /// let schedule = Scheduler::new(&opt, ExponentialLr { gamma: 0.5 });
    /// let trainer = Trainer::new(&model, &opt).schedule(Every::Steps(1), schedule);
    /// trainer.epochs(2).run(&batches, step)?;
    /// assert_eq!(opt.lrs()[0].item::<f64>(), 0.025);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn schedule(self, every: Every, schedule: impl Scheduled + 'a) -> Self {
        Trainer { schedule: Some((every, Box::new(schedule))), ..self }
    }

    /// Saves checkpoints this often, at the end, and when the run is interrupted.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::state::Checkpoints;
    /// use pullback_nn::train::{Every, Trainer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let checkpoints = Checkpoints::new(folder);
    /// let trainer = Trainer::new(&model, &opt).checkpoints(Every::Steps(2), checkpoints.clone());
    /// trainer.epochs(5).run(&batches, step)?; // saved at steps 2, 4 and 5
    /// assert_eq!(checkpoints.list()?.len(), 3);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn checkpoints(self, every: Every, checkpoints: Checkpoints) -> Self {
        Trainer { checkpoints: Some((every, checkpoints)), ..self }
    }

    /// Whether to resume from the newest valid checkpoint, if there is one; `false` by default.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::state::Checkpoints;
    /// use pullback_nn::train::{Every, Trainer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let trainer = |steps| {
    ///     let checkpoints = Checkpoints::new(folder);
    ///     Trainer::new(&model, &opt).steps(steps).checkpoints(Every::Steps(1), checkpoints)
    /// };
    /// trainer(2).run(&batches, step)?;
    /// let mut calls = 0;
    /// let counted = |x: &Tensor| { calls += 1; step(x) };
    /// let outcome = trainer(5).resume(true).run(&batches, counted)?;
    /// assert_eq!((outcome.step, calls), (5, 3));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn resume(self, resume: bool) -> Self {
        Trainer { resume, ..self }
    }

    /// Stops when a metric has not improved for some time.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::state::MetricMode;
    /// use pullback_nn::train::{EarlyStop, Ended, Every, Trainer};
    /// let outcome = Trainer::new(&model, &opt)
    ///     .epochs(100)
    ///     .evaluate(Every::Epochs(1), |_| Ok(1.0))
    ///     .early_stop(EarlyStop::new("val_loss", MetricMode::Min).patience(2))
    ///     .run(&batches, step)?;
    /// assert!(matches!(outcome.ended, Ended::Early(_)));
    /// assert_eq!(outcome.step, 3);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn early_stop(self, stop: EarlyStop) -> Self {
        Trainer { early_stop: Some(stop), ..self }
    }

    /// Adds a callback.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::{JsonLog, Trainer, read_log};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let log = folder.join("log.jsonl");
    /// Trainer::new(&model, &opt).epochs(3).callback(JsonLog::new(&log)).run(&batches, step)?;
    /// assert_eq!(read_log(&log)?.len(), 3);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn callback(mut self, callback: impl Callback + 'a) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Whether Ctrl-C stops the run (on Unix also SIGTERM and SIGHUP, which launchers and batch
    /// systems send), as it does unless this is `false`: after the step that is
    /// running, with a checkpoint (if there are [`Trainer::checkpoints`]), and a sentence on
    /// standard error that says how to resume. [`Outcome::ended`] is then
    /// [`Ended::Interrupted`](super::Ended::Interrupted). A second Ctrl-C ends the process at once,
    /// with exit code 130.
    ///
    /// Where the program handles or ignores Ctrl-C already, that stays. A program that sets its
    /// handler later, with the `ctrlc` crate, turns this off, and stops the run by
    /// [`Trainer::stop_at`].
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// # let model = [Tensor::from(0f32).requires_grad()];
    /// # let opt = Sgd { lr: 0.1, ..Sgd::default() }.over(model.clone())?;
    /// # let batches = vec![Tensor::from([1f32, 2.0])];
    /// # let step = |x: &Tensor| -> pullback::Result<Tensor> { Ok((x * &model[0]).sum()) };
    /// use pullback_nn::train::Trainer;
    /// let trainer = Trainer::new(&model, &opt).epochs(3).handle_interrupt(false);
    /// assert_eq!(trainer.run(&batches, step)?.step, 3);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn handle_interrupt(self, handle: bool) -> Self {
        Trainer { handle_interrupt: handle, ..self }
    }

    /// Checks this between steps too, and stops where it is true: a signal that the program handles
    /// itself, a button.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::{Ended, Trainer};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// let stop = Arc::new(AtomicBool::new(false));
    /// let trainer = Trainer::new(&model, &opt).epochs(100).stop_at(stop.clone());
    /// let outcome = trainer.run(&batches, |x| {
    ///     stop.store(true, Ordering::Relaxed);
    ///     step(x)
    /// })?;
    /// assert_eq!((outcome.step, outcome.ended), (1, Ended::Interrupted));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn stop_at(self, stop: Arc<AtomicBool>) -> Self {
        Trainer { stop: Some(stop), ..self }
    }

    /// The number of examples in a step, to report the throughput as the metric
    /// `examples_per_second`. Loaders report their own number: the last batch of a
    /// [`DataLoader`](crate::data::DataLoader)'s epoch may have fewer.
    ///
    /// The throughput is the number of examples since the last evaluation or end of an epoch,
    /// divided by the seconds in which they were loaded and trained on, without the time of
    /// evaluations, callbacks and checkpoints; the first step, which may compile, counts by itself.
    /// Callbacks get it. [`Outcome::throughput`] is that of the whole run.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::{JsonLog, Trainer, read_log};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let log = folder.join("log.jsonl");
    /// let trainer = Trainer::new(&model, &opt).batch_size(2).callback(JsonLog::new(&log));
    /// trainer.run(&batches, step)?;
    /// assert!(read_log(&log)?[0].metrics.get("examples_per_second").unwrap() > 0.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn batch_size(self, examples: u64) -> Self {
        Trainer { batch_size: Some(examples), ..self }
    }

    /// The number of tokens in an example, to report `tokens_per_second` wherever
    /// `examples_per_second` is ([`Trainer::batch_size`]).
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::Trainer;
    /// let trainer = Trainer::new(&model, &opt).batch_size(2).tokens_per_example(64);
    /// let rates = trainer.epochs(3).run(&batches, step)?.throughput;
    /// let of = |name| rates.get(name).unwrap();
    /// assert_eq!(of("tokens_per_second"), 64.0 * of("examples_per_second"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn tokens_per_example(self, tokens: u64) -> Self {
        Trainer { content: Content { tokens: Some(tokens), ..self.content }, ..self }
    }

    /// The floating-point operations of a forward and a backward pass for one example, and how many
    /// the device does in a second ([`peak_operations`](super::peak_operations) measures that), to
    /// report their ratio as `mfu`, the model FLOP utilisation, wherever `examples_per_second` is
    /// ([`Trainer::batch_size`]). With several workers it is that of all their devices.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::Trainer;
    /// let trainer = Trainer::new(&model, &opt).batch_size(2).operations_per_example(6.0, 1e9);
    /// let rates = trainer.epochs(3).run(&batches, step)?.throughput;
    /// let of = |name| rates.get(name).unwrap();
    /// assert_eq!(of("mfu"), 6.0 * of("examples_per_second") / 1e9);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn operations_per_example(self, operations: f64, peak: f64) -> Self {
        Trainer {
            content: Content { operations: Some((operations, peak)), ..self.content },
            ..self
        }
    }

    /// Whether to continue when the loss is NaN or infinite; by default that ends the run with an
    /// error.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::Trainer;
    /// let trainer = || Trainer::new(&model, &opt);
    /// assert!(trainer().run(&batches, |_| Ok(f64::NAN)).is_err());
    /// assert!(trainer().allow_non_finite(true).run(&batches, |_| Ok(f64::NAN)).is_ok());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn allow_non_finite(self, allow: bool) -> Self {
        Trainer { allow_non_finite: allow, ..self }
    }

    /// The configuration of the run, which checkpoints save.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::state::Checkpoints;
    /// use pullback_nn::train::{Every, Trainer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let checkpoints = Checkpoints::new(folder);
    /// Trainer::new(&model, &opt)
    ///     .checkpoints(Every::Epochs(1), checkpoints.clone())
    ///     .config(serde_json::json!({ "lr": 0.1 }))
    ///     .run(&batches, step)?;
    /// assert_eq!(checkpoints.latest()?.unwrap().checkpoint.record.config["lr"], 0.1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn config(self, config: Value) -> Self {
        Trainer { config, ..self }
    }

    /// Saves other tensors in checkpoints too, under this name, and restores them when resuming: an
    /// average of the weights, the state of a second optimiser. [`Trainer::run`] fails if the name
    /// has a dot or is one that checkpoints use themselves.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::state::Checkpoints;
    /// use pullback_nn::train::{Every, Trainer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let checkpoints = Checkpoints::new(folder);
    /// let average = Tensor::from(0.0);
    /// Trainer::new(&model, &opt)
    ///     .checkpoints(Every::Epochs(1), checkpoints.clone())
    ///     .keep("average", vec![("w".to_string(), average.clone())])
    ///     .run(&batches, step)?;
    /// assert!(checkpoints.latest()?.unwrap().checkpoint.has_tensors("average"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn keep(mut self, group: &str, named: Vec<(String, Tensor)>) -> Self {
        self.states.push((group.to_string(), named));
        self
    }

    /// Runs steps inside [`autocast`](pullback::autocast) with this dtype, `bf16` or `f16`: forward
    /// passes are in mixed precision, parameters and the optimiser stay in `f32`. A compiled step
    /// is compiled for it. Evaluation is not affected. [`Trainer::run`] fails with another dtype.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback::DType;
    /// use pullback_nn::train::Trainer;
    /// let mut dtype = None;
    /// Trainer::new(&model, &opt).precision(DType::BF16).run(&batches, |x| {
    ///     let y = Tensor::ones([2, 2]).matmul(&Tensor::ones([2, 2]));
    ///     dtype = Some(y.dtype());
    ///     step(x)
    /// })?;
    /// assert_eq!(dtype, Some(DType::BF16));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn precision(self, dtype: DType) -> Self {
        Trainer { precision: Some(dtype), ..self }
    }

    /// The scaler that the step function scales the loss with, and updates. Checkpoints save its
    /// state under the name `scaler`. The loss of a step that it skipped may be not finite, and
    /// does not count in the means of the epoch. The metric `scale` is the scale of the next step.
    ///
    /// The first 3 steps that are skipped are run a second time, op by op, as
    /// [`GradScaler::watched`] does, and the op and line that overflowed first are reported: to
    /// callbacks at once ([`TrainState::overflow`](super::TrainState::overflow)), and in
    /// [`Outcome::notes`]. Afterwards the model, the optimiser, the scaler, the random generator
    /// and what is kept ([`Trainer::keep`]) are as the first run left them; anything else that the
    /// step function changes is changed twice. [`Trainer::name_overflows`] sets how many.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// use pullback_nn::train::Trainer;
    /// let scaler = GradScaler::new(GradScalerOptions { init_scale: 4.0, ..Default::default() })?;
    /// let outcome = Trainer::new(&model, &opt).scaler(&scaler).run(&batches, |x| {
    ///     opt.zero_grad();
    ///     let loss = (x * &model[0] - x * 3.0).square().mean();
    ///     scaler.scale(&loss).backward()?;
    ///     scaler.step(&opt)?;
    ///     scaler.update()?;
    ///     Ok(loss)
    /// })?;
    /// assert_eq!(outcome.metrics.get("scale"), Some(4.0));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn scaler(mut self, scaler: &'a GradScaler) -> Self {
        self.scaler = Some(scaler);
        self.keep(SCALER, scaler.named_state())
    }

    /// How many skipped steps are run again to name the op that overflowed; 3 by default. With 0 no
    /// step is run twice.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::precision::{GradScaler, GradScalerOptions};
    /// use pullback_nn::train::Trainer;
    /// let scaler = GradScaler::new(GradScalerOptions { init_scale: 1e38, ..Default::default() })?;
    /// let mut calls = 0;
    /// Trainer::new(&model, &opt).scaler(&scaler).name_overflows(0).run(&batches, |x| {
    ///     calls += 1;
    ///     opt.zero_grad();
    ///     let loss = (x * &model[0] - x * 3.0).square().mean();
    ///     scaler.scale(&loss).backward()?;
    ///     scaler.step(&opt)?;
    ///     scaler.update()?;
    ///     Ok(loss)
    /// })?;
    /// assert_eq!((scaler.skipped()?, calls), (1, 1));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn name_overflows(self, count: u64) -> Self {
        Trainer { name_overflows: count, ..self }
    }

    /// Trains together with the other workers of a group, each of which runs the same program: the
    /// step function reduces gradients with [`DataParallel`](crate::parallel::DataParallel), and
    /// the loader gives each worker its part of a batch
    /// ([`DataLoader::workers`](crate::data::DataLoader::workers)).
    ///
    /// Metrics are the mean over workers, weighted by the examples of the step where the loader
    /// says how many there were. All workers end together, also where one is interrupted; an error
    /// of one is an error of all. Callbacks run on worker 0 alone, and it writes the checkpoints,
    /// which all read when they resume; another number of workers may resume. Buffers are those of
    /// worker 0 in every evaluation and checkpoint. Where the engine counts, the metrics
    /// `slowest_worker` and `waited_for_it` (seconds, at each end of an epoch and evaluation) and a
    /// note of the outcome say which worker the others have waited for longest; with up to 16
    /// workers `waited_for_0` and so on say it of each. Workers that are seeded alike draw the same
    /// random numbers, and do so after resuming.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
    /// use pullback_nn::parallel::DataParallel;
    /// use pullback_nn::train::Trainer;
    ///
    /// let losses = pullback_workers::threads(2, |group| {
    ///     let model = [Tensor::from(0f32).requires_grad()];
    ///     let opt = Sgd { lr: 0.01, ..Sgd::default() }.over(model.clone())?;
    ///     let parallel = DataParallel::new(&model, &group)?;
    ///     let loader = DataLoader::new(from_fn(8, |i| Ok(i as f32)));
    ///     let loader = loader.batch_size(4).workers(&group);
    ///     let trainer = Trainer::new(&model, &opt).epochs(10).workers(&group);
    ///     let outcome = trainer.run(&loader, |x: &Tensor| {
    ///         opt.zero_grad();
    ///         let loss = (x * &model[0] - x * 3.0).square().mean();
    ///         parallel.backward(&loss)?;
    ///         opt.step()?;
    ///         Ok(loss)
    ///     })?;
    ///     Ok(outcome.metrics.get("epoch_loss").unwrap())
    /// })?;
    /// assert!(losses[0] == losses[1] && losses[0] < 1.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn workers(self, group: &Group) -> Self {
        Trainer { workers: Some(group.clone()), ..self }
    }

    /// Trains: calls `step` on each batch until the run ends.
    ///
    /// ```
    #[doc = include_str!("example_run.txt")]
    /// use pullback_nn::train::Trainer;
    /// let outcome = Trainer::new(&model, &opt).epochs(3).run(&batches, step)?;
    /// assert_eq!((outcome.step, outcome.ended.to_string()), (3, "finished".to_string()));
    /// assert!(Trainer::new(&model, &opt).run(&Vec::new(), step).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the step, the evaluation, the data or a callback fails; the loss is not finite; there are
    /// no batches; a metric that something monitors is never measured; or a checkpoint cannot be
    /// written or does not fit.
    pub fn run<B: Batches, R: Into<Metrics>>(
        self,
        batches: &B,
        step: impl FnMut(&B::Batch) -> Result<R>,
    ) -> Result<Outcome> {
        run::run(self, batches, step)
    }
}
