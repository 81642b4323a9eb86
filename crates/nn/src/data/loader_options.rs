//! What [`DataLoader`](super::DataLoader) and [`StreamLoader`](super::StreamLoader) share: options,
//! position, and the iterator over the rest of an epoch.

use super::Position;
use super::workers::LoaderWorkers;
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
        /// The number of items in a batch; 1 by default. With 0, the first batch of `iter` is an
        /// `Err`.
        ///
        /// ```
        /// use pullback_nn::data::{DataLoader, from_fn};
        /// let loader = DataLoader::new(from_fn(5, Ok)).batch_size(2);
        /// let sizes: Vec<usize> = loader.iter().map(|b| b.unwrap().len()).collect();
        /// assert_eq!(sizes, [2, 2, 1]);
        /// ```
        #[must_use]
        pub fn batch_size(mut self, batch_size: usize) -> Self {
            self.options.batch_size = batch_size;
            self
        }

        /// Whether to leave out a last batch that is not full; `false` by default.
        ///
        /// ```
        /// use pullback_nn::data::{DataLoader, from_fn};
        /// let loader = DataLoader::new(from_fn(5, Ok)).batch_size(2).drop_last(true);
        /// assert_eq!(loader.iter().count(), 2);
        /// ```
        #[must_use]
        pub fn drop_last(mut self, drop_last: bool) -> Self {
            self.options.drop_last = drop_last;
            self
        }

        /// The seed of shuffling and of random augmentation; 0 by default.
        ///
        /// ```
        /// use pullback_nn::data::{DataLoader, RandomSampler, from_fn};
        /// let order = |seed| {
        ///     let loader = DataLoader::new(from_fn(50, Ok)).sampler(RandomSampler).seed(seed);
        ///     loader.batch_size(50).iter().next().unwrap().unwrap().to_vec::<i64>()
        /// };
        /// assert_eq!(order(1), order(1));
        /// assert_ne!(order(1), order(2));
        /// ```
        #[must_use]
        pub fn seed(mut self, seed: u64) -> Self {
            self.options.seed = seed;
            self
        }

        /// The number of threads that make batches. With 0, the default, the calling thread makes
        /// them. The batches are the same for any number.
        ///
        /// ```
        /// use pullback_nn::data::{DataLoader, from_fn};
        /// let items = |workers| -> Vec<i64> {
        ///     let loader = DataLoader::new(from_fn(20, Ok)).batch_size(3).shuffle(0);
        ///     let loader = loader.num_workers(workers);
        ///     loader.iter().flat_map(|b| b.unwrap().to_vec::<i64>()).collect()
        /// };
        /// assert_eq!(items(0), items(4));
        /// ```
        #[must_use]
        pub fn num_workers(mut self, num_workers: usize) -> Self {
            self.options.num_workers = num_workers;
            self
        }

        /// How many batches each thread makes in advance; 2 by default.
        ///
        /// ```
        /// use pullback_nn::data::{DataLoader, from_fn};
        /// let loader = DataLoader::new(from_fn(20, Ok)).num_workers(2).prefetch_factor(8);
        /// assert_eq!(loader.iter().count(), 20);
        /// ```
        #[must_use]
        pub fn prefetch_factor(mut self, prefetch_factor: usize) -> Self {
            self.options.prefetch_factor = prefetch_factor;
            self
        }

        /// The number of items in the last batch that was returned; `None` before the first. The
        /// last batch of an epoch may have fewer items than the others.
        ///
        /// ```
        /// use pullback_nn::data::{DataLoader, from_fn};
        /// let loader = DataLoader::new(from_fn(5, Ok)).batch_size(3);
        /// assert_eq!(loader.last_len(), None);
        /// let mut batches = loader.iter();
        /// let mut lengths = Vec::new();
        /// while batches.next().is_some() {
        ///     lengths.push(loader.last_len());
        /// }
        /// assert_eq!(lengths, [Some(3), Some(2)]);
        /// ```
        pub fn last_len(&self) -> Option<usize> {
            self.position.last_len()
        }

        /// Moves to the start of this epoch.
        ///
        /// ```
        /// use pullback_nn::data::{DataLoader, from_fn};
        /// let loader = DataLoader::new(from_fn(4, Ok));
        /// let _ = loader.iter().take(3).count();
        /// loader.set_epoch(5);
        /// assert_eq!((loader.state().epoch, loader.state().batch), (5, 0));
        /// ```
        pub fn set_epoch(&self, epoch: u64) {
            self.position.set((epoch, 0));
        }
    };
}
pub(super) use loader_options;

/// Epoch and batch, and the length of the last batch.
type LoaderProgress = ((u64, usize), Option<usize>);

/// A position that iterators share and move.
#[derive(Clone, Default)]
pub(super) struct SharedPosition(Arc<Mutex<LoaderProgress>>);

impl SharedPosition {
    fn lock(&self) -> MutexGuard<'_, LoaderProgress> {
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

/// An iterator over the rest of an epoch: see [`DataLoader::iter`](super::DataLoader::iter) and
/// [`StreamLoader::iter`](super::StreamLoader::iter). Dropping it stops the threads.
pub struct Epoch<B> {
    /// Or the error that kept them from starting, until it was returned.
    workers: std::result::Result<LoaderWorkers<(usize, B)>, Option<Error>>,
    position: SharedPosition,
    epoch: u64,
    next: usize,
    /// How many batches the epoch has; unknown for a stream.
    batches: Option<usize>,
}

impl<B> Epoch<B> {
    pub(super) fn new(
        workers: Result<LoaderWorkers<(usize, B)>>,
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
