//! Checkpoints of a run whose parameters, or whose optimiser's state, are spread over workers.
//!
//! All workers write and read them, so what each finds out alone (a file that is not there, a
//! position that does not fit) is told to all before the next call that all make.

use super::run::BEST;
use super::trainer::Trainer;
use super::workers::RunWorkers;
use crate::Module;
use crate::optim::Optimizer;
use crate::parallel::{FullSharding, ShardLayout, Sharded, gather_texts};
use crate::state::{Checkpoints, Record, SavedShards, ShardedCheckpoint, ShardedCheckpoints};
use pullback::{Error, Group, Result, Tensor, catch, no_grad};

const OP: &str = "train";

/// Tensors with their names.
pub(super) type NamedTensors = Vec<(String, Tensor)>;

/// What checkpoints of a run hold.
pub(super) struct CheckpointContents<'a, M> {
    pub model: &'a M,
    pub optimizer: &'a dyn Optimizer,
    pub states: Vec<(String, NamedTensors)>,
}

/// How parameters are spread.
pub(super) struct Spread<'a> {
    cuts: Vec<(String, Tensor, ShardLayout)>,
    group: Group,
    /// Writes the parts to the whole parameters, where workers have these too.
    gather: Option<Box<dyn Fn() -> Result<()> + 'a>>,
}

impl<'a> Spread<'a> {
    /// Each worker has its parts and the whole parameters.
    pub fn of<M: Module>(sharded: &'a Sharded<'a, M>) -> Spread<'a> {
        let gather = Some(Box::new(|| sharded.gather()) as Box<dyn Fn() -> Result<()> + 'a>);
        Spread { cuts: sharded.cuts(), group: sharded.group(), gather }
    }

    /// Each worker has its parts alone.
    pub fn of_units(sharding: &FullSharding) -> Spread<'a> {
        Spread { cuts: sharding.cuts(), group: sharding.group().clone(), gather: None }
    }

    pub fn group(&self) -> &Group {
        &self.group
    }

    /// What is saved, or written to.
    fn state<M: Module>(
        &self,
        saved: &CheckpointContents<'_, M>,
        best: Option<&NamedTensors>,
        random: impl Fn(&str) -> bool,
    ) -> Result<ShardedCheckpoint> {
        let state = ShardedCheckpoint::of_model(saved.model, &self.cuts);
        let mut state = state.optimizer(saved.optimizer)?.random(random);
        for (group, named) in &saved.states {
            state = state.tensors(group, named.clone());
        }
        Ok(best.into_iter().fold(state, |state, named| state.like_model(BEST, named)))
    }

    /// Saves a checkpoint: each worker its part. Every worker calls it.
    pub fn save<M: Module>(
        &self,
        saved: &CheckpointContents<'_, M>,
        checkpoints: &Checkpoints,
        best: Option<&NamedTensors>,
        record: Record,
        workers: &RunWorkers,
    ) -> Result<()> {
        let mut state = workers.together(self.state(saved, best, |_| true))?;
        // Each worker has a generator of its own; that of the first is saved, as otherwise.
        let compared = state.whole().into_iter().filter(|(name, _)| !name.starts_with("random"));
        workers.same_state(compared.collect())?;
        state.record = record;
        ShardedCheckpoints::from(checkpoints.clone()).save(&state, &self.group).map(drop)
    }

    /// Restores the newest checkpoint that can be, and gives its record and why newer ones were
    /// passed over. `fits` is called before anything is written, with the checkpoint and whether it
    /// has the weights of the best step; it gives tensors for these. Every worker calls it.
    pub fn resume<M: Module>(
        &self,
        target: &CheckpointContents<'_, M>,
        checkpoints: &Checkpoints,
        workers: &RunWorkers,
        mut fits: impl FnMut(&SavedShards, bool) -> Result<Option<NamedTensors>>,
    ) -> Result<Option<(Record, Vec<String>)>> {
        let mut passed_over = Vec::new();
        // Worker 0 says what there is, as files may appear on other machines later.
        let listed = checkpoints.list().map(|folders| {
            let names = folders.iter().rev().filter_map(|folder| folder.file_name()?.to_str());
            names.collect::<Vec<_>>().join("\n")
        });
        let listed = gather_texts(&self.group, &workers.together(listed)?)?.swap_remove(0);
        for name in listed.lines() {
            let read = workers.together(SavedShards::read(checkpoints.folder().join(name)));
            let restored = read.and_then(|saved| {
                let has_best = saved.has(|name| name.starts_with(&format!("{BEST}.")));
                let fitting = fits(&saved, has_best).and_then(|best| {
                    self.state(target, best.as_ref(), |random| saved.has(|name| name == random))
                });
                let state = workers.together(fitting)?;
                saved.restore(&state, &self.group)?;
                state.set_random();
                self.gather.as_ref().map_or(Ok(()), |gather| gather())?;
                Ok(saved.record)
            });
            match restored {
                Ok(record) => return Ok(Some((record, passed_over))),
                Err(error) => passed_over.push(error.message().to_string()),
            }
        }
        if passed_over.is_empty() {
            return Ok(None);
        }
        let message = format!("no checkpoint in {} can be used", checkpoints.folder().display());
        Err(passed_over.into_iter().fold(Error::argument(OP, message), Error::detail))
    }

    /// Writes the whole parameters to the parts, where workers have both.
    pub fn scatter(&self, model: &impl Module) -> Result<()> {
        if self.gather.is_none() {
            return Ok(());
        }
        let parameters = model.named_parameters();
        catch(|| {
            no_grad(|| {
                for (name, part, cut) in &self.cuts {
                    if let Some((_, x)) = parameters.iter().find(|(other, _)| other == name) {
                        part.copy_(cut.own(x, &self.group));
                    }
                }
            });
        })
    }
}

