//! A function of each item.

use super::{Dataset, ItemSeed};
use pullback::{Key, Result};

/// The data set that [`Dataset::map`] returns.
pub struct Map<D, F> {
    data: D,
    f: F,
}

impl<D, F> Map<D, F> {
    pub(super) fn new(data: D, f: F) -> Map<D, F> {
        Map { data, f }
    }
}

impl<D, B, F> Dataset for Map<D, F>
where
    D: Dataset,
    B: Send + 'static,
    F: Fn(D::Item) -> Result<B> + Send + Sync + 'static,
{
    type Item = B;

    fn len(&self) -> usize {
        self.data.len()
    }

    fn get(&self, index: usize) -> Result<B> {
        (self.f)(self.data.get(index)?)
    }

    fn draw(&self, index: usize, draw: ItemSeed) -> Result<B> {
        (self.f)(self.data.draw(index, draw)?)
    }
}

/// The data set that [`Dataset::map_random`] returns.
pub struct MapRandom<D, F> {
    data: D,
    f: F,
}

impl<D, F> MapRandom<D, F> {
    pub(super) fn new(data: D, f: F) -> MapRandom<D, F> {
        MapRandom { data, f }
    }
}

impl<D, B, F> Dataset for MapRandom<D, F>
where
    D: Dataset,
    B: Send + 'static,
    F: Fn(D::Item, Key) -> Result<B> + Send + Sync + 'static,
{
    type Item = B;

    fn len(&self) -> usize {
        self.data.len()
    }

    /// The item as epoch 0 of seed 0 has it.
    fn get(&self, index: usize) -> Result<B> {
        self.draw(index, ItemSeed::new(0, 0, index))
    }

    fn draw(&self, index: usize, draw: ItemSeed) -> Result<B> {
        (self.f)(self.data.draw(index, draw.part(0))?, draw.key())
    }
}
