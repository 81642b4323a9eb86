//! Batches of a data set.

use super::workers::{Maker, Workers, attempt};
use super::{
    BatchSampler, Collate, Dataset, Draw, Pass, Position, RandomSampler, Sampler, SequentialSampler,
};
use pullback::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// Batches of a data set, epoch after epoch, made by threads ahead of time.
///
/// The batches depend on the data, the seed and the epoch: not on the number of threads, nor on how far they are ahead.
///
/// ```
/// use pullback_nn::data::{Loader, from_fn};
///
/// let loader = Loader::new(from_fn(10, |i| Ok(i as i64))).batch_size(4).workers(2);
/// let sizes: Vec<usize> = loader.iter().map(|batch| batch.unwrap().len()).collect();
/// assert_eq!(sizes, [4, 4, 2]);
/// assert_eq!(loader.state().epoch, 1);
/// ```
///
/// # Positions
///
/// A loader has a position: which epoch, and how many of its batches were handed out. [`Loader::iter`] goes on from there to the
/// end of the epoch, so an iterator that is dropped in mid-epoch loses nothing; [`Loader::set_epoch`] goes to the start of
/// an epoch. [`Loader::state`] and [`Loader::resume`] carry a position to another process.
pub struct Loader<D: Dataset, B> {
    data: Arc<D>,
    collate: Arc<CollateFn<D::Item, B>>,
    batches: BatchSampler,
    seed: u64,
    workers: usize,
    prefetch: usize,
    /// Epoch and batch. Shared with the iterators, which move it.
    place: Arc<Mutex<(u64, usize)>>,
    /// How many items the batch has that was handed out last. Shared likewise.
    last: Arc<Mutex<Option<usize>>>,
}

pub(super) type CollateFn<T, B> = dyn Fn(Vec<T>) -> Result<B> + Send + Sync;

impl<D: Dataset> Loader<D, <D::Item as Collate>::Batch>
where
    D::Item: Collate,
{
    /// Batches of one item, in order, made when they are asked for: the methods below change that.
    pub fn new(data: D) -> Self {
        Loader::with_collate(data, D::Item::collate)
    }
}

