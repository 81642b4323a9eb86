//! File formats, one a file.

mod cifar;
mod csv;
mod elements;
mod idx;
mod images;
mod json_lines;
mod mnist;
mod npy;
mod npz;
mod open;
mod safetensors;

pub use cifar::{Cifar10, Cifar100};
pub use csv::{Csv, Missing, Table};
pub use idx::{parse_idx, read_idx, write_idx};
pub use images::{ImageFolder, Pixels};
pub use json_lines::{Field, FieldBatch, FieldKind, JsonLines, JsonLinesDataset};
pub use mnist::Mnist;
pub use npy::{parse_npy, read_npy, write_npy};
pub use npz::{parse_npz, read_npz, write_npz};
pub use safetensors::{Named, parse_safetensors, read_safetensors, write_safetensors};

pub(super) use open::{open, wrong};

use super::read_text;
