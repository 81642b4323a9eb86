//! Batches of a data set.

use super::loader_options::{Epoch, LoaderOptions, SharedPosition, loader_options};
use super::workers::{Maker, Workers, attempt};
use super::{
    BatchOrder, BatchSampler, Collate, Dataset, EpochSeed, ItemSeed, Position, RandomSampler,
    Sampler, SequentialSampler,
};
use pullback::{Error, Key, Result};
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
}

impl<D: Dataset> DataLoader<D, <D::Item as Collate>::Batch>
where
    D::Item: Collate,
{
    /// Batches of one item, in order, made by the calling thread: the methods below change that.
    pub fn new(data: D) -> Self {
        DataLoader::with_collate_fn(data, D::Item::collate)
    }
}

impl<D: Dataset, B: Send + 'static> DataLoader<D, B> {
    /// A loader whose batches are made of items by `collate_fn`:
    /// [`pad_sequences`](super::pad_sequences), for example.
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
        }
    }

    loader_options!();

    /// A new order each epoch, drawn from this seed.
    #[must_use]
    pub fn shuffle(self, seed: u64) -> Self {
        self.sampler(RandomSampler).seed(seed)
    }

    /// The order of another sampler.
    #[must_use]
    pub fn sampler(mut self, sampler: impl Sampler) -> Self {
        self.sampler = Arc::new(sampler);
        self
    }

    /// The batches of a batch sampler, such as [`BucketBatchSampler`](super::BucketBatchSampler).
    /// It takes the place of `shuffle`, `sampler`, `batch_size` and `drop_last`; the last two are
    /// refused beside it.
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

    /// `f` of each batch and a key: random augmentation of batches, such as
    /// [`MixUp`](super::transforms::MixUp). The key follows from the seed, the epoch and the number
    /// of the batch, whatever thread works on it.
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
        let DataLoader { data, make, sampler, batch_sampler, options, position } = self;
        let make = move |items, seed: ItemSeed| f(make(items, seed.part(0))?, seed.key());
        DataLoader { data, make: Arc::new(make), sampler, batch_sampler, options, position }
    }

    /// How many batches an epoch has.
    pub fn len(&self) -> usize {
        self.batches().count(self.data.len())
    }

    /// Whether an epoch has no batches.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The data set.
    pub fn dataset(&self) -> &D {
        &self.data
    }

    /// The epoch that the next batch belongs to.
    pub fn epoch(&self) -> u64 {
        self.position.get().0
    }

    /// The position, for a checkpoint. Batches that were only prefetched do not count.
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
    /// # Errors
    /// If it is a position in other data, or in another order or other batches of it.
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

    fn start(&self, epoch: u64, first: usize) -> Result<(Workers<(usize, B)>, usize)> {
        let LoaderOptions { seed, num_workers, prefetch_factor, .. } = self.options;
        if self.batch_sampler.is_some() && (self.options.batch_size != 1 || self.options.drop_last)
        {
            let message = "`batch_size` and `drop_last` are those of the batch sampler";
            return Err(Error::argument("loader", message));
        }
        let batches = self.batches().batches(self.data.len(), EpochSeed { seed, epoch })?;
        let count = batches.len();
        let batches = Arc::new(batches);
        let threads = num_workers.min(count.saturating_sub(first));
        let workers =
            Workers::start(first, threads, prefetch_factor, |stop| -> Maker<(usize, B)> {
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
                    Some(attempt(what, || make(items, seed)).map(|made| (count, made)))
                })
            })?;
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
