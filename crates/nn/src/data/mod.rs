//! Data sets, samplers and loaders, and the formats that data comes in.
//!
//! A [`Dataset`] has a length and random access by index; a [`Stream`] is read sequentially. A
//! [`DataLoader`] or a [`StreamLoader`] makes batches of them, on any number of threads.
//!
//! Three rules hold everywhere:
//!
//! - **Batches depend on the data, the seed and the epoch alone**, bit for bit: not on the number
//!   of threads, how far they prefetch, or how they are scheduled. A random augmentation draws from
//!   the key of its item ([`ItemSeed`]).
//! - **A loader can be resumed in the middle of an epoch**: save [`DataLoader::state`], and
//!   [`DataLoader::resume`] in another process continues with the next batch.
//! - **Every failure is an `Err` with a message** that names the file and the line, field, offset
//!   or item. A header that declares more than the file holds is refused before anything is
//!   allocated for it.
//!
//! ```
//! use pullback::Tensor;
//! use pullback_nn::data::{DataLoader, TensorDataset};
//!
//! let images = Tensor::arange(0, 20).reshape([10, 2]);
//! let labels = Tensor::arange(0, 10);
//! let data = TensorDataset::new((images, labels))?;
//! let loader = DataLoader::new(data).batch_size(4).shuffle(7).num_workers(2);
//! for batch in loader.iter() {
//!     let (x, y) = batch?;
//!     assert_eq!(x.shape()[0], y.shape()[0]);
//! }
//! # Ok::<(), pullback::Error>(())
//! ```

mod collate;
mod concat;
mod data_loader;
mod dataset;
mod digits;
mod formats;
mod loader_options;
mod map;
mod pad;
mod position;
mod sampler;
mod split;
mod stream;
mod stream_loader;
mod subset;
mod tensors;
pub mod transforms;
mod words;
mod workers;
mod zip;

pub use collate::{Collate, collate_trees};
pub use concat::Concat;
pub use data_loader::DataLoader;
pub use dataset::{Dataset, FromFn, FromVec, ItemSeed, from_fn, from_vec};
pub use digits::{DIGITS_SEED, Digits, digits};
pub use formats::{
    Cifar10, Cifar100, Csv, Field, FieldBatch, FieldKind, ImageFolder, JsonLines, JsonLinesDataset,
    Missing, Mnist, Named, Pixels, Table, parse_idx, parse_npy, parse_npz, parse_safetensors,
    read_idx, read_npy, read_npz, read_safetensors, write_idx, write_npy, write_npz,
    write_safetensors,
};
use formats::{open, wrong};
pub use loader_options::Epoch;
pub use map::{Map, MapRandom};
pub use pad::pad_sequences;
pub use position::Position;
pub use sampler::{
    BatchOrder, BatchSampler, BucketBatchSampler, DistributedSampler, EpochSeed, RandomSampler,
    Sampler, SequentialSampler, Tail, WeightedRandomSampler,
};
pub use split::random_split;
pub use stream::{
    Chain, Cycle, FromOpen, Items, Shuffle, Stream, StreamMap, StreamMapRandom, Take, stream,
};
pub use stream_loader::StreamLoader;
pub use subset::Subset;
pub use tensors::TensorDataset;
pub use words::*;

pub use zip::Zip;
