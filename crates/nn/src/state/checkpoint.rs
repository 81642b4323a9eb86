//! One checkpoint: everything needed to resume a run exactly.
//!
//! On the disk it is a folder of three files. `model.safetensors` holds the parameters and buffers
//! under their own names, so PyTorch can load it. `state.safetensors` holds the other tensors: the
//! optimiser's, the random generator's, and what else was added. `checkpoint.json` holds the rest:
//! see `manifest.rs`.

use super::atomic_write::make_folder;
use super::manifest::{self, Manifest, Record};
use super::matching::{MatchOptions, Matches, targets_from, targets_of};
use super::names::Names;
use super::saved_shards::SavedShards;
use super::tensors::{decode, encode, tensor_of};
use crate::Module;
use crate::optim::Optimizer;
use pullback::{DType, Device, Error, Result, Spec, Tensor, random_states, set_random_state};
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::{Path, PathBuf};

const OP: &str = "checkpoint";
pub(super) const MODEL: &str = "model.safetensors";
const STATE: &str = "state.safetensors";
const RANDOM: &str = "random";
const OPTIMIZER: &str = "optimizer";

/// A checkpoint to be saved. The tensors are handles: their values are read when it is saved.
///
/// ```
/// use pullback::{Tensor, Tree};
/// use pullback_nn::state::{Checkpoint, Checkpoints};
///
/// #[derive(Tree)]
/// struct Scale {
///     weight: Tensor,
/// }
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let model = Scale { weight: Tensor::from([1.0, 2.0]).requires_grad() };
/// let checkpoints = Checkpoints::new(folder);
/// checkpoints.save(&Checkpoint::of(&model).at(100, 2).metric("loss", 0.25))?;
///
/// let fresh = Scale { weight: Tensor::from([0.0, 0.0]).requires_grad() };
/// let saved = checkpoints.latest()?.unwrap().checkpoint;
/// saved.restore_model(&fresh)?;
/// assert_eq!(saved.record.step, 100);
/// assert_eq!(fresh.weight.to_vec::<f64>(), [1.0, 2.0]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Checkpoint {
    /// Everything but the tensors.
    pub record: Record,
    model: Vec<(String, Tensor)>,
    state: Vec<(String, Tensor)>,
}

