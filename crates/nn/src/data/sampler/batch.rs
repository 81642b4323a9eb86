use super::{Pass, Sampler};
use pullback::{Error, Result};
use std::sync::Arc;

/// The indices of a sampler in groups.
#[derive(Clone)]
pub struct BatchSampler {
    /// Where the indices come from.
    pub sampler: Arc<dyn Sampler>,
    /// How many make a batch.
    pub size: usize,
    /// Whether a last batch that is not full is left out.
    pub drop_last: bool,
}

impl BatchSampler {
    /// Batches of `size` indices of `sampler`.
    pub fn new(sampler: impl Sampler, size: usize, drop_last: bool) -> BatchSampler {
        BatchSampler { sampler: Arc::new(sampler), size, drop_last }
    }

    /// How many batches an epoch over `len` items has; none if the size is 0.
    pub fn count(&self, len: usize) -> usize {
        let indices = self.sampler.count(len);
        match self.drop_last {
            true => indices.checked_div(self.size).unwrap_or(0),
            false if self.size == 0 => 0,
            false => indices.div_ceil(self.size),
        }
    }

    /// The batches of an epoch over `len` items.
    ///
    /// # Errors
    /// If the size is 0, or the sampler fails.
    pub fn batches(&self, len: usize, pass: Pass) -> Result<Vec<Vec<usize>>> {
        if self.size == 0 {
            return Err(Error::argument("loader", "a batch of 0 items never ends"));
        }
        let indices = self.sampler.indices(len, pass)?;
        let batches = indices.chunks(self.size).map(<[usize]>::to_vec);
        Ok(batches.take(self.count(len)).collect())
    }
}
