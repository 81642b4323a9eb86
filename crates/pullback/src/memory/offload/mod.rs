//! Offloading: saved values are stored outside of memory until backward.
//!
//! [`Offload`] is a packer like any other (`packing.rs`). Values of a device go to the memory of
//! the host (`host.rs`), or those of any device to disk. For the disk, a value is copied when it is
//! saved, and a thread writes the copy to a file of its own (`file.rs`) while the forward pass
//! continues. Backward takes values in the reverse order, so a second thread prefetches in that
//! order (`engine.rs`, `work.rs`). Copies that wait and prefetched values have one bound
//! (`quota.rs`): where the disk is slower than the forward pass, the forward pass waits. The same
//! memory saved by two ops is written once (`piece.rs`).
//!
//! A file exists as long as its value may be requested: the node that saved it holds the only
//! handle, and dropping that removes the file. So success, a panic and a dropped graph are handled
//! in the same way.

mod engine;
mod file;
mod host;
mod quota;
#[cfg(test)]
mod tests;
mod work;

use crate::backend::Pooled;
use crate::memory::packing::{Pack, Packed, SavedValue, with_packing};
use crate::memory::piece::{Memoized, Piece};
use crate::storage::Storage;
use crate::{Device, Error, ErrorKind, Result, Spec, Tensor, mode, trace};
use engine::{Engine, OffloadOptions, OffloadedValue};
use file::Create;
use host::{HostEngine, HostValue};
use pullback_ir::{Layout, Line};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Keeps values saved for backward in host memory or in files: a packer for [`with_packing`], or
/// for [`Offload::run`].
///
/// ```
/// use pullback::{Offload, Tensor};
/// # let dir = std::env::temp_dir().join(format!("offload-example-{}", std::process::id()));
/// let offload = Offload::to_disk(&dir)?.min_bytes(1 << 10);
/// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
/// let y = offload.run(|| (&x * 2.0).sin().exp().sum());
/// y.backward()?;
/// offload.flush()?;
/// drop(y);
/// assert_eq!(offload.stats().files, 0);
/// # std::fs::remove_dir(&dir).unwrap();
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// Left where they are: parameters, whose memory is there anyway; values below
/// [`Offload::min_bytes`]; tangents of forward mode; and all that is saved while a function is
/// traced (`jit`, bodies of loops, `vmap`), because it has no values yet and the program plans its
/// own memory.
///
/// A copy is made when a value is saved, so it is restored as it was then, also where its memory
/// was written to since.
///
/// # Files
/// Each value has a file of its own, which only its owner may read. It is removed when backward has
/// passed (unless the graph is retained), when the graph is dropped, and when a panic unwinds,
/// whichever of the graph and the offload goes first. A process that is killed leaves its files
/// behind: `pullback-`, the number of the process, and a number.
///
/// # When writing fails
/// A value that could not be written stays in memory, so backward through what was recorded still
/// works. The next operation that saves a value here fails with an error that names the file and
/// the system's error, or [`Offload::flush`] does. After the error was reported, the offload tries
/// again.
///
/// # When reading fails
/// A file that was removed, cut short or changed (each has a checksum) makes backward an error that
/// names the op and the file, and changes no gradient.
#[derive(Clone)]
pub struct Offload(Where);

#[derive(Clone)]
enum Where {
    Host(Arc<HostEngine>),
    Disk(Arc<Engine>),
}

/// What an [`Offload`] holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OffloadStats {
    /// Bytes written to files, or copied to the host.
    pub written_bytes: u64,
    /// Bytes read from files, or copied back to the device.
    pub read_bytes: u64,
    /// Bytes in memory now: copies that wait for the writer, copies that stay while they fit,
    /// prefetched values.
    pub held_bytes: u64,
    /// The most that `held_bytes` was.
    pub peak_held_bytes: u64,
    /// Bytes of values of devices that are on the host now.
    pub host_bytes: u64,
    /// Bytes in files now.
    pub disk_bytes: u64,
    /// Files now.
    pub files: usize,
    /// How often the forward pass waited for the writer.
    pub waits: u64,
    /// Values that did not fit into the buffer, written by the thread that saved them.
    pub written_at_once: u64,
    /// Values that were already kept, because another op had saved them.
    pub shared: u64,
    /// Values that backward found prefetched.
    pub prefetch_hits: u64,
    /// Values that backward found in memory because they had not left it yet.
    pub memory_hits: u64,
    /// Values that backward took from the memory of a tensor that was still referenced.
    pub still_there: u64,
    /// Values that backward had to read itself.
    pub read_on_demand: u64,
    /// Writes that failed.
    pub failed_writes: u64,
}

