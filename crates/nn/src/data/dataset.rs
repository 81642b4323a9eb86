//! Data sets with random access.

use super::transforms::{Transform, Transformed, WithImage};
use super::{Concat, Map, MapRandom, Subset, Zip};
use pullback::{Error, Key, Result};
use std::sync::Arc;

/// A data set of known length with random access, from any thread: PyTorch's map-style `Dataset`.
///
/// ```
/// use pullback_nn::data::{Dataset, from_fn};
///
/// let squares = from_fn(5, |i| Ok((i * i) as f32));
/// assert_eq!(squares.get(3)?, 9.0);
/// assert!(squares.get(5).unwrap_err().to_string().contains("item 5"));
/// # Ok::<(), pullback::Error>(())
/// ```
pub trait Dataset: Send + Sync + 'static {
    /// What an item is: a tensor, a number, a tuple of these, …
    type Item: Send + 'static;

    /// The number of items.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, from_vec};
    /// assert_eq!(from_vec(vec![7, 8, 9]).len(), 3);
    /// ```
    fn len(&self) -> usize;

    /// The item at `index`, from 0. Random parts are those of seed 0 and epoch 0.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, from_vec};
    /// let data = from_vec(vec![7, 8, 9]);
    /// assert_eq!(data.get(1)?, 8);
    /// assert!(data.get(3).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `index` is not less than [`Dataset::len`], or the item cannot be read.
    fn get(&self, index: usize) -> Result<Self::Item>;

    /// The item at `index`, its random parts drawn from `draw`: what loaders call. A data set
    /// without random parts need not implement it; one that wraps another passes `draw` on to it.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, ItemSeed, from_vec};
    /// use pullback_nn::data::transforms::RandomHorizontalFlip;
    /// let data = from_vec(vec![pullback::Tensor::from([[[1.0, 2.0]]])]);
    /// let data = data.transform(RandomHorizontalFlip::new(0.5));
    /// let first = |epoch| data.draw(0, ItemSeed::new(0, epoch, 0)).unwrap().to_vec::<f64>()[0];
    /// let flipped = (0..100).filter(|&epoch| first(epoch) == 2.0).count();
    /// assert!((30..70).contains(&flipped));
    /// ```
    ///
    /// # Errors
    /// As [`Dataset::get`].
    fn draw(&self, index: usize, draw: ItemSeed) -> Result<Self::Item> {
        let _ = draw;
        self.get(index)
    }

    /// Whether there are no items.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, from_vec};
    /// assert!(from_vec(Vec::<i64>::new()).is_empty());
    /// ```
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Applies `f` to each item when it is read. An `Err` of `f` is the error of that item.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, from_fn};
    /// let doubled = from_fn(5, |i| Ok(i as i64)).map(|x| Ok(2 * x));
    /// assert_eq!(doubled.get(4)?, 8);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn map<B, F>(self, f: F) -> Map<Self, F>
    where
        Self: Sized,
        B: Send + 'static,
        F: Fn(Self::Item) -> Result<B> + Send + Sync + 'static,
    {
        Map::new(self, f)
    }

    /// Applies `f` to each item and a random key: random augmentation. The key depends on the seed,
    /// the epoch and the index, not on the thread.
    ///
    /// ```
    /// use pullback::{DType, Tensor};
    /// use pullback_nn::data::{Dataset, ItemSeed, TensorDataset};
    /// let data = TensorDataset::new(Tensor::zeros([5, 3]))?;
    /// let noisy = data.map_random(|x, key| Ok(x + key.normal([3], DType::F32, 0.0, 0.1)));
    /// let first = noisy.draw(2, ItemSeed::new(7, 0, 2))?.to_vec::<f32>();
    /// assert_eq!(first, noisy.draw(2, ItemSeed::new(7, 0, 2))?.to_vec::<f32>());
    /// assert_ne!(first, noisy.draw(2, ItemSeed::new(7, 1, 2))?.to_vec::<f32>());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn map_random<B, F>(self, f: F) -> MapRandom<Self, F>
    where
        Self: Sized,
        B: Send + 'static,
        F: Fn(Self::Item, Key) -> Result<B> + Send + Sync + 'static,
    {
        MapRandom::new(self, f)
    }

    /// Transforms the image of each item: see [`transforms`](super::transforms).
    ///
    /// ```
    /// use pullback_nn::data::transforms::{RandomCrop, RandomHorizontalFlip, Transform};
    /// use pullback_nn::data::{Dataset, digits};
    /// let augment = RandomCrop::new(8).padding(1).then(RandomHorizontalFlip::new(0.5));
    /// let data = digits()?.train_set()?.transform(augment);
    /// assert_eq!(data.get(0)?.0.shape(), [1, 8, 8]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn transform<T: Transform>(self, transform: T) -> Transformed<Self, T>
    where
        Self: Sized,
        Self::Item: WithImage,
    {
        Transformed::new(self, transform)
    }

    /// The items at these indices, in this order.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, from_vec};
    /// let data = from_vec(vec![10, 11, 12, 13]).subset([3, 0])?;
    /// assert_eq!((data.len(), data.get(0)?, data.get(1)?), (2, 13, 10));
    /// assert!(from_vec(vec![10]).subset([1]).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is not less than [`Dataset::len`].
    #[doc(alias = "Subset")]
    fn subset(self, indices: impl Into<Vec<usize>>) -> Result<Subset<Self>>
    where
        Self: Sized,
    {
        Subset::new(self, indices)
    }

    /// These items, followed by those of another data set.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, from_vec};
    /// let both = from_vec(vec![1, 2]).concat(from_vec(vec![3]));
    /// assert_eq!((both.len(), both.get(2)?), (3, 3));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[doc(alias = "ConcatDataset")]
    fn concat<D: Dataset<Item = Self::Item>>(self, other: D) -> Concat<Self, D>
    where
        Self: Sized,
    {
        Concat::new(self, other)
    }

    /// Pairs of these items with those of another data set of the same length.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, from_vec};
    /// let pairs = from_vec(vec![1, 2]).zip(from_vec(vec!["one", "two"]))?;
    /// assert_eq!(pairs.get(1)?, (2, "two"));
    /// assert!(from_vec(vec![1, 2]).zip(from_vec(vec![3])).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the lengths differ.
    #[doc(alias = "StackDataset")]
    fn zip<D: Dataset>(self, other: D) -> Result<Zip<Self, D>>
    where
        Self: Sized,
    {
        Zip::new(self, other)
    }
}

