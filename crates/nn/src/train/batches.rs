//! The batches of a training loop.

use crate::data::{DataLoader, Dataset, Position, Stream, StreamLoader};
use pullback::{Error, Result};
use serde_json::{Value, json};

/// The batches of a run, epoch after epoch. [`DataLoader`](crate::data::DataLoader)s and vectors of
/// batches are such.
pub trait Batches {
    /// One batch.
    type Batch;

    /// The rest of the epoch after `taken` batches. Loaders use their own position instead.
    fn rest(&self, taken: u64) -> Box<dyn Iterator<Item = Result<Self::Batch>> + '_>;

    /// How many batches of the epoch a loader returned before the run.
    fn taken(&self) -> u64 {
        0
    }

    /// How many batches an epoch has, if known.
    fn count(&self) -> Option<u64> {
        None
    }

    /// How many examples the last returned batch has, if known.
    fn examples(&self) -> Option<u64> {
        None
    }

    /// The position after the last returned batch, for a checkpoint.
    fn position(&self) -> Value {
        Value::Null
    }

    /// Goes to a position.
    ///
    /// # Errors
    /// If it is a position in something else.
    fn go_to(&self, position: &Value) -> Result<()> {
        let _ = position;
        Ok(())
    }
}

/// The same batches in every epoch.
impl<T: Clone> Batches for Vec<T> {
    type Batch = T;

    fn rest(&self, taken: u64) -> Box<dyn Iterator<Item = Result<T>> + '_> {
        Box::new(self.iter().skip(taken as usize).cloned().map(Ok))
    }

    fn count(&self) -> Option<u64> {
        Some(self.len() as u64)
    }
}

impl<D: Dataset, B: Send + 'static> Batches for DataLoader<D, B> {
    type Batch = B;

    fn rest(&self, _: u64) -> Box<dyn Iterator<Item = Result<B>> + '_> {
        Box::new(self.iter())
    }

    fn count(&self) -> Option<u64> {
        Some(self.len() as u64)
    }

    fn taken(&self) -> u64 {
        self.state().batch as u64
    }

    fn examples(&self) -> Option<u64> {
        self.last_len().map(|n| n as u64)
    }

    fn position(&self) -> Value {
        json!(self.state())
    }

    fn go_to(&self, position: &Value) -> Result<()> {
        self.resume(&read(position)?)
    }
}

impl<S: Stream, B: Send + 'static> Batches for StreamLoader<S, B> {
    type Batch = B;

    fn rest(&self, _: u64) -> Box<dyn Iterator<Item = Result<B>> + '_> {
        Box::new(self.iter())
    }

    fn taken(&self) -> u64 {
        self.state().batch as u64
    }

    fn examples(&self) -> Option<u64> {
        self.last_len().map(|n| n as u64)
    }

    fn position(&self) -> Value {
        json!(self.state())
    }

    fn go_to(&self, position: &Value) -> Result<()> {
        self.resume(&read(position)?)
    }
}

fn read(position: &Value) -> Result<Position> {
    serde_json::from_value(position.clone()).map_err(|error| {
        Error::argument("resume", format!("{position} is not a position: {error}"))
    })
}
