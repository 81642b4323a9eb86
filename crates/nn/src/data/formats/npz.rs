//! NumPy's `.npz`: several arrays with names, each an `.npy` file in a zip archive.

use super::elements::has_more;
use super::npy::{parse_npy, to_npy};
use super::wrong;
use pullback::{Result, Tensor};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

const FORMAT: &str = "npz";

/// Reads the arrays of an `.npz` file with their names, in the order of the file.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{read_npz, write_npz};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("arrays.npz");
/// write_npz(&path, &[("x", &Tensor::ones([2])), ("y", &Tensor::from([3i64]))], true)?;
/// let arrays = read_npz(&path)?;
/// assert_eq!((&arrays[1].0[..], arrays[1].1.to_vec::<i64>()), ("y", vec![3]));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read or is not an `.npz` file; the message names it, the array and what is
/// wrong.
pub fn read_npz(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let file = File::open(path).map_err(|e| wrong(FORMAT, &name, e))?;
    parse_npz(BufReader::new(file), &name)
}

/// Reads the arrays of an `.npz` archive from any reader that can seek; error messages call it
/// `name`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{parse_npz, write_npz};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// # let path = folder.join("arrays.npz");
/// write_npz(&path, &[("x", &Tensor::ones([2]))], false)?;
/// let bytes = std::fs::read(&path).unwrap();
/// let arrays = parse_npz(std::io::Cursor::new(bytes), "arrays.npz")?;
/// assert_eq!(arrays[0].1.to_vec::<f32>(), [1.0, 1.0]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As [`read_npz`].
pub fn parse_npz(from: impl Read + Seek, name: &str) -> Result<Vec<(String, Tensor)>> {
    let mut archive = ZipArchive::new(from).map_err(|e| wrong(FORMAT, name, e))?;
    let mut out = Vec::new();
    for i in 0..archive.len() {
        let mut entry =
            archive.by_index(i).map_err(|e| wrong(FORMAT, name, format!("entry {i}: {e}")))?;
        let array = entry.name().to_string();
        let array = array.strip_suffix(".npy").unwrap_or(&array).to_string();
        let place = format!("{name}: array `{array}`");
        let x = parse_npy(&mut entry, &place)?;
        match has_more(&mut entry) {
            Ok(false) => out.push((array, x)),
            Ok(true) => return Err(wrong(FORMAT, &place, "bytes follow its elements")),
            Err(e) => return Err(wrong(FORMAT, &place, e)),
        }
    }
    Ok(out)
}

/// Writes arrays with their names to an `.npz` file: `numpy.savez`, or with `compressed`
/// `numpy.savez_compressed`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{read_npz, write_npz};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("arrays.npz");
/// let x = Tensor::arange(0, 4);
/// write_npz(&path, &[("x", &x)], true)?;
/// assert_eq!(read_npz(&path)?[0].1.to_vec::<i64>(), [0, 1, 2, 3]);
/// assert!(write_npz(&path, &[("x", &x), ("x", &x)], true).is_err());
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If a name occurs twice, or the file cannot be written.
#[doc(alias = "savez")]
#[doc(alias = "savez_compressed")]
pub fn write_npz(
    path: impl AsRef<Path>,
    arrays: &[(&str, &Tensor)],
    compressed: bool,
) -> Result<()> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let mut names = HashSet::new();
    if let Some((twice, _)) = arrays.iter().find(|(array, _)| !names.insert(array)) {
        return Err(wrong(FORMAT, &name, format!("the name `{twice}` comes twice")));
    }
    let method = if compressed { CompressionMethod::Deflated } else { CompressionMethod::Stored };
    let file = File::create(path).map_err(|e| wrong(FORMAT, &name, e))?;
    let mut archive = ZipWriter::new(BufWriter::new(file));
    for (array, x) in arrays {
        let bytes = to_npy(x)?;
        let options = SimpleFileOptions::default()
            .compression_method(method)
            .large_file(bytes.len() > u32::MAX as usize / 2);
        archive.start_file(format!("{array}.npy"), options).map_err(|e| wrong(FORMAT, &name, e))?;
        archive.write_all(&bytes).map_err(|e| wrong(FORMAT, &name, e))?;
    }
    let mut file = archive.finish().map_err(|e| wrong(FORMAT, &name, e))?;
    file.flush().map_err(|e| wrong(FORMAT, &name, e))
}