impl Offload {
    /// Values of a GPU to the memory of the host; those on the CPU stay where they are.
    ///
    /// Copies run during the operations of the GPU: a value leaves when it is saved, its memory is
    /// used again once it was copied, and it comes back while backward works on what was saved
    /// after it. The host holds the copies in pinned memory, which is slow to make and is kept for
    /// the next step ([`PoolStats::pinned_bytes`](crate::PoolStats::pinned_bytes);
    /// [`trim_memory`](crate::trim_memory) frees what is unused). Unless set otherwise, values of
    /// less than 1 MiB stay, and up to 8 values, 2 GiB together, are on the GPU before they are
    /// needed.
    ///
    /// ```
    /// use pullback::{Offload, OffloadStats, Tensor};
    /// let offload = Offload::to_host();
    /// let x = Tensor::from([1.0, 2.0]).requires_grad();
    /// offload.run(|| x.exp().sum()).backward()?;
    /// assert_eq!(offload.stats(), OffloadStats::default());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[doc(alias = "save_on_cpu")]
    #[must_use]
    pub fn to_host() -> Offload {
        Offload(Where::Host(Arc::new(HostEngine::new())))
    }

    /// Offloads to files in a directory, which is created if there is none.
    ///
    /// ```
    /// use pullback::{Offload, Tensor};
    /// # let dir = std::env::temp_dir().join(format!("offload-disk-{}", std::process::id()));
    /// let offload = Offload::to_disk(&dir)?.min_bytes(1 << 10);
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let y = offload.run(|| (&x * 2.0).sin().exp().sum());
    /// offload.flush()?;
    /// assert_eq!(offload.stats().files, 2); // what `sin` and `exp` saved
    /// y.backward()?;
    /// assert_eq!(offload.stats().files, 0);
    /// # drop(offload);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If no file can be written there, or no thread can be started.
    #[track_caller]
    pub fn to_disk(dir: impl AsRef<Path>) -> Result<Offload> {
        let (dir, at) = (dir.as_ref(), mode::user_line(Line::caller()));
        let failed = |error: std::io::Error| {
            let message = format!("no file can be written in {}: {error}", dir.display());
            Error::new(ErrorKind::Memory, "offload", message).at(at)
        };
        // The process may change its working directory later.
        let whole = std::path::absolute(dir).map_err(failed)?;
        file::probe(&whole).map_err(failed)?;
        Offload::with(&whole, file::create).map_err(|error| error.at(at))
    }

    fn with(dir: &Path, create: Create) -> Result<Offload> {
        let options = OffloadOptions {
            min_bytes: 64 << 10,
            buffer_bytes: 256 << 20,
            max_bytes: u64::MAX,
            prefetch: 8,
        };
        let engine = Engine::start(dir.to_path_buf(), create, options).map_err(|error| {
            let message = format!("no thread could be started: {error}");
            Error::new(ErrorKind::Memory, "offload", message)
        })?;
        Ok(Offload(Where::Disk(engine)))
    }

    fn set(self, change: impl FnOnce(&mut OffloadOptions)) -> Offload {
        match &self.0 {
            Where::Host(engine) => engine.set(change),
            Where::Disk(engine) => engine.set(change),
        }
        self
    }

