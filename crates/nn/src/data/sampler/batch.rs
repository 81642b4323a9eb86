use super::{EpochSeed, Sampler};
use pullback::{Error, Result};
use std::sync::Arc;

/// The indices of a sampler in groups.
#[derive(Clone)]
pub struct BatchSampler {
    /// Where the indices come from.
    pub sampler: Arc<dyn Sampler>,
    /// How many make a batch.
    pub batch_size: usize,
    /// Whether a last batch that is not full is left out.
    pub drop_last: bool,
}

impl BatchSampler {
    /// Batches of `batch_size` indices of `sampler`.
    pub fn new(sampler: impl Sampler, batch_size: usize, drop_last: bool) -> BatchSampler {
        BatchSampler { sampler: Arc::new(sampler), batch_size, drop_last }
    }

    /// How many batches an epoch over `len` items has; 0 if `batch_size` is.
    pub fn count(&self, len: usize) -> usize {
        let indices = self.sampler.count(len);
        match self.drop_last {
            true => indices.checked_div(self.batch_size).unwrap_or(0),
            false if self.batch_size == 0 => 0,
            false => indices.div_ceil(self.batch_size),
        }
    }

    /// The batches of an epoch over `len` items.
    ///
    /// # Errors
    /// If `batch_size` is 0, or the sampler fails.
    pub fn batches(&self, len: usize, seed: EpochSeed) -> Result<Vec<Vec<usize>>> {
        if self.batch_size == 0 {
            return Err(Error::argument("loader", "`batch_size` is 0: it must be at least 1"));
        }
        let indices = self.sampler.indices(len, seed)?;
        let batches = indices.chunks(self.batch_size).map(<[usize]>::to_vec);
        Ok(batches.take(self.count(len)).collect())
    }
}
