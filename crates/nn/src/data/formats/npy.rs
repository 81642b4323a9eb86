//! NumPy's `.npy`: one array.
//!
//! A file is the bytes `\x93NUMPY`, a version, the length of the header, the header (a Python
//! dictionary in text), and the elements. Numbers that tensors do not have widen: 8- and 16-bit
//! integers to `i32`, `u32` and `u64` to `i64`. NumPy has no name for `bf16`; what `ml_dtypes`
//! writes (`<V2`) is read as such, and written.

use super::elements::{OrMessage, StoredType, byte_count, decode, encode, exactly};
use super::{open, wrong};
use pullback::{DType, Result, Tensor, catch};
use std::io::Read;
use std::path::Path;

const FORMAT: &str = "npy";
const MAGIC: &[u8] = b"\x93NUMPY";
/// Headers are a few dozen bytes.
const LONGEST_HEADER: usize = 1 << 20;

/// Reads an array from an `.npy` file, as `numpy.load` does; a file whose name ends in `.gz` is
/// decompressed.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{read_npy, write_npy};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("x.npy");
/// write_npy(&path, &Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]))?;
/// let x = read_npy(&path)?;
/// assert_eq!((x.shape(), x.to_vec::<f32>()), (&[2, 2][..], vec![1.0, 2.0, 3.0, 4.0]));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read or is not an `.npy` file of numbers; the message names it and what is
/// wrong.
pub fn read_npy(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    parse_npy(&mut *open(FORMAT, path)?, &path.display().to_string())
}

/// Reads an array in the `.npy` format from any reader; error messages call it `name`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{parse_npy, write_npy};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// # let path = folder.join("x.npy");
/// write_npy(&path, &Tensor::from([1i64, 2]))?;
/// let bytes = std::fs::read(&path).unwrap();
/// assert_eq!(parse_npy(&mut &bytes[..], "x.npy")?.to_vec::<i64>(), [1, 2]);
/// let error = parse_npy(&mut &b"no array"[..], "y.npy").unwrap_err();
/// assert!(error.to_string().contains("y.npy"));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As [`read_npy`].
pub fn parse_npy(from: &mut dyn Read, name: &str) -> Result<Tensor> {
    let error = |what: String| wrong(FORMAT, name, what);
    let start = exactly(from, 8).map_err(error)?;
    if &start[..6] != MAGIC {
        return Err(error("it does not start as an .npy file does".to_string()));
    }
    let width = match start[6] {
        1 => 2,
        2 | 3 => 4,
        version => return Err(error(format!("version {version} of the format is not known"))),
    };
    let digits = exactly(from, width).map_err(error)?;
    let length = digits.iter().rev().fold(0usize, |n, &b| n << 8 | usize::from(b));
    if length > LONGEST_HEADER {
        return Err(error(format!("its header would have {length} bytes")));
    }
    let header = exactly(from, length).map_err(|e| error(format!("in the header, {e}")))?;
    let header =
        String::from_utf8(header).map_err(|_| error("its header is not text".to_string()))?;
    let header = Header::parse(&header).map_err(|e| error(format!("in the header, {e}")))?;
    let count = byte_count(header.number, &header.shape)
        .map_err(|e| error(format!("its header declares {e}")))?;
    let offset = 8 + width + length;
    let bytes = exactly(from, count)
        .map_err(|e| error(format!("in the elements, from offset {offset} on, {e}")))?;
    let array = |shape: &[usize]| {
        decode(header.number, shape, &bytes, header.big_endian)
            .map_err(|e| error(e.message().to_string()))
    };
    if !header.fortran {
        return array(&header.shape);
    }
    // Column-major is row-major with the axes the other way round.
    let reversed: Vec<usize> = header.shape.iter().rev().copied().collect();
    let order: Vec<isize> = (0..reversed.len() as isize).rev().collect();
    let turned = array(&reversed)?;
    catch(|| turned.permute(&order[..]).contiguous())
}

/// Writes an array to an `.npy` file, little-endian and row-major: `numpy.save`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{read_npy, write_npy};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("x.npy");
/// write_npy(&path, &Tensor::from([true, false]))?;
/// assert_eq!(read_npy(&path)?.to_vec::<bool>(), [true, false]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be written.
pub fn write_npy(path: impl AsRef<Path>, x: &Tensor) -> Result<()> {
    let path = path.as_ref();
    std::fs::write(path, to_npy(x)?).map_err(|e| wrong(FORMAT, &path.display().to_string(), e))
}

