//! The weights of a model in a safetensors file.

use super::atomic_write::replace_file_with;
use super::matching::{MatchOptions, targets_of};
use super::names::Names;
use super::stored::with_file;
use super::tensors::write_to;
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
/// and dtype must fit, or nothing is changed. A tied parameter may have any of its names. Each
/// tensor is read when all of them fit, and goes straight to the device of the one it is written
/// to, so the host has one of them at a time.
///
/// ```
/// use pullback_nn::Linear;
/// use pullback_nn::state::{load_weights, save_weights};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("linear.safetensors");
/// let (trained, fresh) = (Linear::new(2, 1), Linear::new(2, 1));
/// save_weights(&trained, &path)?;
/// load_weights(&fresh, &path)?;
/// assert_eq!(fresh.weight.to_vec::<f32>(), trained.weight.to_vec::<f32>());
/// assert!(load_weights(&Linear::new(3, 1), &path).is_err());
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read or does not fit; the message names what is missing, unexpected or
/// mismatching. Then nothing is changed. (A disk or a device that fails while tensors are read
/// leaves those that were written before.)
#[doc(alias = "load_state_dict")]
#[track_caller]
pub fn load_weights(model: &impl Module, path: impl AsRef<Path>) -> Result<()> {
    Weights::new().load(model, path).map(drop)
}

/// Options for saving and loading weights, where the file and the model differ.
///
/// ```
/// use pullback::{DType, Tensor};
/// use pullback_nn::Linear;
/// use pullback_nn::data::write_safetensors;
/// use pullback_nn::state::{Names, Weights};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("weights.safetensors");
/// let (weight, count) = (Tensor::ones([1, 2]).cast(DType::F16), Tensor::from(7i64));
/// let file = [("module.weight", &weight), ("module.norm.num_batches_tracked", &count)];
/// write_safetensors(&path, &file, &Default::default())?;
/// let model = Linear::new(2, 1);
/// let loaded = Weights::new()
///     .names(Names::new().prefix("module.", ""))
///     .ignore("*.num_batches_tracked")
///     .allow_missing("bias")
///     .cast(true)
///     .load(&model, &path)?;
/// assert_eq!(model.weight.to_vec::<f32>(), [1.0, 1.0]);
/// assert_eq!((loaded.written, loaded.missing.len()), (1, 1)); // the bias
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

