//! One value in one file: written once, read whole, checked, removed.

use crate::backend::with_bytes;
use crate::memory::piece::dense_from;
use crate::{DType, Device, Error, Result, Tensor};
use rustc_hash::FxHasher;
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, ErrorKind as Io, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Makes a new file: never one that is there already.
pub(super) type Create = fn(&Path) -> io::Result<File>;

/// What a network computes of its data is the user's: others may not read it.
pub(super) fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// How much is written between two checks for cancellation.
const STRETCH: usize = 1 << 20;
/// How many names are tried. A name is taken only where an earlier process of the same number was
/// killed.
const TRIES: usize = 1000;

/// A value on disk. Dropping it removes the file.
pub(super) struct OnFile {
    pub path: PathBuf,
    sum: u64,
    device: Device,
    dtype: DType,
    len: usize,
}

/// Why a value is not on disk.
pub(super) enum Unwritten {
    /// It is not needed any more.
    Cancelled,
    Failed(PathBuf, io::Error),
}

impl OnFile {
    /// Writes the elements of a contiguous tensor, unless cancelled.
    pub fn write(
        dir: &Path,
        create: Create,
        x: &Tensor,
        cancelled: &AtomicBool,
    ) -> std::result::Result<OnFile, Unwritten> {
        let (path, mut file) =
            named(dir, create).map_err(|e| Unwritten::Failed(dir.to_path_buf(), e))?;
        // From here on the file is removed by a drop, whatever happens.
        let mut made = OnFile { path, sum: 0, device: x.device(), dtype: x.dtype(), len: x.len() };
        let write = |bytes: &[u8]| -> io::Result<bool> {
            for stretch in bytes.chunks(STRETCH) {
                if cancelled.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                file.write_all(stretch)?;
            }
            file.flush()?;
            made.sum = checksum(bytes);
            Ok(true)
        };
        let unread = |error: Error| Err(io::Error::other(error.to_string()));
        match with_bytes(x, write).unwrap_or_else(unread) {
            Ok(true) => Ok(made),
            Ok(false) => Err(Unwritten::Cancelled),
            Err(error) => Err(Unwritten::Failed(made.path.clone(), error)),
        }
    }

    pub fn bytes(&self) -> usize {
        self.len * self.dtype.size()
    }

    /// The value, in fresh memory. The file is opened by its name each time, so that one that was
    /// removed or replaced is noticed.
    pub fn read(&self) -> Result<Tensor> {
        let said = |what: String| Error::gradient("offload", what);
        let failed = |error: io::Error| {
            let path = self.path.display();
            said(match error.kind() {
                Io::NotFound => format!("the file {path} was removed ({error})"),
                Io::UnexpectedEof => {
                    format!("the file {path} is shorter than the {} bytes written", self.bytes())
                }
                _ => format!("the file {path} could not be read: {error}"),
            })
        };
        dense_from(self.device, self.dtype, self.len, |bytes| {
            let mut file = File::open(&self.path).map_err(failed)?;
            file.read_exact(bytes).map_err(failed)?;
            match checksum(bytes) == self.sum {
                true => Ok(()),
                false => {
                    let path = self.path.display();
                    Err(said(format!("the file {path} does not hold what was written to it")))
                }
            }
        })
    }
}

impl Drop for OnFile {
    fn drop(&mut self) {
        // It, or its directory, may have been removed already.
        let _ = fs::remove_file(&self.path);
    }
}

/// A new file with a name of its own: the process, and a number.
fn named(dir: &Path, create: Create) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut tries = 0;
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("pullback-{}-{number}.saved", std::process::id()));
        match create(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == Io::AlreadyExists && tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Whether files can be written here: an empty one is made and removed.
pub(super) fn probe(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let (path, file) = named(dir, create)?;
    drop(file);
    fs::remove_file(path)
}

/// A number that always differs where one word of eight bytes differs, and almost surely where more
/// do.
fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|&word| hasher.write_u64(u64::from_le_bytes(word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    hasher.write_u64(u64::from_le_bytes(last));
    hasher.write_usize(bytes.len());
    hasher.finish()
}
