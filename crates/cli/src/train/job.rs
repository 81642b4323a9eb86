//! What is the same for every task: the step, the loop, logs, plots, checkpoints, Ctrl-C.

use super::options::Options;
use super::precision::{Mixed, report};
use super::reference::Reference;
use super::schedule::ScheduleOver;
use super::settings::{RunLength, Settings};
use super::{folder, summary};
use crate::failure::{CliResult, Failure, INTERRUPTED};
use crate::models::{self, BlockNetwork};
use crate::output::StandardOutput;
use pullback::{Group, Result, Tensor, catch, jit, with_default_device};
use pullback_nn::optim::{self, Optimizer};
use pullback_nn::parallel::{DataParallel, FullSharding, Sharded, together};
use pullback_nn::schedule::{LinearWarmup, Scheduler};
use pullback_nn::state::Checkpoints;
use pullback_nn::train::plots::Plots;
use pullback_nn::train::{
    Batches, CsvLog, Ended, Every, JsonLog, LayerLog, Metrics, ProgressBar, TensorBoard, Trainer,
    peak_operations,
};
use pullback_nn::{Module, memory_report, predict_memory};
use serde_json::json;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A training run.
pub struct TrainJob<'a> {
    pub settings: &'a Settings,
    /// The options with all defaults, saved in the folder and in checkpoints.
    pub options: &'a Options,
    pub folder: &'a Path,
    /// Resumes from the last checkpoint.
    pub resume: bool,
    /// Restarts the run that is in the folder.
    pub force: bool,
    /// Ctrl-C was pressed.
    pub stop: Arc<AtomicBool>,
    /// Where to write what takes memory during a step.
    pub memory_report: Option<&'a Path>,
    /// Where to write what the same run in PyTorch begins with.
    pub reference: Option<&'a Path>,
    /// The processes that train together; this one alone, usually.
    pub group: &'a Group,
    /// Spreads the blocks of the network over them: stage 3.
    pub sharding: Option<FullSharding>,
}

/// What an example is made of, where that is reported.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExampleCost {
    pub tokens: Option<u64>,
    /// Floating-point operations of a forward and a backward pass.
    pub operations: Option<f64>,
}

/// From this size on, what looks at every parameter does it less often.
const LARGE: usize = 10_000_000;

/// The optimiser. Muon is for matrices alone; AdamW gets the other parameters.
fn optimizer(settings: &Settings, parameters: Vec<Tensor>) -> Result<Vec<Box<dyn Optimizer>>> {
    let mut options = json!({ "lr": settings.lr });
    if let Some(decay) = settings.weight_decay {
        options["weight_decay"] = json!(decay);
    }
    let (fitting, rest): (Vec<Tensor>, Vec<Tensor>) =
        parameters.into_iter().partition(|x| settings.optimizer != "muon" || x.rank() == 2);
    let both = [(settings.optimizer.as_str(), fitting), ("adamw", rest)];
    let some = both.into_iter().filter(|(_, parameters)| !parameters.is_empty());
    some.map(|(name, parameters)| optim::named(name, vec![(parameters, options.clone())])).collect()
}

