//! Caches of keys and values for incremental decoding.

use crate::refuse::refuse;
use pullback::{DType, Error, Tensor, Tree, cat, catch};

/// Keys and values of fixed capacity, written in place: the state of incremental decoding.
///
/// The number of filled positions is a tensor too, so one compiled step serves every position.
/// Nothing in it is differentiated.
///
/// ```
/// use pullback::{DType, Tensor, jit};
/// use pullback_nn::{KeyValueCache, Module, MultiHeadAttention};
/// let attention = MultiHeadAttention::new(8, 2);
/// attention.eval();
/// let cache = KeyValueCache::new(1, 2, 16, 4, DType::F32);
/// let step = jit(|x: &Tensor| attention.decode(x, &cache));
/// for _ in 0..5 {
///     step.call(&Tensor::ones([1, 1, 8]))?;
/// }
/// assert_eq!(cache.position.item::<i64>(), 5);
/// assert_eq!(step.explain().specialisations.len(), 1);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Tree)]
pub struct KeyValueCache {
    /// `[batch, heads, capacity, features]`.
    #[tree(buffer)]
    pub keys: Tensor,
    /// `[batch, heads, capacity, features]`.
    #[tree(buffer)]
    pub values: Tensor,
    /// The number of filled positions, `i64[]`.
    #[tree(buffer)]
    pub position: Tensor,
}

impl KeyValueCache {
    /// An empty cache; `heads` are those of keys and values.
    /// [`MultiHeadAttention::cache`](crate::MultiHeadAttention::cache) makes one that fits a layer.
    ///
    /// ```
    /// # use pullback::DType;
    /// # use pullback_nn::KeyValueCache;
    /// let cache = KeyValueCache::new(1, 2, 16, 4, DType::F32);
    /// assert_eq!(cache.keys.shape(), [1, 2, 16, 4]);
    /// assert_eq!(cache.position.item::<i64>(), 0);
    /// ```
    ///
    /// # Panics
    /// If the memory cannot be allocated.
    #[track_caller]
    #[must_use]
    pub fn new(
        batch: usize,
        heads: usize,
        capacity: usize,
        features: usize,
        dtype: DType,
    ) -> KeyValueCache {
        let zeros = || Tensor::zeros_with([batch, heads, capacity, features], dtype);
        KeyValueCache { keys: zeros(), values: zeros(), position: Tensor::from(0i64) }
    }

    /// Empties the cache.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::MultiHeadAttention;
    /// let attention = MultiHeadAttention::new(8, 2);
    /// let cache = attention.cache(1, 16);
    /// let _ = attention.decode(&Tensor::ones([1, 3, 8]), &cache);
    /// assert_eq!(cache.position.item::<i64>(), 3);
    /// cache.reset();
    /// assert_eq!(cache.position.item::<i64>(), 0);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn reset(&self) {
        self.position.zero_();
    }

    /// The number of positions it can hold.
    ///
    /// ```
    /// # use pullback::DType;
    /// # use pullback_nn::KeyValueCache;
    /// assert_eq!(KeyValueCache::new(1, 2, 16, 4, DType::F32).capacity(), 16);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn capacity(&self) -> usize {
        self.keys.shape()[2]
    }

    /// The positions that the next `length` tokens will have, `i64[length]`.
    pub(super) fn next_positions(&self, length: usize) -> Tensor {
        self.position.new_arange(0, length as i64) + &self.position
    }

    /// Writes keys and values `[batch, heads, length, features]` at the next positions, and gives
    /// the mask: `bool[length, capacity]`.
    #[track_caller]
    pub(super) fn append(&self, keys: &Tensor, values: &Tensor) -> Tensor {
        for (have, new) in [(&self.keys, keys), (&self.values, values)] {
            let (a, b) = (have.shape(), new.shape());
            if a[..2] != b[..2] || a[3] != b[3] || b[2] > a[2] || have.dtype() != new.dtype() {
                let message = format!("{} cannot hold {}", have.spec(), new.spec());
                refuse(Error::shape("KeyValueCache", message).on([have.spec(), new.spec()]));
            }
        }
        let length = keys.shape()[2];
        let positions = self.next_positions(length);
        let (k, v) = (keys.detach(), values.detach());
        // Shapes fit, so what can fail is a position beyond the last. (A compiled step says so
        // itself, when it runs.)
        let written = catch(|| {
            let k = self.keys.index_copy(2, &positions, &k);
            (k, self.values.index_copy(2, &positions, &v))
        });
        let (k, v) = match written {
            Ok(written) => written,
            Err(cause) => {
                let message =
                    format!("{} has fewer than {length} positions left", self.keys.spec());
                let error = Error::argument("KeyValueCache", message).on([keys.spec()]);
                refuse(error.hint("`reset` empties it").because(cause))
            }
        };
        self.keys.copy_(&k);
        self.values.copy_(&v);
        self.position.add_(length as i64);
        positions.new_arange(0, self.capacity() as i64).le(positions.unsqueeze(1))
    }
}

/// Keys and values as tensors that grow: the input and output of
/// [`MultiHeadAttention::extend`](crate::MultiHeadAttention::extend). Gradients pass through them.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::MultiHeadAttention;
/// let attention = MultiHeadAttention::new(8, 2);
/// let (_, past) = attention.extend(&Tensor::ones([1, 3, 8]), None);
/// let (y, past) = attention.extend(&Tensor::ones([1, 1, 8]), Some(&past));
/// assert_eq!((y.shape(), past.keys.shape()), (&[1, 1, 8][..], &[1, 2, 4, 4][..]));
/// ```
#[derive(Clone, Tree)]
pub struct KeyValues {
    /// `[batch, heads, positions, features]`.
    pub keys: Tensor,
    /// `[batch, heads, positions, features]`.
    pub values: Tensor,
}

impl KeyValues {
    /// The number of positions it holds.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::MultiHeadAttention;
    /// let (_, past) = MultiHeadAttention::new(8, 2).extend(&Tensor::ones([1, 3, 8]), None);
    /// assert_eq!(past.positions(), 3);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn positions(&self) -> usize {
        self.keys.shape().get(2).copied().unwrap_or(0)
    }

    /// These, then those.
    #[track_caller]
    pub(super) fn followed_by(&self, keys: &Tensor, values: &Tensor) -> KeyValues {
        KeyValues { keys: cat(&[&self.keys, keys], 2), values: cat(&[&self.values, values], 2) }
    }
}
