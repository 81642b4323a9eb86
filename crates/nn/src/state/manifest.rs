//! The JSON file of a checkpoint: everything that is not a tensor, and the checksums of everything
//! that is.
//!
//! The first entry is the SHA-256 of all bytes after it, so a change anywhere in the file is
//! noticed, also in a checksum. For each file of tensors it holds the SHA-256 of its bytes, which
//! is what is verified, and a CRC-32C of each tensor, to name the tensor whose bytes changed.

use super::atomic_write::failed;
use super::tensors::decode;
use pullback::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

const OP: &str = "checkpoint";

/// What the manifest is called in its folder.
pub(crate) const NAME: &str = "checkpoint.json";

const FORMAT: &str = "pullback checkpoint";

/// The version that is written. Older ones are read, newer ones refused.
const VERSION: u64 = 1;

/// Everything in a checkpoint but the tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The number of steps taken.
    pub step: u64,
    /// The number of epochs finished.
    pub epoch: u64,
    /// The metrics of this step.
    #[serde(with = "numbers")]
    pub metrics: BTreeMap<String, f64>,
    /// The state of the learning-rate schedule.
    pub schedule: Value,
    /// The position in the data.
    pub data: Value,
    /// The configuration of the run.
    pub config: Value,
    /// The state of the training loop: running means, patience.
    #[serde(default)]
    pub run: Value,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: String,
    version: u64,
    pub record: Record,
    files: BTreeMap<String, FileSum>,
    /// The whole shapes of tensors of which each file holds a part.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cut: BTreeMap<String, Vec<usize>>,
}

/// What the bytes of a file of tensors must be.
#[derive(Serialize, Deserialize)]
pub(crate) struct FileSum {
    bytes: u64,
    sha256: String,
    crc32c: BTreeMap<String, u32>,
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl FileSum {
    pub fn of(name: &str, bytes: &[u8]) -> Result<FileSum> {
        let tensors = decode(OP, Path::new(name), bytes)?;
        let crc32c = tensors.iter().map(|(name, x)| (name.to_string(), crc32c::crc32c(x.data())));
        let (length, sha256) = (bytes.len() as u64, sha256(bytes));
        Ok(FileSum { bytes: length, sha256, crc32c: crc32c.collect() })
    }
}

impl Manifest {
    /// The manifest of these files.
    pub fn new(record: Record, files: &[(&str, &[u8])]) -> Result<Manifest> {
        let mut sums = BTreeMap::new();
        for (name, bytes) in files {
            sums.insert((*name).to_string(), FileSum::of(name, bytes)?);
        }
        Ok(Manifest::of_sums(record, sums, BTreeMap::new()))
    }

    /// The manifest of files that others have written.
    pub fn of_sums(
        record: Record,
        files: BTreeMap<String, FileSum>,
        cut: BTreeMap<String, Vec<usize>>,
    ) -> Manifest {
        Manifest { format: FORMAT.to_string(), version: VERSION, record, files, cut }
    }

    /// Each tensor, with the file it is in.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().flat_map(|(file, sum)| {
            sum.crc32c.keys().map(move |name| (file.as_str(), name.as_str()))
        })
    }

    /// The names of the files of tensors, in order.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The text of the file.
    pub fn text(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::argument(OP, format!("the record is not JSON: {error}")))?;
        let rest = text.strip_prefix("{\n").unwrap_or(&text);
        Ok(format!("{}{rest}", head(rest)))
    }

    /// The manifest in a checkpoint's folder, if it is as it was written.
    pub fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join(NAME);
        let bytes = std::fs::read(&path).map_err(|error| failed(OP, "read", &path, &error))?;
        let corrupt = |why: &str| Error::argument(OP, format!("{} {why}", path.display()));
        let text = str::from_utf8(&bytes).map_err(|_| corrupt("is corrupt: it is not text"))?;
        let rest = text.splitn(3, '\n').nth(2).unwrap_or_default();
        if text.strip_prefix(&head(rest)) != Some(rest) {
            return Err(corrupt("is corrupt: its checksum is not that of its contents"));
        }
        let value: Value = serde_json::from_str(text)
            .map_err(|error| corrupt(&format!("is not the manifest of a checkpoint: {error}")))?;
        if value["format"] != FORMAT {
            return Err(corrupt("is not the manifest of a checkpoint"));
        }
        match value["version"].as_u64() {
            Some(1..=VERSION) => (),
            Some(newer @ 2..) => {
                let why = format!("has version {newer}; this reads versions up to {VERSION}");
                return Err(corrupt(&why).hint("a newer Pullback wrote it"));
            }
            _ => return Err(corrupt("has no version")),
        }
        serde_json::from_value(value)
            .map_err(|error| corrupt(&format!("is not the manifest of a checkpoint: {error}")))
    }

    /// The bytes of one of its files, if they are as they were written.
    pub fn open(&self, folder: &Path, name: &str) -> Result<Vec<u8>> {
        let path = folder.join(name);
        let Some(sum) = self.files.get(name) else {
            let at = folder.join(NAME);
            return Err(Error::argument(OP, format!("{} does not list {name}", at.display())));
        };
        let bytes = std::fs::read(&path).map_err(|error| failed(OP, "read", &path, &error))?;
        if bytes.len() as u64 == sum.bytes && sha256(&bytes) == sum.sha256 {
            return Ok(bytes);
        }
        // Something changed. A file that cannot be decoded says itself where it is cut.
        let tensors = decode(OP, &path, &bytes)?;
        let changed = sum.crc32c.iter().find(|(name, sum)| {
            tensors.tensor(name).map_or(true, |x| crc32c::crc32c(x.data()) != **sum)
        });
        let what = match changed {
            Some((name, _)) => format!("tensor `{name}` is not as it was written"),
            None => "its header is not as it was written".to_string(),
        };
        Err(Error::argument(OP, format!("{} is corrupt: {what}", path.display())))
    }
}

/// The beginning of a manifest whose remaining text is `rest`.
fn head(rest: &str) -> String {
    format!("{{\n  \"sha256\": \"{}\",\n", sha256(rest.as_bytes()))
}

/// A number as JSON. JSON cannot represent numbers that are not finite, so they are strings.
pub(crate) fn json_of(x: f64) -> Value {
    if x.is_finite() { x.into() } else { x.to_string().into() }
}

/// The number that [`json_of`] wrote.
pub(crate) fn number_in(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// Numbers of which some may not be finite.
mod numbers {
    use super::{json_of, number_in};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;
    use std::collections::BTreeMap;

    pub fn serialize<S: Serializer>(map: &BTreeMap<String, f64>, to: S) -> Result<S::Ok, S::Error> {
        let map: BTreeMap<&String, Value> = map.iter().map(|(k, v)| (k, json_of(*v))).collect();
        map.serialize(to)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<BTreeMap<String, f64>, D::Error> {
        let map = BTreeMap::<String, Value>::deserialize(from)?;
        let number = |(name, value): (String, Value)| {
            let number = number_in(&value);
            let number =
                number.ok_or_else(|| D::Error::custom(format!("{name} is not a number")))?;
            Ok((name, number))
        };
        map.into_iter().map(number).collect()
    }
}
