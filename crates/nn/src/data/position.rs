//! The position of a loader.

use pullback::{Error, Result};
use serde::{Deserialize, Serialize};

/// The position of a loader, and the settings it is valid for. Checkpoints save it; see
/// [`DataLoader::state`](super::DataLoader::state).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Which epoch, from 0.
    pub epoch: u64,
    /// How many batches of it were returned.
    pub batch: usize,
    /// The seed of the order and of augmentation.
    pub seed: u64,
    /// How many items the data set has; none for a stream.
    pub items: Option<usize>,
    /// How many items make a batch.
    pub batch_size: usize,
    /// Whether a last batch that is not full is left out.
    pub drop_last: bool,
    /// The order of the items.
    pub sampler: String,
}

impl Position {
    /// Refuses a position of a loader with other settings than `here` has.
    pub(super) fn check(&self, here: &Position) -> Result<()> {
        let items = |p: &Position| p.items.map_or("a stream".to_string(), |n| format!("{n} items"));
        let rows = [
            ("the data set", items(self), items(here)),
            ("the seed", self.seed.to_string(), here.seed.to_string()),
            ("the batch size", self.batch_size.to_string(), here.batch_size.to_string()),
            ("drop_last", self.drop_last.to_string(), here.drop_last.to_string()),
            ("the order of items", self.sampler.clone(), here.sampler.clone()),
        ];
        match rows.into_iter().find(|(_, saved, now)| saved != now) {
            None => Ok(()),
            Some((what, saved, now)) => {
                let message = format!(
                    "the position does not belong to this loader: {what} was {saved} and is {now}"
                );
                Err(Error::argument("resume", message))
            }
        }
    }
}