/// The bytes of a file that holds an array.
pub(super) fn to_npy(x: &Tensor) -> Result<Vec<u8>> {
    // As Python writes tuples: `()`, `(3,)`, `(2, 3)`.
    let lengths: Vec<String> = x.shape().iter().map(ToString::to_string).collect();
    let shape = lengths.join(", ") + if x.rank() == 1 { "," } else { "" };
    let descr = descr(x.dtype());
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The elements start at a multiple of 64, and a newline is before them.
    let (version, width) = if text.len() < 60_000 { (1, 2) } else { (2, 4) };
    let length = (8 + width + text.len() + 1).next_multiple_of(64) - 8 - width;
    let mut out = [MAGIC, &[version, 0], &(length as u32).to_le_bytes()[..width]].concat();
    out.extend(format!("{text:<0$}\n", length - 1).into_bytes());
    out.extend(encode(x)?);
    Ok(out)
}

fn descr(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "<f8",
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        DType::BF16 => "<V2",
        DType::I64 => "<i8",
        DType::I32 => "<i4",
        DType::U8 => "|u1",
        DType::Bool => "|b1",
    }
}

/// What the header says.
struct Header {
    number: StoredType,
    big_endian: bool,
    fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    fn parse(text: &str) -> OrMessage<Header> {
        let mut rest = HeaderText(text.trim());
        let (mut kind, mut fortran, mut shape) = (None, None, None);
        rest.expect("{")?;
        while !rest.eat("}") {
            let key = rest.quoted()?;
            rest.expect(":")?;
            match key {
                "descr" => kind = Some(number(rest.quoted()?)?),
                "fortran_order" => fortran = Some(rest.truth()?),
                "shape" => shape = Some(rest.lengths()?),
                other => return Err(format!("`{other}` is not known")),
            }
            if !rest.eat(",") {
                rest.expect("}")?;
                break;
            }
        }
        if !rest.0.is_empty() {
            return Err(format!("`{}` is left over", rest.0));
        }
        let (number, big_endian) = kind.ok_or("there is no `descr`")?;
        let fortran = fortran.ok_or("there is no `fortran_order`")?;
        let shape = shape.ok_or("there is no `shape`")?;
        Ok(Header { number, big_endian, fortran, shape })
    }
}

/// A kind of number and whether it is big-endian, by NumPy's name: `<f4`.
fn number(descr: &str) -> OrMessage<(StoredType, bool)> {
    let unknown = || format!("elements of type `{descr}` are not numbers that tensors hold");
    let (order, kind) = descr.split_at_checked(1).ok_or_else(unknown)?;
    let big_endian = match order {
        "<" | "|" => false,
        "=" => cfg!(target_endian = "big"),
        ">" => true,
        _ => return Err(unknown()),
    };
    let number = match kind {
        "f8" => StoredType::F64,
        "f4" => StoredType::F32,
        "f2" => StoredType::F16,
        "V2" => StoredType::BF16,
        "i8" => StoredType::I64,
        "i4" => StoredType::I32,
        "i2" => StoredType::I16,
        "i1" => StoredType::I8,
        "u8" => StoredType::U64,
        "u4" => StoredType::U32,
        "u2" => StoredType::U16,
        "u1" => StoredType::U8,
        "b1" => StoredType::Bool,
        _ => return Err(unknown()),
    };
    Ok((number, big_endian))
}

/// What is left of the text of a header.
struct HeaderText<'a>(&'a str);

impl<'a> HeaderText<'a> {
    fn eat(&mut self, what: &str) -> bool {
        let rest = self.0.trim_start();
        let found = rest.strip_prefix(what);
        self.0 = found.unwrap_or(rest);
        found.is_some()
    }

    fn expect(&mut self, what: &str) -> OrMessage<()> {
        if self.eat(what) {
            Ok(())
        } else {
            Err(format!("`{what}` is missing before `{}`", self.0))
        }
    }

    fn quoted(&mut self) -> OrMessage<&'a str> {
        let quote = ["'", "\""].into_iter().find(|quote| self.eat(quote));
        let text = quote.and_then(|quote| self.0.split_once(quote));
        let (text, rest) =
            text.ok_or_else(|| format!("a name in quotes is missing before `{}`", self.0))?;
        self.0 = rest;
        Ok(text)
    }

    fn truth(&mut self) -> OrMessage<bool> {
        match (self.eat("True"), self.eat("False")) {
            (true, _) => Ok(true),
            (_, true) => Ok(false),
            _ => Err(format!("True or False is missing before `{}`", self.0)),
        }
    }

    fn lengths(&mut self) -> OrMessage<Vec<usize>> {
        let mut out = Vec::new();
        self.expect("(")?;
        while !self.eat(")") {
            let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
            let (digits, rest) = self.0.split_at(end);
            out.push(
                digits.parse().map_err(|_| format!("a length is missing before `{}`", self.0))?,
            );
            self.0 = rest;
            // Python 2 wrote long integers so.
            self.eat("L");
            if !self.eat(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(out)
    }
}