/// A shared data set is one.
impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize) -> Result<D::Item> {
        (**self).get(index)
    }

    fn draw(&self, index: usize, draw: ItemSeed) -> Result<D::Item> {
        (**self).draw(index, draw)
    }
}

/// A data set in memory: see [`from_vec`].
#[derive(Clone, Debug)]
pub struct FromVec<T>(Vec<T>);

/// A data set of these items, in memory. Items are cloned when they are read.
///
/// ```
/// use pullback_nn::data::{Dataset, from_vec};
/// let data = from_vec(vec!["a".to_string(), "b".to_string()]);
/// assert_eq!(data.get(1)?, "b");
/// # Ok::<(), pullback::Error>(())
/// ```
pub fn from_vec<T: Clone + Send + Sync + 'static>(items: Vec<T>) -> FromVec<T> {
    FromVec(items)
}

impl<T: Clone + Send + Sync + 'static> Dataset for FromVec<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> Result<T> {
        self.0.get(index).cloned().ok_or_else(|| outside(index, self.0.len()))
    }
}

/// A data set given by a function of the index: see [`from_fn`].
pub struct FromFn<F> {
    len: usize,
    f: F,
}

/// A data set of `len` items, where item `i` is `f(i)`. An `Err` of `f` is the error of that item.
///
/// ```
/// use pullback_nn::data::{Dataset, from_fn};
/// let squares = from_fn(4, |i| Ok((i * i) as f32));
/// assert_eq!((squares.len(), squares.get(3)?), (4, 9.0));
/// # Ok::<(), pullback::Error>(())
/// ```
pub fn from_fn<T, F>(len: usize, f: F) -> FromFn<F>
where
    T: Send + 'static,
    F: Fn(usize) -> Result<T> + Send + Sync + 'static,
{
    FromFn { len, f }
}

