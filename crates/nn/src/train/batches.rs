//! The batches of a training loop.

use crate::data::{DataLoader, Dataset, Position, Stream, StreamLoader};
use pullback::{Error, Result};
use serde_json::{Value, json};

/// The batches of a run, epoch after epoch. [`DataLoader`](crate::data::DataLoader),
/// [`StreamLoader`](crate::data::StreamLoader) and vectors of batches implement it.
pub trait Batches {
    /// One batch.
    type Batch;

    /// The rest of the epoch after the first `taken` batches. Loaders use their own position
    /// instead. A batch that cannot be made is an `Err`, which ends the run.
    ///
    /// ```
    /// use pullback_nn::train::Batches;
    /// let batches = vec![10, 20, 30];
    /// assert_eq!(batches.rest(1).collect::<Result<Vec<_>, _>>()?, [20, 30]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// An item is an `Err` where its batch cannot be made.
    fn rest(&self, taken: u64) -> Box<dyn Iterator<Item = Result<Self::Batch>> + '_>;

    /// The number of batches of the epoch that a loader returned before the run.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// use pullback_nn::train::Batches;
    /// let loader = DataLoader::new(from_fn(10, Ok)).batch_size(2);
    /// let _ = loader.iter().take(3).count();
    /// assert_eq!(loader.taken(), 3);
    /// ```
    fn taken(&self) -> u64 {
        0
    }

    /// The number of batches in an epoch, if known.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// use pullback_nn::train::Batches;
    /// assert_eq!(DataLoader::new(from_fn(10, Ok)).batch_size(4).count(), Some(3));
    /// ```
    fn count(&self) -> Option<u64> {
        None
    }

    /// The number of examples in the last batch that was returned, if known.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// use pullback_nn::train::Batches;
    /// let loader = DataLoader::new(from_fn(10, Ok)).batch_size(4);
    /// assert_eq!(loader.examples(), None);
    /// let _ = loader.iter().count();
    /// assert_eq!(loader.examples(), Some(2));
    /// ```
    fn examples(&self) -> Option<u64> {
        None
    }

    /// The position after the last batch that was returned, for a checkpoint.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// use pullback_nn::train::Batches;
    /// let loader = DataLoader::new(from_fn(10, Ok)).batch_size(4);
    /// let _ = loader.iter().take(1).count();
    /// assert_eq!(loader.position()["batch"], 1);
    /// ```
    fn position(&self) -> Value {
        Value::Null
    }

    /// Moves to a position that [`Batches::position`] returned.
    ///
    /// ```
    /// use pullback_nn::data::{DataLoader, from_fn};
    /// use pullback_nn::train::Batches;
    /// let loader = || DataLoader::new(from_fn(10, Ok)).batch_size(4);
    /// let (first, second) = (loader(), loader());
    /// let _ = first.iter().take(1).count();
    /// second.go_to(&first.position())?;
    /// assert_eq!(second.iter().next().unwrap()?.to_vec::<i64>(), [4, 5, 6, 7]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is not a position of these batches.
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
