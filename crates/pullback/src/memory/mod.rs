//! What the tape keeps, and how it can keep less.
//!
//! Every value that a node saves for backward passes one door ([`Pack`]). On it sit checkpointing (`checkpoint/`: values are dropped and
//! computed again), offloading (`offload/`: they wait on disk) and compression (`compress/`: they take less memory).

pub(crate) mod checkpoint;
mod compress;
pub(crate) mod door;
mod offload;
mod piece;

pub use checkpoint::{Checkpoint, checkpoint, checkpoint_sequential};
pub use compress::Compress;
pub use door::{Pack, Packed, SavedValue, with_packing};
pub use offload::{Offload, OffloadStats};
