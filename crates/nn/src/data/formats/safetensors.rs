//! Safetensors: named tensors and a few notes, as PyTorch users exchange them.

use super::elements::{StoredType, byte_count, decode, encode};
use super::wrong;
use pullback::{DType, Error, Result, Tensor};
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

const FORMAT: &str = "safetensors";

/// Named tensors, and their metadata.
#[derive(Default)]
pub struct Named {
    /// The tensors, sorted by name.
    pub tensors: Vec<(String, Tensor)>,
    /// The metadata: strings by name.
    pub metadata: BTreeMap<String, String>,
}

impl Named {
    /// The tensor of this name, if there is one.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::Named;
    /// let tensors = vec![("w".to_string(), Tensor::ones([2]))];
    /// let named = Named { tensors, ..Named::default() };
    /// assert_eq!(named.get("w").unwrap().shape(), [2]);
    /// assert!(named.get("b").is_none());
    /// ```
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        let place = self.tensors.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        Some(&self.tensors[place].1)
    }
}

/// Reads the tensors of a safetensors file. Integer dtypes that tensors do not have are converted
/// to a wider one.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{read_safetensors, write_safetensors};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("model.safetensors");
/// write_safetensors(&path, &[("w", &Tensor::ones([2, 3]))], &Default::default())?;
/// assert_eq!(read_safetensors(&path)?.get("w").unwrap().shape(), [2, 3]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read or is not a safetensors file; the message names it, the tensor and
/// what is wrong.
#[doc(alias = "load_file")]
pub fn read_safetensors(path: impl AsRef<Path>) -> Result<Named> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|e| wrong(FORMAT, &name, e))?;
    parse_safetensors(&bytes, &name)
}

/// Reads tensors from the bytes of a safetensors file; error messages call it `name`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{parse_safetensors, write_safetensors};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// # let path = folder.join("model.safetensors");
/// write_safetensors(&path, &[("w", &Tensor::ones([2, 3]))], &Default::default())?;
/// let bytes = std::fs::read(&path).unwrap();
/// assert_eq!(parse_safetensors(&bytes, "model")?.tensors.len(), 1);
/// assert!(parse_safetensors(&bytes[..50], "model").is_err());
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// As [`read_safetensors`].
pub fn parse_safetensors(bytes: &[u8], name: &str) -> Result<Named> {
    let (_, notes) = SafeTensors::read_metadata(bytes).map_err(|e| explained(&e, bytes, name))?;
    let file = SafeTensors::deserialize(bytes).map_err(|e| explained(&e, bytes, name))?;
    let mut tensors = Vec::new();
    for (tensor, view) in file.iter() {
        let error = |what: String| wrong(FORMAT, name, format!("tensor `{tensor}`: {what}"));
        let number = number(view.dtype()).ok_or_else(|| {
            error(format!("elements of type {:?} are not numbers that tensors hold", view.dtype()))
        })?;
        byte_count(number, view.shape()).map_err(|e| error(format!("its header declares {e}")))?;
        let x = decode(number, view.shape(), view.data(), false);
        tensors.push((tensor.to_string(), x.map_err(|e| error(e.message().to_string()))?));
    }
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let metadata = notes.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    Ok(Named { tensors, metadata })
}

