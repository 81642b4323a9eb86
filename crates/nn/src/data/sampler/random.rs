use super::{EpochSeed, Sampler};
use pullback::Result;

/// Every item once, in a new random order each epoch: `torch.utils.data.RandomSampler`.
///
/// ```
/// use pullback_nn::data::{EpochSeed, RandomSampler, Sampler};
/// let order = |epoch| RandomSampler.indices(100, EpochSeed { seed: 1, epoch }).unwrap();
/// assert_eq!(order(0), order(0));
/// assert_ne!(order(0), order(1));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomSampler;

impl Sampler for RandomSampler {
    fn indices(&self, len: usize, pass: EpochSeed) -> Result<Vec<usize>> {
        let order = pass.key().permutation(len).try_to_vec::<i64>()?;
        Ok(order.into_iter().map(|i| i as usize).collect())
    }

    fn count(&self, len: usize) -> usize {
        len
    }

    fn describe(&self) -> String {
        "shuffled".to_string()
    }
}
