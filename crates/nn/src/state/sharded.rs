//! Checkpoints of which each worker writes its part.
//!
//! A checkpoint is a folder with a file for each worker, `part-00001-of-00004.safetensors`, and the
//! manifest of `manifest.rs`, which also holds the whole shapes of tensors that are cut. Worker r of
//! W has elements r·k to (r + 1)·k of a flattened tensor, with k = ⌈length / W⌉; what is not cut
//! (step counts, learning rates, buffers) is in the file of worker 0. Files say nothing about who
//! reads them: any number of workers takes the elements it needs out of them.
//!
//! It is written under another name, flushed, and renamed by worker 0 after all workers have said
//! that their parts are on the disk; the manifest is written last. If one worker fails, all get its
//! error, and nothing is left.

use super::atomic_write::{failed, remove_folder, sweep, sync_folder, temporary, write_new};
use super::manifest::{self, FileSum, Manifest, Record};
use super::tensors::{decode, dtype_of, encode, tensor_of};
use crate::optim::Optimizer;
use crate::parallel::{Cut, FullSharding, Sharded, gather_texts, together};
use crate::Module;
use pullback::{Error, Group, Result, Tensor, catch, no_grad};
use safetensors::tensor::TensorView;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

const OP: &str = "checkpoint";

/// One tensor of a checkpoint, or this worker's part of one.
#[derive(Clone)]
struct Piece {
    name: String,
    x: Tensor,
    /// How it is cut; whole on every worker if it is not.
    cut: Option<Cut>,
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
    pieces: Vec<Piece>,
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
pub struct ShardedCheckpoints {
    folder: PathBuf,
    last: usize,
}

/// A checkpoint in a folder, whose manifest was read and verified. Files of parts are verified when
/// they are read.
pub struct SavedShards {
    /// Everything but the tensors.
    pub record: Record,
    manifest: Manifest,
    folder: PathBuf,
}

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

