//! A random partition.

use super::{Dataset, Subset};
use pullback::{Error, Key, Result};
use std::sync::Arc;

/// Splits a data set at random into parts of these lengths, drawn without replacement by a key.
/// Items that are left over belong to no part.
///
/// ```
/// use pullback::Key;
/// use pullback_nn::data::{Dataset, from_fn, random_split};
///
/// let parts = random_split(from_fn(10, |i| Ok(i as i64)), &[8, 2], &Key::new(0))?;
/// let mut all: Vec<_> = parts.iter().flat_map(|part| part.indices().to_vec()).collect();
/// all.sort();
/// assert_eq!(all, Vec::from_iter(0..10));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the lengths sum to more than the number of items.
pub fn random_split<D: Dataset>(
    data: D,
    lengths: &[usize],
    key: &Key,
) -> Result<Vec<Subset<Arc<D>>>> {
    let wanted = lengths.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
    if wanted.is_none_or(|n| n > data.len()) {
        let message =
            format!("parts of {lengths:?} items exceed the {} items of the data set", data.len());
        return Err(Error::argument("random_split", message));
    }
    let order = key.permutation(data.len()).to_vec::<i64>();
    let data = Arc::new(data);
    let mut rest = &order[..];
    let parts = lengths.iter().map(|&n| {
        let (part, after) = rest.split_at(n);
        rest = after;
        Subset::new(data.clone(), Vec::from_iter(part.iter().map(|&i| i as usize)))
    });
    parts.collect()
}
