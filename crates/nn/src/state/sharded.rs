//! Checkpoints of which each worker writes its part.
//!
//! A checkpoint is a folder with a file for each worker, `part-00001-of-00004.safetensors`, and the
//! manifest of `manifest.rs`, which also holds the whole shapes of tensors that are cut. Worker r
//! of W has elements r·k to (r + 1)·k of a flattened tensor, with k = ⌈length / W⌉; what is not cut
//! (step counts, learning rates, buffers) is in the file of worker 0. Files say nothing about who
//! reads them: any number of workers takes the elements it needs out of them.
//!
//! It is written under another name, flushed, and renamed by worker 0 after all workers have said
//! that their parts are on the disk; the manifest is written last. If one worker fails, all get its
//! error, and nothing is left.

use super::atomic_write::{failed, sweep, sync_folder, temporary, write_new};
use super::checkpoint::random_name;
use super::folder::{Checkpoints, numbered};
use super::manifest::{self, FileSum, Manifest, Record};
use super::saved_shards::SavedShards;
use super::tensors::encode;
use crate::Module;
use crate::optim::Optimizer;
use crate::parallel::{FullSharding, ShardLayout, Sharded, gather_texts, together};
use crate::refuse::called;
use pullback::{Error, Group, Result, Tensor, random_states, set_random_state};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const OP: &str = "checkpoint";

/// One tensor of a checkpoint, or this worker's part of one.
#[derive(Clone)]
pub(super) struct TensorShard {
    pub name: String,
    pub x: Tensor,
    /// How it is cut; whole on every worker if it is not.
    pub cut: Option<ShardLayout>,
}

/// What is saved of a training whose parameters are spread over workers: the parts of this worker.
/// The same object is what [`SavedShards::restore`] writes to.
///
/// ```
/// use pullback_nn::optim::{AdamW, UpdateRule};
/// use pullback_nn::parallel::Sharded;
/// use pullback_nn::state::{ShardedCheckpoint, ShardedCheckpoints};
/// use pullback_nn::{Linear, Module};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let saved = |workers: usize, load: bool| {
///     pullback_workers::threads(workers, |group| {
///         let model = Linear::new(3, 3);
///         let sharded = Sharded::new(&model, &group, 2)?;
///         let optimizer = AdamW::default().over(sharded.parameters())?;
///         let state = ShardedCheckpoint::of(&sharded).optimizer(&optimizer)?.at(7, 0);
///         let checkpoints = ShardedCheckpoints::new(folder);
///         if load {
///             checkpoints.latest()?.unwrap().restore(&state, &group)?;
///             sharded.gather()?;
///         } else {
///             checkpoints.save(&state, &group)?;
///         }
///         Ok(model.weight.to_vec::<f32>())
///     })
/// };
/// // Four workers write, three read.
/// assert_eq!(saved(4, false)?[0], saved(3, true)?[2]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct ShardedCheckpoint {
    /// Everything but the tensors. That of worker 0 is written.
    pub record: Record,
    pub(super) pieces: Vec<TensorShard>,
}

/// A folder of checkpoints of which each worker writes its part.
///
/// See [`ShardedCheckpoint`] for an example.
///
/// ```
/// # use pullback_nn::state::ShardedCheckpoints;
/// # let folder = tempfile::tempdir().unwrap();
/// assert!(ShardedCheckpoints::new(folder.path()).latest()?.is_none());
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ShardedCheckpoints(Checkpoints);

