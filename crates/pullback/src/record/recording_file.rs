//! The file that a recording goes to.
//!
//! The program runs between opening and writing, and it may panic, be refused or be killed. So the
//! file that was there is not touched until the end: a temporary one is made beside it, which shows
//! that the folder can be written, and takes its place by a rename.

use super::OP;
use crate::{Error, Result};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The file of a recording: it can be written, and has not been yet.
pub struct RecordingFile {
    path: PathBuf,
    /// What takes its place; none beside a pipe or a device, which is written itself.
    temporary: Option<PathBuf>,
}

impl RecordingFile {
    /// Checks that a file can be written, and changes nothing in it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn open(path: &Path) -> Result<RecordingFile> {
        RecordingFile::checked(path).map_err(|error| failed(path, &error))
    }

    fn checked(path: &Path) -> io::Result<RecordingFile> {
        // A link stays one: what it leads to is replaced.
        let path = match fs::canonicalize(path) {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_path_buf(),
            Err(error) => return Err(error),
        };
        match fs::metadata(&path) {
            Ok(found) => {
                if !found.is_file() && !found.is_dir() {
                    return Ok(RecordingFile { path, temporary: None });
                }
                // Opening alone refuses folders and files that are read-only.
                OpenOptions::new().append(true).open(&path)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not the name of a file",
            ));
        };
        // Threads of one process may record to one path.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".{}.{}-{number}", name.to_string_lossy(), std::process::id());
        let temporary = path.with_file_name(name);
        OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        Ok(RecordingFile { path, temporary: Some(temporary) })
    }

    /// Writes the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(mut self, bytes: &[u8]) -> Result<()> {
        let written = match &self.temporary {
            None => fs::write(&self.path, bytes),
            Some(temporary) => {
                fs::write(temporary, bytes).and_then(|()| fs::rename(temporary, &self.path))
            }
        };
        match written {
            Ok(()) => self.temporary = None,
            Err(error) => return Err(failed(&self.path, &error)),
        }
        Ok(())
    }
}

impl Drop for RecordingFile {
    /// Nothing was recorded: the temporary file goes.
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::argument(OP, format!("{} cannot be written: {error}", path.display()))
}
