//! Some of the items.

use super::dataset::{check_index, outside};
use super::{Dataset, ItemSeed};
use pullback::{Error, Result};

/// Some items of a data set: see [`Dataset::subset`].
#[derive(Clone)]
pub struct Subset<D> {
    data: D,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    /// The items of `data` at `indices`, in this order: [`Dataset::subset`] as a constructor.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, Subset, from_vec};
    /// let data = Subset::new(from_vec(vec![10, 11, 12, 13]), [3, 0])?;
    /// assert_eq!((data.len(), data.get(0)?), (2, 13));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is not less than the length of `data`.
    pub fn new(data: D, indices: impl Into<Vec<usize>>) -> Result<Subset<D>> {
        let indices = indices.into();
        for (place, &index) in indices.iter().enumerate() {
            check_index(index, data.len()).map_err(|why| {
                Error::argument("subset", format!("index number {place} is {index}")).because(why)
            })?;
        }
        Ok(Subset { data, indices })
    }

    /// The indices into the whole data set.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, from_vec};
    /// let data = from_vec(vec![10, 11, 12, 13]).subset([3, 0])?;
    /// assert_eq!(data.indices(), [3, 0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    fn place(&self, index: usize) -> Result<usize> {
        self.indices.get(index).copied().ok_or_else(|| outside(index, self.indices.len()))
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn get(&self, index: usize) -> Result<D::Item> {
        self.data.get(self.place(index)?)
    }

    fn draw(&self, index: usize, draw: ItemSeed) -> Result<D::Item> {
        self.data.draw(self.place(index)?, draw)
    }
}
