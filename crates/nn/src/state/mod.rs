//! Checkpoints and weights in files.
//!
//! Weights are safetensors files with the names that PyTorch gives: [`save_weights`],
//! [`load_weights`], and [`Weights`] for other names, other dtypes and files that do not hold
//! everything. A [`Checkpoint`] is everything needed to resume a run exactly, and [`Checkpoints`]
//! is a folder of them, of which the last valid one always survives.
//!
//! `tensors.rs` turns tensors into safetensors and back, `atomic_write.rs` writes atomically,
//! `names.rs` maps names.

mod atomic_write;
mod checkpoint;
mod folder;
mod manifest;
mod matching;
mod names;
mod rules;
mod saved_shards;
mod sharded;
mod stored;
mod tensors;
mod weights;

pub(crate) use atomic_write::replace_file;
pub(crate) use manifest::{json_of, number_in};

pub use checkpoint::{Checkpoint, SavedCheckpoint};
pub use folder::{Checkpoints, FoundCheckpoint, MetricMode};
pub use manifest::Record;
pub use names::Names;
pub use saved_shards::SavedShards;
pub use sharded::{ShardedCheckpoint, ShardedCheckpoints};
pub use weights::{Loaded, Weights, load_weights, save_weights};