impl Checkpoint {
    /// A checkpoint of a model, with the current state of the random generator.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, SavedCheckpoint, Checkpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let model = Linear::new(2, 1);
    /// let saved = Checkpoints::new(folder).save(&Checkpoint::of(&model))?;
    /// let fresh = Linear::new(2, 1);
    /// SavedCheckpoint::read(saved)?.restore_model(&fresh)?;
    /// assert_eq!(fresh.weight.to_vec::<f32>(), model.weight.to_vec::<f32>());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn of(model: &impl Module) -> Checkpoint {
        Checkpoint {
            record: Record::default(),
            model: model.named_state(),
            state: random_states()
                .iter()
                .map(|state| (random_name(state.device()), state.cpu()))
                .collect(),
        }
    }

    /// Adds the state of an optimiser.
    ///
    /// ```
    /// use pullback_nn::optim::{AdamW, UpdateRule};
    /// use pullback_nn::state::{Checkpoint, Checkpoints};
    /// use pullback_nn::{Linear, Module};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let model = Linear::new(2, 1);
    /// let opt = AdamW::default().over(model.parameters())?;
    /// let checkpoints = Checkpoints::new(folder);
    /// checkpoints.save(&Checkpoint::of(&model).optimizer(&opt))?;
    /// checkpoints.latest()?.unwrap().checkpoint.restore(&model, &opt)?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn optimizer(self, optimizer: &(impl Optimizer + ?Sized)) -> Checkpoint {
        self.tensors(OPTIMIZER, optimizer.named_state())
    }

    /// Adds a named group of other tensors: an average of the weights, a second model, the state of
    /// its optimiser.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let checkpoints = Checkpoints::new(folder);
    /// let average = vec![("weight".to_string(), Tensor::ones([1, 2]))];
    /// checkpoints.save(&Checkpoint::of(&Linear::new(2, 1)).tensors("average", average))?;
    /// assert!(checkpoints.latest()?.unwrap().checkpoint.has_tensors("average"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn tensors(mut self, group: &str, named: Vec<(String, Tensor)>) -> Checkpoint {
        self.state.extend(named.into_iter().map(|(name, x)| (format!("{group}.{name}"), x)));
        self
    }

    /// Sets the number of steps taken and of epochs finished.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::Checkpoint;
    /// let checkpoint = Checkpoint::of(&Linear::new(2, 1)).at(100, 2);
    /// assert_eq!((checkpoint.record.step, checkpoint.record.epoch), (100, 2));
    /// ```
    pub fn at(mut self, step: u64, epoch: u64) -> Checkpoint {
        (self.record.step, self.record.epoch) = (step, epoch);
        self
    }

    /// Adds a metric.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::Checkpoint;
    /// let checkpoint = Checkpoint::of(&Linear::new(2, 1)).metric("val_loss", 0.25);
    /// assert_eq!(checkpoint.record.metrics["val_loss"], 0.25);
    /// ```
    pub fn metric(mut self, name: &str, value: f64) -> Checkpoint {
        self.record.metrics.insert(name.to_string(), value);
        self
    }

    /// Adds the state of a learning-rate schedule.
    ///
    /// ```
    /// use pullback_nn::optim::{Sgd, UpdateRule};
    /// use pullback_nn::schedule::{ExponentialLr, Scheduler};
    /// use pullback_nn::state::Checkpoint;
    /// use pullback_nn::{Linear, Module};
    /// let model = Linear::new(2, 1);
    /// let opt = Sgd::default().over(model.parameters())?;
    /// let scheduler = Scheduler::new(&opt, ExponentialLr { gamma: 0.9 });
    /// let checkpoint = Checkpoint::of(&model).schedule(scheduler.state());
    /// assert_eq!(checkpoint.record.schedule, scheduler.state());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn schedule(mut self, state: Value) -> Checkpoint {
        self.record.schedule = state;
        self
    }

    /// Adds the position in the data.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// use pullback_nn::state::Checkpoint;
    /// let loader = DataLoader::new(from_fn(10, Ok)).batch_size(2);
    /// let _ = loader.iter().take(3).count();
    /// let position = serde_json::json!(loader.state());
    /// let checkpoint = Checkpoint::of(&Linear::new(2, 1)).data(position);
    /// assert_eq!(checkpoint.record.data["batch"], 3);
    /// ```
    pub fn data(mut self, position: Value) -> Checkpoint {
        self.record.data = position;
        self
    }

    /// Adds the configuration of the run.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::Checkpoint;
    /// let config = serde_json::json!({ "lr": 0.1 });
    /// let checkpoint = Checkpoint::of(&Linear::new(2, 1)).config(config);
    /// assert_eq!(checkpoint.record.config["lr"], 0.1);
    /// ```
    pub fn config(mut self, config: Value) -> Checkpoint {
        self.record.config = config;
        self
    }

    /// Adds the state of the training loop.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::Checkpoint;
    /// let checkpoint = Checkpoint::of(&Linear::new(2, 1)).run(serde_json::json!({ "waited": 2 }));
    /// assert_eq!(checkpoint.record.run["waited"], 2);
    /// ```
    pub fn run(mut self, state: Value) -> Checkpoint {
        self.record.run = state;
        self
    }

    /// Writes the folder `name` in `parent`, whole or not at all.
    pub(crate) fn write(&self, parent: &Path, name: &str) -> Result<PathBuf> {
        let (model, state) = (encode(OP, &self.model)?, encode(OP, &self.state)?);
        let files: [(&str, &[u8]); 2] = [(MODEL, &model), (STATE, &state)];
        let manifest = Manifest::new(self.record.clone(), &files)?.text()?;
        make_folder(OP, parent, name, &[files[0], files[1], (manifest::NAME, manifest.as_bytes())])
    }
}

/// Tensors of a checkpoint that fit where they go.
pub(crate) struct VerifiedCheckpoint<'a> {
    of: &'a SavedCheckpoint,
    model: Matches,
    groups: Vec<Matches>,
    random: Vec<Tensor>,
}

impl VerifiedCheckpoint<'_> {
    pub fn write(self) -> Result<()> {
        self.of.write(MODEL, &self.model)?;
        self.groups.iter().try_for_each(|group| self.of.write(STATE, group))?;
        self.random.iter().for_each(set_random_state);
        Ok(())
    }
}

/// A checkpoint that was read from a folder and verified.
#[derive(Clone, Debug)]
pub struct SavedCheckpoint {
    /// Everything but the tensors.
    pub record: Record,
    folder: PathBuf,
    model: Vec<u8>,
    state: Vec<u8>,
}

