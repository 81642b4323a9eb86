use super::{Items, Stream};
use crate::data::EpochSeed;
use pullback::Result;

/// The stream that [`Stream::take`] returns.
pub struct Take<S> {
    stream: S,
    count: usize,
}

impl<S> Take<S> {
    pub(super) fn new(stream: S, count: usize) -> Take<S> {
        Take { stream, count }
    }
}

impl<S: Stream> Stream for Take<S> {
    type Item = S::Item;

    fn open(&self, pass: EpochSeed) -> Result<Items<S::Item>> {
        Ok(Box::new(self.stream.open(pass)?.take(self.count)))
    }
}
