use super::{EpochSeed, RandomSampler, Sampler, SequentialSampler};
use pullback::{Error, Result};

/// How items are handled that cannot be divided evenly among the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The first items are repeated, so that every process has the same number.
    Pad,
    /// They are left out in this epoch (PyTorch's `drop_last`).
    Drop,
}

/// One process's share of the items: process `rank` of `num_replicas` takes every `num_replicas`-th
/// index of an order that is the same in all.
///
/// ```
/// use pullback_nn::data::{DistributedSampler, EpochSeed, Sampler, Tail};
/// let pass = EpochSeed { seed: 0, epoch: 3 };
/// let mut all = Vec::new();
/// for rank in 0..3 {
///     all.extend(DistributedSampler::new(rank, 3, Tail::Drop)?.indices(9, pass)?);
/// }
/// all.sort();
/// assert_eq!(all, Vec::from_iter(0..9));
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DistributedSampler {
    rank: usize,
    num_replicas: usize,
    tail: Tail,
    shuffle: bool,
}

impl DistributedSampler {
    /// The share of process `rank` of `num_replicas`, shuffled.
    ///
    /// ```
    /// use pullback_nn::data::{DistributedSampler, Sampler, Tail};
    /// assert_eq!(DistributedSampler::new(0, 4, Tail::Pad)?.count(10), 3);
    /// assert_eq!(DistributedSampler::new(0, 4, Tail::Drop)?.count(10), 2);
    /// assert!(DistributedSampler::new(4, 4, Tail::Pad).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `rank` is not less than `num_replicas`.
    pub fn new(rank: usize, num_replicas: usize, tail: Tail) -> Result<DistributedSampler> {
        if rank >= num_replicas {
            let message = format!("rank {rank} is out of range for {num_replicas} processes");
            return Err(Error::argument("DistributedSampler", message));
        }
        Ok(DistributedSampler { rank, num_replicas, tail, shuffle: true })
    }

    /// Takes the items in order, without shuffling: PyTorch's `shuffle=False`.
    ///
    /// ```
    /// use pullback_nn::data::{DistributedSampler, EpochSeed, Sampler, Tail};
    /// let sampler = DistributedSampler::new(1, 3, Tail::Pad)?.in_order();
    /// // Padding repeats the first items.
    /// assert_eq!(sampler.indices(7, EpochSeed { seed: 0, epoch: 0 })?, [1, 4, 0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "shuffle")]
    pub fn in_order(self) -> DistributedSampler {
        DistributedSampler { shuffle: false, ..self }
    }
}

impl Sampler for DistributedSampler {
    fn indices(&self, len: usize, pass: EpochSeed) -> Result<Vec<usize>> {
        let order = match self.shuffle {
            true => RandomSampler.indices(len, pass)?,
            false => SequentialSampler.indices(len, pass)?,
        };
        let mine = order.iter().cycle().skip(self.rank).step_by(self.num_replicas);
        Ok(mine.take(self.count(len)).copied().collect())
    }

    fn count(&self, len: usize) -> usize {
        match self.tail {
            Tail::Pad => len.div_ceil(self.num_replicas),
            Tail::Drop => len / self.num_replicas,
        }
    }

    /// Without the rank: a position saved by one process is that of all.
    fn describe(&self) -> String {
        let order = if self.shuffle { "shuffled" } else { "sequential" };
        format!("{order}, one of {} shares, tail {:?}", self.num_replicas, self.tail).to_lowercase()
    }
}
