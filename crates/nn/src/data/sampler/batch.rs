use super::{EpochSeed, Sampler};
use pullback::{Error, Result};
use std::sync::Arc;

/// Chooses the batches of an epoch: what [`DataLoader::batch_sampler`] takes, PyTorch's
/// `batch_sampler`. The same seed and epoch give the same batches on every machine.
///
/// ```
/// use pullback::Result;
/// use pullback_nn::data::{BatchOrder, DataLoader, EpochSeed, from_fn};
///
/// /// Batches of 1, 2, 3, … items.
/// struct Growing;
///
/// impl BatchOrder for Growing {
///     fn batches(&self, len: usize, _: EpochSeed) -> Result<Vec<Vec<usize>>> {
///         let starts = (0..self.count(len)).map(|n| n * (n + 1) / 2);
///         Ok(starts.enumerate().map(|(n, start)| (start..=start + n).collect()).collect())
///     }
///     fn count(&self, len: usize) -> usize {
///         (1..).take_while(|n| n * (n + 1) / 2 <= len).count()
///     }
///     fn describe(&self) -> String {
///         "growing".to_string()
///     }
/// }
///
/// let loader = DataLoader::new(from_fn(6, |i| Ok(i as i64))).batch_sampler(Growing);
/// let sizes: Vec<usize> = loader.iter().map(|batch| batch.unwrap().len()).collect();
/// assert_eq!(sizes, [1, 2, 3]);
/// ```
///
/// [`DataLoader::batch_sampler`]: crate::data::DataLoader::batch_sampler
pub trait BatchOrder: Send + Sync + 'static {
    /// The batches of an epoch over `len` items, each as the indices of its items.
    ///
    /// ```
    /// use pullback_nn::data::{BatchOrder, BucketBatchSampler, EpochSeed};
    /// let sampler = BucketBatchSampler::new([3, 9, 2, 10], 2)?.shuffle(false);
    /// let seed = EpochSeed { seed: 0, epoch: 0 };
    /// assert_eq!(sampler.batches(4, seed)?, [[2, 0], [1, 3]]);
    /// assert!(sampler.batches(5, seed).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `len` does not fit the sampler.
    fn batches(&self, len: usize, seed: EpochSeed) -> Result<Vec<Vec<usize>>>;

    /// The number of batches in an epoch over `len` items.
    ///
    /// ```
    /// use pullback_nn::data::{BatchOrder, BucketBatchSampler};
    /// assert_eq!(BatchOrder::count(&BucketBatchSampler::new([3, 9, 2], 2)?, 3), 2);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn count(&self, len: usize) -> usize;

    /// A short description of the order. Positions contain it: resuming from one of another order
    /// is an error.
    ///
    /// ```
    /// use pullback_nn::data::{BatchOrder, BatchSampler, SequentialSampler};
    /// let sampler = BatchSampler::new(SequentialSampler, 4, true);
    /// assert_eq!(sampler.describe(), "sequential, in batches of 4, full ones");
    /// ```
    fn describe(&self) -> String;
}

/// Groups the indices of a sampler into batches: `torch.utils.data.BatchSampler`.
#[derive(Clone)]
pub struct BatchSampler {
    /// The sampler of the indices.
    pub sampler: Arc<dyn Sampler>,
    /// The number of indices in a batch.
    pub batch_size: usize,
    /// Whether a last batch that is not full is left out.
    pub drop_last: bool,
}

impl BatchSampler {
    /// Batches of `batch_size` indices of `sampler`; with `drop_last`, a last batch that is not
    /// full is left out.
    ///
    /// ```
    /// use pullback_nn::data::{BatchSampler, EpochSeed, SequentialSampler};
    /// let sampler = BatchSampler::new(SequentialSampler, 2, false);
    /// let batches = sampler.batches(5, EpochSeed { seed: 0, epoch: 0 })?;
    /// assert_eq!(batches, [vec![0, 1], vec![2, 3], vec![4]]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn new(sampler: impl Sampler, batch_size: usize, drop_last: bool) -> BatchSampler {
        BatchSampler { sampler: Arc::new(sampler), batch_size, drop_last }
    }

    /// The number of batches in an epoch over `len` items; 0 if `batch_size` is 0.
    ///
    /// ```
    /// use pullback_nn::data::{BatchSampler, SequentialSampler};
    /// assert_eq!(BatchSampler::new(SequentialSampler, 2, false).count(5), 3);
    /// assert_eq!(BatchSampler::new(SequentialSampler, 2, true).count(5), 2);
    /// ```
    pub fn count(&self, len: usize) -> usize {
        let indices = self.sampler.count(len);
        match self.drop_last {
            true => indices.checked_div(self.batch_size).unwrap_or(0),
            false if self.batch_size == 0 => 0,
            false => indices.div_ceil(self.batch_size),
        }
    }

    /// The batches of an epoch over `len` items.
    ///
    /// ```
    /// use pullback_nn::data::{BatchSampler, EpochSeed, SequentialSampler};
    /// let seed = EpochSeed { seed: 0, epoch: 0 };
    /// let full = BatchSampler::new(SequentialSampler, 2, true);
    /// assert_eq!(full.batches(5, seed)?, [[0, 1], [2, 3]]);
    /// assert!(BatchSampler::new(SequentialSampler, 0, true).batches(5, seed).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `batch_size` is 0, or the sampler fails.
    pub fn batches(&self, len: usize, seed: EpochSeed) -> Result<Vec<Vec<usize>>> {
        if self.batch_size == 0 {
            return Err(Error::argument("loader", "`batch_size` is 0: it must be at least 1"));
        }
        let indices = self.sampler.indices(len, seed)?;
        let batches = indices.chunks(self.batch_size).map(<[usize]>::to_vec);
        Ok(batches.take(self.count(len)).collect())
    }
}

impl BatchOrder for BatchSampler {
    fn batches(&self, len: usize, seed: EpochSeed) -> Result<Vec<Vec<usize>>> {
        BatchSampler::batches(self, len, seed)
    }

    fn count(&self, len: usize) -> usize {
        BatchSampler::count(self, len)
    }

    fn describe(&self) -> String {
        let tail = if self.drop_last { ", full ones" } else { "" };
        format!("{}, in batches of {}{tail}", self.sampler.describe(), self.batch_size)
    }
}
