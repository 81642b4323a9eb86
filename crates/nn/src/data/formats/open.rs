//! Opening files, compressed or not, and saying what was wrong with one.

use flate2::read::MultiGzDecoder;
use pullback::{Error, Result};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// What is wrong with a file.
pub(in crate::data) fn wrong(
    format: &'static str,
    file: &str,
    what: impl std::fmt::Display,
) -> Error {
    Error::argument(format, format!("{file}: {what}"))
}

/// A file to read from; one whose name ends in `.gz` is decompressed on the way.
pub(in crate::data) fn open(format: &'static str, path: &Path) -> Result<Box<dyn Read>> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|e| wrong(format, &name, e))?;
    let file = BufReader::new(file);
    match path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz")) {
        true => Ok(Box::new(MultiGzDecoder::new(file))),
        false => Ok(Box::new(file)),
    }
}
