//! IDX: the format of MNIST.
//!
//! Two zero bytes, a byte for the kind of number, one for the count of axes, the length of each
//! axis, the elements: all big-endian.

use super::elements::{StoredType, byte_count, decode, encode, exactly, has_more};
use super::{open, wrong};
use flate2::Compression;
use flate2::write::GzEncoder;
use pullback::{Result, Tensor};
use std::io::{Read, Write};
use std::path::Path;

const FORMAT: &str = "idx";

#[rustfmt::skip]
const NUMBERS: [(u8, StoredType); 6] = [
    (0x08, StoredType::U8),
    (0x09, StoredType::I8),
    (0x0B, StoredType::I16),
    (0x0C, StoredType::I32),
    (0x0D, StoredType::F32),
    (0x0E, StoredType::F64),
];

/// Reads an array from an IDX file; a file whose name ends in `.gz` is decompressed. Signed 8-bit
/// and 16-bit integers become `i32`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{read_idx, write_idx};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("labels.gz");
/// write_idx(&path, &Tensor::from([3u8, 9]))?;
/// assert_eq!(read_idx(&path)?.to_vec::<u8>(), [3, 9]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read or is not an IDX file; the message names it and what is wrong.
pub fn read_idx(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    parse_idx(&mut *open(FORMAT, path)?, &path.display().to_string())
}

/// Reads an array in the IDX format from any reader; error messages call it `name`.
///
/// ```
/// use pullback_nn::data::parse_idx;
/// // Kind 8 (u8), one axis, of length 2, and two elements.
/// let bytes = [0u8, 0, 8, 1, 0, 0, 0, 2, 3, 9];
/// assert_eq!(parse_idx(&mut &bytes[..], "labels")?.to_vec::<u8>(), [3, 9]);
/// assert!(parse_idx(&mut &bytes[..9], "labels").is_err());
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As [`read_idx`].
pub fn parse_idx(from: &mut dyn Read, name: &str) -> Result<Tensor> {
    let error = |what: String| wrong(FORMAT, name, what);
    let start = exactly(from, 4).map_err(error)?;
    if start[..2] != [0, 0] {
        return Err(error(
            "it does not start with two zero bytes, as an IDX file does".to_string(),
        ));
    }
    let Some((_, number)) = NUMBERS.into_iter().find(|(code, _)| *code == start[2]) else {
        return Err(error(format!("at offset 2, {:#04x} is not a kind of number", start[2])));
    };
    let axes = usize::from(start[3]);
    let lengths = exactly(from, 4 * axes).map_err(|e| error(format!("in the lengths, {e}")))?;
    let length = |b: &[u8; 4]| u32::from_be_bytes(*b) as usize;
    let shape: Vec<usize> = lengths.as_chunks::<4>().0.iter().map(length).collect();
    let count =
        byte_count(number, &shape).map_err(|e| error(format!("its header declares {e}")))?;
    let offset = 4 + 4 * axes;
    let bytes = exactly(from, count)
        .map_err(|e| error(format!("in the elements, from offset {offset} on, {e}")))?;
    if has_more(from).map_err(error)? {
        return Err(error(format!("bytes follow its {count} bytes of elements")));
    }
    decode(number, &shape, &bytes, true).map_err(|e| error(e.message().to_string()))
}

/// Writes an array of `u8`, `i32`, `f32` or `f64` to an IDX file; a file whose name ends in `.gz`
/// is compressed.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{read_idx, write_idx};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("images");
/// write_idx(&path, &Tensor::full([2, 28, 28], 255u8))?;
/// assert_eq!(read_idx(&path)?.shape(), [2, 28, 28]);
/// assert!(write_idx(&path, &Tensor::from([1i64])).is_err());
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the format does not have the dtype, an axis is too long for it, or the file cannot be
/// written.
pub fn write_idx(path: impl AsRef<Path>, x: &Tensor) -> Result<()> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let error = |what: String| wrong(FORMAT, &name, what);
    let number = StoredType::from(x.dtype());
    let code = NUMBERS.into_iter().find(|(_, known)| *known == number);
    let (code, _) = code.ok_or_else(|| error(format!("the format has no {}", x.dtype())))?;
    let axes =
        u8::try_from(x.rank()).map_err(|_| error(format!("{} axes are too many", x.rank())))?;
    let mut out = vec![0, 0, code, axes];
    for &n in x.shape() {
        let n = u32::try_from(n).map_err(|_| error(format!("an axis of {n} is too long")))?;
        out.extend(n.to_be_bytes());
    }
    let size = number.size();
    out.extend(encode(x)?.chunks(size).flat_map(|bytes| bytes.iter().rev()));
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz")) {
        let mut zipped = GzEncoder::new(Vec::new(), Compression::default());
        zipped.write_all(&out).map_err(|e| error(e.to_string()))?;
        out = zipped.finish().map_err(|e| error(e.to_string()))?;
    }
    std::fs::write(path, out).map_err(|e| error(e.to_string()))
}