impl SavedCheckpoint {
    /// Reads and verifies the checkpoint in a folder.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints, SavedCheckpoint};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let saved = Checkpoints::new(folder).save(&Checkpoint::of(&Linear::new(2, 1)).at(100, 2))?;
    /// assert_eq!(SavedCheckpoint::read(&saved)?.record.step, 100);
    /// std::fs::write(saved.join("model.safetensors"), "damaged").unwrap();
    /// assert!(SavedCheckpoint::read(&saved).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it cannot be read, its bytes are not those that were written, or a newer version of the
    /// format wrote it.
    pub fn read(folder: impl AsRef<Path>) -> Result<SavedCheckpoint> {
        let folder = folder.as_ref();
        let manifest = Manifest::read(folder)?;
        let (model, state) = match SavedShards::is_in_parts(&manifest) {
            true => joined(folder)?,
            false => (manifest.open(folder, MODEL)?, manifest.open(folder, STATE)?),
        };
        Ok(SavedCheckpoint { record: manifest.record, folder: folder.to_path_buf(), model, state })
    }

    /// The folder that it was read from.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints, SavedCheckpoint};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let saved = Checkpoints::new(folder).save(&Checkpoint::of(&Linear::new(2, 1)))?;
    /// assert_eq!(SavedCheckpoint::read(&saved)?.folder(), saved);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Restores the model, the optimiser and the random generator. Everything is checked before
    /// anything is changed.
    ///
    /// ```
    /// use pullback_nn::optim::{AdamW, UpdateRule};
    /// use pullback_nn::state::{Checkpoint, Checkpoints};
    /// use pullback_nn::{Linear, Module};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let checkpoints = Checkpoints::new(folder);
    /// let model = Linear::new(2, 1);
    /// let opt = AdamW::default().over(model.parameters())?;
    /// checkpoints.save(&Checkpoint::of(&model).optimizer(&opt))?;
    /// let saved = checkpoints.latest()?.unwrap().checkpoint;
    /// saved.restore(&model, &opt)?;
    /// assert!(saved.restore(&Linear::new(3, 1), &opt).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a tensor is missing, unexpected, or of another shape or dtype; then nothing is changed.
    pub fn restore(&self, model: &impl Module, optimizer: &dyn Optimizer) -> Result<()> {
        self.checked(model, optimizer, &[])?.write()
    }