    /// Values of fewer bytes stay in memory; 64 KiB for files and 1 MiB for the host, unless set.
    ///
    /// ```
    /// use pullback::{Offload, Tensor};
    /// # let dir = std::env::temp_dir().join(format!("offload-min-{}", std::process::id()));
    /// let offload = Offload::to_disk(&dir)?;
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let y = offload.run(|| (&x * 2.0).sin().exp().sum());
    /// offload.flush()?;
    /// assert_eq!(offload.stats().files, 0); // 16 KiB are below the default
    /// let z = offload.clone().min_bytes(16 << 10).run(|| (&x * 2.0).sin().sum());
    /// offload.flush()?;
    /// assert_eq!(offload.stats().files, 1);
    /// y.backward()?;
    /// z.backward()?;
    /// # drop(offload);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn min_bytes(self, bytes: usize) -> Offload {
        self.set(|o| o.min_bytes = bytes)
    }

    /// The most memory for copies that wait to be written and prefetched values, together; 256 MiB
    /// unless set. A value that is larger is written at once, from where it is.
    ///
    /// ```
    /// use pullback::{Offload, Tensor};
    /// # let dir = std::env::temp_dir().join(format!("offload-buffer-{}", std::process::id()));
    /// let offload = Offload::to_disk(&dir)?.min_bytes(1 << 10).buffer_bytes(8 << 10);
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let y = offload.run(|| (&x * 2.0).sin().exp().sum());
    /// assert_eq!(offload.stats().written_at_once, 2); // 16 KiB do not fit into 8
    /// y.backward()?;
    /// assert!(offload.stats().peak_held_bytes <= 8 << 10);
    /// # drop(offload);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn buffer_bytes(self, bytes: usize) -> Offload {
        self.set(|o| o.buffer_bytes = bytes)
    }

    /// The most bytes that may be in files, or on the host, at a time; no bound unless set.
    ///
    /// ```
    /// use pullback::{Offload, Tensor, catch};
    /// # let dir = std::env::temp_dir().join(format!("offload-max-{}", std::process::id()));
    /// let offload = Offload::to_disk(&dir)?.min_bytes(1 << 10).max_bytes(20 << 10);
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let y = catch(|| offload.run(|| (&x * 2.0).sin().exp().sum()));
    /// let error = y.unwrap_err(); // two values of 16 KiB
    /// assert!(error.to_string().starts_with("offload"), "{error}");
    /// # drop(error);
    /// # drop(offload);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// An operation that would save more.
    #[must_use]
    pub fn max_bytes(self, bytes: u64) -> Offload {
        self.set(|o| o.max_bytes = bytes)
    }

    /// How many values are prefetched for backward, where they fit into the buffer; 8 unless set,
    /// and 0 for none.
    ///
    /// ```
    /// use pullback::{Offload, Tensor};
    /// # let dir = std::env::temp_dir().join(format!("offload-prefetch-{}", std::process::id()));
    /// let offload = Offload::to_disk(&dir)?.min_bytes(1 << 10).prefetch(0);
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let y = offload.run(|| (&x * 2.0).sin().exp().sum());
    /// offload.flush()?;
    /// y.backward()?;
    /// assert_eq!(offload.stats().prefetch_hits, 0);
    /// # drop(offload);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn prefetch(self, values: usize) -> Offload {
        self.set(|o| o.prefetch = values)
    }

    /// Runs `f`; what it saves for backward is offloaded.
    ///
    /// ```
    /// use pullback::{Offload, Tensor};
    /// # let dir = std::env::temp_dir().join(format!("offload-run-{}", std::process::id()));
    /// let offload = Offload::to_disk(&dir)?.min_bytes(1 << 10);
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let y = offload.run(|| (&x * 2.0).sin().exp().sum());
    /// y.backward()?;
    /// let slope = x.grad().unwrap().to_vec::<f32>()[0]; // 2·cos(1)·exp(sin(1))
    /// assert!((slope - 2.0 * 1f32.cos() * 1f32.sin().exp()).abs() < 1e-5);
    /// # drop(offload);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// Where an operation of `f` fails to save its value, because writing has failed or
    /// [`Offload::max_bytes`] is reached.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        with_packing(Arc::new(self.clone()), f)
    }

    /// Waits until everything is written to files; with [`Offload::to_host`] there is nothing to
    /// wait for.
    ///
    /// ```
    /// use pullback::{Offload, Tensor};
    /// # let dir = std::env::temp_dir().join(format!("offload-flush-{}", std::process::id()));
    /// let offload = Offload::to_disk(&dir)?.min_bytes(1 << 10);
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let y = offload.run(|| (&x * 2.0).sin().exp().sum());
    /// offload.flush()?;
    /// assert!(offload.stats().written_bytes >= 2 * 64 * 64 * 4);
    /// y.backward()?;
    /// # drop(offload);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a value could not be written, and that was not reported yet. It is kept in memory.
    pub fn flush(&self) -> Result<()> {
        match &self.0 {
            // The device orders its copies itself.
            Where::Host(_) => Ok(()),
            Where::Disk(engine) => engine.flush(),
        }
    }

    /// What it holds now and has done so far.
    ///
    /// ```
    /// use pullback::{Offload, Tensor};
    /// # let dir = std::env::temp_dir().join(format!("offload-stats-{}", std::process::id()));
    /// let offload = Offload::to_disk(&dir)?.min_bytes(1 << 10);
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let y = offload.run(|| (&x * 2.0).sin().exp().sum());
    /// offload.flush()?;
    /// let stats = offload.stats();
    /// assert_eq!((stats.files, stats.failed_writes), (2, 0));
    /// y.backward()?;
    /// # drop(offload);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> OffloadStats {
        match &self.0 {
            Where::Host(engine) => engine.stats(),
            Where::Disk(engine) => engine.stats(),
        }
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Where::Host(_) => f.write_str("Offload::to_host()"),
            Where::Disk(_) => write!(f, "Offload({:?})", self.stats()),
        }
    }
}

