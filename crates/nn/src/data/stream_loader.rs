//! Batches of a stream.

use super::loader_options::{CollateFn, Epoch, LoaderOptions, SharedPosition, loader_options};
use super::workers::{Maker, Workers, attempt};
use super::{Collate, EpochSeed, Items, Position, Stream};
use pullback::{Error, Result};
use std::sync::Arc;

/// How many items a thread skips before it checks whether it should stop.
const SKIP: usize = 1 << 16;

/// Batches of a stream, epoch after epoch, prefetched by threads: a
/// [`DataLoader`](super::DataLoader) for data that is read from front to back. Batches and
/// positions are as there; each thread opens the stream and skips the items of the others.
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
    /// Batches of one item, made by the calling thread: the methods below change that.
    pub fn new(stream: S) -> Self {
        StreamLoader::with_collate_fn(stream, S::Item::collate)
    }
}

impl<S: Stream, B: Send + 'static> StreamLoader<S, B> {
    /// A loader whose batches are made of items by `collate_fn`.
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

    /// The position, for a checkpoint.
    pub fn state(&self) -> Position {
        self.options.at(self.position.get(), None, "stream".to_string())
    }

    /// Moves to a saved position.
    ///
    /// # Errors
    /// If it is a position in something else than a stream with this seed and these batches.
    pub fn resume(&self, state: &Position) -> Result<()> {
        state.check(&self.state())?;
        self.position.set((state.epoch, state.batch));
        Ok(())
    }

    /// The batches from the position to the end of the stream. After it the position is the start
    /// of the next epoch.
    pub fn iter(&self) -> Epoch<B> {
        let (epoch, first) = self.position.get();
        Epoch::new(self.start(epoch, first), self.position.clone(), None)
    }

    fn start(&self, epoch: u64, first: usize) -> Result<Workers<(usize, B)>> {
        let LoaderOptions { batch_size, drop_last, seed, num_workers, prefetch_factor } =
            self.options;
        if batch_size == 0 {
            return Err(Error::argument("loader", "`batch_size` is 0: it must be at least 1"));
        }
        let seed = EpochSeed { seed, epoch };
        Workers::start(first, num_workers, prefetch_factor, |stop| -> Maker<(usize, B)> {
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
                    // Skips in steps, so that a long skip ends soon after the iterator is dropped.
                    let step = ahead.min(SKIP);
                    place += step;
                    match attempt(|| format!("item {place}"), || items.nth(step).transpose()) {
                        Ok(None) => break,
                        // An item that is skipped belongs to another thread, and so does its error.
                        _ if step < ahead => {}
                        Ok(Some(item)) => batch.push(item),
                        Err(error) => return Some(Err(error)),
                    }
                    place += 1;
                }
                if batch.is_empty() || (drop_last && batch.len() < batch_size) {
                    return None;
                }
                let what = format!("batch {number} of items {} to {place}", place - batch.len());
                open = Some((items, place));
                let count = batch.len();
                Some(attempt(|| what.clone(), || collate_fn(batch)).map(|made| (count, made)))
            })
        })
    }
}

impl<S: Stream, B: Send + 'static> IntoIterator for &StreamLoader<S, B> {
    type Item = Result<B>;
    type IntoIter = Epoch<B>;

    fn into_iter(self) -> Epoch<B> {
        self.iter()
    }
}