/// The result of loading weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The number of tensors that were loaded.
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
    /// Names and dtypes must be the same, and no tensor may be missing or unexpected. The methods
    /// below relax that.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::Weights;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("linear.safetensors");
    /// let model = Linear::new(2, 1);
    /// Weights::new().save(&model, &path)?;
    /// assert_eq!(Weights::new().load(&model, &path)?.written, 2);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn new() -> Weights {
        let (ignored, optional) = (Vec::new(), Vec::new());
        Weights { names: Names::new(), strict: true, cast: false, ignored, optional }
    }

    /// Maps names between file and model, and concatenates and splits tensors.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::data::read_safetensors;
    /// use pullback_nn::state::{Names, Weights};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("linear.safetensors");
    /// let weights = Weights::new().names(Names::new().prefix("module.", ""));
    /// weights.save(&Linear::new(2, 1), &path)?;
    /// assert!(read_safetensors(&path)?.get("module.weight").is_some());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn names(self, names: Names) -> Weights {
        Weights { names, ..self }
    }

    /// Whether file and model must have the same tensors; `true` by default. Otherwise those that
    /// both have are loaded; their shapes must still fit.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Weights, save_weights};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("linear.safetensors");
    /// save_weights(&Linear::new(2, 1).without_bias(), &path)?;
    /// let model = Linear::new(2, 1);
    /// assert!(Weights::new().load(&model, &path).is_err());
    /// assert_eq!(Weights::new().strict(false).load(&model, &path)?.missing.len(), 1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn strict(self, strict: bool) -> Weights {
        Weights { strict, ..self }
    }

    /// Ignores tensors of the file whose names match this pattern: they need not be in the model,
    /// and are not loaded. A `*` matches any text, dots included.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Weights, save_weights};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("linear.safetensors");
    /// save_weights(&Linear::new(2, 1), &path)?;
    /// let model = Linear::new(2, 1).without_bias();
    /// assert_eq!(Weights::new().ignore("b*").load(&model, &path)?.written, 1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn ignore(mut self, in_file: &str) -> Weights {
        self.ignored.push(in_file.to_string());
        self
    }

    /// Tensors of the model whose names match this pattern need not be in the file: they keep their
    /// values. A `*` matches any text, dots included.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Weights, save_weights};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("linear.safetensors");
    /// save_weights(&Linear::new(2, 1).without_bias(), &path)?;
    /// let loaded = Weights::new().allow_missing("bias").load(&Linear::new(2, 1), &path)?;
    /// assert_eq!((loaded.written, loaded.missing.len()), (1, 1));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn allow_missing(mut self, in_model: &str) -> Weights {
        self.optional.push(in_model.to_string());
        self
    }

    /// Whether dtypes may differ; `false` by default. Then floats are cast to floats, and integers
    /// to integers.
    ///
    /// ```
    /// use pullback::{DType, Tensor};
    /// use pullback_nn::Linear;
    /// use pullback_nn::data::write_safetensors;
    /// use pullback_nn::state::Weights;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("linear.safetensors");
    /// let half = Tensor::ones([1, 2]).cast(DType::F16);
    /// write_safetensors(&path, &[("weight", &half)], &Default::default())?;
    /// let model = Linear::new(2, 1).without_bias();
    /// assert!(Weights::new().load(&model, &path).is_err());
    /// Weights::new().cast(true).load(&model, &path)?;
    /// assert_eq!(model.weight.to_vec::<f32>(), [1.0, 1.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn cast(self, cast: bool) -> Weights {
        Weights { cast, ..self }
    }

    /// [`save_weights`] with these options.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::data::read_safetensors;
    /// use pullback_nn::state::Weights;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("linear.safetensors");
    /// Weights::new().save(&Linear::new(2, 1), &path)?;
    /// assert_eq!(read_safetensors(&path)?.get("weight").unwrap().shape(), [1, 2]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written, two tensors would have the same name in it, or a tensor
    /// cannot be concatenated or split as [`Weights::names`] says.
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
        replace_file_with(SAVE, path, |file| write_to(file, &tensors))
    }

    /// [`load_weights`] with these options.
    ///
    /// ```
    /// use pullback_nn::Linear;
    /// use pullback_nn::state::{Weights, save_weights};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("linear.safetensors");
    /// let (trained, fresh) = (Linear::new(2, 1), Linear::new(2, 1));
    /// save_weights(&trained, &path)?;
    /// assert_eq!(Weights::new().load(&fresh, &path)?.written, 2);
    /// assert_eq!(fresh.weight.to_vec::<f32>(), trained.weight.to_vec::<f32>());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read or does not fit; then nothing is changed.
    #[track_caller]
    pub fn load(&self, model: &impl Module, path: impl AsRef<Path>) -> Result<Loaded> {
        let at = user_line(Line::caller());
        self.loaded(model, path.as_ref()).map_err(|error| error.at(at))
    }

    fn loaded(&self, model: &impl Module, path: &Path) -> Result<Loaded> {
        let (ignored, optional) = (&self.ignored, &self.optional);
        let fit = MatchOptions { names: &self.names, cast: self.cast, ignored, optional };
        with_file(LOAD, path, |file| {
            let fitted = fit.run(file, &targets_of(model));
            fitted.check(LOAD, path, "the model", self.strict)?;
            fitted.write(LOAD, path, file)?;
            Ok(Loaded {
                written: fitted.len(),
                missing: [&fitted.missing[..], &fitted.excused[0]].concat(),
                unexpected: [&fitted.unexpected[..], &fitted.excused[1]].concat(),
            })
        })
    }
}
