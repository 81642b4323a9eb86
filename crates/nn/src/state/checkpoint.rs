//! One checkpoint: everything needed to resume a run exactly.
//!
//! On the disk it is a folder of three files. `model.safetensors` holds the parameters and buffers
//! under their own names, so PyTorch can load it. `state.safetensors` holds the other tensors: the
//! optimiser's, the random generator's, and what else was added. `checkpoint.json` holds the rest:
//! see `manifest.rs`.

use super::durable::make_folder;
use super::manifest::{self, Manifest, Record};
use super::matching::{Fit, Fitted, targets_from, targets_of};
use super::names::Names;
use super::tensors::{decode, encode, tensor_of};
use crate::Module;
use crate::optim::Optimizer;
use pullback::{DType, Device, Error, Result, Spec, Tensor, random_states, set_random_state};
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::{Path, PathBuf};

const OP: &str = "checkpoint";
const MODEL: &str = "model.safetensors";
const STATE: &str = "state.safetensors";
const RANDOM: &str = "random";
const OPTIMIZER: &str = "optimizer";

/// What is to be saved. The tensors are handles: they are read when it is saved.
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
    pub fn optimizer(self, optimizer: &(impl Optimizer + ?Sized)) -> Checkpoint {
        self.tensors(OPTIMIZER, optimizer.named_state())
    }

    /// Adds tensors of another kind: an average of the weights, a second model, its optimiser's
    /// state.
    pub fn tensors(mut self, group: &str, named: Vec<(String, Tensor)>) -> Checkpoint {
        self.state.extend(named.into_iter().map(|(name, x)| (format!("{group}.{name}"), x)));
        self
    }

    /// The number of steps taken and epochs finished.
    pub fn at(mut self, step: u64, epoch: u64) -> Checkpoint {
        (self.record.step, self.record.epoch) = (step, epoch);
        self
    }

    /// Adds something that was measured.
    pub fn metric(mut self, name: &str, value: f64) -> Checkpoint {
        self.record.metrics.insert(name.to_string(), value);
        self
    }

    /// Adds the state of a schedule.
    pub fn schedule(mut self, state: Value) -> Checkpoint {
        self.record.schedule = state;
        self
    }

    /// Adds the position in the data.
    pub fn data(mut self, position: Value) -> Checkpoint {
        self.record.data = position;
        self
    }

    /// Adds what the run was started with.
    pub fn config(mut self, config: Value) -> Checkpoint {
        self.record.config = config;
        self
    }

    /// Adds what the training loop keeps.
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
pub(crate) struct Checked {
    fitted: Vec<Fitted>,
    random: Vec<Tensor>,
}

impl Checked {
    pub fn write(self) -> Result<()> {
        self.fitted.into_iter().try_for_each(Fitted::write)?;
        self.random.iter().for_each(set_random_state);
        Ok(())
    }
}

/// A checkpoint that was read and verified.
#[derive(Clone, Debug)]
pub struct SavedCheckpoint {
    /// Everything but the tensors.
    pub record: Record,
    folder: PathBuf,
    model: Vec<u8>,
    state: Vec<u8>,
}

impl SavedCheckpoint {
    /// Reads the checkpoint in a folder.
    ///
    /// # Errors
    /// If it cannot be read, is not as it was written, or is of a version that this does not know.
    pub fn read(folder: impl AsRef<Path>) -> Result<SavedCheckpoint> {
        let folder = folder.as_ref();
        let manifest = Manifest::read(folder)?;
        let (model, state) = (manifest.open(folder, MODEL)?, manifest.open(folder, STATE)?);
        Ok(SavedCheckpoint { record: manifest.record, folder: folder.to_path_buf(), model, state })
    }

    /// Where it was read from.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Restores the model, the optimiser and the random generator. Everything is checked before
    /// anything is changed.
    ///
    /// # Errors
    /// If a tensor is missing, unexpected, or of another shape or dtype.
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
    ) -> Result<Checked> {
        let mut fitted =
            vec![self.fit_model(model)?, self.fit_group(OPTIMIZER, optimizer.named_state())?];
        for (group, named) in groups {
            fitted.push(self.fit_group(group, named.clone())?);
        }
        Ok(Checked { fitted, random: self.random()? })
    }

    /// Restores the model alone.
    ///
    /// # Errors
    /// If a tensor is missing, unexpected, or of another shape or dtype.
    pub fn restore_model(&self, model: &impl Module) -> Result<()> {
        self.fit_model(model)?.write()
    }

    /// Restores the tensors of a group, as [`Checkpoint::tensors`] added them.
    ///
    /// # Errors
    /// If a tensor is missing, unexpected, or of another shape or dtype.
    pub fn restore_tensors(&self, group: &str, named: Vec<(String, Tensor)>) -> Result<()> {
        self.fit_group(group, named)?.write()
    }

    /// Whether it holds tensors of a group.
    #[must_use]
    pub fn has_tensors(&self, group: &str) -> bool {
        let begins = format!("{group}.");
        decode(OP, &self.folder.join(STATE), &self.state)
            .is_ok_and(|file| file.iter().any(|(name, _)| name.starts_with(&begins)))
    }

    fn fit_model(&self, model: &impl Module) -> Result<Fitted> {
        let path = self.folder.join(MODEL);
        let file = decode(OP, &path, &self.model)?;
        let fitted = Fit::exact(&Names::new()).run(&file, &targets_of(model));
        fitted.check(OP, &path, "the model", true)?;
        Ok(fitted)
    }

    fn fit_group(&self, group: &str, named: Vec<(String, Tensor)>) -> Result<Fitted> {
        let path = self.folder.join(STATE);
        let file = decode(OP, &path, &self.state)?;
        let named = named.into_iter().map(|(name, x)| (format!("{group}.{name}"), x));
        let named: Vec<(String, Tensor)> = named.collect();
        let names = earlier_names(&file, &named);
        let mut fitted = Fit::exact(&names).run(&file, &targets_from(named));
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

/// The name of the state of a device's generator.
fn random_name(device: Device) -> String {
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
