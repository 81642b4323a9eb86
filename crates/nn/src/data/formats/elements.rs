//! Numbers in files: from bytes to tensors and back.

use pullback::{DType, Error, HostElement, Result, Tensor, bf16, catch, f16};
use std::io::Read;

/// More axes than any array has: a header that says so is wrong.
const MOST_AXES: usize = 64;

/// A result whose error is the end of a message: the caller puts the name of the file before it.
pub(super) type OrMessage<T> = std::result::Result<T, String>;

/// A number as files hold it. Tensors hold fewer kinds; the others widen to the smallest that has
/// all their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub(super) enum StoredType { F64, F32, BF16, F16, I64, I32, I16, I8, U64, U32, U16, U8, Bool }

impl StoredType {
    /// Bytes per number.
    pub fn size(self) -> usize {
        match self {
            StoredType::F64 | StoredType::I64 | StoredType::U64 => 8,
            StoredType::F32 | StoredType::I32 | StoredType::U32 => 4,
            StoredType::BF16 | StoredType::F16 | StoredType::I16 | StoredType::U16 => 2,
            StoredType::I8 | StoredType::U8 | StoredType::Bool => 1,
        }
    }
}

impl From<DType> for StoredType {
    fn from(dtype: DType) -> StoredType {
        match dtype {
            DType::F64 => StoredType::F64,
            DType::F32 => StoredType::F32,
            DType::BF16 => StoredType::BF16,
            DType::F16 => StoredType::F16,
            DType::I64 => StoredType::I64,
            DType::I32 => StoredType::I32,
            DType::U8 => StoredType::U8,
            DType::Bool => StoredType::Bool,
        }
    }
}

/// How many bytes an array takes, or a message that says why there is no such array. Nothing is
/// allocated for it.
pub(super) fn byte_count(number: StoredType, shape: &[usize]) -> OrMessage<usize> {
    if shape.len() > MOST_AXES {
        return Err(format!("an array with {} axes", shape.len()));
    }
    // Empty axes do not hide others that are too long.
    let bytes = shape.iter().try_fold(number.size(), |size, &n| size.checked_mul(n.max(1)));
    match bytes {
        Some(bytes) if bytes <= isize::MAX as usize / 8 => {
            Ok(shape.iter().product::<usize>() * number.size())
        }
        _ => Err(format!("an array of shape {shape:?} is larger than memory")),
    }
}

/// Exactly `count` bytes, taken as they come: a file that is shorter than it says costs no more
/// memory than it has bytes.
pub(super) fn exactly(from: &mut dyn Read, count: usize) -> OrMessage<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(count as u64).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    match bytes.len() == count {
        true => Ok(bytes),
        false => Err(format!("it ends after {} of {count} bytes", bytes.len())),
    }
}

/// Whether anything is left to read. Reading to the end also lets archives compare their checksums.
pub(super) fn has_more(from: &mut dyn Read) -> OrMessage<bool> {
    let mut next = Vec::new();
    from.take(1).read_to_end(&mut next).map_err(|e| e.to_string())?;
    Ok(!next.is_empty())
}

/// The array that these bytes hold, as many as its shape says.
pub(super) fn decode(
    number: StoredType,
    shape: &[usize],
    bytes: &[u8],
    big_endian: bool,
) -> Result<Tensor> {
    let lay = ElementLayout { shape, bytes, big_endian };
    match number {
        StoredType::F64 => lay.tensor(f64::from_le_bytes),
        StoredType::F32 => lay.tensor(f32::from_le_bytes),
        StoredType::BF16 => lay.tensor(bf16::from_le_bytes),
        StoredType::F16 => lay.tensor(f16::from_le_bytes),
        StoredType::I64 => lay.tensor(i64::from_le_bytes),
        StoredType::I32 => lay.tensor(i32::from_le_bytes),
        StoredType::I16 => lay.tensor(|b| i32::from(i16::from_le_bytes(b))),
        StoredType::I8 => lay.tensor(|b| i32::from(i8::from_le_bytes(b))),
        StoredType::U32 => lay.tensor(|b| i64::from(u32::from_le_bytes(b))),
        StoredType::U16 => lay.tensor(|b| i32::from(u16::from_le_bytes(b))),
        StoredType::U8 => lay.tensor(|[b]: [u8; 1]| b),
        StoredType::U64 => {
            let large = |b: &u64| i64::try_from(*b).is_err();
            match lay.values(u64::from_le_bytes).iter().position(large) {
                Some(i) => Err(Error::dtype("", format!("element {i} exceeds the range of i64"))),
                None => lay.tensor(|b| u64::from_le_bytes(b) as i64),
            }
        }
        StoredType::Bool => match bytes.iter().position(|b| *b > 1) {
            Some(i) => {
                let message = format!("element {i} is the byte {}, which is not a bool", bytes[i]);
                Err(Error::dtype("", message))
            }
            None => lay.tensor(|[b]: [u8; 1]| b == 1),
        },
    }
}

struct ElementLayout<'a> {
    shape: &'a [usize],
    bytes: &'a [u8],
    big_endian: bool,
}

impl ElementLayout<'_> {
    fn values<T, const N: usize>(&self, read: impl Fn([u8; N]) -> T) -> Vec<T> {
        let (numbers, _) = self.bytes.as_chunks::<N>();
        let one = |&(mut bytes): &[u8; N]| {
            if self.big_endian {
                bytes.reverse();
            }
            read(bytes)
        };
        numbers.iter().map(one).collect()
    }

    fn tensor<T: HostElement, const N: usize>(
        &self,
        read: impl Fn([u8; N]) -> T,
    ) -> Result<Tensor> {
        let values = self.values(read);
        catch(|| Tensor::from_vec(values, self.shape))
    }
}

/// The elements as bytes in row-major order, little-endian.
pub(super) fn encode(x: &Tensor) -> Result<Vec<u8>> {
    fn bytes<T: HostElement, const N: usize>(
        x: &Tensor,
        f: impl Fn(T) -> [u8; N],
    ) -> Result<Vec<u8>> {
        Ok(x.try_to_vec::<T>()?.into_iter().flat_map(f).collect())
    }
    match x.dtype() {
        DType::F64 => bytes(x, f64::to_le_bytes),
        DType::F32 => bytes(x, f32::to_le_bytes),
        DType::BF16 => bytes(x, bf16::to_le_bytes),
        DType::F16 => bytes(x, f16::to_le_bytes),
        DType::I64 => bytes(x, i64::to_le_bytes),
        DType::I32 => bytes(x, i32::to_le_bytes),
        DType::U8 => bytes(x, u8::to_le_bytes),
        DType::Bool => bytes(x, |b: bool| [u8::from(b)]),
    }
}
