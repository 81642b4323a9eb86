//! Atomic writes.
//!
//! Data is written to a temporary name in the same folder, flushed to the disk, and renamed, which
//! the file system does atomically. Then the folder is flushed, so that the rename also survives a
//! power failure. A failure on the way removes the temporary and leaves what was there.

use pullback::{Error, Result};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The error of a file that cannot be read or written.
pub(crate) fn failed(op: &'static str, what: &str, path: &Path, error: &io::Error) -> Error {
    Error::argument(op, format!("{} cannot be {what}: {error}", path.display()))
}

/// Writes a file whole and flushes it to the disk.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Flushes the entries of a folder to the disk, where the system can.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    match cfg!(unix) {
        true => File::open(path)?.sync_all(),
        false => Ok(()),
    }
}

/// The folder that a path is in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Replaces the file at `path`, or makes it.
pub(crate) fn replace_file(op: &'static str, path: &Path, bytes: &[u8]) -> Result<()> {
    replace_file_with(op, path, |temporary| write_new(temporary, bytes))
}

/// Replaces the file at `path`, or makes it, by what `write` writes to another path.
pub(crate) fn replace_file_with(
    op: &'static str,
    path: &Path,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<()> {
    let Some(name) = path.file_name() else {
        return Err(Error::argument(op, format!("{} is not the name of a file", path.display())));
    };
    let folder = folder_of(path);
    let temporary = temporary(folder, &name.to_string_lossy());
    let written = write(&temporary)
        .and_then(|()| File::options().write(true).open(&temporary)?.sync_all())
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| sync_folder(folder));
    written.map_err(|error| {
        // What cannot be written is of no use, and what was there is still there.
        let _ = fs::remove_file(&temporary);
        failed(op, "written", path, &error)
    })
}

/// The names of temporary files: hidden, with the process id.
const WRITING: &str = ".writing-";

/// What folders are called that are about to be removed.
const REMOVING: &str = ".removing-";

pub(crate) fn temporary(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{WRITING}{name}-{}", std::process::id()))
}

/// Makes the folder `name` in `parent` with these files, all of them or none.
pub(crate) fn make_folder(
    op: &'static str,
    parent: &Path,
    name: &str,
    files: &[(&str, &[u8])],
) -> Result<PathBuf> {
    let (temporary, place) = (temporary(parent, name), parent.join(name));
    let write = || -> io::Result<()> {
        fs::create_dir(&temporary)?;
        for (name, bytes) in files {
            write_new(&temporary.join(name), bytes)?;
        }
        sync_folder(&temporary)?;
        fs::rename(&temporary, &place)?;
        sync_folder(parent)
    };
    match write() {
        Ok(()) => Ok(place),
        Err(error) => {
            let _ = fs::remove_dir_all(&temporary);
            Err(failed(op, "written", &place, &error))
        }
    }
}

/// Removes a folder: it loses its name at once, its files after that.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let doomed = folder_of(path).join(format!("{REMOVING}{name}"));
    fs::rename(path, &doomed)?;
    fs::remove_dir_all(doomed)
}

/// Removes what processes that were killed have left in a folder.
pub(crate) fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(WRITING) || name.starts_with(REMOVING) {
            // What cannot be removed does no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
