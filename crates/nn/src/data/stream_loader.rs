//! Batches of a stream.

use super::loader_options::{CollateFn, Epoch, LoaderOptions, SharedPosition, loader_options};
use super::workers::{LoaderWorkers, NumberedBatchFn, attempt};
use super::{Collate, EpochSeed, Items, Position, Stream};
use pullback::{Error, Result};
use std::sync::Arc;

/// How many items a thread skips before it checks whether it should stop.
const SKIP: usize = 1 << 16;

/// Batches of a stream, epoch after epoch, prefetched by threads: a
/// [`DataLoader`](super::DataLoader) for data that is read sequentially. Options and positions are
/// the same; each thread opens the stream and skips the items of the others.
///
/// ```
/// use pullback_nn::data::{Stream, StreamLoader, stream};
///
/// let numbers = stream(|_| Ok((0..10).map(Ok))).map(|n: i64| Ok(n as f32));
/// let loader = StreamLoader::new(numbers).batch_size(4).num_workers(2);
/// let sizes: Vec<usize> = loader.iter().map(|batch| batch.unwrap().len()).collect();
/// assert_eq!(sizes, [4, 4, 2]);
/// ```
pub struct StreamLoader<S: Stream, B> {
    stream: Arc<S>,
    collate_fn: Arc<CollateFn<S::Item, B>>,
    options: LoaderOptions,
    position: SharedPosition,
}

impl<S: Stream> StreamLoader<S, <S::Item as Collate>::Batch>
where
    S::Item: Collate,
{
    /// A loader of batches of one item, made on the calling thread. The methods below set the
    /// options.
    ///
    /// ```
    /// use pullback_nn::data::{StreamLoader, stream};
    /// let loader = StreamLoader::new(stream(|_| Ok((0..3).map(|n: i64| Ok(n)))));
    /// assert_eq!(loader.iter().count(), 3);
    /// ```
    pub fn new(stream: S) -> Self {
        StreamLoader::with_collate_fn(stream, S::Item::collate)
    }
}

