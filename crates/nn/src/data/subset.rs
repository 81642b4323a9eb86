//! Some of the items.

use super::dataset::{check_index, outside};
use super::{Dataset, ItemSeed};
use pullback::{Error, Result};

/// See [`Dataset::subset`].
#[derive(Clone)]
pub struct Subset<D> {
    data: D,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    /// The items of `data` at `indices`, in this order.
    ///
    /// # Errors
    /// If an index is outside.
    pub fn new(data: D, indices: impl Into<Vec<usize>>) -> Result<Subset<D>> {
        let indices = indices.into();
        for (place, &index) in indices.iter().enumerate() {
            check_index(index, data.len()).map_err(|why| {
                Error::argument("subset", format!("index number {place} is {index}")).because(why)
            })?;
        }
        Ok(Subset { data, indices })
    }

    /// The indices into the whole.
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
