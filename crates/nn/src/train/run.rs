//! The training loop.
//!
//! After each step, in this order: at the end of an epoch its means are taken; the model is
//! evaluated if due; the schedule steps; early stopping checks; callbacks run; a checkpoint is
//! saved if due. So a checkpoint is saved after everything else of its step, and logs have that
//! step before it is on disk.
//!
//! The state of the loop itself (the position in the epoch, the sums of running means) is in
//! [`LoopState`].

mod saving;

use super::early_stop::StopDecision;
use super::interrupt::InterruptGuard;
use super::loop_state::LoopState;
use super::monitored::missing;
use super::overflows::Overflows;
use super::throughput::Throughput;
use super::trainer::Trainer;
use super::workers::RunWorkers;
use super::{Batches, Callback, Ended, Every, LoopControl, Metrics, Outcome, TrainState};
use crate::Module;
use crate::module::in_evaluation;
use pullback::{DType, Error, Group, Result, Tensor, autocast, catch, no_grad};
use serde_json::Value;
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const OP: &str = "train";

/// The group of a checkpoint's tensors that holds the best weights so far.
pub(super) const BEST: &str = "best";

/// A run in progress.
struct TrainingRun<'r, 'a, M, B> {
    trainer: Trainer<'a, M>,
    batches: &'r B,
    place: LoopState,
    started: Instant,
    parameters: Vec<(String, Tensor)>,
    /// The weights of the best step so far.
    best: Option<Vec<(String, Tensor)>>,
    /// What the last step measured.
    measured: Metrics,
    /// The last value of everything that was measured.
    latest: Metrics,
    notes: Vec<String>,
    overflows: Overflows,
    /// The position in the data after the last step.
    position: Value,
    throughput: Throughput,
    /// Whether the monitored metrics were checked against those there are.
    looked: bool,
    /// Notices Ctrl-C, where the run handles it.
    interrupts: Option<InterruptGuard>,
    workers: RunWorkers,
}

pub(super) fn run<M: Module, B: Batches, R: Into<Metrics>>(
    trainer: Trainer<'_, M>,
    batches: &B,
    mut step: impl FnMut(&B::Batch) -> Result<R>,
) -> Result<Outcome> {
    let parameters = trainer.model.named_parameters();
    let handled = trainer.handle_interrupt.then(InterruptGuard::unless_handled);
    let mut run = TrainingRun {
        workers: RunWorkers(trainer.workers.clone()),
        trainer,
        batches,
        place: LoopState { batch: batches.taken(), ..LoopState::default() },
        started: Instant::now(),
        parameters,
        best: None,
        measured: Metrics::new(),
        latest: Metrics::new(),
        notes: Vec::new(),
        overflows: Overflows::default(),
        position: batches.position(),
        throughput: Throughput::default(),
        looked: false,
        interrupts: handled.flatten(),
    };
    run.begin()?;
    let ended = run.remaining_steps(&mut step)?;
    run.end(ended)
}

impl<M: Module, B: Batches> TrainingRun<'_, '_, M, B> {
    fn begin(&mut self) -> Result<()> {
        for (group, _) in &self.trainer.states {
            if [BEST, "optimizer", "random"].contains(&group.as_str()) || group.contains('.') {
                let message = format!("other tensors cannot be kept under the name `{group}`");
                return Err(Error::argument(OP, message).hint("name it otherwise, without dots"));
            }
        }
        if let Some(dtype) = self.trainer.precision
            && !matches!(dtype, DType::BF16 | DType::F16)
        {
            let message = format!("mixed precision is in bf16 or f16, not in {dtype}");
            return Err(Error::argument(OP, message));
        }
        self.resume()?;
        self.trainer.model.train();
        let start = |callback: &mut dyn Callback, now: &TrainState| callback.on_start(now);
        let started = self.call_callbacks(&Metrics::new(), |callback, now| {
            start(callback, now).map(LoopControl::Continue)
        });
        self.workers.together(started.map(drop))
    }