impl ShardedCheckpoint {
    /// The parts of parameters that [`Sharded`] has cut.
    ///
    /// See [`ShardedCheckpoint`] for an example.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// # use pullback_nn::parallel::Sharded;
    /// # use pullback_nn::state::ShardedCheckpoint;
    /// pullback_workers::threads(2, |group| {
    ///     let model = Linear::new(2, 2);
    ///     let state = ShardedCheckpoint::of(&Sharded::new(&model, &group, 1)?);
    ///     assert_eq!(state.record.step, 0);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn of<M: Module>(sharded: &Sharded<'_, M>) -> ShardedCheckpoint {
        ShardedCheckpoint::of_cuts(sharded.cuts())
    }

    /// The parts of parameters of units that [`FullSharding`] has made. Parameter `weight` of the
    /// first unit is called `0.weight`.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::state::{ShardedCheckpoint, ShardedCheckpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// pullback_workers::threads(2, |group| {
    ///     let sharding = FullSharding::new(&group);
    ///     let _unit = sharding.shard(Linear::new(2, 2))?;
    ///     let state = ShardedCheckpoint::of_units(&sharding);
    ///     ShardedCheckpoints::new(folder).save(&state, &group)?;
    ///     Ok(())
    /// })?;
    /// let saved = ShardedCheckpoints::new(folder).latest()?.unwrap();
    /// assert_eq!(saved.whole()?[1].0, "model.0.weight");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn of_units(sharding: &FullSharding) -> ShardedCheckpoint {
        ShardedCheckpoint::of_cuts(sharding.cuts())
    }

    /// A model of which some parameters are cut: by name, or as they are. The others and the
    /// buffers are whole on every worker.
    pub(crate) fn of_model(model: &impl Module, cuts: &[(String, Tensor, ShardLayout)]) -> Self {
        let piece = |(name, x): (String, Tensor)| {
            let itself = cuts.iter().find(|(_, part, _)| part.is_same(&x));
            let found = itself.or_else(|| cuts.iter().find(|(cut, ..)| *cut == name));
            let (x, cut) = match found {
                Some((_, part, cut)) => (part.clone(), Some(cut.clone())),
                None => (x, None),
            };
            TensorShard { name: format!("model.{name}"), x, cut }
        };
        let pieces = model.named_state().into_iter().map(piece).collect();
        ShardedCheckpoint { record: Record::default(), pieces }
    }

    /// Adds tensors that are cut as the model's of the same names are, or whole.
    pub(crate) fn like_model(mut self, group: &str, named: &[(String, Tensor)]) -> Self {
        for (name, x) in named {
            let of_model = format!("model.{name}");
            let like = self.pieces.iter().find(|piece| piece.name == of_model);
            let like = like.filter(|piece| piece.x.shape() == x.shape());
            let cut = like.and_then(|piece| piece.cut.clone());
            self.pieces.push(TensorShard { name: format!("{group}.{name}"), x: x.clone(), cut });
        }
        self
    }

    /// Adds the states of the random generators, of those devices for which `wanted` holds.
    pub(crate) fn random(mut self, wanted: impl Fn(&str) -> bool) -> Self {
        for state in random_states() {
            let name = random_name(state.device());
            if wanted(&name) {
                self.pieces.push(TensorShard { name, x: state.cpu().deep_clone(), cut: None });
            }
        }
        self
    }

    /// Gives the random generators the states that were restored.
    pub(crate) fn set_random(&self) {
        for state in random_states() {
            let name = random_name(state.device());
            if let Some(piece) = self.pieces.iter().find(|piece| piece.name == name) {
                set_random_state(&piece.x.to(state.device()));
            }
        }
    }

    /// What is whole on every worker, with its name.
    pub(crate) fn whole(&self) -> Vec<(String, Tensor)> {
        let whole = self.pieces.iter().filter(|piece| piece.cut.is_none());
        whole.map(|piece| (piece.name.clone(), piece.x.clone())).collect()
    }

    fn of_cuts(cuts: Vec<(String, Tensor, ShardLayout)>) -> ShardedCheckpoint {
        let piece =
            |(name, x, cut)| TensorShard { name: format!("model.{name}"), x, cut: Some(cut) };
        let pieces = cuts.into_iter().map(piece).collect();
        ShardedCheckpoint { record: Record::default(), pieces }
    }

    /// Adds the state of the optimiser, which was made over the parts.
    ///
    /// See [`ShardedCheckpoint`] for an example.
    ///
    /// ```
    /// # use pullback_nn::Linear;
    /// # use pullback_nn::optim::{Sgd, UpdateRule};
    /// # use pullback_nn::parallel::Sharded;
    /// # use pullback_nn::state::ShardedCheckpoint;
    /// pullback_workers::threads(2, |group| {
    ///     let model = Linear::new(2, 2);
    ///     let sharded = Sharded::new(&model, &group, 1)?;
    ///     let optimizer = Sgd::default().over(sharded.parameters())?;
    ///     assert!(ShardedCheckpoint::of(&sharded).optimizer(&optimizer).is_ok());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a state belongs to no part.
    pub fn optimizer(mut self, optimizer: &(impl Optimizer + ?Sized)) -> Result<ShardedCheckpoint> {
        let (groups, named) = (optimizer.groups(), optimizer.named_state());
        for (name, x) in &named {
            let parameter = parameter_of(name, &named, &groups);
            let parameter = parameter.filter(|parameter| parameter.shape() == x.shape());
            let piece = parameter
                .and_then(|parameter| self.pieces.iter().find(|piece| piece.x.is_same(parameter)));
            if piece.is_none() && x.rank() > 0 {
                let message = format!(
                    "the optimiser's `{name}`, {}, does not belong to a saved shard",
                    x.spec()
                );
                return Err(Error::argument(OP, message)
                    .hint("make the optimiser over the parts that are saved"));
            }
            let cut = piece.and_then(|piece| piece.cut.clone());
            self.pieces.push(TensorShard { name: format!("optimizer.{name}"), x: x.clone(), cut });
        }
        Ok(self)
    }

    /// Adds tensors that are whole on every worker, such as buffers; those of worker 0 are written.
    ///
    /// ```
    /// # use pullback_nn::parallel::Sharded;
    /// # use pullback_nn::state::{ShardedCheckpoint, ShardedCheckpoints};
    /// # use pullback_nn::{BatchNorm1d, Module};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// pullback_workers::threads(2, |group| {
    ///     let model = BatchNorm1d::new(2);
    ///     let sharded = Sharded::new(&model, &group, 1)?;
    ///     let state = ShardedCheckpoint::of(&sharded).tensors("model", model.named_buffers());
    ///     ShardedCheckpoints::new(folder).save(&state, &group)?;
    ///     Ok(())
    /// })?;
    /// let saved = ShardedCheckpoints::new(folder).latest()?.unwrap();
    /// assert!(saved.whole()?.iter().any(|(name, _)| name == "model.running_mean"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn tensors(mut self, group: &str, named: Vec<(String, Tensor)>) -> ShardedCheckpoint {
        let piece = |(name, x)| TensorShard { name: format!("{group}.{name}"), x, cut: None };
        self.pieces.extend(named.into_iter().map(piece));
        self
    }

    /// Sets the number of steps taken and of epochs finished.
    ///
    /// ```
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::state::ShardedCheckpoint;
    /// let sharding = FullSharding::new(&pullback::Group::alone());
    /// assert_eq!(ShardedCheckpoint::of_units(&sharding).at(7, 1).record.step, 7);
    /// ```
    pub fn at(mut self, step: u64, epoch: u64) -> ShardedCheckpoint {
        (self.record.step, self.record.epoch) = (step, epoch);
        self
    }

    /// This worker's file, as bytes.
    fn encoded(&self, group: &Group) -> Result<Vec<u8>> {
        let own = self.pieces.iter().filter(|piece| piece.cut.is_some() || group.rank() == 0);
        let own: Vec<(String, Tensor)> =
            own.map(|piece| (piece.name.clone(), piece.x.detach())).collect();
        encode(OP, &own)
    }
}