impl<T, F> Dataset for FromFn<F>
where
    T: Send + 'static,
    F: Fn(usize) -> Result<T> + Send + Sync + 'static,
{
    type Item = T;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<T> {
        check_index(index, self.len)?;
        (self.f)(index)
    }
}

/// Refuses an index that is outside.
pub(super) fn check_index(index: usize, len: usize) -> Result<()> {
    if index < len { Ok(()) } else { Err(outside(index, len)) }
}

pub(super) fn outside(index: usize, len: usize) -> Error {
    Error::argument("dataset", format!("there is no item {index}: the data set has {len} items"))
}

/// The seed of the random parts of one item: the seed of the loader, the epoch and the index.
///
/// Nothing is computed until [`ItemSeed::key`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemSeed {
    seed: u64,
    epoch: u64,
    index: u64,
    /// Distinguishes several random parts of one item.
    stream: u64,
}

impl ItemSeed {
    /// The seed of item `index` in `epoch`, for a loader with this seed.
    ///
    /// ```
    /// use pullback_nn::data::ItemSeed;
    /// assert_eq!(ItemSeed::new(7, 0, 2), ItemSeed::new(7, 0, 2));
    /// assert_ne!(ItemSeed::new(7, 0, 2), ItemSeed::new(7, 1, 2)); // another epoch
    /// ```
    #[must_use]
    pub fn new(seed: u64, epoch: u64, index: usize) -> ItemSeed {
        ItemSeed { seed, epoch, index: index as u64, stream: 0 }
    }

    /// That of a batch as a whole, independent of those of its items.
    pub(super) fn of_batch(seed: u64, epoch: u64, number: usize) -> ItemSeed {
        let seed = seed.wrapping_mul(0xD1B5_4A32_D192_ED03).wrapping_add(0x8CB9_2BA7_2F3D_8DD7);
        ItemSeed::new(seed, epoch, number)
    }

    /// The random key of the item.
    ///
    /// ```
    /// use pullback::DType;
    /// use pullback_nn::data::ItemSeed;
    /// let noise = |seed: ItemSeed| seed.key().normal([3], DType::F32, 0.0, 1.0).to_vec::<f32>();
    /// assert_eq!(noise(ItemSeed::new(7, 0, 2)), noise(ItemSeed::new(7, 0, 2)));
    /// assert_ne!(noise(ItemSeed::new(7, 0, 2)), noise(ItemSeed::new(7, 0, 3)));
    /// ```
    #[must_use]
    pub fn key(&self) -> Key {
        // The streams start past those that samplers use for the order of an epoch.
        let epoch = Key::new(self.seed).fold_in(self.epoch).fold_in(self.stream.wrapping_add(1));
        epoch.fold_in(self.index)
    }

    /// A seed for a part of the item, independent of this seed and of other parts. A data set that
    /// draws random numbers itself and wraps another passes `draw.part(0)` on to it.
    ///
    /// ```
    /// use pullback::DType;
    /// use pullback_nn::data::ItemSeed;
    /// let seed = ItemSeed::new(7, 0, 2);
    /// let draw = |seed: ItemSeed| seed.key().uniform((), DType::F64, 0.0, 1.0).item::<f64>();
    /// assert_ne!(draw(seed.part(0)), draw(seed.part(1)));
    /// ```
    #[must_use]
    pub fn part(&self, part: u64) -> ItemSeed {
        let stream = self.stream.wrapping_mul(64).wrapping_add(part).wrapping_add(1);
        ItemSeed { stream, ..*self }
    }
}
