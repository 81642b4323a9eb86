use super::{Items, Stream};
use crate::data::{EpochSeed, ItemSeed};
use pullback::{Key, Result};
use std::sync::Arc;

/// The stream that [`Stream::map`] returns.
pub struct StreamMap<S, F> {
    stream: S,
    f: Arc<F>,
}

impl<S, F> StreamMap<S, F> {
    pub(super) fn new(stream: S, f: F) -> StreamMap<S, F> {
        StreamMap { stream, f: Arc::new(f) }
    }
}

impl<S, B, F> Stream for StreamMap<S, F>
where
    S: Stream,
    B: Send + 'static,
    F: Fn(S::Item) -> Result<B> + Send + Sync + 'static,
{
    type Item = B;

    fn open(&self, pass: EpochSeed) -> Result<Items<B>> {
        let f = self.f.clone();
        let items = self.stream.open(pass)?;
        Ok(Box::new(Mapped { items, place: 0, f: move |item, _| f(item) }))
    }
}

/// The stream that [`Stream::map_random`] returns.
pub struct StreamMapRandom<S, F> {
    stream: S,
    f: Arc<F>,
}

impl<S, F> StreamMapRandom<S, F> {
    pub(super) fn new(stream: S, f: F) -> StreamMapRandom<S, F> {
        StreamMapRandom { stream, f: Arc::new(f) }
    }
}

impl<S, B, F> Stream for StreamMapRandom<S, F>
where
    S: Stream,
    B: Send + 'static,
    F: Fn(S::Item, Key) -> Result<B> + Send + Sync + 'static,
{
    type Item = B;

    fn open(&self, pass: EpochSeed) -> Result<Items<B>> {
        let f = self.f.clone();
        let items = self.stream.open(pass.below())?;
        let f = move |item, place| f(item, ItemSeed::new(pass.seed, pass.epoch, place).key());
        Ok(Box::new(Mapped { items, place: 0, f }))
    }
}

/// Items with a function over them, which skips without calling it.
struct Mapped<T, F> {
    items: Items<T>,
    place: usize,
    f: F,
}

impl<T, B, F: FnMut(T, usize) -> Result<B>> Iterator for Mapped<T, F> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        let place = self.place;
        self.place += 1;
        Some(self.items.next()?.and_then(|item| (self.f)(item, place)))
    }

    fn nth(&mut self, n: usize) -> Option<Result<B>> {
        let place = self.place + n;
        self.place = place + 1;
        Some(self.items.nth(n)?.and_then(|item| (self.f)(item, place)))
    }
}
