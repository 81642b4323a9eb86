use super::{Items, Stream};
use crate::data::EpochSeed;
use pullback::{Key, Result};

/// The stream that [`Stream::shuffle`] returns.
pub struct Shuffle<S> {
    stream: S,
    size: usize,
}

impl<S> Shuffle<S> {
    pub(super) fn new(stream: S, size: usize) -> Shuffle<S> {
        Shuffle { stream, size: size.max(1) }
    }
}

impl<S: Stream> Stream for Shuffle<S> {
    type Item = S::Item;

    fn open(&self, pass: EpochSeed) -> Result<Items<S::Item>> {
        Ok(Box::new(Buffered {
            items: self.stream.open(pass.below())?,
            buffer: Vec::new(),
            size: self.size,
            dice: RandomIndices { key: pass.key(), drawn: Vec::new(), round: 0 },
        }))
    }
}

struct Buffered<T> {
    items: Items<T>,
    buffer: Vec<T>,
    size: usize,
    dice: RandomIndices,
}

impl<T> Iterator for Buffered<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        while self.buffer.len() < self.size {
            match self.items.next() {
                Some(Ok(item)) => self.buffer.push(item),
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        if self.buffer.is_empty() {
            return None;
        }
        let chosen = self.dice.below(self.buffer.len());
        Some(Ok(self.buffer.swap_remove(chosen)))
    }
}

/// Random numbers, drawn many at a time.
struct RandomIndices {
    key: Key,
    drawn: Vec<i64>,
    round: u64,
}

impl RandomIndices {
    fn below(&mut self, n: usize) -> usize {
        if self.drawn.is_empty() {
            self.drawn = self.key.fold_in(self.round).randint([1024], 0, i64::MAX).to_vec();
            self.round += 1;
        }
        self.drawn.pop().map_or(0, |number| number as usize % n)
    }
}
