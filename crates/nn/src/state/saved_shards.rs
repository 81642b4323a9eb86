//! Reading checkpoints of which each worker wrote its part: see `sharded.rs`. Those that one worker
//! wrote for all are read too, as if each tensor were in one part.

use super::atomic_write::failed;
use super::checkpoint::MODEL;
use super::manifest::{Manifest, Record};
use super::sharded::{ShardedCheckpoint, is_part};
use super::tensors::{decode, dtype_of, tensor_of};
use crate::parallel::together;
use crate::refuse::called;
use pullback::{Error, Group, Result, Tensor, catch, no_grad};
use safetensors::tensor::TensorView;
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

const OP: &str = "checkpoint";

/// A checkpoint in a folder, whose manifest was read and verified. Files of parts are verified when
/// they are read.
pub struct SavedShards {
    /// Everything but the tensors.
    pub record: Record,
    manifest: Manifest,
    folder: PathBuf,
}

/// The elements of a saved part that a part needs.
struct Overlap {
    from: usize,
    to: usize,
    count: usize,
}

/// The name of a tensor among those of all files: the model has a file of its own, where one worker
/// wrote all.
fn full_name(file: &str, name: &str) -> String {
    if file == MODEL { format!("model.{name}") } else { name.to_string() }
}

fn overlap(saved: Range<usize>, wanted: &Range<usize>) -> Option<Overlap> {
    let start = saved.start.max(wanted.start);
    let end = saved.end.min(wanted.end);
    (start < end).then(|| Overlap {
        from: start - saved.start,
        to: start - wanted.start,
        count: end - start,
    })
}

