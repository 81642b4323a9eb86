//! What the tape keeps, and how it can keep less.
//!
//! Every value that a node saves for backward passes one door ([`Pack`]). Checkpointing sits on it (`checkpoint/`): values are dropped and
//! computed again.

pub(crate) mod checkpoint;
pub(crate) mod door;

pub use checkpoint::{Checkpoint, checkpoint, checkpoint_sequential};
pub use door::{Pack, Packed, SavedValue, with_packing};
