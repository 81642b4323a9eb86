use super::{Items, Stream};
use crate::data::EpochSeed;
use pullback::Result;
use std::sync::Arc;

/// The stream that [`Stream::cycle`] returns.
pub struct Cycle<S> {
    stream: Arc<S>,
}

impl<S> Cycle<S> {
    pub(super) fn new(stream: S) -> Cycle<S> {
        Cycle { stream: Arc::new(stream) }
    }
}

impl<S: Stream> Stream for Cycle<S> {
    type Item = S::Item;

    fn open(&self, pass: EpochSeed) -> Result<Items<S::Item>> {
        let items = self.stream.open(round(pass, 0))?;
        Ok(Box::new(Rounds { stream: self.stream.clone(), items, pass, round: 0, fresh: true }))
    }
}

/// Round `n` of a pass, as an epoch of its own.
fn round(pass: EpochSeed, n: u64) -> EpochSeed {
    EpochSeed { epoch: (pass.epoch << 32).wrapping_add(n), ..pass }
}

struct Rounds<S: Stream> {
    stream: Arc<S>,
    items: Items<S::Item>,
    pass: EpochSeed,
    round: u64,
    /// Whether this round gave nothing yet.
    fresh: bool,
}

impl<S: Stream> Iterator for Rounds<S> {
    type Item = Result<S::Item>;

    fn next(&mut self) -> Option<Result<S::Item>> {
        if let Some(item) = self.items.next() {
            self.fresh = false;
            return Some(item);
        }
        if self.fresh {
            return None;
        }
        self.round += 1;
        self.fresh = true;
        match self.stream.open(round(self.pass, self.round)) {
            Ok(items) => self.items = items,
            Err(error) => return Some(Err(error)),
        }
        self.next()
    }
}