    fn of_cuts(cuts: Vec<(String, Tensor, Cut)>) -> ShardedCheckpoint {
        let piece = |(name, x, cut)| Piece { name: format!("model.{name}"), x, cut: Some(cut) };
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
        let groups = optimizer.groups();
        for (name, x) in optimizer.named_state() {
            // `group.number.state`, or `group.lr`.
            let mut words = name.splitn(3, '.');
            let mut number = || words.next()?.parse::<usize>().ok();
            let parameter = number().zip(number()).and_then(|(g, i)| groups.get(g)?.get(i));
            let cut = parameter.filter(|parameter| parameter.shape() == x.shape());
            let cut = cut.and_then(|parameter| {
                self.pieces.iter().find(|piece| piece.x.is_same(parameter))?.cut.clone()
            });
            if cut.is_none() && x.rank() > 0 {
                let message = format!("the optimiser's `{name}` is {} and of no part", x.spec());
                return Err(Error::argument(OP, message)
                    .hint("make the optimiser over the parts that are saved"));
            }
            self.pieces.push(Piece { name: format!("optimizer.{name}"), x, cut });
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
        let piece = |(name, x)| Piece { name: format!("{group}.{name}"), x, cut: None };
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
        ShardedCheckpoints { folder: folder.into(), last: 3 }
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
        ShardedCheckpoints { last: count.max(1), ..self }
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
    pub fn save(&self, checkpoint: &ShardedCheckpoint, group: &Group) -> Result<PathBuf> {
        let name = self.begin(checkpoint.record.step, group)?;
        let (working, place) = (self.folder.join(&name.1), self.folder.join(&name.0));
        let saved = self.write(checkpoint, group, &working, &place);
        if saved.is_err() && group.rank() == 0 {
            let _ = fs::remove_dir_all(&working);
        }
        let saved = together(group, OP, saved);
        if saved.is_ok() && group.rank() == 0 {
            self.prune();
        }
        saved.map(|()| place)
    }

    /// Makes the folder to write to; gives the names of the final one and of it.
    fn begin(&self, step: u64, group: &Group) -> Result<(String, String)> {
        let make = || -> Result<(String, String)> {
            let folder = &self.folder;
            fs::create_dir_all(folder).map_err(|error| failed(OP, "made", folder, &error))?;
            sweep(folder);
            let number = self.numbered()?.last().map_or(1, |(number, _)| number + 1);
            let name = format!("{number:05}-step-{step}");
            let working = temporary(folder, &name);
            fs::create_dir(&working).map_err(|error| failed(OP, "made", &working, &error))?;
            let working = working.file_name().unwrap_or_default().to_string_lossy().to_string();
            Ok((name, working))
        };
        let made = if group.rank() == 0 { make() } else { Ok(Default::default()) };
        let made = together(group, OP, made)?;
        // Worker 0 chose the names.
        let told = gather_texts(group, &format!("{}\n{}", made.0, made.1))?;
        let (name, working) = told[0].split_once('\n').unwrap_or_default();
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
            let mut told: serde_json::Value = serde_json::from_str(text).map_err(wrong)?;
            let sum = serde_json::from_value(told["sum"].take()).map_err(wrong)?;
            files.insert(told["name"].as_str().unwrap_or_default().to_string(), sum);
        }
        let cut = checkpoint.pieces.iter().filter_map(|piece| {
            Some((piece.name.clone(), piece.cut.as_ref()?.shape.clone()))
        });
        let manifest = Manifest::of_sums(checkpoint.record.clone(), files, cut.collect());
        write_new(&working.join(manifest::NAME), manifest.text()?.as_bytes())
            .and_then(|()| sync_folder(working))
            .and_then(|()| fs::rename(working, place))
            .and_then(|()| sync_folder(&self.folder))
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
        for (_, folder) in self.numbered()?.into_iter().rev() {
            match SavedShards::read(&folder) {
                Ok(saved) => return Ok(Some(saved)),
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        wrong.map_or(Ok(None), Err)
    }

    /// Number and path of each checkpoint, in order.
    fn numbered(&self) -> Result<Vec<(u64, PathBuf)>> {
        super::folder::numbered(&self.folder)
    }

    fn prune(&self) {
        let folders = self.numbered().unwrap_or_default();
        let old = folders.len().saturating_sub(self.last);
        for (_, folder) in &folders[..old] {
            // What cannot be removed does no harm.
            let _ = remove_folder(folder);
        }
    }
}

/// The elements of a saved part that a part needs.
struct Overlap {
    from: usize,
    to: usize,
    count: usize,
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
    pub fn restore(&self, target: &ShardedCheckpoint, group: &Group) -> Result<()> {
        let wanted = target.pieces.iter().map(|piece| {
            let whole = piece.cut.as_ref().map_or(piece.x.shape(), |cut| &cut.shape[..]);
            let (start, length) = match &piece.cut {
                Some(cut) => (group.rank() * cut.each, cut.len()),
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
        if let Some(first) = self.manifest.files().next() {
            let bytes = self.manifest.open(&self.folder, first)?;
            for (name, view) in decode(OP, &self.folder.join(first), &bytes)?.iter() {
                shapes.entry(name.to_string()).or_insert_with(|| view.shape().to_vec());
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
    fn elements(&self, wanted: &[(String, Vec<usize>, Range<usize>)]) -> Result<Vec<Elements>> {
        let mut found: Vec<Elements> = wanted.iter().map(|_| Elements::default()).collect();
        let files: Vec<&str> = self.manifest.files().collect();
        let index: HashMap<&str, usize> =
            wanted.iter().enumerate().map(|(i, (name, ..))| (name.as_str(), i)).collect();
        for (number, file) in files.iter().enumerate() {
            let bytes = self.manifest.open(&self.folder, file)?;
            let tensors = decode(OP, &self.folder.join(file), &bytes)?;
            for (name, view) in tensors.iter() {
                let Some(&i) = index.get(name) else { continue };
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

    fn wrong(&self, name: &str, why: &str) -> Error {
        Error::argument(OP, format!("{}: tensor `{name}` {why}", self.folder.display()))
    }
}

/// Elements of a tensor that were read so far, as bytes.
#[derive(Default)]
struct Elements {
    dtype: Option<safetensors::Dtype>,
    bytes: Vec<u8>,
    count: usize,
}

impl Elements {
    /// Takes what is needed of a part that holds the elements `held`.
    fn add(&mut self, view: &TensorView, held: Range<usize>, wanted: &Range<usize>) {
        let size = dtype_of(view).map_or(1, pullback::DType::size);
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
