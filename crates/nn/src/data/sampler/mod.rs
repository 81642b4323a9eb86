//! In which order the items of an epoch come.

mod batch;
mod distributed;
mod random;
mod sequential;
mod weighted;

pub use batch::BatchSampler;
pub use distributed::{DistributedSampler, Tail};
pub use random::RandomSampler;
pub use sequential::SequentialSampler;
pub use weighted::WeightedRandomSampler;

use pullback::{Key, Result};

/// One pass over the data: what the order of an epoch is drawn from. The global generator has no
/// part in it.
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

    /// The pass of a part, whose draws have nothing to do with those of this one.
    pub(super) fn below(self) -> EpochSeed {
        EpochSeed { seed: self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1), ..self }
    }
}

/// Chooses the indices of an epoch. The same pass gives the same indices, always and everywhere.
pub trait Sampler: Send + Sync + 'static {
    /// The indices of an epoch over `len` items, in order.
    ///
    /// # Errors
    /// If the sampler does not fit to so many items.
    fn indices(&self, len: usize, pass: EpochSeed) -> Result<Vec<usize>>;

    /// How many indices an epoch over `len` items has.
    fn count(&self, len: usize) -> usize;

    /// What it is, in a word or two. Positions carry it: one saved under another sampler is
    /// refused.
    fn describe(&self) -> String;
}
