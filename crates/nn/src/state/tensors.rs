//! Tensors as the bytes of a safetensors file, and back.

use pullback::{DType, Error, HostElement, Result, Tensor, bf16, f16};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, View};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

/// The dtypes that both sides know.
const DTYPES: [(DType, Dtype); 8] = [
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::BF16, Dtype::BF16),
    (DType::F16, Dtype::F16),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::U8, Dtype::U8),
    (DType::Bool, Dtype::BOOL),
];

fn stored(dtype: DType) -> Dtype {
    DTYPES.iter().find(|(known, _)| *known == dtype).map_or(Dtype::U8, |(_, stored)| *stored)
}

/// The dtype of a stored tensor, if there is one.
pub(crate) fn dtype_of(stored: Dtype) -> Option<DType> {
    DTYPES.iter().find(|(_, known)| *known == stored).map(|(dtype, _)| *dtype)
}

/// What a stored tensor is, in words: `f32[2,3]`.
pub(crate) fn spec_of(stored: Dtype, shape: &[usize]) -> String {
    let dtype = dtype_of(stored).map_or_else(|| stored.to_string(), |d| d.to_string());
    let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("{dtype}[{}]", shape.join(","))
}

/// Why a tensor that is stored cannot be read, without its values.
pub(crate) fn unsupported(stored: Dtype) -> String {
    format!("is stored as {stored}, which is not a supported dtype")
}

/// A tensor that is written; its bytes are made on demand.
struct LazyTensor(Tensor);

impl View for LazyTensor {
    fn dtype(&self) -> Dtype {
        stored(self.0.dtype())
    }

    fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(bytes_of(&self.0))
    }

    fn data_len(&self) -> usize {
        self.0.len() * self.0.dtype().size()
    }
}

/// The elements in row-major order, little-endian.
pub(crate) fn bytes_of(x: &Tensor) -> Vec<u8> {
    fn flat<T: HostElement, const N: usize>(x: &Tensor, bytes: fn(T) -> [u8; N]) -> Vec<u8> {
        x.to_vec::<T>().into_iter().flat_map(bytes).collect()
    }
    match x.dtype() {
        DType::F64 => flat(x, f64::to_le_bytes),
        DType::F32 => flat(x, f32::to_le_bytes),
        DType::BF16 => flat(x, bf16::to_le_bytes),
        DType::F16 => flat(x, f16::to_le_bytes),
        DType::I64 => flat(x, i64::to_le_bytes),
        DType::I32 => flat(x, i32::to_le_bytes),
        DType::U8 => x.to_vec::<u8>(),
        DType::Bool => flat(x, |v: bool| [u8::from(v)]),
    }
}

/// Whether every byte of a stored tensor means something.
pub(crate) fn check_bytes(dtype: DType, bytes: &[u8]) -> std::result::Result<(), String> {
    match dtype == DType::Bool && bytes.iter().any(|&b| b > 1) {
        true => Err("is stored as bool, but holds a byte that is neither 0 nor 1".to_string()),
        false => Ok(()),
    }
}

/// The tensor that is stored.
pub(crate) fn tensor_of(view: &TensorView) -> std::result::Result<Tensor, String> {
    fn read<T: HostElement, const N: usize>(view: &TensorView, value: fn([u8; N]) -> T) -> Tensor {
        let whole = view.data().as_chunks::<N>().0;
        let values: Vec<T> = whole.iter().map(|&bytes| value(bytes)).collect();
        Tensor::from_vec(values, view.shape())
    }
    let Some(dtype) = dtype_of(view.dtype()) else { return Err(unsupported(view.dtype())) };
    check_bytes(dtype, view.data())?;
    let made = pullback::catch(|| match dtype {
        DType::F64 => read(view, f64::from_le_bytes),
        DType::F32 => read(view, f32::from_le_bytes),
        DType::BF16 => read(view, bf16::from_le_bytes),
        DType::F16 => read(view, f16::from_le_bytes),
        DType::I64 => read(view, i64::from_le_bytes),
        DType::I32 => read(view, i32::from_le_bytes),
        DType::U8 => read(view, |[v]: [u8; 1]| v),
        DType::Bool => read(view, |[v]: [u8; 1]| v == 1),
    });
    made.map_err(|error| format!("cannot be made: {error}"))
}

/// What PyTorch's libraries look for: one entry, so that the order of a hash map does not get into
/// the bytes.
fn metadata() -> Option<HashMap<String, String>> {
    Some(HashMap::from([("format".to_string(), "pt".to_string())]))
}

fn views(tensors: &[(String, Tensor)]) -> impl Iterator<Item = (&str, LazyTensor)> {
    tensors.iter().map(|(name, x)| (name.as_str(), LazyTensor(x.clone())))
}

/// The bytes of a safetensors file.
pub(crate) fn encode(op: &'static str, tensors: &[(String, Tensor)]) -> Result<Vec<u8>> {
    let encoded = pullback::catch(|| safetensors::serialize(views(tensors), metadata()))?;
    encoded.map_err(|error| Error::argument(op, format!("cannot be put into a file: {error}")))
}

/// Writes a safetensors file, one tensor after the other: the host has one of them at a time.
pub(crate) fn write_to(path: &Path, tensors: &[(String, Tensor)]) -> std::io::Result<()> {
    let write = || safetensors::serialize_to_file(views(tensors), metadata(), path);
    let written = pullback::catch(write).map_err(|error| std::io::Error::other(error.to_string()));
    written?.map_err(|error| match error {
        safetensors::SafeTensorError::IoError(error) => error,
        other => std::io::Error::other(other.to_string()),
    })
}

/// The tensors in the bytes of a safetensors file.
pub(crate) fn decode<'a>(
    op: &'static str,
    path: &Path,
    bytes: &'a [u8],
) -> Result<SafeTensors<'a>> {
    SafeTensors::deserialize(bytes).map_err(|error| {
        let path = path.display();
        Error::argument(
            op,
            match cut(bytes) {
                Some(name) => format!(
                    "{path} is cut short: it ends at byte {} inside tensor `{name}`",
                    bytes.len()
                ),
                None => format!("{path} is not a whole safetensors file: {error}"),
            },
        )
    })
}

/// The first tensor that the file ends before the end of, where the header can be read.
fn cut(bytes: &[u8]) -> Option<String> {
    let (length, rest) = bytes.split_at_checked(8)?;
    let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
    let (header, data) = rest.split_at_checked(length)?;
    let header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(header).ok()?;
    let end = |info: &serde_json::Value| info["data_offsets"][1].as_u64();
    let cut = header.iter().filter_map(|(name, info)| Some((end(info)?, name)));
    cut.filter(|(end, _)| *end > data.len() as u64).min().map(|(_, name)| name.clone())
}
