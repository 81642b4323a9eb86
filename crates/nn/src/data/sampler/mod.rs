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
    /// The random key that the order of this epoch is drawn from.
    ///
    /// ```
    /// use pullback_nn::data::EpochSeed;
    /// let order = |epoch| EpochSeed { seed: 1, epoch }.key().permutation(50).to_vec::<i64>();
    /// assert_eq!(order(0), order(0));
    /// assert_ne!(order(0), order(1));
    /// ```
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
    /// ```
    /// use pullback_nn::data::{EpochSeed, Sampler, SequentialSampler, WeightedRandomSampler};
    /// let seed = EpochSeed { seed: 0, epoch: 0 };
    /// assert_eq!(SequentialSampler.indices(4, seed)?, [0, 1, 2, 3]);
    /// let weighted = WeightedRandomSampler::new([1.0, 2.0], 5, true)?;
    /// assert!(weighted.indices(4, seed).is_err()); // two weights for four items
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `len` does not fit the sampler.
    fn indices(&self, len: usize, pass: EpochSeed) -> Result<Vec<usize>>;

    /// The number of indices in an epoch over `len` items.
    ///
    /// ```
    /// use pullback_nn::data::{Sampler, SequentialSampler, WeightedRandomSampler};
    /// assert_eq!(SequentialSampler.count(4), 4);
    /// assert_eq!(WeightedRandomSampler::new([1.0, 2.0], 5, true)?.count(2), 5);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn count(&self, len: usize) -> usize;

    /// A short description of the order. Positions contain it: resuming from one of another sampler
    /// is an error.
    ///
    /// ```
    /// use pullback_nn::data::{RandomSampler, Sampler, SequentialSampler};
    /// assert_eq!(RandomSampler.describe(), "shuffled");
    /// assert_eq!(SequentialSampler.describe(), "sequential");
    /// ```
    fn describe(&self) -> String;
}
