//! Pairs of items.

use super::{Dataset, ItemSeed};
use pullback::{Error, Result};

/// The data set that [`Dataset::zip`] returns.
pub struct Zip<A, B> {
    left: A,
    right: B,
}

impl<A: Dataset, B: Dataset> Zip<A, B> {
    pub(super) fn new(left: A, right: B) -> Result<Zip<A, B>> {
        if left.len() != right.len() {
            let (a, b) = (left.len(), right.len());
            let message =
                format!("the data sets have {a} and {b} items, but must have the same length");
            return Err(Error::argument("zip", message));
        }
        Ok(Zip { left, right })
    }
}

impl<A: Dataset, B: Dataset> Dataset for Zip<A, B> {
    type Item = (A::Item, B::Item);

    fn len(&self) -> usize {
        self.left.len()
    }

    fn get(&self, index: usize) -> Result<Self::Item> {
        Ok((self.left.get(index)?, self.right.get(index)?))
    }

    fn draw(&self, index: usize, draw: ItemSeed) -> Result<Self::Item> {
        Ok((self.left.draw(index, draw.part(1))?, self.right.draw(index, draw.part(2))?))
    }
}
