use super::{EpochSeed, Sampler};
use pullback::Result;

/// The items in order: `torch.utils.data.SequentialSampler`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SequentialSampler;

impl Sampler for SequentialSampler {
    fn indices(&self, len: usize, _: EpochSeed) -> Result<Vec<usize>> {
        Ok((0..len).collect())
    }

    fn count(&self, len: usize) -> usize {
        len
    }

    fn describe(&self) -> String {
        "sequential".to_string()
    }
}
