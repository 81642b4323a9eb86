//! The order of the items of an epoch.

mod batch;
mod bucket;
mod distributed;
mod random;
mod sequential;
mod weighted;

pub use batch::{BatchOrder, BatchSampler};
pub use bucket::BucketBatchSampler;
pub use distributed::{DistributedSampler, Tail};
pub use random::RandomSampler;
pub use sequential::SequentialSampler;
pub use weighted::WeightedRandomSampler;

use pullback::{Key, Result};

/// The seed and number of an epoch, from which its order is drawn. The global generator is not
/// used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochSeed {
    /// The seed of the loader.
    pub seed: u64,
    /// Which epoch, from 0.
    pub epoch: u64,
}

impl EpochSeed {
    /// The key that the order of this epoch is drawn by.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::new(self.seed).fold_in(self.epoch).fold_in(0)
    }

    /// An independent one, for a part.
    pub(super) fn below(self) -> EpochSeed {
        EpochSeed { seed: self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1), ..self }
    }
}

/// Chooses the indices of an epoch. The same seed and epoch give the same indices on every machine.
pub trait Sampler: Send + Sync + 'static {
    /// The indices of an epoch over `len` items, in order.
    ///
    /// # Errors
    /// If the sampler does not fit this number of items.
    fn indices(&self, len: usize, pass: EpochSeed) -> Result<Vec<usize>>;

    /// How many indices an epoch over `len` items has.
    fn count(&self, len: usize) -> usize;

    /// A short description. Positions contain it: one saved under another sampler is refused.
    fn describe(&self) -> String;
}
