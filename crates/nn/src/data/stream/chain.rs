use super::{Items, Stream};
use crate::data::EpochSeed;
use pullback::Result;

/// The stream that [`Stream::chain`] returns.
pub struct Chain<A, B> {
    first: A,
    second: B,
}

impl<A, B> Chain<A, B> {
    pub(super) fn new(first: A, second: B) -> Chain<A, B> {
        Chain { first, second }
    }
}

impl<A: Stream, B: Stream<Item = A::Item>> Stream for Chain<A, B> {
    type Item = A::Item;

    fn open(&self, pass: EpochSeed) -> Result<Items<A::Item>> {
        Ok(Box::new(self.first.open(pass)?.chain(self.second.open(pass.below())?)))
    }
}