impl Pack for Offload {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        let x = value.tensor();
        if value.is_parameter() || !trace::knows(x) {
            return Ok(None);
        }
        let (piece, options) = match &self.0 {
            Where::Host(_) if x.device() == Device::Cpu => return Ok(None),
            Where::Host(engine) => (Piece::of(x), engine.options()),
            Where::Disk(engine) => (Piece::of(x), engine.options()),
        };
        if piece.bytes() < options.min_bytes.max(1) {
            return Ok(None);
        }
        let kept = match &self.0 {
            Where::Host(engine) => match engine.memo.find(&piece, 0) {
                Some(kept) => {
                    engine.note_shared();
                    Ticket::Host(kept)
                }
                None => Ticket::Host(engine.memo.note(&piece, 0, engine.take(&piece, value)?)),
            },
            Where::Disk(engine) => {
                engine.check()?;
                match engine.memo.find(&piece, 0) {
                    Some(kept) => {
                        engine.note_shared();
                        Ticket::Disk(kept)
                    }
                    None => Ticket::Disk(engine.memo.note(&piece, 0, engine.take(&piece, value)?)),
                }
            }
        };
        Ok(Some(Arc::new(OffloadedTensor {
            kept,
            spec: x.spec().clone(),
            original: x.0.layout.clone(),
            layout: piece.layout,
            name: value.name().to_string(),
            at: value.at(),
        })))
    }
}

/// A saved value that was copied to a file or to the host.
struct OffloadedTensor {
    kept: Ticket,
    spec: Spec,
    /// Its layout on the memory that was saved.
    original: Layout,
    /// Its layout on what is restored.
    layout: Layout,
    name: String,
    at: Line,
}

/// Where it is, held by all that saved it.
enum Ticket {
    Host(Arc<Memoized<HostValue>>),
    Disk(Arc<Memoized<OffloadedValue>>),
}

impl Ticket {
    fn original(&self) -> Option<Pooled<Storage>> {
        match self {
            Ticket::Host(kept) => kept.value.original(),
            Ticket::Disk(kept) => kept.value.original(),
        }
    }

    fn fetch(&self) -> Result<Pooled<Storage>> {
        match self {
            Ticket::Host(kept) => kept.value.fetch(),
            Ticket::Disk(kept) => kept.value.fetch(),
        }
    }

    fn saver(&self) -> String {
        match self {
            Ticket::Host(kept) => kept.value.saver(),
            Ticket::Disk(kept) => kept.value.saver(),
        }
    }

    /// The error of a value that does not come back.
    fn lost(&self, error: &Error, name: &str, at: Line) -> Error {
        let (saver, message) = (self.saver(), error.message());
        let message = format!("backward of `{name}` needs {saver}, but {message}");
        let error = Error::new(error.kind(), "offload", message).at(at);
        match self {
            Ticket::Host(_) => {
                error.hint("restore fewer values at once, with a smaller prefetch(..)")
            }
            Ticket::Disk(_) => {
                error.hint("do not change or delete the files before backward has finished")
            }
        }
    }
}

impl Packed for OffloadedTensor {
    fn unpack(&self) -> Result<Tensor> {
        let ticket = &self.kept;
        if let Some(storage) = ticket.original() {
            return Ok(Tensor::new(self.spec.clone(), self.original.clone(), storage));
        }
        let storage = ticket.fetch().map_err(|e| ticket.lost(&e, &self.name, self.at))?;
        Ok(Tensor::new(self.spec.clone(), self.layout.clone(), storage))
    }

    /// Holders of the same value count their share of it.
    fn bytes(&self) -> usize {
        match &self.kept {
            Ticket::Host(kept) => kept.value.held() / Arc::strong_count(kept),
            Ticket::Disk(kept) => kept.value.held() / Arc::strong_count(kept),
        }
    }

    /// Copies that wait and prefetched values have their own bound.
    fn bytes_at_rest(&self) -> usize {
        0
    }

    fn is_exact(&self) -> bool {
        true
    }
}