impl<S: Stream, B: Send + 'static> StreamLoader<S, B> {
    /// A loader that makes each batch of its items by `collate_fn`, such as
    /// [`pad_sequences`](super::pad_sequences).
    ///
    /// ```
    /// use pullback_nn::data::{StreamLoader, stream};
    /// let numbers = stream(|_| Ok((0..5).map(|n: i64| Ok(n))));
    /// let loader = StreamLoader::with_collate_fn(numbers, |items| Ok(items.iter().sum::<i64>()));
    /// assert_eq!(loader.batch_size(2).iter().collect::<Result<Vec<_>, _>>()?, [1, 5, 4]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn with_collate_fn(
        stream: S,
        collate_fn: impl Fn(Vec<S::Item>) -> Result<B> + Send + Sync + 'static,
    ) -> Self {
        StreamLoader {
            stream: Arc::new(stream),
            collate_fn: Arc::new(collate_fn),
            options: LoaderOptions::default(),
            position: SharedPosition::default(),
        }
    }

    loader_options!();

    /// The position, to save in a checkpoint. Batches that are prefetched but not yet returned do
    /// not count.
    ///
    /// ```
    /// use pullback_nn::data::{StreamLoader, stream};
    /// let loader = StreamLoader::new(stream(|_| Ok((0..9).map(|n: i64| Ok(n))))).batch_size(2);
    /// let _ = loader.iter().take(3).count();
    /// assert_eq!((loader.state().epoch, loader.state().batch), (0, 3));
    /// ```
    #[doc(alias = "state_dict")]
    pub fn state(&self) -> Position {
        self.options.at(self.position.get(), None, "stream".to_string())
    }

    /// Moves to a saved position: the batches before it are skipped. The number of threads may
    /// differ.
    ///
    /// ```
    /// use pullback_nn::data::{StreamLoader, stream};
    /// let loader = || StreamLoader::new(stream(|_| Ok((0..6).map(|n: i64| Ok(n))))).batch_size(2);
    /// let (first, second) = (loader(), loader());
    /// let _ = first.iter().take(2).count();
    /// second.resume(&first.state())?;
    /// assert_eq!(second.iter().next().unwrap()?.to_vec::<i64>(), [4, 5]);
    /// assert!(loader().batch_size(3).resume(&first.state()).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the position is not of a stream, or of another seed, batch size or `drop_last`.
    #[doc(alias = "load_state_dict")]
    pub fn resume(&self, state: &Position) -> Result<()> {
        state.check(&self.state())?;
        self.position.set((state.epoch, state.batch));
        Ok(())
    }

    /// The batches from the position to the end of the stream; then the position is the start of
    /// the next epoch. An item that fails or panics is an `Err` that names its place, and ends the
    /// iteration.
    ///
    /// ```
    /// use pullback_nn::data::{StreamLoader, stream};
    /// let loader = StreamLoader::new(stream(|_| Ok((0..3).map(|n: i64| Ok(n))))).batch_size(2);
    /// let batches: Vec<_> = loader.iter().map(|b| b.unwrap().to_vec::<i64>()).collect();
    /// assert_eq!(batches, [vec![0, 1], vec![2]]);
    /// ```
    pub fn iter(&self) -> Epoch<B> {
        let (epoch, first) = self.position.get();
        Epoch::new(self.start(epoch, first), self.position.clone(), None)
    }

    fn start(&self, epoch: u64, first: usize) -> Result<LoaderWorkers<(usize, B)>> {
        let LoaderOptions { batch_size, drop_last, seed, num_workers, prefetch_factor } =
            self.options;
        if batch_size == 0 {
            return Err(Error::argument("loader", "`batch_size` is 0: it must be at least 1"));
        }
        let seed = EpochSeed { seed, epoch };
        LoaderWorkers::start(
            first,
            num_workers,
            prefetch_factor,
            |stop| -> NumberedBatchFn<(usize, B)> {
                let (stream, collate_fn) = (self.stream.clone(), self.collate_fn.clone());
                let mut open: Option<(Items<S::Item>, usize)> = None;
                Box::new(move |number| {
                    let opened = match open.take() {
                        Some(opened) => Ok(opened),
                        None => attempt(|| "opening the stream".to_string(), || stream.open(seed))
                            .map(|items| (items, 0)),
                    };
                    let (mut items, mut place) = match opened {
                        Ok(opened) => opened,
                        Err(error) => return Some(Err(error)),
                    };
                    let mut batch = Vec::with_capacity(batch_size.min(4096));
                    while batch.len() < batch_size {
                        if stop.is_raised() {
                            return None;
                        }
                        let ahead = number.saturating_mul(batch_size).saturating_sub(place);
                        // Skips in steps, so that a long skip ends soon after the iterator is
                        // dropped.
                        let step = ahead.min(SKIP);
                        place += step;
                        match attempt(|| format!("item {place}"), || items.nth(step).transpose()) {
                            Ok(None) => break,
                            // An item that is skipped belongs to another thread, and so does its
                            // error.
                            _ if step < ahead => {}
                            Ok(Some(item)) => batch.push(item),
                            Err(error) => return Some(Err(error)),
                        }
                        place += 1;
                    }
                    if batch.is_empty() || (drop_last && batch.len() < batch_size) {
                        return None;
                    }
                    let what =
                        format!("batch {number} of items {} to {place}", place - batch.len());
                    open = Some((items, place));
                    let count = batch.len();
                    Some(attempt(|| what.clone(), || collate_fn(batch)).map(|made| (count, made)))
                })
            },
        )
    }
}

impl<S: Stream, B: Send + 'static> IntoIterator for &StreamLoader<S, B> {
    type Item = Result<B>;
    type IntoIter = Epoch<B>;

    fn into_iter(self) -> Epoch<B> {
        self.iter()
    }
}
