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

/// The items of a stream, in order.
///
/// A stream that can skip cheaply implements [`Iterator::nth`]: threads that share a stream, and a
/// loader that resumes, skip with it.
pub type Items<T> = Box<dyn Iterator<Item = Result<T>> + Send>;

/// A data set that is read sequentially, such as a log, files too large for memory, or a
/// simulation: PyTorch's `IterableDataset`.
///
/// Opening it twice for the same epoch gives the same items. Threads share a stream by each opening
/// it and skipping the items of the others, so put expensive work into a [`Stream::map`] at the
/// end, which does nothing for an item that is skipped.
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

    /// The items of an epoch, from the first.
    ///
    /// ```
    /// use pullback_nn::data::{EpochSeed, Stream, stream};
    /// let numbers = stream(|_| Ok((0..3).map(|n: i64| Ok(n))));
    /// let items = numbers.open(EpochSeed { seed: 0, epoch: 0 })?;
    /// assert_eq!(items.collect::<Result<Vec<_>, _>>()?, [0, 1, 2]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the source cannot be opened.
    fn open(&self, pass: EpochSeed) -> Result<Items<Self::Item>>;

    /// Applies `f` to each item. It is not called for items that are skipped. An `Err` of `f` is
    /// the error of that item.
    ///
    /// ```
    /// use pullback_nn::data::{EpochSeed, Stream, stream};
    /// let doubled = stream(|_| Ok((0..3).map(|n: i64| Ok(n)))).map(|n| Ok(2 * n));
    /// let items = doubled.open(EpochSeed { seed: 0, epoch: 0 })?;
    /// assert_eq!(items.collect::<Result<Vec<_>, _>>()?, [0, 2, 4]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn map<B, F>(self, f: F) -> StreamMap<Self, F>
    where
        Self: Sized,
        B: Send + 'static,
        F: Fn(Self::Item) -> Result<B> + Send + Sync + 'static,
    {
        StreamMap::new(self, f)
    }

    /// Applies `f` to each item and a random key: random augmentation. The key depends on the seed,
    /// the epoch and the place of the item in the epoch.
    ///
    /// ```
    /// use pullback::DType;
    /// use pullback_nn::data::{EpochSeed, Stream, stream};
    /// let zeros = stream(|_| Ok((0..3).map(|_| Ok(0.0))));
    /// let noisy = zeros.map_random(|x: f64, key| {
    ///     Ok(x + key.normal((), DType::F64, 0.0, 1.0).item::<f64>())
    /// });
    /// let epoch = |epoch| -> Vec<f64> {
    ///     noisy.open(EpochSeed { seed: 0, epoch }).unwrap().map(|item| item.unwrap()).collect()
    /// };
    /// assert_eq!(epoch(0), epoch(0));
    /// assert_ne!(epoch(0), epoch(1));
    /// ```
    fn map_random<B, F>(self, f: F) -> StreamMapRandom<Self, F>
    where
        Self: Sized,
        B: Send + 'static,
        F: Fn(Self::Item, Key) -> Result<B> + Send + Sync + 'static,
    {
        StreamMapRandom::new(self, f)
    }

    /// Shuffles through a buffer of `size` items (at least 1): each item is drawn at random from
    /// the buffer.
    ///
    /// Items that are skipped pass through the buffer too, so put this before expensive work.
    ///
    /// ```
    /// use pullback_nn::data::{EpochSeed, Stream, stream};
    /// let shuffled = stream(|_| Ok((0..100).map(|n: i64| Ok(n)))).shuffle(20);
    /// let items = shuffled.open(EpochSeed { seed: 0, epoch: 0 })?;
    /// let mut items = items.collect::<Result<Vec<_>, _>>()?;
    /// assert!(!items.is_sorted());
    /// items.sort();
    /// assert_eq!(items, Vec::from_iter(0..100));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn shuffle(self, size: usize) -> Shuffle<Self>
    where
        Self: Sized,
    {
        Shuffle::new(self, size)
    }

    /// The first `count` items.
    ///
    /// ```
    /// use pullback_nn::data::{EpochSeed, Stream, stream};
    /// let few = stream(|_| Ok((0..).map(|n: i64| Ok(n)))).take(2);
    /// let items = few.open(EpochSeed { seed: 0, epoch: 0 })?;
    /// assert_eq!(items.collect::<Result<Vec<_>, _>>()?, [0, 1]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn take(self, count: usize) -> Take<Self>
    where
        Self: Sized,
    {
        Take::new(self, count)
    }

    /// The stream repeated without end, each round in another order if it is shuffled. A stream
    /// without items stays empty.
    ///
    /// Rounds that are skipped are still read, so put this before expensive work.
    ///
    /// ```
    /// use pullback_nn::data::{EpochSeed, Stream, stream};
    /// let rounds = stream(|_| Ok((0..3).map(|n: i64| Ok(n)))).cycle();
    /// let items = rounds.open(EpochSeed { seed: 0, epoch: 0 })?.take(5);
    /// assert_eq!(items.collect::<Result<Vec<_>, _>>()?, [0, 1, 2, 0, 1]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn cycle(self) -> Cycle<Self>
    where
        Self: Sized,
    {
        Cycle::new(self)
    }

    /// These items, followed by those of another stream.
    ///
    /// Items of the first stream that are skipped are still made, as its end must be known, so put
    /// this before expensive work.
    ///
    /// ```
    /// use pullback_nn::data::{EpochSeed, Stream, stream};
    /// let numbers = |range: std::ops::Range<i64>| stream(move |_| Ok(range.clone().map(Ok)));
    /// let both = numbers(0..2).chain(numbers(7..9));
    /// let items = both.open(EpochSeed { seed: 0, epoch: 0 })?;
    /// assert_eq!(items.collect::<Result<Vec<_>, _>>()?, [0, 1, 7, 8]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[doc(alias = "ChainDataset")]
    fn chain<S: Stream<Item = Self::Item>>(self, other: S) -> Chain<Self, S>
    where
        Self: Sized,
    {
        Chain::new(self, other)
    }
}

/// A stream made by a function: see [`stream`].
pub struct FromOpen<F>(F);

/// A stream whose items are those of the iterator that `open` returns for an epoch.
///
/// ```
/// use pullback_nn::data::{EpochSeed, Stream, stream};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let path = folder.join("log.txt");
/// std::fs::write(&path, "one\ntwo\n").unwrap();
/// let lines = stream(move |_| {
///     let text = pullback_nn::data::read_text(&path)?;
///     Ok(text.lines().map(|line| Ok(line.to_string())).collect::<Vec<_>>().into_iter())
/// });
/// let items = lines.open(EpochSeed { seed: 0, epoch: 0 })?;
/// assert_eq!(items.collect::<Result<Vec<_>, _>>()?, ["one", "two"]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[doc(alias = "IterableDataset")]
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
