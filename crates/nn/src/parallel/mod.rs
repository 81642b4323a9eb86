//! Training with many workers.
//!
//! A worker is a process (or, in tests, a thread) with a rank in a [`Group`](pullback::Group); the
//! crate `pullback-workers` starts them and moves the bytes. Everything here is made of the
//! collectives of `pullback`, and works with any engine.

mod agreement;
mod buckets;
mod clip;
mod data_parallel;
mod fully_sharded;
mod parts;
mod placement;
mod recording;
mod reducer;
mod shard;
mod sharded;
mod tensor;
mod unit;

pub(crate) use agreement::agree;
pub(crate) use data_parallel::broadcast;
pub(crate) use parts::share;
pub(crate) use shard::ShardLayout;

pub use agreement::{gather_texts, together};
pub use data_parallel::DataParallel;
pub use fully_sharded::{FullSharding, FullySharded};
pub use placement::gpu_of_worker;
pub use recording::{BucketTime, StepSchedule};
pub use sharded::Sharded;
pub use tensor::{
    ColumnParallelLinear, RowParallelLinear, VocabularyParallelEmbedding,
    vocabulary_parallel_cross_entropy,
};
