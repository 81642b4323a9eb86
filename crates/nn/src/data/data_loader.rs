//! Batches of a data set.

use super::loader_options::{Epoch, LoaderOptions, SharedPosition, loader_options};
use super::workers::{LoaderWorkers, NumberedBatchFn, attempt};
use super::{
    BatchOrder, BatchSampler, Collate, Dataset, EpochSeed, ItemSeed, Position, RandomSampler,
    Sampler, SequentialSampler,
};
use crate::parallel::share;
use pullback::{Error, Group, Key, Result};
use std::sync::Arc;

/// Makes a batch of items and of what its random parts are drawn from.
type BatchFn<T, B> = dyn Fn(Vec<T>, ItemSeed) -> Result<B> + Send + Sync;

/// Batches of a data set, epoch after epoch, prefetched by threads: `torch.utils.data.DataLoader`.
///
/// The batches depend on the data, the seed and the epoch, not on the number of threads.
///
/// ```
/// use pullback_nn::data::{DataLoader, from_fn};
///
/// let loader = DataLoader::new(from_fn(10, |i| Ok(i as i64))).batch_size(4).num_workers(2);
/// let sizes: Vec<usize> = loader.iter().map(|batch| batch.unwrap().len()).collect();
/// assert_eq!(sizes, [4, 4, 2]);
/// assert_eq!(loader.state().epoch, 1);
/// ```
///
/// # Positions
///
/// A loader has a position: the epoch, and how many of its batches were returned.
/// [`DataLoader::iter`] continues from there to the end of the epoch, so an iterator that is
/// dropped in mid-epoch loses nothing; [`DataLoader::set_epoch`] moves to the start of an epoch.
/// [`DataLoader::state`] and [`DataLoader::resume`] carry a position to another process.
pub struct DataLoader<D: Dataset, B> {
    data: Arc<D>,
    make: Arc<BatchFn<D::Item, B>>,
    sampler: Arc<dyn Sampler>,
    batch_sampler: Option<Arc<dyn BatchOrder>>,
    options: LoaderOptions,
    position: SharedPosition,
    /// Which part of each batch, of how many.
    share: (usize, usize),
}

impl<D: Dataset> DataLoader<D, <D::Item as Collate>::Batch>
where
    D::Item: Collate,
{
    /// A loader of batches of one item, in order, made on the calling thread. The methods below set
    /// the options.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_vec};
    /// let loader = DataLoader::new(from_vec(vec![1.5f32, 2.5, 3.5]));
    /// let first = loader.iter().next().unwrap()?;
    /// assert_eq!((loader.len(), first.to_vec::<f32>()), (3, vec![1.5]));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn new(data: D) -> Self {
        DataLoader::with_collate_fn(data, D::Item::collate)
    }
}

