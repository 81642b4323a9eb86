//! What [`DataLoader`](super::DataLoader) and [`StreamLoader`](super::StreamLoader) share: options,
//! position, and the iterator over the rest of an epoch.

use super::Position;
use super::workers::Workers;
use pullback::{Error, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Makes a batch of items.
pub(super) type CollateFn<T, B> = dyn Fn(Vec<T>) -> Result<B> + Send + Sync;

/// The options of both loaders, with PyTorch's names and defaults.
#[derive(Clone, Copy)]
pub(super) struct LoaderOptions {
    pub batch_size: usize,
    pub drop_last: bool,
    pub seed: u64,
    pub num_workers: usize,
    pub prefetch_factor: usize,
}

impl Default for LoaderOptions {
    fn default() -> LoaderOptions {
        LoaderOptions {
            batch_size: 1,
            drop_last: false,
            seed: 0,
            num_workers: 0,
            prefetch_factor: 2,
        }
    }
}

impl LoaderOptions {
    /// A position in batches with these options.
    pub fn at(&self, place: (u64, usize), items: Option<usize>, sampler: String) -> Position {
        let LoaderOptions { batch_size, drop_last, seed, .. } = *self;
        let (epoch, batch) = place;
        Position { epoch, batch, seed, items, batch_size, drop_last, sampler }
    }
}

/// The methods that set [`LoaderOptions`] in a struct that has them as `options`, and those that
/// move the [`SharedPosition`] that it has as `position`.
macro_rules! loader_options {
    () => {
        /// How many items make a batch.
        #[must_use]
        pub fn batch_size(mut self, batch_size: usize) -> Self {
            self.options.batch_size = batch_size;
            self
        }

        /// Leaves out a last batch that is not full.
        #[must_use]
        pub fn drop_last(mut self, drop_last: bool) -> Self {
            self.options.drop_last = drop_last;
            self
        }

        /// The seed of shuffling and of augmentation; 0 by default.
        #[must_use]
        pub fn seed(mut self, seed: u64) -> Self {
            self.options.seed = seed;
            self
        }

        /// How many threads make batches. With 0, the default, the calling thread makes them.
        #[must_use]
        pub fn num_workers(mut self, num_workers: usize) -> Self {
            self.options.num_workers = num_workers;
            self
        }

        /// How many batches each thread prefetches; 2 by default.
        #[must_use]
        pub fn prefetch_factor(mut self, prefetch_factor: usize) -> Self {
            self.options.prefetch_factor = prefetch_factor;
            self
        }

        /// How many items the last returned batch had: the last of an epoch may have fewer than the
        /// others. None before the first.
        pub fn last_len(&self) -> Option<usize> {
            self.position.last_len()
        }

        /// Moves to the start of an epoch.
        pub fn set_epoch(&self, epoch: u64) {
            self.position.set((epoch, 0));
        }
    };
}
pub(super) use loader_options;

/// Epoch and batch, and the length of the last batch.
type Progress = ((u64, usize), Option<usize>);

/// A position that iterators share and move.
#[derive(Clone, Default)]
pub(super) struct SharedPosition(Arc<Mutex<Progress>>);

impl SharedPosition {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The epoch, and how many of its batches were returned.
    pub fn get(&self) -> (u64, usize) {
        self.lock().0
    }

    pub fn set(&self, place: (u64, usize)) {
        self.lock().0 = place;
    }

    pub fn last_len(&self) -> Option<usize> {
        self.lock().1
    }

    fn returned(&self, place: (u64, usize), len: usize) {
        *self.lock() = (place, Some(len));
    }
}

/// The rest of an epoch: see [`DataLoader::iter`](super::DataLoader::iter) and
/// [`StreamLoader::iter`](super::StreamLoader::iter). Dropping it stops the threads.
pub struct Epoch<B> {
    /// Or the error that kept them from starting, until it was returned.
    workers: std::result::Result<Workers<(usize, B)>, Option<Error>>,
    position: SharedPosition,
    epoch: u64,
    next: usize,
    /// How many batches the epoch has; unknown for a stream.
    batches: Option<usize>,
}

impl<B> Epoch<B> {
    pub(super) fn new(
        workers: Result<Workers<(usize, B)>>,
        position: SharedPosition,
        batches: Option<usize>,
    ) -> Epoch<B> {
        let (epoch, next) = position.get();
        Epoch { workers: workers.map_err(Some), position, epoch, next, batches }
    }
}

impl<B: Send + 'static> Iterator for Epoch<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        let workers = match &mut self.workers {
            Ok(workers) => workers,
            Err(error) => return error.take().map(Err),
        };
        let ended = workers.is_done();
        let made = workers.next();
        let next_epoch = (self.epoch.wrapping_add(1), 0);
        match &made {
            Some(Ok((len, _))) => {
                self.next += 1;
                let over = self.batches.is_some_and(|batches| self.next >= batches);
                let place = if over { next_epoch } else { (self.epoch, self.next) };
                self.position.returned(place, *len);
            }
            // After an error the position stays.
            None if !ended && self.batches.is_none() => self.position.set(next_epoch),
            _ => {}
        }
        made.map(|made| made.map(|(_, batch)| batch))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.batches.map(|batches| batches.saturating_sub(self.next).max(1)))
    }
}
