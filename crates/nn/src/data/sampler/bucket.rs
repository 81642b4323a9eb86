use super::{BatchOrder, EpochSeed, RandomSampler, Sampler, SequentialSampler};
use pullback::{Error, Result};

const NAME: &str = "BucketBatchSampler";

/// Batches of sequences of similar length, so that little is padded.
///
/// The shuffled items are divided into pools of a hundred batches; each pool is sorted by length
/// and cut into batches, and the batches of all pools are shuffled. So the order is random, and the
/// lengths within a batch are close. Every item comes once in an epoch.
///
/// ```
/// use pullback_nn::data::{BatchOrder, BucketBatchSampler, EpochSeed};
/// let lengths: Vec<usize> = (0..1000).map(|i| 1 + i * 7919 % 100).collect();
/// let sampler = BucketBatchSampler::new(lengths.clone(), 10)?;
/// let batches = sampler.batches(1000, EpochSeed { seed: 0, epoch: 0 })?;
/// let spread = |batch: &Vec<usize>| {
///     let of = || batch.iter().map(|&i| lengths[i]);
///     of().max().unwrap() - of().min().unwrap()
/// };
/// assert_eq!(batches.len(), 100);
/// assert!(batches.iter().map(spread).max().unwrap() <= 2);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BucketBatchSampler {
    lengths: Vec<usize>,
    batch_size: usize,
    drop_last: bool,
    shuffle: bool,
    bucket_size_multiplier: usize,
}

impl BucketBatchSampler {
    /// Batches of `batch_size` items; `lengths` are the lengths of the items, in the order of the
    /// data set.
    ///
    /// ```
    /// use pullback_nn::data::{BatchOrder, BucketBatchSampler};
    /// assert_eq!(BucketBatchSampler::new([3, 9, 2, 10, 4], 2)?.count(5), 3);
    /// assert!(BucketBatchSampler::new([3, 9], 0).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `batch_size` is 0.
    pub fn new(lengths: impl Into<Vec<usize>>, batch_size: usize) -> Result<BucketBatchSampler> {
        if batch_size == 0 {
            return Err(Error::argument(NAME, "`batch_size` is 0: it must be at least 1"));
        }
        Ok(BucketBatchSampler {
            lengths: lengths.into(),
            batch_size,
            drop_last: false,
            shuffle: true,
            bucket_size_multiplier: 100,
        })
    }

    /// Whether to leave out a last batch that is not full; `false` by default.
    ///
    /// ```
    /// use pullback_nn::data::{BatchOrder, BucketBatchSampler};
    /// assert_eq!(BucketBatchSampler::new([3, 9, 2], 2)?.drop_last(true).count(3), 1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn drop_last(self, drop_last: bool) -> BucketBatchSampler {
        BucketBatchSampler { drop_last, ..self }
    }

    /// Whether items and batches are shuffled; `true` by default. Otherwise pools are taken from
    /// the items in order, and the batches of a pool are in order of length.
    ///
    /// ```
    /// use pullback_nn::data::{BatchOrder, BucketBatchSampler, EpochSeed};
    /// let sampler = BucketBatchSampler::new([3, 9, 2, 10], 2)?.shuffle(false);
    /// assert_eq!(sampler.batches(4, EpochSeed { seed: 0, epoch: 0 })?, [[2, 0], [1, 3]]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn shuffle(self, shuffle: bool) -> BucketBatchSampler {
        BucketBatchSampler { shuffle, ..self }
    }

    /// The number of batches in a pool that is sorted by length; 100 by default, at least 1. With
    /// more, the lengths in a batch are closer and the batches less random.
    ///
    /// ```
    /// use pullback_nn::data::{BatchOrder, BucketBatchSampler, EpochSeed};
    /// let sampler = BucketBatchSampler::new([3, 9, 2, 10], 2)?.shuffle(false);
    /// let sampler = sampler.bucket_size_multiplier(1); // nothing to sort by length but the batch
    /// assert_eq!(sampler.batches(4, EpochSeed { seed: 0, epoch: 0 })?, [[0, 1], [2, 3]]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn bucket_size_multiplier(self, batches: usize) -> BucketBatchSampler {
        BucketBatchSampler { bucket_size_multiplier: batches.max(1), ..self }
    }
}

impl BatchOrder for BucketBatchSampler {
    fn batches(&self, len: usize, seed: EpochSeed) -> Result<Vec<Vec<usize>>> {
        if self.lengths.len() != len {
            let n = self.lengths.len();
            return Err(Error::argument(NAME, format!("there are {n} lengths for {len} items")));
        }
        let mut order = match self.shuffle {
            true => RandomSampler.indices(len, seed)?,
            false => SequentialSampler.indices(len, seed)?,
        };
        let pool = self.batch_size.saturating_mul(self.bucket_size_multiplier);
        // The sort is stable: equal lengths stay in random order.
        order.chunks_mut(pool).for_each(|pool| pool.sort_by_key(|&i| self.lengths[i]));
        // Pools are whole numbers of batches, so only the last batch may be short.
        let mut batches: Vec<Vec<usize>> =
            order.chunks(self.batch_size).map(<[usize]>::to_vec).collect();
        batches.truncate(self.count(len));
        if !self.shuffle {
            return Ok(batches);
        }
        let places = RandomSampler.indices(batches.len(), seed.below())?;
        Ok(places.into_iter().map(|i| std::mem::take(&mut batches[i])).collect())
    }

    fn count(&self, len: usize) -> usize {
        match self.drop_last {
            true => len / self.batch_size,
            false => len.div_ceil(self.batch_size),
        }
    }

    fn describe(&self) -> String {
        let bytes: Vec<u8> = self.lengths.iter().flat_map(|&n| (n as u64).to_le_bytes()).collect();
        let order = if self.shuffle { "shuffled" } else { "sequential" };
        let tail = if self.drop_last { ", full ones" } else { "" };
        format!(
            "{order}, in batches of {} from pools of {} by lengths {:08x}{tail}",
            self.batch_size,
            self.bucket_size_multiplier,
            crc32c::crc32c(&bytes)
        )
    }
}
