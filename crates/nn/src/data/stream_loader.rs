//! Batches of a stream.

use super::loader::{CollateFn, lock};
use super::workers::{Maker, Workers, attempt};
use super::{Collate, Items, Pass, Position, Stream};
use pullback::{Error, Result};
use std::sync::{Arc, Mutex};

/// How many items a thread skips before it looks up.
const STEP: usize = 1 << 16;

/// Batches of a stream, epoch after epoch, made by threads ahead of time: a [`Loader`](super::Loader) for data that is read from front
/// to back. Batches and positions are as there; each thread opens the stream and skips what the others take.
///
/// ```
/// use pullback_nn::data::{Stream, StreamLoader, stream};
///
/// let numbers = stream(|_| Ok((0..10).map(Ok))).map(|n: i64| Ok(n as f32));
/// let loader = StreamLoader::new(numbers).batch_size(4).workers(2);
/// let sizes: Vec<usize> = loader.iter().map(|batch| batch.unwrap().len()).collect();
/// assert_eq!(sizes, [4, 4, 2]);
/// ```
pub struct StreamLoader<S: Stream, B> {
    stream: Arc<S>,
    collate: Arc<CollateFn<S::Item, B>>,
    size: usize,
    drop_last: bool,
    seed: u64,
    workers: usize,
    prefetch: usize,
    place: Arc<Mutex<(u64, usize)>>,
    last: Arc<Mutex<Option<usize>>>,
}

impl<S: Stream> StreamLoader<S, <S::Item as Collate>::Batch>
where
    S::Item: Collate,
{
    /// Batches of one item, made when they are asked for: the methods below change that.
    pub fn new(stream: S) -> Self {
        StreamLoader::with_collate(stream, S::Item::collate)
    }
}

impl<S: Stream, B: Send + 'static> StreamLoader<S, B> {
    /// A loader whose batches are made of items by `collate`.
    pub fn with_collate(
        stream: S,
        collate: impl Fn(Vec<S::Item>) -> Result<B> + Send + Sync + 'static,
    ) -> Self {
        StreamLoader {
            stream: Arc::new(stream),
            collate: Arc::new(collate),
            size: 1,
            drop_last: false,
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
        self.size = size;
        self
    }

    /// Leaves out a last batch that is not full.
    #[must_use]
    pub fn drop_last(mut self, drop: bool) -> Self {
        self.drop_last = drop;
        self
    }

    /// The seed of shuffling and of augmentation; 0 otherwise.
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

    /// How many items the batch has that was handed out last: the last of an epoch may have fewer than the others. None before the first.
    pub fn last_len(&self) -> Option<usize> {
        *lock(&self.last)
    }

    /// Goes to the start of an epoch.
    pub fn set_epoch(&self, epoch: u64) {
        *lock(&self.place) = (epoch, 0);
    }

    /// The position: what a checkpoint keeps.
    pub fn state(&self) -> Position {
        let (epoch, batch) = *lock(&self.place);
        Position {
            epoch,
            batch,
            seed: self.seed,
            items: None,
            batch_size: self.size,
            drop_last: self.drop_last,
            sampler: "stream".to_string(),
        }
    }

    /// Goes to a position: what comes then is what would have come there.
    ///
    /// # Errors
    /// If it is a position in something else than a stream with this seed and these batches.
    pub fn resume(&self, state: &Position) -> Result<()> {
        state.check(&self.state())?;
        *lock(&self.place) = (state.epoch, state.batch);
        Ok(())
    }

    /// The batches from the position to the end of the stream. When it has ended, the position is the start of the next epoch.
    pub fn iter(&self) -> StreamEpoch<B> {
        let (epoch, first) = *lock(&self.place);
        let workers = self.start(epoch, first).map_err(Some);
        StreamEpoch {
            workers,
            place: self.place.clone(),
            last: self.last.clone(),
            epoch,
            next: first,
        }
    }

    fn start(&self, epoch: u64, first: usize) -> Result<Workers<(usize, B)>> {
        if self.size == 0 {
            return Err(Error::argument("loader", "a batch of 0 items never ends"));
        }
        let (size, drop_last, pass) = (self.size, self.drop_last, Pass { seed: self.seed, epoch });
        Workers::start(first, self.workers, self.prefetch, |stop| -> Maker<(usize, B)> {
            let (stream, collate) = (self.stream.clone(), self.collate.clone());
            let mut open: Option<(Items<S::Item>, usize)> = None;
            Box::new(move |number| {
                let opened = match open.take() {
                    Some(opened) => Ok(opened),
                    None => attempt(|| "opening the stream".to_string(), || stream.open(pass))
                        .map(|items| (items, 0)),
                };
                let (mut items, mut place) = match opened {
                    Ok(opened) => opened,
                    Err(error) => return Some(Err(error)),
                };
                let mut batch = Vec::with_capacity(size.min(4096));
                while batch.len() < size {
                    if stop.is_raised() {
                        return None;
                    }
                    let ahead = number.saturating_mul(size).saturating_sub(place);
                    // A long way is gone in steps, so that it is given up when nobody waits for its end.
                    let step = ahead.min(STEP);
                    place += step;
                    match attempt(|| format!("item {place}"), || items.nth(step).transpose()) {
                        Ok(None) => break,
                        // The end of a step on the way is another thread's item, and so is what is wrong with it.
                        _ if step < ahead => {}
                        Ok(Some(item)) => batch.push(item),
                        Err(error) => return Some(Err(error)),
                    }
                    place += 1;
                }
                if batch.is_empty() || (drop_last && batch.len() < size) {
                    return None;
                }
                let what = format!("batch {number} of items {} to {place}", place - batch.len());
                open = Some((items, place));
                let count = batch.len();
                Some(attempt(|| what.clone(), || collate(batch)).map(|made| (count, made)))
            })
        })
    }
}

impl<S: Stream, B: Send + 'static> IntoIterator for &StreamLoader<S, B> {
    type Item = Result<B>;
    type IntoIter = StreamEpoch<B>;

    fn into_iter(self) -> StreamEpoch<B> {
        self.iter()
    }
}

/// The rest of a stream: see [`StreamLoader::iter`]. Dropping it stops the threads.
pub struct StreamEpoch<B> {
    workers: std::result::Result<Workers<(usize, B)>, Option<Error>>,
    place: Arc<Mutex<(u64, usize)>>,
    last: Arc<Mutex<Option<usize>>>,
    epoch: u64,
    next: usize,
}

impl<B: Send + 'static> Iterator for StreamEpoch<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        let workers = match &mut self.workers {
            Ok(workers) => workers,
            Err(error) => return error.take().map(Err),
        };
        let ended = workers.is_done();
        let made = workers.next();
        match &made {
            Some(Ok((count, _))) => {
                *lock(&self.last) = Some(*count);
                self.next += 1;
                *lock(&self.place) = (self.epoch, self.next);
            }
            // After an error the position stays.
            None if !ended => *lock(&self.place) = (self.epoch.wrapping_add(1), 0),
            _ => {}
        }
        made.map(|made| made.map(|(_, batch)| batch))
    }
}
