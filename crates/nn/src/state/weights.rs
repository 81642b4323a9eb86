//! The weights of a model in a safetensors file.

use super::atomic_write::{failed, replace_file};
use super::matching::{Fit, targets_of};
use super::names::Names;
use super::tensors::{decode, encode};
use crate::Module;
use pullback::{Error, Line, Result, user_line};
use std::path::Path;

const SAVE: &str = "save_weights";
const LOAD: &str = "load_weights";

/// Writes the parameters and buffers of a model to a safetensors file, under the names that PyTorch
/// would give them. Tied parameters are written once. The file is replaced whole or not at all.
///
/// ```
/// use pullback::{Tensor, Tree};
/// use pullback_nn::state::{load_weights, save_weights};
///
/// #[derive(Tree)]
/// struct Scale {
///     weight: Tensor,
/// }
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("scale.safetensors");
/// let trained = Scale { weight: Tensor::from([1.0, 2.0]).requires_grad() };
/// save_weights(&trained, &path)?;
/// let fresh = Scale { weight: Tensor::from([0.0, 0.0]).requires_grad() };
/// load_weights(&fresh, &path)?;
/// assert_eq!(fresh.weight.to_vec::<f64>(), [1.0, 2.0]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be written; then what was there is still there.
#[track_caller]
pub fn save_weights(model: &impl Module, path: impl AsRef<Path>) -> Result<()> {
    Weights::new().save(model, path)
}

/// Reads the parameters and buffers of a model from a safetensors file, in place. Every name, shape
/// and dtype must fit, or nothing is changed. A tied parameter may have any of its names.
///
/// # Errors
/// If the file cannot be read or does not fit: the error names what is missing, unexpected or
/// mismatching.
#[track_caller]
pub fn load_weights(model: &impl Module, path: impl AsRef<Path>) -> Result<()> {
    Weights::new().load(model, path).map(drop)
}

/// How weights are saved and loaded, where the file is not just like the model.
///
/// ```no_run
/// # use pullback::{Tensor, Tree};
/// use pullback_nn::state::{Names, Weights};
/// # #[derive(Tree)]
/// # struct Model { weight: Tensor }
/// # let model = Model { weight: Tensor::zeros([2]) };
/// let loaded = Weights::new()
///     .names(Names::new().prefix("module.", ""))
///     .ignore("*.num_batches_tracked")
///     .allow_missing("head.*")
///     .cast(true)
///     .load(&model, "weights.safetensors")?;
/// println!("left as they were: {:?}", loaded.missing);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Weights {
    names: Names,
    strict: bool,
    cast: bool,
    ignored: Vec<String>,
    optional: Vec<String>,
}

/// What loading did besides writing tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// How many tensors were written.
    pub written: usize,
    /// The tensors of the model that the file does not have, with their specs.
    pub missing: Vec<String>,
    /// The tensors of the file that the model does not have, with their specs.
    pub unexpected: Vec<String>,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights::new()
    }
}

impl Weights {
    /// The same names, everything there, the same dtypes.
    pub fn new() -> Weights {
        let (ignored, optional) = (Vec::new(), Vec::new());
        Weights { names: Names::new(), strict: true, cast: false, ignored, optional }
    }

    /// Maps names between file and model, and joins and cuts tensors.
    pub fn names(self, names: Names) -> Weights {
        Weights { names, ..self }
    }

    /// Whether file and model must have the same tensors. If not, those that both have are loaded;
    /// their shapes must fit all the same.
    pub fn strict(self, strict: bool) -> Weights {
        Weights { strict, ..self }
    }

    /// Tensors of the file whose names fit this pattern are ignored: they need not be in the model,
    /// and are not loaded. A `*` matches any text, dots included.
    pub fn ignore(mut self, in_file: &str) -> Weights {
        self.ignored.push(in_file.to_string());
        self
    }

    /// Tensors of the model whose names fit this pattern need not be in the file: they stay as they
    /// are. A `*` matches any text, dots included.
    pub fn allow_missing(mut self, in_model: &str) -> Weights {
        self.optional.push(in_model.to_string());
        self
    }

    /// Whether dtypes may differ. Then floats are cast to floats and integers to integers.
    pub fn cast(self, cast: bool) -> Weights {
        Weights { cast, ..self }
    }

    /// [`save_weights`] with these options.
    ///
    /// # Errors
    /// If the file cannot be written, or names collide.
    #[track_caller]
    pub fn save(&self, model: &impl Module, path: impl AsRef<Path>) -> Result<()> {
        let at = user_line(Line::caller());
        self.saved(model, path.as_ref()).map_err(|error| error.at(at))
    }

    fn saved(&self, model: &impl Module, path: &Path) -> Result<()> {
        let stored = self.names.stored(model.named_state());
        let mut tensors = stored.map_err(|wrong| {
            let message = "the model's tensors cannot be stored by these rules";
            wrong.into_iter().fold(Error::argument(SAVE, message), Error::detail)
        })?;
        for (name, x) in &mut tensors {
            if self.names.is_transposed(name) && x.rank() == 2 {
                *x = x.detach().t();
            }
        }
        let mut names: Vec<&String> = tensors.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("two tensors would be named `{}` in the file", pair[0]);
            return Err(Error::argument(SAVE, message));
        }
        replace_file(SAVE, path, &encode(SAVE, &tensors)?)
    }

    /// [`load_weights`] with these options.
    ///
    /// # Errors
    /// If the file cannot be read or does not fit; then nothing is changed.
    #[track_caller]
    pub fn load(&self, model: &impl Module, path: impl AsRef<Path>) -> Result<Loaded> {
        let at = user_line(Line::caller());
        self.loaded(model, path.as_ref()).map_err(|error| error.at(at))
    }

    fn loaded(&self, model: &impl Module, path: &Path) -> Result<Loaded> {
        let bytes = std::fs::read(path).map_err(|error| failed(LOAD, "read", path, &error))?;
        let file = decode(LOAD, path, &bytes)?;
        let (ignored, optional) = (&self.ignored, &self.optional);
        let fit = Fit { names: &self.names, cast: self.cast, ignored, optional };
        let fitted = fit.run(&file, &targets_of(model));
        fitted.check(LOAD, path, "the model", self.strict)?;
        let loaded = Loaded {
            written: fitted.len(),
            missing: [&fitted.missing[..], &fitted.excused[0]].concat(),
            unexpected: [&fitted.unexpected[..], &fitted.excused[1]].concat(),
        };
        fitted.write()?;
        Ok(loaded)
    }
}