impl<'a, M: Module> Trainer<'a, M> {
    /// Trains with the workers of a [`Sharded`], over whose parts the optimiser was made: each
    /// saves its parts, and any number of workers resumes, also one, also without sharding.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::optim::{AdamW, UpdateRule};
    /// use pullback_nn::parallel::Sharded;
    /// use pullback_nn::state::Checkpoints;
    /// use pullback_nn::train::{Every, Trainer};
    /// use pullback_nn::{Layer, Linear};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let train = |workers, steps| {
    ///     pullback_workers::threads(workers, |group| {
    ///         let model = Linear::new(4, 4);
    ///         let sharded = Sharded::new(&model, &group, 2)?;
    ///         let optimizer = AdamW::default().over(sharded.parameters())?;
    ///         let trainer = Trainer::new(&model, &optimizer).steps(steps).sharded(&sharded);
    ///         let trainer = trainer.checkpoints(Every::Steps(2), Checkpoints::new(folder));
    ///         let outcome = trainer.resume(true).run(&vec![Tensor::ones([2, 4])], |x| {
    ///             sharded.zero_grad();
    ///             let loss = model.forward(x).square().mean();
    ///             sharded.backward(&loss)?;
    ///             sharded.step(&optimizer)?;
    ///             Ok(loss)
    ///         })?;
    ///         Ok(outcome.step)
    ///     })
    /// };
    /// assert_eq!(train(2, 3)?, [3, 3]);
    /// assert_eq!(train(3, 5)?, [5, 5, 5]); // two more steps, by three workers
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn sharded<S: Module>(self, sharded: &'a Sharded<'a, S>) -> Self {
        self.spread(Spread::of(sharded))
    }

    /// Trains with the workers of a [`FullSharding`] whose units the model is made of: each saves
    /// its parts, as with [`Trainer::sharded`]. Units are made before.
    ///
    /// ```
    /// use pullback_nn::optim::{AdamW, UpdateRule};
    /// use pullback_nn::parallel::FullSharding;
    /// use pullback_nn::train::Trainer;
    /// use pullback_nn::{Layer, Linear, Module};
    /// # use pullback::Tensor;
    /// # use pullback_nn::optim::Optimizer;
    /// pullback_workers::threads(2, |group| {
    ///     let sharding = FullSharding::new(&group);
    ///     let unit = sharding.shard(Linear::new(4, 4))?;
    ///     let optimizer = AdamW::default().over(unit.parameters())?;
    ///     let trainer = Trainer::new(&unit, &optimizer).fully_sharded(&sharding);
    ///     trainer.run(&vec![Tensor::ones([2, 4])], |x| {
    ///         optimizer.zero_grad();
    ///         let loss = unit.forward(x).square().mean();
    ///         sharding.backward(&loss)?;
    ///         optimizer.step()?;
    ///         Ok(loss)
    ///     })?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn fully_sharded(self, sharding: &FullSharding) -> Self {
        self.spread(Spread::of_units(sharding))
    }

    fn spread(self, spread: Spread<'a>) -> Self {
        Trainer { workers: Some(spread.group().clone()), spread: Some(spread), ..self }
    }
}
