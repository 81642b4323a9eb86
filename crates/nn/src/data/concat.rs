//! One data set after another.

use super::dataset::check_index;
use super::{Dataset, ItemSeed};
use pullback::Result;

/// The data set that [`Dataset::concat`] returns.
pub struct Concat<A, B> {
    first: A,
    second: B,
}

impl<A: Dataset, B: Dataset<Item = A::Item>> Concat<A, B> {
    pub(super) fn new(first: A, second: B) -> Concat<A, B> {
        Concat { first, second }
    }
}

impl<A: Dataset, B: Dataset<Item = A::Item>> Dataset for Concat<A, B> {
    type Item = A::Item;

    fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    fn get(&self, index: usize) -> Result<A::Item> {
        check_index(index, self.len())?;
        match index.checked_sub(self.first.len()) {
            None => self.first.get(index),
            Some(index) => self.second.get(index),
        }
    }

    fn draw(&self, index: usize, draw: ItemSeed) -> Result<A::Item> {
        check_index(index, self.len())?;
        match index.checked_sub(self.first.len()) {
            None => self.first.draw(index, draw),
            Some(index) => self.second.draw(index, draw),
        }
    }
}