impl SavedShards {
    /// Reads and verifies the manifest of a checkpoint.
    ///
    /// ```
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::state::{SavedShards, ShardedCheckpoint, ShardedCheckpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// let group = pullback::Group::alone();
    /// let state = ShardedCheckpoint::of_units(&FullSharding::new(&group)).at(7, 0);
    /// let saved = ShardedCheckpoints::new(folder.path()).save(&state, &group)?;
    /// assert_eq!(SavedShards::read(&saved)?.record.step, 7);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the manifest is not as it was written, or a file is not there.
    pub fn read(folder: impl AsRef<Path>) -> Result<SavedShards> {
        let folder = folder.as_ref().to_path_buf();
        let manifest = Manifest::read(&folder)?;
        for name in manifest.files() {
            let path = folder.join(name);
            fs::metadata(&path).map_err(|error| failed(OP, "read", &path, &error))?;
        }
        Ok(SavedShards { record: manifest.record.clone(), manifest, folder })
    }

    /// Writes what was saved to the tensors of `target`, this worker's parts of which are cut for
    /// any number of workers. Every worker calls it; where one fails, all get its error, and
    /// nothing is changed.
    ///
    /// See [`ShardedCheckpoint`] for an example.
    ///
    /// ```
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::state::{ShardedCheckpoint, ShardedCheckpoints};
    /// # use pullback_nn::{Linear, Module, init};
    /// # let folder = tempfile::tempdir().unwrap();
    /// let group = pullback::Group::alone();
    /// let sharding = FullSharding::new(&group);
    /// let unit = sharding.shard(Linear::new(2, 2))?;
    /// let (state, checkpoints) =
    ///     (ShardedCheckpoint::of_units(&sharding), ShardedCheckpoints::new(folder.path()));
    /// let before = unit.parameters()[0].to_vec::<f32>();
    /// checkpoints.save(&state, &group)?;
    /// init::zeros_(&unit.parameters()[0]);
    /// checkpoints.latest()?.unwrap().restore(&state, &group)?;
    /// assert_eq!(unit.parameters()[0].to_vec::<f32>(), before);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a tensor is missing or of another shape or dtype, or a file is not as it was written.
    #[track_caller]
    pub fn restore(&self, target: &ShardedCheckpoint, group: &Group) -> Result<()> {
        let _line = called();
        let wanted = target.pieces.iter().map(|piece| {
            let whole = piece.cut.as_ref().map_or(piece.x.shape(), |cut| &cut.shape[..]);
            let (start, length) = match &piece.cut {
                Some(cut) => (group.rank() * cut.shard_len, cut.len()),
                None => (0, piece.x.len()),
            };
            let range = start.min(length)..(start + piece.x.len()).min(length);
            (piece.name.clone(), whole.to_vec(), range)
        });
        let wanted: Vec<(String, Vec<usize>, Range<usize>)> = wanted.collect();
        let read = self.elements(&wanted).and_then(|found| {
            let parts = found.into_iter().zip(&target.pieces).map(|(found, piece)| {
                let found = found.tensor(&piece.name)?;
                if found.dtype() == piece.x.dtype() {
                    return Ok(found);
                }
                let (x, name) = (piece.x.spec(), &piece.name);
                Err(self.wrong(name, &format!("is of {}, not {x}", found.dtype())))
            });
            parts.collect::<Result<Vec<Tensor>>>()
        });
        let read = together(group, OP, read)?;
        catch(|| {
            no_grad(|| {
                for (piece, found) in target.pieces.iter().zip(read) {
                    let flat = piece.x.detach().zeros_like().reshape([piece.x.len()]);
                    flat.narrow(0, 0, found.len()).copy_(found);
                    piece.x.copy_(flat.reshape(piece.x.shape()));
                }
            });
        })
    }

    /// All tensors, whole, with their names: `model.…` and what else was saved.
    ///
    /// See [`ShardedCheckpoint::of_units`] for an example.
    ///
    /// ```
    /// # use pullback_nn::parallel::FullSharding;
    /// # use pullback_nn::state::{ShardedCheckpoint, ShardedCheckpoints};
    /// # let folder = tempfile::tempdir().unwrap();
    /// let group = pullback::Group::alone();
    /// let state = ShardedCheckpoint::of_units(&FullSharding::new(&group));
    /// ShardedCheckpoints::new(folder.path()).save(&state, &group)?;
    /// assert!(ShardedCheckpoints::new(folder.path()).latest()?.unwrap().whole()?.is_empty());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a file is not as it was written.
    pub fn whole(&self) -> Result<Vec<(String, Tensor)>> {
        let mut shapes = self.manifest.cut.clone();
        // What is not cut is in the first part.
        let first_part = self.manifest.files().find(|file| is_part(file));
        let first_part = first_part.map(str::to_string);
        for file in self.manifest.files() {
            if is_part(file) && Some(file) != first_part.as_deref() {
                continue;
            }
            let bytes = self.manifest.open(&self.folder, file)?;
            for (name, view) in decode(OP, &self.folder.join(file), &bytes)?.iter() {
                let name = full_name(file, name);
                shapes.entry(name).or_insert_with(|| view.shape().to_vec());
            }
        }
        let wanted = shapes.into_iter().map(|(name, shape)| {
            let length = shape.iter().product();
            (name, shape, 0..length)
        });
        let wanted: Vec<(String, Vec<usize>, Range<usize>)> = wanted.collect();
        let found = self.elements(&wanted)?.into_iter().zip(&wanted);
        let whole = found.map(|(found, (name, shape, _))| {
            let flat = found.tensor(name)?;
            Ok((name.clone(), catch(|| flat.reshape(shape))?))
        });
        whole.collect()
    }

    /// Some elements of each of some tensors, given with their whole shapes.
    fn elements(
        &self,
        wanted: &[(String, Vec<usize>, Range<usize>)],
    ) -> Result<Vec<ShardElements>> {
        let mut found: Vec<ShardElements> =
            wanted.iter().map(|_| ShardElements::default()).collect();
        let files: Vec<&str> = self.manifest.files().collect();
        let index: HashMap<&str, usize> =
            wanted.iter().enumerate().map(|(i, (name, ..))| (name.as_str(), i)).collect();
        for (number, file) in files.iter().enumerate() {
            let bytes = self.manifest.open(&self.folder, file)?;
            let tensors = decode(OP, &self.folder.join(file), &bytes)?;
            for (name, view) in tensors.iter() {
                let name = &full_name(file, name);
                let Some(&i) = index.get(name.as_str()) else { continue };
                let (_, shape, range) = &wanted[i];
                let cut = self.manifest.cut.get(name);
                let saved = cut.map_or(view.shape(), |shape| &shape[..]);
                if saved != &shape[..] {
                    return Err(self.wrong(name, &format!("is {saved:?}, not {shape:?}")));
                }
                let length: usize = shape.iter().product();
                let start = if cut.is_some() { number * length.div_ceil(files.len()) } else { 0 };
                let held: usize = view.shape().iter().product();
                let held = start.min(length)..(start + held).min(length);
                found[i].add(&view, held, range);
            }
        }
        for (found, (name, _, range)) in found.iter().zip(wanted) {
            if found.count != range.len() || found.dtype.is_none() {
                return Err(self.wrong(name, "is missing"));
            }
        }
        Ok(found)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether a tensor was saved whose name this holds for.
    pub(crate) fn has(&self, wanted: impl Fn(&str) -> bool) -> bool {
        self.manifest.tensors().any(|(file, name)| wanted(&full_name(file, name)))
    }

    /// Whether worker parts are in its files.
    pub(super) fn is_in_parts(manifest: &Manifest) -> bool {
        manifest.files().any(is_part)
    }

    fn wrong(&self, name: &str, why: &str) -> Error {
        Error::argument(OP, format!("{}: tensor `{name}` {why}", self.folder.display()))
    }
}

/// Elements of a tensor that were read so far, as bytes.
#[derive(Default)]
struct ShardElements {
    dtype: Option<safetensors::Dtype>,
    bytes: Vec<u8>,
    count: usize,
}

impl ShardElements {
    /// Takes what is needed of a part that holds the elements `held`.
    fn add(&mut self, view: &TensorView, held: Range<usize>, wanted: &Range<usize>) {
        let size = dtype_of(view.dtype()).map_or(1, pullback::DType::size);
        self.dtype = Some(view.dtype());
        self.bytes.resize(wanted.len() * size, 0);
        if let Some(Overlap { from, to, count }) = overlap(held, wanted) {
            let bytes = &view.data()[from * size..(from + count) * size];
            self.bytes[to * size..(to + count) * size].copy_from_slice(bytes);
            self.count += count;
        }
    }

    /// The elements as a flat tensor.
    fn tensor(&self, name: &str) -> Result<Tensor> {
        let refused = |why: String| Error::argument(OP, format!("tensor `{name}` {why}"));
        let dtype = self.dtype.unwrap_or(safetensors::Dtype::U8);
        let view = TensorView::new(dtype, vec![self.count], &self.bytes);
        tensor_of(&view.map_err(|error| refused(error.to_string()))?).map_err(refused)
    }
}