/// The parameter that a state of an optimiser belongs to, by its name: `group.number.state`, or
/// `optimiser.group.number.state` in a list of optimisers.
fn parameter_of<'g>(
    name: &str,
    named: &[(String, Tensor)],
    groups: &'g [Vec<Tensor>],
) -> Option<&'g Tensor> {
    let numbers = |name: &str| -> Vec<usize> {
        name.split('.').map_while(|word| word.parse().ok()).collect()
    };
    let group = match numbers(name)[..] {
        [group, number] => (group, number),
        [optimizer, group, number] => {
            // The groups of a list follow each other, and each has a learning rate.
            let before = named.iter().filter(|(name, _)| {
                name.ends_with(".lr") && numbers(name).first().is_some_and(|&n| n < optimizer)
            });
            (before.count() + group, number)
        }
        _ => return None,
    };
    groups.get(group.0)?.get(group.1)
}

pub(super) fn is_part(file: &str) -> bool {
    file.starts_with("part-")
}

fn file_name(rank: usize, size: usize) -> String {
    format!("part-{:05}-of-{size:05}.safetensors", rank + 1)
}

impl ShardedCheckpoints {
    /// Checkpoints in this folder, which is made when the first is saved. The last 3 are kept.
    ///
    /// ```
    /// # use pullback_nn::state::ShardedCheckpoints;
    /// let checkpoints = ShardedCheckpoints::new("runs/large");
    /// assert!(checkpoints.latest()?.is_none());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn new(folder: impl Into<PathBuf>) -> ShardedCheckpoints {
        ShardedCheckpoints(Checkpoints::new(folder))
    }

    /// How many checkpoints are kept; one at least.
    ///
    /// ```
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::state::{ShardedCheckpoint, ShardedCheckpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// let (group, folder) = (pullback::Group::alone(), folder.path());
    /// let state = ShardedCheckpoint::of_units(&FullSharding::new(&group));
    /// for _ in 0..3 {
    ///     ShardedCheckpoints::new(folder).keep_last(1).save(&state, &group)?;
    /// }
    /// assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn keep_last(self, count: usize) -> ShardedCheckpoints {
        ShardedCheckpoints(self.0.keep_last(count))
    }

    /// Saves a checkpoint: each worker its part, all of them or none. All workers see the same
    /// folder, and every worker calls it.
    ///
    /// See [`ShardedCheckpoint`] for an example.
    ///
    /// ```
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::state::{ShardedCheckpoint, ShardedCheckpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// let group = pullback::Group::alone();
    /// let state = ShardedCheckpoint::of_units(&FullSharding::new(&group)).at(7, 0);
    /// let saved = ShardedCheckpoints::new(folder.path()).save(&state, &group)?;
    /// assert!(saved.ends_with("00001-step-7"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a file of any worker cannot be written: the same on all workers, and nothing is left.
    #[track_caller]
    pub fn save(&self, checkpoint: &ShardedCheckpoint, group: &Group) -> Result<PathBuf> {
        let _line = called();
        let name = self.begin(checkpoint.record.step, group)?;
        let (working, place) = (self.0.folder().join(&name.1), self.0.folder().join(&name.0));
        let saved = self.write(checkpoint, group, &working, &place);
        if saved.is_err() && group.rank() == 0 {
            let _ = fs::remove_dir_all(&working);
        }
        let saved = together(group, OP, saved);
        if saved.is_ok() && group.rank() == 0 {
            self.0.prune();
        }
        saved.map(|()| place)
    }

    /// Makes the folder to write to; gives the names of the final one and of it.
    fn begin(&self, step: u64, group: &Group) -> Result<(String, String)> {
        let make = || -> Result<(String, String)> {
            let folder = self.0.folder();
            fs::create_dir_all(folder).map_err(|error| failed(OP, "made", folder, &error))?;
            sweep(folder);
            let number = numbered(folder)?.last().map_or(1, |(number, _)| number + 1);
            let name = format!("{number:05}-step-{step}");
            let working = temporary(folder, &name);
            fs::create_dir(&working).map_err(|error| failed(OP, "made", &working, &error))?;
            let working = working.file_name().unwrap_or_default().to_string_lossy().to_string();
            Ok((name, working))
        };
        let made = if group.rank() == 0 { make() } else { Ok(Default::default()) };
        let made = together(group, OP, made)?;
        // Worker 0 chose the names.
        let texts = gather_texts(group, &format!("{}\n{}", made.0, made.1))?;
        let (name, working) = texts[0].split_once('\n').unwrap_or_default();
        Ok((name.to_string(), working.to_string()))
    }

    fn write(
        &self,
        checkpoint: &ShardedCheckpoint,
        group: &Group,
        working: &Path,
        place: &Path,
    ) -> Result<()> {
        let name = file_name(group.rank(), group.size());
        let path = working.join(&name);
        let write = || -> Result<FileSum> {
            let bytes = checkpoint.encoded(group)?;
            write_new(&path, &bytes).map_err(|error| failed(OP, "written", &path, &error))?;
            FileSum::of(&name, &bytes)
        };
        let sum = together(group, OP, write())?;
        let sums = gather_texts(group, &json!({ "name": name, "sum": sum }).to_string())?;
        if group.rank() != 0 {
            return Ok(());
        }
        let mut files = BTreeMap::new();
        for text in &sums {
            let wrong = |error: serde_json::Error| Error::argument(OP, error.to_string());
            let mut entry: serde_json::Value = serde_json::from_str(text).map_err(wrong)?;
            let sum = serde_json::from_value(entry["sum"].take()).map_err(wrong)?;
            files.insert(entry["name"].as_str().unwrap_or_default().to_string(), sum);
        }
        let cut = checkpoint
            .pieces
            .iter()
            .filter_map(|piece| Some((piece.name.clone(), piece.cut.as_ref()?.shape.clone())));
        let manifest = Manifest::of_sums(checkpoint.record.clone(), files, cut.collect());
        write_new(&working.join(manifest::NAME), manifest.text()?.as_bytes())
            .and_then(|()| sync_folder(working))
            .and_then(|()| fs::rename(working, place))
            .and_then(|()| sync_folder(self.0.folder()))
            .map_err(|error| failed(OP, "written", place, &error))
    }

    /// The newest checkpoint whose manifest is whole and whose files are there; `None` if there is
    /// none.
    ///
    /// ```
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::state::{ShardedCheckpoint, ShardedCheckpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// let (group, checkpoints) =
    ///     (pullback::Group::alone(), ShardedCheckpoints::new(folder.path()));
    /// let state = ShardedCheckpoint::of_units(&FullSharding::new(&group));
    /// checkpoints.save(&state.clone().at(7, 0), &group)?;
    /// checkpoints.save(&state.at(9, 0), &group)?;
    /// assert_eq!(checkpoints.latest()?.unwrap().record.step, 9);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the folder cannot be listed, or there are checkpoints and none can be used.
    pub fn latest(&self) -> Result<Option<SavedShards>> {
        let mut wrong = None;
        for (_, folder) in numbered(self.0.folder())?.into_iter().rev() {
            match SavedShards::read(&folder) {
                Ok(saved) => return Ok(Some(saved)),
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        wrong.map_or(Ok(None), Err)
    }
}

impl From<Checkpoints> for ShardedCheckpoints {
    fn from(within: Checkpoints) -> ShardedCheckpoints {
        ShardedCheckpoints(within)
    }
}
