//! Data sets that are read from front to back.

mod chain;
mod cycle;
mod map;
mod shuffle;
mod take;

pub use chain::Chain;
pub use cycle::Cycle;
pub use map::{StreamMap, StreamMapRandom};
pub use shuffle::Shuffle;
pub use take::Take;

use super::EpochSeed;
use pullback::{Key, Result};

/// The items of a stream, one after the other.
///
/// A stream that can skip cheaply writes [`Iterator::nth`]: threads that share a stream, and a
/// loader that resumes, skip through it.
pub type Items<T> = Box<dyn Iterator<Item = Result<T>> + Send>;

/// A data set that is read from front to back: a log, files too large for memory, a simulation.
///
/// Opening it twice for one pass gives the same items. Threads share a stream by each opening it
/// and skipping what the others take, so put what is expensive into a [`Stream::map`] at the end,
/// which does nothing for an item that is skipped.
///
/// ```
/// use pullback_nn::data::{EpochSeed, Stream, stream};
///
/// let numbers = stream(|_| Ok((0..5).map(Ok))).map(|n: i64| Ok(n * n));
/// let pass = EpochSeed { seed: 0, epoch: 0 };
/// let squares: Vec<i64> = numbers.open(pass)?.collect::<Result<_, _>>()?;
/// assert_eq!(squares, [0, 1, 4, 9, 16]);
/// # Ok::<(), pullback::Error>(())
/// ```
pub trait Stream: Send + Sync + 'static {
    /// What an item is.
    type Item: Send + 'static;

    /// The items of an epoch from the first on.
    ///
    /// # Errors
    /// If the source cannot be opened.
    fn open(&self, pass: EpochSeed) -> Result<Items<Self::Item>>;

    /// `f` of each item; not called for items that are skipped.
    fn map<B, F>(self, f: F) -> StreamMap<Self, F>
    where
        Self: Sized,
        B: Send + 'static,
        F: Fn(Self::Item) -> Result<B> + Send + Sync + 'static,
    {
        StreamMap::new(self, f)
    }

    /// `f` of each item and a key: random augmentation. The key is that of the item's place in its
    /// epoch.
    fn map_random<B, F>(self, f: F) -> StreamMapRandom<Self, F>
    where
        Self: Sized,
        B: Send + 'static,
        F: Fn(Self::Item, Key) -> Result<B> + Send + Sync + 'static,
    {
        StreamMapRandom::new(self, f)
    }

    /// Shuffles through a buffer: each item is drawn from the `size` items that are in it.
    ///
    /// Items that are skipped pass through the buffer too, so put this before what is expensive.
    fn shuffle(self, size: usize) -> Shuffle<Self>
    where
        Self: Sized,
    {
        Shuffle::new(self, size)
    }

    /// The first `count` items.
    fn take(self, count: usize) -> Take<Self>
    where
        Self: Sized,
    {
        Take::new(self, count)
    }

    /// The stream repeated, each round in another order if it is shuffled. A stream without items
    /// stays empty.
    ///
    /// Rounds that are skipped are still read, so put this before what is expensive.
    fn cycle(self) -> Cycle<Self>
    where
        Self: Sized,
    {
        Cycle::new(self)
    }

    /// These items, and after them those of another stream.
    ///
    /// Items of the first that are skipped are still made, as its end must be known; so put this
    /// before what is expensive.
    fn chain<S: Stream<Item = Self::Item>>(self, other: S) -> Chain<Self, S>
    where
        Self: Sized,
    {
        Chain::new(self, other)
    }
}

/// A stream that is a function: see [`stream`].
pub struct FromOpen<F>(F);

/// A stream that `open` opens: it gives an iterator over the items of an epoch.
pub fn stream<T, I, F>(open: F) -> FromOpen<F>
where
    T: Send + 'static,
    I: Iterator<Item = Result<T>> + Send + 'static,
    F: Fn(EpochSeed) -> Result<I> + Send + Sync + 'static,
{
    FromOpen(open)
}

impl<T, I, F> Stream for FromOpen<F>
where
    T: Send + 'static,
    I: Iterator<Item = Result<T>> + Send + 'static,
    F: Fn(EpochSeed) -> Result<I> + Send + Sync + 'static,
{
    type Item = T;

    fn open(&self, pass: EpochSeed) -> Result<Items<T>> {
        Ok(Box::new((self.0)(pass)?))
    }
}
