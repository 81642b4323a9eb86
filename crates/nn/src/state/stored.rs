//! The tensors of a safetensors file, in memory or read one at a time.
//!
//! Whatever is loaded is first fitted to what it goes to, by names, dtypes and shapes alone; then
//! one tensor after the other is read, moved to its device and written. So weights of many
//! gigabytes take as much memory of the host as their largest tensor.

use super::atomic_write::failed;
use super::tensors::{decode, tensor_of};
use pullback::{Result, Tensor};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, Metadata, TensorView};
use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The longest header that is read: that of safetensors.
const HEADER: u64 = 100_000_000;

/// The tensors of a file.
pub(crate) trait StoredTensors {
    fn names(&self) -> Vec<&str>;

    /// The dtype and shape of a tensor, if there is one of that name.
    fn info(&self, name: &str) -> Option<(Dtype, Vec<usize>)>;

    /// The bytes of a tensor.
    fn bytes(&self, name: &str) -> std::result::Result<Cow<'_, [u8]>, String>;
}

/// A tensor of a file, on the default device.
pub(crate) fn read(file: &dyn StoredTensors, name: &str) -> std::result::Result<Tensor, String> {
    let (dtype, shape) = file.info(name).ok_or_else(|| "is not in the file".to_string())?;
    let bytes = file.bytes(name)?;
    tensor_of(&TensorView::new(dtype, shape, &bytes).map_err(|error| error.to_string())?)
}

impl StoredTensors for SafeTensors<'_> {
    fn names(&self) -> Vec<&str> {
        SafeTensors::names(self)
    }

    fn info(&self, name: &str) -> Option<(Dtype, Vec<usize>)> {
        self.tensor(name).ok().map(|view| (view.dtype(), view.shape().to_vec()))
    }

    fn bytes(&self, name: &str) -> std::result::Result<Cow<'_, [u8]>, String> {
        self.tensor(name).map(|view| view.data().into()).map_err(|error| error.to_string())
    }
}

/// A file whose tensors are read when they are asked for.
struct OpenFile {
    metadata: Metadata,
    names: Vec<String>,
    /// The byte at which tensors begin.
    start: u64,
    file: Mutex<File>,
}

impl OpenFile {
    /// `None` if it is not a whole safetensors file.
    fn new(path: &Path) -> std::io::Result<Option<OpenFile>> {
        let mut file = File::open(path)?;
        let (length, mut head) = (file.metadata()?.len(), [0; 8]);
        if length < 8 {
            return Ok(None);
        }
        file.read_exact(&mut head)?;
        let count = u64::from_le_bytes(head);
        if count > HEADER.min(length - 8) {
            return Ok(None);
        }
        let mut header = vec![0; count as usize];
        file.read_exact(&mut header)?;
        let Ok(metadata) = serde_json::from_slice::<Metadata>(&header) else { return Ok(None) };
        let (start, names) = (8 + count, metadata.offset_keys());
        match end_of(&metadata, &names).and_then(|end| start.checked_add(end as u64)) {
            Some(end) if end == length => {
                Ok(Some(OpenFile { metadata, names, start, file: Mutex::new(file) }))
            }
            Some(_) | None => Ok(None),
        }
    }
}

/// The byte at which the last tensor ends, if each begins where the one before it ends and is as
/// long as its dtype and shape say.
fn end_of(metadata: &Metadata, names: &[String]) -> Option<usize> {
    names.iter().try_fold(0, |end, name| {
        let info = metadata.info(name)?;
        let elements = info.shape.iter().try_fold(1usize, |n, &len| n.checked_mul(len))?;
        let bits = elements.checked_mul(info.dtype.bitsize())?;
        let (from, to) = info.data_offsets;
        let fits = from == end && to.checked_sub(from) == Some(bits / 8) && bits % 8 == 0;
        fits.then_some(to)
    })
}

impl StoredTensors for OpenFile {
    fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    fn info(&self, name: &str) -> Option<(Dtype, Vec<usize>)> {
        self.metadata.info(name).map(|info| (info.dtype, info.shape.clone()))
    }

    fn bytes(&self, name: &str) -> std::result::Result<Cow<'_, [u8]>, String> {
        let info = self.metadata.info(name).ok_or_else(|| "is not in the file".to_string())?;
        let (from, to) = info.data_offsets;
        let mut bytes = vec![0; to - from];
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(self.start + from as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|error| format!("cannot be read: {error}"))?;
        Ok(bytes.into())
    }
}

/// Runs `f` on the tensors of a file.
///
/// # Errors
/// If it cannot be read, or is not a whole safetensors file: where it is cut.
pub(crate) fn with_file<R>(
    op: &'static str,
    path: &Path,
    f: impl FnOnce(&dyn StoredTensors) -> Result<R>,
) -> Result<R> {
    let unreadable = |error| failed(op, "read", path, &error);
    match OpenFile::new(path).map_err(unreadable)? {
        Some(file) => f(&file),
        // What is wrong with it is found in all of it.
        None => f(&decode(op, path, &std::fs::read(path).map_err(unreadable)?)?),
    }
}