    /// Everything that [`SavedCheckpoint::restore`] would write, and these groups of other tensors,
    /// checked and not yet written.
    pub(crate) fn checked(
        &self,
        model: &impl Module,
        optimizer: &dyn Optimizer,
        groups: &[(String, Vec<(String, Tensor)>)],
    ) -> Result<VerifiedCheckpoint<'_>> {
        let model = self.fit_model(model)?;
        let mut fitted = vec![self.fit_group(OPTIMIZER, optimizer.named_state())?];
        for (group, named) in groups {
            fitted.push(self.fit_group(group, named.clone())?);
        }
        Ok(VerifiedCheckpoint { of: self, model, groups: fitted, random: self.random()? })
    }

    /// Writes tensors of one of the files to where they fit.
    fn write(&self, file: &str, fitted: &Matches) -> Result<()> {
        let path = self.folder.join(file);
        let bytes = if file == MODEL { &self.model } else { &self.state };
        fitted.write(OP, &path, &decode(OP, &path, bytes)?)
    }

    /// Restores the model alone.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let checkpoints = Checkpoints::new(folder);
    /// let (model, fresh) = (Linear::new(2, 1), Linear::new(2, 1));
    /// checkpoints.save(&Checkpoint::of(&model))?;
    /// checkpoints.latest()?.unwrap().checkpoint.restore_model(&fresh)?;
    /// assert_eq!(fresh.weight.to_vec::<f32>(), model.weight.to_vec::<f32>());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a tensor is missing, unexpected, or of another shape or dtype; then nothing is changed.
    pub fn restore_model(&self, model: &impl Module) -> Result<()> {
        self.write(MODEL, &self.fit_model(model)?)
    }

    /// Restores the tensors of a group that [`Checkpoint::tensors`] added, by writing into `named`
    /// in place.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let checkpoints = Checkpoints::new(folder);
    /// let named = |x: &Tensor| vec![("weight".to_string(), x.clone())];
    /// let average = named(&Tensor::from([1.0, 2.0]));
    /// checkpoints.save(&Checkpoint::of(&Linear::new(2, 1)).tensors("average", average))?;
    /// let restored = Tensor::from([0.0, 0.0]);
    /// let saved = checkpoints.latest()?.unwrap().checkpoint;
    /// saved.restore_tensors("average", named(&restored))?;
    /// assert_eq!(restored.to_vec::<f64>(), [1.0, 2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a tensor is missing, unexpected, or of another shape or dtype; then nothing is changed.
    pub fn restore_tensors(&self, group: &str, named: Vec<(String, Tensor)>) -> Result<()> {
        self.write(STATE, &self.fit_group(group, named)?)
    }

    /// Whether it holds tensors of this group.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Checkpoint, Checkpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let checkpoints = Checkpoints::new(folder);
    /// checkpoints.save(&Checkpoint::of(&Linear::new(2, 1)))?;
    /// assert!(!checkpoints.latest()?.unwrap().checkpoint.has_tensors("average"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn has_tensors(&self, group: &str) -> bool {
        let begins = format!("{group}.");
        decode(OP, &self.folder.join(STATE), &self.state)
            .is_ok_and(|file| file.iter().any(|(name, _)| name.starts_with(&begins)))
    }

    fn fit_model(&self, model: &impl Module) -> Result<Matches> {
        let path = self.folder.join(MODEL);
        let file = decode(OP, &path, &self.model)?;
        let fitted = MatchOptions::exact(&Names::new()).run(&file, &targets_of(model));
        fitted.check(OP, &path, "the model", true)?;
        Ok(fitted)
    }

    fn fit_group(&self, group: &str, named: Vec<(String, Tensor)>) -> Result<Matches> {
        let path = self.folder.join(STATE);
        let file = decode(OP, &path, &self.state)?;
        let named = named.into_iter().map(|(name, x)| (format!("{group}.{name}"), x));
        let named: Vec<(String, Tensor)> = named.collect();
        let names = earlier_names(&file, &named);
        let mut fitted = MatchOptions::exact(&names).run(&file, &targets_from(named));
        // Other groups are in the same file.
        fitted.unexpected.retain(|name| name.starts_with(&format!("`{group}.")));
        fitted.check(OP, &path, &format!("the {group}"), true)?;
        Ok(fitted)
    }

    /// The states of the generators, those of devices that are not there left out.
    fn random(&self) -> Result<Vec<Tensor>> {
        let path = self.folder.join(STATE);
        let file = decode(OP, &path, &self.state)?;
        let read = |device: Device| {
            let name = random_name(device);
            let refused = |why: String| {
                Error::argument(OP, format!("{}: tensor `{name}` {why}", path.display()))
            };
            let view = file.tensor(&name).map_err(|_| refused("is missing".to_string()))?;
            let state = tensor_of(&view).map_err(refused)?.cpu();
            match *state.spec() == Spec::cpu(DType::I64, [2]) {
                true => Ok(state.to(device)),
                false => Err(refused(format!("is {}, not a random state", state.spec()))),
            }
        };
        let saved = |device: &Device| file.tensor(&random_name(*device)).is_ok();
        let others = Device::available().into_iter().skip(1).filter(saved);
        std::iter::once(Device::Cpu).chain(others).map(read).collect()
    }
}

/// The two files of a checkpoint, of one whose parts several workers wrote.
fn joined(folder: &Path) -> Result<(Vec<u8>, Vec<u8>)> {
    let (mut model, mut state) = (Vec::new(), Vec::new());
    for (name, x) in SavedShards::read(folder)?.whole()? {
        match name.strip_prefix("model.") {
            Some(name) => model.push((name.to_string(), x)),
            None => state.push((name, x)),
        }
    }
    Ok((encode(OP, &model)?, encode(OP, &state)?))
}

/// The name of the state of a device's generator.
pub(super) fn random_name(device: Device) -> String {
    match device {
        Device::Cpu => RANDOM.to_string(),
        Device::Cuda(n) => format!("{RANDOM}.cuda{n}"),
    }
}

/// Checkpoints of earlier versions call the learning rate of a group `rate`, not `lr`.
fn earlier_names(file: &SafeTensors, named: &[(String, Tensor)]) -> Names {
    named.iter().filter(|(name, _)| file.tensor(name).is_err()).fold(
        Names::new(),
        |names, (name, _)| match name.strip_suffix(".lr") {
            Some(group) => names.rename(&format!("{group}.rate"), name),
            None => names,
        },
    )
}