impl<D: Dataset, B: Send + 'static> DataLoader<D, B> {
    /// A loader that makes each batch of its items by `collate_fn`, such as
    /// [`pad_sequences`](super::pad_sequences).
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// let sums = |items: Vec<usize>| Ok(items.iter().sum::<usize>());
    /// let loader = DataLoader::with_collate_fn(from_fn(5, Ok), sums).batch_size(2);
    /// assert_eq!(loader.iter().collect::<Result<Vec<_>, _>>()?, [1, 5, 4]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn with_collate_fn(
        data: D,
        collate_fn: impl Fn(Vec<D::Item>) -> Result<B> + Send + Sync + 'static,
    ) -> Self {
        DataLoader {
            data: Arc::new(data),
            make: Arc::new(move |items, _| collate_fn(items)),
            sampler: Arc::new(SequentialSampler),
            batch_sampler: None,
            options: LoaderOptions::default(),
            position: SharedPosition::default(),
            share: (0, 1),
        }
    }

    loader_options!();

    /// Shuffles the items in a new order each epoch, drawn from this seed.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// let loader = DataLoader::new(from_fn(100, Ok)).batch_size(100).shuffle(7);
    /// let epoch = || loader.iter().next().unwrap().unwrap().to_vec::<i64>();
    /// let (first, second) = (epoch(), epoch());
    /// assert_ne!(first, second);
    /// loader.set_epoch(0);
    /// assert_eq!(epoch(), first);
    /// ```
    #[must_use]
    pub fn shuffle(self, seed: u64) -> Self {
        self.sampler(RandomSampler).seed(seed)
    }

    /// Takes the items in the order of this sampler.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, DistributedSampler, Tail, from_fn};
    /// // The second of two processes, without shuffling.
    /// let share = DistributedSampler::new(1, 2, Tail::Drop)?.in_order();
    /// let loader = DataLoader::new(from_fn(6, Ok)).sampler(share).batch_size(3);
    /// assert_eq!(loader.iter().next().unwrap()?.to_vec::<i64>(), [1, 3, 5]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn sampler(mut self, sampler: impl Sampler) -> Self {
        self.sampler = Arc::new(sampler);
        self
    }

    /// Takes the batches of this batch sampler, such as
    /// [`BucketBatchSampler`](super::BucketBatchSampler), in place of `shuffle`, `sampler`,
    /// `batch_size` and `drop_last`. If one of the last two is set as well, the first batch of
    /// [`DataLoader::iter`] is an `Err`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::{BucketBatchSampler, DataLoader, from_vec, pad_sequences};
    ///
    /// let lengths = [3, 9, 2, 10];
    /// let data = from_vec(lengths.map(|n| Tensor::zeros([n])).to_vec());
    /// let batches = BucketBatchSampler::new(lengths, 2)?;
    /// let loader = DataLoader::with_collate_fn(data, pad_sequences(0.0)).batch_sampler(batches);
    /// let padding: usize = loader.iter().map(|b| b.unwrap().0.len()).sum::<usize>() - 24;
    /// assert_eq!(padding, 2);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn batch_sampler(mut self, batch_sampler: impl BatchOrder) -> Self {
        self.batch_sampler = Some(Arc::new(batch_sampler));
        self
    }

    /// Gives each worker of a group its part of every batch, in the order of ranks: the batch size
    /// is that of all workers together, and all of them use the same seed. Positions are those of
    /// the whole batches, so another number of workers may resume from them. Parts differ by one
    /// item at most; a last batch with fewer items than workers is an error, as a part would be
    /// empty.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// let parts = pullback_workers::threads(2, |group| {
    ///     let loader = DataLoader::new(from_fn(6, |i| Ok(i as i64)));
    ///     let loader = loader.batch_size(4).workers(&group);
    ///     Ok(loader.iter().map(|b| b.unwrap().to_vec::<i64>()).collect::<Vec<_>>())
    /// })?;
    /// assert_eq!(parts, [[vec![0, 1], vec![4]], [vec![2, 3], vec![5]]]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn workers(mut self, group: &Group) -> Self {
        self.share = (group.rank(), group.size());
        self
    }

    /// Applies `f` to each batch and a random key: random augmentation of batches, such as
    /// [`MixUp`](super::transforms::MixUp). The key depends on the seed, the epoch and the number
    /// of the batch, not on the thread.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// let loader = DataLoader::new(from_fn(4, |i| Ok(i as f32))).batch_size(2);
    /// let noisy = |x, key: pullback::Key| Ok(x + key.normal((), pullback::DType::F32, 0.0, 1.0));
    /// let scaled = loader.map_random(noisy);
    /// assert_eq!(scaled.iter().count(), 2);
    /// ```
    #[must_use]
    pub fn map_random<C: Send + 'static>(
        self,
        f: impl Fn(B, Key) -> Result<C> + Send + Sync + 'static,
    ) -> DataLoader<D, C> {
        let DataLoader { data, make, sampler, batch_sampler, options, position, share } = self;
        let make = move |items, seed: ItemSeed| f(make(items, seed.part(0))?, seed.key());
        DataLoader { data, make: Arc::new(make), sampler, batch_sampler, options, position, share }
    }

    /// The number of batches in an epoch.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// assert_eq!(DataLoader::new(from_fn(10, Ok)).batch_size(4).len(), 3);
    /// assert_eq!(DataLoader::new(from_fn(10, Ok)).batch_size(4).drop_last(true).len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.batches().count(self.data.len())
    }

    /// Whether an epoch has no batches.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// assert!(DataLoader::new(from_fn(3, Ok)).batch_size(4).drop_last(true).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The data set.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, Dataset, from_fn};
    /// let loader = DataLoader::new(from_fn(10, Ok)).batch_size(4);
    /// assert_eq!(loader.dataset().len(), 10);
    /// ```
    pub fn dataset(&self) -> &D {
        &self.data
    }

    /// The epoch of the next batch, from 0.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// let loader = DataLoader::new(from_fn(10, Ok)).batch_size(5);
    /// assert_eq!(loader.iter().count(), 2);
    /// assert_eq!(loader.epoch(), 1);
    /// ```
    pub fn epoch(&self) -> u64 {
        self.position.get().0
    }

    /// The position, to save in a checkpoint. Batches that are prefetched but not yet returned do
    /// not count.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// let loader = DataLoader::new(from_fn(10, Ok)).batch_size(2).num_workers(2);
    /// let _ = loader.iter().take(3).count();
    /// assert_eq!((loader.state().epoch, loader.state().batch), (0, 3));
    /// ```
    #[doc(alias = "state_dict")]
    pub fn state(&self) -> Position {
        let items = Some(self.data.len());
        let order = match &self.batch_sampler {
            Some(batches) => batches.describe(),
            None => self.sampler.describe(),
        };
        self.options.at(self.position.get(), items, order)
    }

    /// Moves to a saved position. The number of threads may differ.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// let loader = || DataLoader::new(from_fn(6, Ok)).batch_size(2).shuffle(3);
    /// let (first, second) = (loader(), loader());
    /// let _ = first.iter().take(1).count();
    /// second.resume(&first.state())?;
    /// let rest = |l: &DataLoader<_, pullback::Tensor>| -> Vec<i64> {
    ///     l.iter().flat_map(|b| b.unwrap().to_vec::<i64>()).collect()
    /// };
    /// assert_eq!(rest(&first), rest(&second));
    /// assert!(loader().batch_size(3).resume(&first.state()).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the position is of another data set length, seed, batch size, `drop_last` or sampler.
    #[doc(alias = "load_state_dict")]
    pub fn resume(&self, state: &Position) -> Result<()> {
        state.check(&self.state())?;
        let batches = self.len();
        // The end of an epoch is the start of the next one.
        self.position.set(match state.batch {
            n if n > 0 && n >= batches => (state.epoch.wrapping_add(1), 0),
            n => (state.epoch, n),
        });
        Ok(())
    }

    /// The batches from the position to the end of the epoch.
    ///
    /// After the last one the position is the start of the next epoch. An item that fails or panics
    /// is an `Err` that names its index, and ends the iteration.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// let loader = DataLoader::new(from_fn(3, |i| Ok(10 * i as i64))).batch_size(2);
    /// let batches: Vec<_> = loader.iter().map(|b| b.unwrap().to_vec::<i64>()).collect();
    /// assert_eq!(batches, [vec![0, 10], vec![20]]);
    /// // An iterator that is dropped in mid-epoch: the next one continues.
    /// assert_eq!(loader.iter().next().unwrap()?.to_vec::<i64>(), [0, 10]);
    /// assert_eq!(loader.iter().next().unwrap()?.to_vec::<i64>(), [20]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn iter(&self) -> Epoch<B> {
        let (epoch, first) = self.position.get();
        let (workers, batches) = match self.start(epoch, first) {
            Ok((workers, batches)) => (Ok(workers), batches),
            Err(error) => (Err(error), self.len()),
        };
        Epoch::new(workers, self.position.clone(), Some(batches))
    }

    fn batches(&self) -> Arc<dyn BatchOrder> {
        let LoaderOptions { batch_size, drop_last, .. } = self.options;
        self.batch_sampler.clone().unwrap_or_else(|| {
            Arc::new(BatchSampler { sampler: self.sampler.clone(), batch_size, drop_last })
        })
    }

    /// This worker's part of each batch.
    fn own_parts(&self, batches: Vec<Vec<usize>>) -> Result<Vec<Vec<usize>>> {
        let (rank, workers) = self.share;
        if workers == 1 {
            return Ok(batches);
        }
        if let Some(few) = batches.iter().find(|batch| batch.len() < workers) {
            let message = format!(
                "a batch has {} items, which is less than one for each of {workers} workers",
                few.len()
            );
            return Err(Error::argument("loader", message)
                .hint("leave the last batch out with `drop_last(true)`, or use larger batches"));
        }
        let part = |batch: Vec<usize>| batch[share(rank, workers, batch.len())].to_vec();
        Ok(batches.into_iter().map(part).collect())
    }

    fn start(&self, epoch: u64, first: usize) -> Result<(LoaderWorkers<(usize, B)>, usize)> {
        let LoaderOptions { seed, num_workers, prefetch_factor, .. } = self.options;
        if self.batch_sampler.is_some() && (self.options.batch_size != 1 || self.options.drop_last)
        {
            let message = "`batch_size` and `drop_last` are those of the batch sampler";
            return Err(Error::argument("loader", message));
        }
        let batches = self.batches().batches(self.data.len(), EpochSeed { seed, epoch })?;
        let batches = self.own_parts(batches)?;
        let (count, rank) = (batches.len(), self.share.0);
        let batches = Arc::new(batches);
        let threads = num_workers.min(count.saturating_sub(first));
        let workers = LoaderWorkers::start(
            first,
            threads,
            prefetch_factor,
            |stop| -> NumberedBatchFn<(usize, B)> {
                let (data, make) = (self.data.clone(), self.make.clone());
                let batches = batches.clone();
                Box::new(move |number| {
                    let indices = batches.get(number)?;
                    let mut items = Vec::with_capacity(indices.len());
                    for &index in indices {
                        if stop.is_raised() {
                            return None;
                        }
                        let seed = ItemSeed::new(seed, epoch, index);
                        match attempt(|| format!("item {index}"), || data.draw(index, seed)) {
                            Ok(item) => items.push(item),
                            Err(error) => return Some(Err(error)),
                        }
                    }
                    let what = || format!("batch {number} of items {}", listed(indices));
                    let count = items.len();
                    let seed = ItemSeed::of_batch(seed, epoch, number);
                    // Each worker's part has random numbers of its own.
                    let seed = if rank == 0 { seed } else { seed.part(63).part(rank as u64) };
                    Some(attempt(what, || make(items, seed)).map(|made| (count, made)))
                })
            },
        )?;
        Ok((workers, count))
    }
}

/// The first few of the indices.
fn listed(indices: &[usize]) -> String {
    const SHOWN: usize = 32;
    let shown: Vec<String> = indices.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = if indices.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

impl<D: Dataset, B: Send + 'static> IntoIterator for &DataLoader<D, B> {
    type Item = Result<B>;
    type IntoIter = Epoch<B>;

    fn into_iter(self) -> Epoch<B> {
        self.iter()
    }
}