    /// All steps that are left.
    fn remaining_steps<R: Into<Metrics>>(
        &mut self,
        step: &mut impl FnMut(&B::Batch) -> Result<R>,
    ) -> Result<Ended> {
        let (batches, count) = (self.batches, self.batches.count());
        loop {
            let epoch = self.place.epoch;
            let mut rest = batches.rest(self.place.batch);
            let mut next = None;
            loop {
                if self.is_over() {
                    return Ok(Ended::Finished);
                }
                let stop = self.is_interrupted() || self.is_to_stop();
                if self.workers.decide(Ok(stop.then(String::new)))?.is_some() {
                    return Ok(Ended::Interrupted);
                }
                let began = Instant::now();
                let fetched = |batch| (batch, batches.examples(), Duration::ZERO);
                let taken = next.take().or_else(|| rest.next().map(fetched));
                let Some((batch, examples, loaded)) = taken else { break };
                let (metrics, examples) = self.step(batch, examples, step)?;
                if let Some(size) = self.trainer.batch_size {
                    self.throughput.add(examples.unwrap_or(size), loaded + began.elapsed());
                }
                self.position = batches.position();
                let ends_epoch = match count {
                    Some(count) => self.place.batch >= count,
                    // If the length of an epoch is unknown, the next batch is fetched, to know
                    // whether there is one. The position stays that before it; after the last, it
                    // is that of the next epoch.
                    None => {
                        let began = Instant::now();
                        let fetched = |batch| (batch, batches.examples(), began.elapsed());
                        next = rest.next().map(fetched);
                        if next.is_none() {
                            self.position = batches.position();
                        }
                        next.is_none()
                    }
                };
                if let Some(ended) = self.after(metrics, ends_epoch)? {
                    return Ok(ended);
                }
                if ends_epoch {
                    break;
                }
            }
            // After its last batch an epoch was ended, and no batch of the next was taken yet.
            if self.place.batch > 0 || self.place.epoch == epoch {
                let taken = self.place.batch;
                let message = match taken {
                    0 => "there are no batches to train on".to_string(),
                    _ => format!("epoch {} ended after {taken} batches", epoch + 1),
                };
                return Err(Error::argument(OP, message));
            }
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupts.as_ref().is_some_and(InterruptGuard::is_interrupted)
    }

    fn is_to_stop(&self) -> bool {
        self.trainer.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// What is printed at Ctrl-C: where the run is, and how to resume it.
    fn how_to_resume(&self) -> String {
        let done = format!("interrupted after step {}", self.place.step);
        match &self.trainer.checkpoints {
            None => format!("{done}; nothing is saved, as the trainer has no `checkpoints`"),
            Some((_, checkpoints)) => {
                let folder = checkpoints.folder().display();
                let how = match self.trainer.resume {
                    true => "run the program again",
                    false => "call `resume(true)` on the trainer and run the program again",
                };
                format!("{done}, and a checkpoint saved in {folder}: to resume, {how}")
            }
        }
    }

    fn is_over(&self) -> bool {
        match self.trainer.until {
            Every::Steps(n) => self.place.step >= n,
            Every::Epochs(n) => self.place.epoch >= n,
        }
    }

    /// A step, and what all workers measured in it and on how many examples.
    fn step<R: Into<Metrics>>(
        &mut self,
        batch: Result<B::Batch>,
        examples: Option<u64>,
        step: &mut impl FnMut(&B::Batch) -> Result<R>,
    ) -> Result<(Metrics, Option<u64>)> {
        let mut skipped = false;
        let measured = batch.and_then(|batch| {
            let (measured, skip) = self.own_step(&batch, step)?;
            skipped = skip;
            catch(|| measured.into())
        });
        let (mut metrics, examples) = self.workers.mean(measured, examples)?;
        (self.place.step, self.place.batch) = (self.place.step + 1, self.place.batch + 1);
        if let Some(scaler) = self.trainer.scaler {
            metrics.set("scale", scaler.current()?);
        }
        if skipped {
            // The step was skipped, so its loss does not matter.
            return Ok((metrics, examples));
        }
        let wrong = metrics.iter().find(|(name, value)| *name == "loss" && !value.is_finite());
        if let (Some((_, loss)), false) = (wrong, self.trainer.allow_non_finite) {
            let (step, epoch) = (self.place.step, self.place.epoch + 1);
            let message = format!("the loss is {loss} at step {step}, in epoch {epoch}");
            return Err(Error::argument(OP, message).hint(
                "a lower learning rate or clipped gradients may help; detect_anomaly finds the op",
            ));
        }
        self.place.add(&metrics);
        Ok((metrics, examples))
    }

    /// This worker's step, and whether it was skipped.
    fn own_step<R: Into<Metrics>>(
        &mut self,
        batch: &B::Batch,
        step: &mut impl FnMut(&B::Batch) -> Result<R>,
    ) -> Result<(R, bool)> {
        let (step, precision) = (RefCell::new(step), self.trainer.precision);
        let once = || {
            let mut step = step.borrow_mut();
            match precision {
                Some(dtype) => autocast(dtype, || step(batch)),
                None => step(batch),
            }
        };
        let number = self.place.step + 1;
        match self.trainer.scaler {
            Some(scaler) => self.overflows.step(&self.trainer, scaler, number, once),
            None => Ok((once()?, false)),
        }
    }

    /// What is due after a step.
    fn after(&mut self, mut metrics: Metrics, ends_epoch: bool) -> Result<Option<Ended>> {
        if let Some(lr) = self.trainer.optimizer.lrs().first() {
            metrics.set("lr", lr.item::<f64>());
        }
        if ends_epoch {
            let means = self.place.end_epoch();
            metrics.extend("epoch_", &means);
        }
        let ended_epoch = ends_epoch.then_some(self.place.epoch);
        let is_due = |every: Every, step: u64| every.is_due(step, ended_epoch);
        let step = self.place.step;
        let (over, mut evaluated) = (self.is_over(), false);
        if let Some((every, evaluate)) = &mut self.trainer.evaluation
            && (is_due(*every, step) || over)
        {
            let model = self.trainer.model;
            self.workers.share_buffers(model)?;
            let measured = in_evaluation(model, || no_grad(|| evaluate(model)));
            metrics.extend("val_", &self.workers.mean(measured, None)?.0);
            evaluated = true;
        }
        // A schedule may use the metrics of the evaluation.
        if let Some((every, schedule)) = &mut self.trainer.schedule
            && is_due(*every, step)
        {
            schedule.advance(&metrics);
        }
        self.latest.extend("", &metrics);
        self.measured = metrics.clone();
        let mut ended = self.update_best(&metrics);
        if (ends_epoch || evaluated)
            && let Some(waits) = self.workers.waits()?
        {
            waits.log(&mut metrics);
        }
        if self.trainer.batch_size.is_some() {
            metrics.extend("", &self.rates(self.throughput.per_second()));
            if ends_epoch || evaluated {
                self.throughput.end_interval();
            }
        }
        let flow = self.call_callbacks(&metrics, |callback, now| {
            let mut flow = callback.on_step(now)?;
            if flow.is_continue() && ends_epoch {
                flow = callback.on_epoch(now)?;
            }
            if flow.is_continue() && evaluated {
                flow = callback.on_eval(now)?;
            }
            Ok(flow)
        });
        if let Some(why) = self.workers.decide(flow.map(LoopControl::break_value))? {
            ended.get_or_insert(Ended::Stopped(why));
        }
        let mut save =
            self.trainer.checkpoints.as_ref().is_some_and(|(every, _)| is_due(*every, step));
        let names_known = evaluated || (self.trainer.evaluation.is_none() && ends_epoch);
        let mut mistake = None;
        if names_known && !std::mem::replace(&mut self.looked, true) {
            mistake = missing(&self.trainer, &self.metric_names());
            // The checkpoint is saved: the run can be resumed from here with another name.
            save |= mistake.is_some();
        }
        if save {
            self.save()?;
        }
        match mistake {
            Some(mistake) => Err(mistake),
            None => Ok(ended),
        }
    }

    /// The names of all metrics there are, as far as the run knows: the means of an epoch that is
    /// not over will be there too.
    fn metric_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.latest.iter().map(|(name, _)| name.to_string()).collect();
        let means = self.place.means.iter().map(|(name, _)| format!("epoch_{name}"));
        for name in means {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Runs early stopping, and keeps the weights if they are the best.
    fn update_best(&mut self, metrics: &Metrics) -> Option<Ended> {
        let stop = self.trainer.early_stop.as_mut()?;
        match stop.update(self.place.step, metrics) {
            StopDecision::Stop => Some(Ended::Early(stop.reason())),
            StopDecision::Better if stop.restores() => {
                self.best = Some(self.copied_weights());
                None
            }
            _ => None,
        }
    }

    fn copied_weights(&self) -> Vec<(String, Tensor)> {
        let copied = |(name, x): (String, Tensor)| (name, x.detach().deep_clone());
        self.trainer.model.named_state().into_iter().map(copied).collect()
    }

    fn seconds(&self) -> f64 {
        self.place.seconds + self.started.elapsed().as_secs_f64()
    }

    /// What so many examples a second are in tokens and in use of the devices.
    fn rates(&self, per_second: f64) -> Metrics {
        let devices = self.trainer.workers.as_ref().map_or(1, Group::size);
        self.trainer.content.rates(per_second, devices)
    }

    /// How many steps there will be.
    fn last_step(&self) -> Option<u64> {
        match self.trainer.until {
            Every::Steps(n) => Some(n),
            Every::Epochs(n) => Some(n * self.batches.count()?),
        }
    }

    /// Calls all callbacks, also those after one that stops the run; on worker 0 alone.
    fn call_callbacks(
        &mut self,
        metrics: &Metrics,
        mut what: impl FnMut(&mut dyn Callback, &TrainState) -> Result<LoopControl>,
    ) -> Result<LoopControl> {
        if !self.workers.is_writer() {
            return Ok(LoopControl::Continue(()));
        }
        let now = TrainState {
            step: self.place.step,
            epoch: self.place.epoch,
            last_step: self.last_step(),
            metrics,
            seconds: self.seconds(),
            parameters: &self.parameters,
            overflow: self.overflows.latest.as_ref(),
        };
        let mut flow = LoopControl::Continue(());
        for callback in &mut self.trainer.callbacks {
            let control = what(&mut **callback, &now)?;
            if flow.is_continue() {
                flow = control;
            }
        }
        Ok(flow)
    }

    fn end(mut self, ended: Ended) -> Result<Outcome> {
        self.save()?;
        // A batch that was fetched only to know whether there is one is still to be used.
        if self.batches.position() != self.position {
            self.batches.go_to(&self.position)?;
        }
        if let Some(best) = self.best.take() {
            let model = self.trainer.model.named_state();
            catch(|| {
                no_grad(|| {
                    model.iter().zip(&best).for_each(|((_, x), (_, best))| drop(x.copy_(best)))
                });
            })?;
            let spread = self.trainer.spread.as_ref();
            spread.map_or(Ok(()), |spread| spread.scatter(self.trainer.model))?;
        }
        if !self.looked && self.place.step > 0 {
            // No evaluation and no end of an epoch came before the end.
            let note =
                missing(&self.trainer, &self.metric_names()).map(|e| e.message().to_string());
            self.notes.extend(note);
        }
        self.notes.extend(self.overflows.notes());
        if let Some(waits) = self.workers.waits()? {
            let (rank, seconds) = waits.slowest();
            let share = 100.0 * seconds / self.seconds().max(f64::MIN_POSITIVE);
            let note = format!("waited longest for worker {rank}: {seconds:.1} s ({share:.0}%)");
            self.notes.push(note);
        }
        self.overflows.latest = None;
        let outcome = Outcome {
            step: self.place.step,
            epoch: self.place.epoch,
            metrics: self.latest.clone(),
            best: self.trainer.early_stop.as_ref().and_then(super::EarlyStop::best),
            ended,
            seconds: self.seconds(),
            throughput: match self.trainer.batch_size {
                Some(_) => self.rates(self.throughput.of_all()),
                None => Metrics::new(),
            },
            notes: std::mem::take(&mut self.notes),
        };
        let latest = self.latest.clone();
        let end = |callback: &mut dyn Callback, now: &TrainState| callback.on_end(now, &outcome);
        let ended = self
            .call_callbacks(&latest, |callback, now| end(callback, now).map(LoopControl::Continue));
        self.workers.together(ended.map(drop))?;
        // After the last line of the progress.
        if self.workers.is_writer() && self.is_interrupted() && outcome.ended == Ended::Interrupted
        {
            eprintln!("{}", self.how_to_resume());
        }
        Ok(outcome)
    }
}