/// Writes tensors with their names, and metadata, to a safetensors file.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{read_safetensors, write_safetensors};
/// use std::collections::BTreeMap;
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("model.safetensors");
/// let notes = BTreeMap::from([("epoch".to_string(), "3".to_string())]);
/// write_safetensors(&path, &[("w", &Tensor::ones([2]))], &notes)?;
/// assert_eq!(read_safetensors(&path)?.metadata["epoch"], "3");
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If a name occurs twice, or the file cannot be written.
#[doc(alias = "save_file")]
pub fn write_safetensors(
    path: impl AsRef<Path>,
    tensors: &[(&str, &Tensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let mut names = HashSet::new();
    if let Some((twice, _)) = tensors.iter().find(|(tensor, _)| !names.insert(tensor)) {
        return Err(wrong(FORMAT, &name, format!("the name `{twice}` comes twice")));
    }
    let mut held = Vec::with_capacity(tensors.len());
    for (tensor, x) in tensors {
        held.push((*tensor, kind(x.dtype()), x.shape().to_vec(), encode(x)?));
    }
    let mut views = Vec::with_capacity(held.len());
    for (tensor, kind, shape, bytes) in &held {
        let view = TensorView::new(*kind, shape.clone(), bytes);
        views.push((
            *tensor,
            view.map_err(|e| wrong(FORMAT, &name, format!("tensor `{tensor}`: {e}")))?,
        ));
    }
    let notes: HashMap<String, String> =
        metadata.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let notes = (!notes.is_empty()).then_some(notes);
    let bytes = safetensors::serialize(views, notes).map_err(|e| wrong(FORMAT, &name, e))?;
    std::fs::write(path, bytes).map_err(|e| wrong(FORMAT, &name, e))
}

fn number(dtype: Dtype) -> Option<StoredType> {
    Some(match dtype {
        Dtype::F64 => StoredType::F64,
        Dtype::F32 => StoredType::F32,
        Dtype::BF16 => StoredType::BF16,
        Dtype::F16 => StoredType::F16,
        Dtype::I64 => StoredType::I64,
        Dtype::I32 => StoredType::I32,
        Dtype::I16 => StoredType::I16,
        Dtype::I8 => StoredType::I8,
        Dtype::U64 => StoredType::U64,
        Dtype::U32 => StoredType::U32,
        Dtype::U16 => StoredType::U16,
        Dtype::U8 => StoredType::U8,
        Dtype::BOOL => StoredType::Bool,
        _ => return None,
    })
}

fn kind(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::BF16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

/// An error message that names the tensor, if one tensor is the cause.
fn explained(error: &SafeTensorError, bytes: &[u8], file: &str) -> Error {
    let what = match error {
        SafeTensorError::TensorInvalidInfo | SafeTensorError::ValidationOverflow => {
            invalid_tensor(bytes)
        }
        SafeTensorError::InvalidOffset(tensor) => Some(format!(
            "tensor `{tensor}`: its bytes do not follow those of the tensor before it"
        )),
        SafeTensorError::MetadataIncompleteBuffer => Some(
            "the tensors do not fill the file to its end: it is cut off, or something follows them"
                .to_string(),
        ),
        SafeTensorError::InvalidHeaderLength | SafeTensorError::HeaderTooLarge => {
            Some("its header would be longer than the file".to_string())
        }
        SafeTensorError::HeaderTooSmall => Some("it is too short to have a header".to_string()),
        _ => None,
    };
    wrong(FORMAT, file, what.unwrap_or_else(|| error.to_string()))
}

/// The first tensor whose shape and dtype do not give as many bytes as it has.
fn invalid_tensor(bytes: &[u8]) -> Option<String> {
    let length = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
    let header = bytes.get(8..8usize.checked_add(usize::try_from(length).ok()?)?)?;
    let header: Value = serde_json::from_slice(header).ok()?;
    header.as_object()?.iter().filter(|(name, _)| *name != "__metadata__").find_map(
        |(name, info)| {
            let dtype: Dtype = serde_json::from_value(info.get("dtype")?.clone()).ok()?;
            let shape: Vec<usize> = serde_json::from_value(info.get("shape")?.clone()).ok()?;
            let [start, end]: [usize; 2] =
                serde_json::from_value(info.get("data_offsets")?.clone()).ok()?;
            let bits = shape.iter().try_fold(dtype.bitsize(), |bits, &n| bits.checked_mul(n));
            let there = end.checked_sub(start)?;
            (bits.map(|bits| bits / 8) != Some(there)).then(|| {
                format!(
                    "tensor `{name}`: {there} bytes are not those of {dtype:?} of shape {shape:?}"
                )
            })
        },
    )
}