impl<D: Dataset, B: Send + 'static> Loader<D, B> {
    /// A loader whose batches are made of items by `collate`: [`pad_sequences`](super::pad_sequences), say.
    pub fn with_collate(
        data: D,
        collate: impl Fn(Vec<D::Item>) -> Result<B> + Send + Sync + 'static,
    ) -> Self {
        Loader {
            data: Arc::new(data),
            collate: Arc::new(collate),
            batches: BatchSampler::new(SequentialSampler, 1, false),
            seed: 0,
            workers: 0,
            prefetch: 2,
            place: Arc::default(),
            last: Arc::default(),
        }
    }

    /// How many items make a batch.
    #[must_use]
    pub fn batch_size(mut self, size: usize) -> Self {
        self.batches.size = size;
        self
    }

    /// Leaves out a last batch that is not full.
    #[must_use]
    pub fn drop_last(mut self, drop: bool) -> Self {
        self.batches.drop_last = drop;
        self
    }

    /// A new order each epoch, drawn from this seed.
    #[must_use]
    pub fn shuffle(self, seed: u64) -> Self {
        self.sampler(RandomSampler).seed(seed)
    }

    /// The order of another sampler.
    #[must_use]
    pub fn sampler(mut self, sampler: impl Sampler) -> Self {
        self.batches.sampler = Arc::new(sampler);
        self
    }

    /// The seed of the order and of augmentation; 0 otherwise.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How many threads make batches; with none, they are made when they are asked for.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count;
        self
    }

    /// How many finished batches each thread keeps ready; 2 otherwise.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// How many batches an epoch has.
    pub fn len(&self) -> usize {
        self.batches.count(self.data.len())
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
        self.place().0
    }

    /// How many items the batch has that was handed out last: the last of an epoch may have fewer than the others. None before the first.
    pub fn last_len(&self) -> Option<usize> {
        *lock(&self.last)
    }

    /// Goes to the start of an epoch.
    pub fn set_epoch(&self, epoch: u64) {
        *lock(&self.place) = (epoch, 0);
    }

    /// The position: what a checkpoint keeps. Between two batches it is that after the first: batches made ahead do not count.
    pub fn state(&self) -> Position {
        let (epoch, batch) = self.place();
        Position {
            epoch,
            batch,
            seed: self.seed,
            items: Some(self.data.len()),
            batch_size: self.batches.size,
            drop_last: self.batches.drop_last,
            sampler: self.batches.sampler.describe(),
        }
    }

    /// Goes to a position: what comes then is what would have come there. The number of threads may be another.
    ///
    /// # Errors
    /// If it is a position in other data, or in another order or other batches of it.
    pub fn resume(&self, state: &Position) -> Result<()> {
        state.check(&self.state())?;
        let batches = self.len();
        // An epoch that is through is the start of the next one.
        *lock(&self.place) = match state.batch {
            n if n > 0 && n >= batches => (state.epoch.wrapping_add(1), 0),
            n => (state.epoch, n),
        };
        Ok(())
    }

    fn place(&self) -> (u64, usize) {
        *lock(&self.place)
    }

    /// The batches from the position to the end of the epoch.
    ///
    /// After the last one the position is the start of the next epoch. An item that fails, or panics, is an `Err` in its place
    /// that names the index, and the last thing that comes.
    pub fn iter(&self) -> Epoch<B> {
        let (epoch, first) = self.place();
        let (workers, batches) = match self.start(epoch, first) {
            Ok((workers, batches)) => (Ok(workers), batches),
            Err(error) => (Err(Some(error)), self.len()),
        };
        Epoch {
            workers,
            place: self.place.clone(),
            last: self.last.clone(),
            epoch,
            next: first,
            batches,
        }
    }

    fn start(&self, epoch: u64, first: usize) -> Result<(Workers<(usize, B)>, usize)> {
        let pass = Pass { seed: self.seed, epoch };
        let batches = Arc::new(self.batches.batches(self.data.len(), pass)?);
        let count = batches.len();
        let threads = self.workers.min(count.saturating_sub(first));
        let workers = Workers::start(first, threads, self.prefetch, |stop| -> Maker<(usize, B)> {
            let (data, collate, batches) =
                (self.data.clone(), self.collate.clone(), batches.clone());
            let Pass { seed, epoch } = pass;
            Box::new(move |number| {
                let indices = batches.get(number)?;
                let mut items = Vec::with_capacity(indices.len());
                for &index in indices {
                    if stop.is_raised() {
                        return None;
                    }
                    let draw = Draw::new(seed, epoch, index);
                    match attempt(|| format!("item {index}"), || data.draw(index, draw)) {
                        Ok(item) => items.push(item),
                        Err(error) => return Some(Err(error)),
                    }
                }
                let what = || format!("batch {number} of items {}", listed(indices));
                let count = items.len();
                Some(attempt(what, || collate(items)).map(|made| (count, made)))
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

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Dataset, B: Send + 'static> IntoIterator for &Loader<D, B> {
    type Item = Result<B>;
    type IntoIter = Epoch<B>;

    fn into_iter(self) -> Epoch<B> {
        self.iter()
    }
}

/// The rest of an epoch: see [`Loader::iter`]. Dropping it stops the threads.
pub struct Epoch<B> {
    /// Or the error that kept them from starting, until it was told.
    workers: std::result::Result<Workers<(usize, B)>, Option<Error>>,
    place: Arc<Mutex<(u64, usize)>>,
    last: Arc<Mutex<Option<usize>>>,
    epoch: u64,
    next: usize,
    batches: usize,
}

impl<B: Send + 'static> Iterator for Epoch<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        let made = match &mut self.workers {
            Ok(workers) => workers.next(),
            Err(error) => error.take().map(Err),
        };
        if let Some(Ok((count, _))) = &made {
            *lock(&self.last) = Some(*count);
            self.next += 1;
            let over = self.next >= self.batches;
            *lock(&self.place) =
                if over { (self.epoch.wrapping_add(1), 0) } else { (self.epoch, self.next) };
        }
        made.map(|made| made.map(|(_, batch)| batch))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.batches.saturating_sub(self.next).max(1)))
    }
}