impl TrainJob<'_> {
    /// The number of the last step, where an epoch has this many batches.
    fn last(&self, batches: &impl Batches) -> u64 {
        match self.settings.until {
            RunLength::Steps(n) => n,
            RunLength::Epochs(n) => n.saturating_mul(batches.count().unwrap_or(1)),
        }
    }

    /// Makes the folder, and prints what is trained on what. What cannot be trained was refused
    /// before.
    ///
    /// # Errors
    /// If the folder cannot be used, or the run in it is longer already.
    pub fn begin(
        &self,
        parameters: usize,
        data: &str,
        batches: &impl Batches,
        out: &mut StandardOutput,
    ) -> CliResult {
        if self.resume {
            let found = Checkpoints::new(self.folder.join(folder::CHECKPOINTS)).latest()?;
            let (taken, last) = (found.map_or(0, |f| f.checkpoint.record.step), self.last(batches));
            if taken > last {
                return Err(Failure::usage(format!(
                    "the run in {} has taken {taken} steps already, and is to end at {last}: give more --steps or --epochs",
                    self.folder.display()
                )));
            }
        }
        let made = if self.is_writer() { self.make_folder() } else { Ok(()) };
        let failed =
            |failure: &Failure| pullback::Error::argument("train", failure.message.clone());
        let shared = together(self.group, "train", made.as_ref().map(drop).map_err(failed));
        made?;
        shared?;
        summary::begin(self, parameters, data, out)
    }

    fn make_folder(&self) -> CliResult {
        if !self.resume {
            folder::begin(self.folder, self.force)?;
        }
        folder::write_config(self.folder, self.options)
    }

    /// The operations a second that utilisation is a share of, if it is reported.
    fn peak(&self, example: ExampleCost) -> Result<Option<f64>> {
        let wanted = self.settings.mfu && example.operations.is_some();
        let dtype = self.settings.low.unwrap_or(self.settings.dtype);
        wanted.then(|| peak_operations(dtype)).transpose()
    }

    /// The network that is trained: its blocks are spread over the workers, if that was asked for.
    ///
    /// # Errors
    /// Of the workers.
    pub fn spread<M: BlockNetwork>(&self, model: M) -> Result<M> {
        match &self.sharding {
            Some(sharding) => model.spread(sharding),
            None => Ok(model),
        }
    }

    /// Whether to stop. Workers that have a part of the network each use it together, and so stop
    /// together: if one of them is to.
    ///
    /// # Errors
    /// Of the workers.
    pub fn is_to_stop(&self) -> Result<bool> {
        let own = self.stop.load(Ordering::Relaxed);
        match &self.sharding {
            None => Ok(own),
            Some(sharding) => catch(|| {
                let own = with_default_device("cpu", || Tensor::from(i64::from(own)));
                own.all_reduce_max(sharding.group()).item::<i64>() == 1
            }),
        }
    }

    /// Whether this process writes files and prints.
    pub fn is_writer(&self) -> bool {
        self.group.rank() == 0
    }

    /// Trains a model, whose scores `scores` gives, on batches of inputs and labels, of which all
    /// processes together have `all_examples`. `evaluate` is called `every` so often.
    /// Throughput is reported in what an example is made of.
    ///
    /// # Errors
    /// If a step or a file fails, or the run is interrupted: then with how to resume.
    pub fn train<M: Module, B: Batches<Batch = (Tensor, Tensor)>>(
        &self,
        model: &M,
        scores: impl Fn(&Tensor) -> Tensor,
        (batches, all_examples): (&B, usize),
        example: ExampleCost,
        (every, evaluate): (Every, impl FnMut(&M) -> Result<Metrics>),
    ) -> CliResult<pullback_nn::train::Outcome> {
        let settings = self.settings;
        let stage = self.options.shard.filter(|_| self.sharding.is_none());
        let sharded = stage.map(|stage| Sharded::new(model, self.group, stage));
        let sharded = sharded.transpose()?;
        let trained = sharded.as_ref().map_or_else(|| model.parameters(), Sharded::parameters);
        let optimizer = optimizer(settings, trained)?;
        let last = self.last(batches);
        let config =
            serde_json::to_value(self.options).map_err(|e| Failure::failed(e.to_string()))?;
        let course =
            ScheduleOver { course: settings.schedule, steps: last.saturating_sub(settings.warmup) };
        let warm = LinearWarmup { total_iters: settings.warmup, start_factor: 0.1, then: course };
        let schedule = Scheduler::new(&optimizer, warm);
        let mixed = Mixed::new(settings, self.options.shard.map(|_| self.group))?;
        let logical = self.options.logical_workers;
        let parallel = match (self.group.size(), logical) {
            _ if self.options.shard.is_some() => None,
            (1, None) => None,
            (_, None) => Some(DataParallel::new(model, self.group)?),
            (_, Some(parts)) => Some(DataParallel::new(model, self.group)?.logical_workers(parts)?),
        };
        let step = jit(|(x, y): &(Tensor, Tensor)| -> Result<Tensor> {
            if let Some(sharded) = &sharded {
                sharded.zero_grad();
                let loss = models::loss(&scores(x), y);
                sharded.backward_weighted(&mixed.scaled(&loss), x.shape()[0])?;
                mixed.update(&optimizer)?;
                sharded.gather()?;
                return Ok(loss);
            }
            optimizer.zero_grad();
            match (&parallel, logical) {
                (Some(parallel), Some(_)) => {
                    // The examples of this process begin where those of the one before end.
                    let first = parallel.share(all_examples).start;
                    let loss = parallel.backward_parts(all_examples, |examples| {
                        let from = (examples.start - first) as isize;
                        let part = |x: &Tensor| x.narrow(0, from, examples.len());
                        catch(|| mixed.scaled(&models::loss(&scores(&part(x)), &part(y))))
                    })?;
                    let loss = catch(|| loss / mixed.scaled(&x.new_tensor(1f32)))?;
                    mixed.update(&optimizer)?;
                    Ok(loss)
                }
                (parallel, _) => {
                    let loss = models::loss(&scores(x), y);
                    let scaled = mixed.scaled(&loss);
                    match (parallel, &self.sharding) {
                        (Some(parallel), _) => parallel.backward_weighted(&scaled, x.shape()[0])?,
                        (_, Some(sharding)) => sharding.backward_weighted(&scaled, x.shape()[0])?,
                        (None, None) => scaled.backward()?,
                    }
                    mixed.update(&optimizer)?;
                    Ok(loss)
                }
            }
        });
        let reference = self.reference.map(|folder| Reference::new(folder, model)).transpose()?;
        let peak = self.peak(example)?;
        let mut last_batch = None;
        let unreported = Cell::new(self.memory_report);
        let at = |name: &str| self.folder.join(name);
        let trainer = Trainer::new(model, &optimizer).workers(self.group);
        let trainer = match (&sharded, &self.sharding) {
            (Some(sharded), _) => trainer.sharded(sharded),
            (_, Some(sharding)) => trainer.fully_sharded(sharding),
            (None, None) => trainer,
        };
        // No worker has whole layers to look at, if these are spread.
        let board = TensorBoard::new(at(folder::TENSORBOARD));
        let rows = if model.parameter_count() < LARGE { 200 } else { 20 };
        let trainer = match &self.sharding {
            Some(_) => trainer.callback(board),
            None => trainer
                .callback(LayerLog::new(at(folder::LAYERS)).every((last / rows).max(1)))
                .callback(board.histograms_every((last / 5).max(1))),
        };
        let trainer = match settings.until {
            RunLength::Steps(n) => trainer.steps(n),
            RunLength::Epochs(n) => trainer.epochs(n),
        };
        let trainer = match example.tokens {
            Some(tokens) => trainer.tokens_per_example(tokens),
            None => trainer,
        };
        let trainer = match (example.operations, peak) {
            (Some(operations), Some(peak)) => trainer.operations_per_example(operations, peak),
            _ => trainer,
        };
        let mut outcome = mixed
            .applied(trainer)
            .evaluate(every, evaluate)
            .schedule(Every::Steps(1), schedule)
            .checkpoints(Every::Steps((last / 5).max(1)), Checkpoints::new(at(folder::CHECKPOINTS)))
            .resume(self.resume)
            .callback(ProgressBar::new().or_lines((last / 10).max(1)))
            .callback(CsvLog::new(at(folder::CSV)))
            .callback(JsonLog::new(at(folder::JSONL)))
            .callback(Plots::new(at(folder::JSONL), at(folder::PLOTS)))
            // The command has its own guard, which lasts longer, and its own way to resume.
            .handle_interrupt(false)
            .stop_at(self.stop.clone())
            .batch_size(settings.batch_size as u64)
            .config(config)
            .run(batches, |batch| {
                last_batch = Some(batch.clone());
                reference.as_ref().map_or(Ok(()), |reference| reference.keep(batch))?;
                let eager = || catch(|| step.eager(batch));
                match (unreported.take(), settings.jit) {
                    // A compiled step is predicted op by op, which changes nothing; another is
                    // measured while it runs.
                    (Some(path), true) => {
                        let report = predict_memory(model, &optimizer, eager)?;
                        if self.is_writer() {
                            report.save(path)?;
                        }
                        step.call(batch)
                    }
                    (Some(path), false) => {
                        let (loss, report) = memory_report(model, &optimizer, eager)?;
                        if self.is_writer() {
                            report.save(path)?;
                        }
                        Ok(loss)
                    }
                    (None, true) => step.call(batch),
                    (None, false) => eager(),
                }
            })?;
        if let (Some(path), Some((x, y)), true) =
            (&self.options.precision_report, &last_batch, self.is_writer())
        {
            let loss = |_: &M| catch(|| models::loss(&scores(x), y));
            outcome.notes.push(report(path, model, &mixed, loss)?);
        }
        if let Some(peak) = peak {
            let dtype = settings.low.unwrap_or(settings.dtype);
            outcome.notes.push(format!(
                "mfu is a share of {:.*} TFLOP/s, which products in {dtype} reach on this device",
                if peak < 1e13 { 3 } else { 0 },
                peak / 1e12
            ));
        }
        if let Some(reference) = reference {
            reference.save(settings, last)?;
        }
        match outcome.ended {
            Ended::Interrupted => Err(Failure {
                code: INTERRUPTED,
                message: format!(
                    "interrupted after step {}, and a checkpoint saved: resume with `pullback train --resume {}`",
                    outcome.step,
                    self.folder.display()
                ),
            }),
            _ => Ok(outcome),
        }
    }
}
