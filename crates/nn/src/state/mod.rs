//! Checkpoints and weights in files.
//!
//! Weights are safetensors files with the names that PyTorch gives: [`save_weights`],
//! [`load_weights`], and [`Weights`] for other names, other dtypes and files that do not hold
//! everything. A [`Checkpoint`] is all that a run needs to go on as if it had never stopped, and
//! [`Checkpoints`] is a folder of them, of which the last good one survives whatever happens.
//!
//! `tensors.rs` turns tensors into safetensors and back, `durable.rs` writes so that nothing is
//! ever half there, `names.rs` maps names.

mod checkpoint;
mod durable;
mod folder;
mod manifest;
mod names;
mod place;
mod rules;
mod tensors;
mod weights;

pub(crate) use durable::replace_file;
pub(crate) use manifest::{json_of, number_in};

pub use checkpoint::{Checkpoint, Saved};
pub use folder::{Checkpoints, Found, MetricMode};
pub use manifest::Record;
pub use names::Names;
pub use weights::{Loaded, Weights, load_weights, save_weights};
