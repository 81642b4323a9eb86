//! An embedding table and its logits, spread over workers by words.

use super::{gather_sum, own_share, spread};
use crate::{Embedding, Layer, module_scope};
use pullback::{DType, Group, Tensor, Tree};

/// An embedding of which each worker has the rows of some words. Its output is the same on all
/// workers.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::parallel::{VocabularyParallelEmbedding, vocabulary_parallel_cross_entropy};
/// use pullback_nn::{Embedding, Layer};
///
/// let table = Embedding::new(6, 4);
/// let (words, next) = (Tensor::from([0i64, 3, 5]), Tensor::from([3i64, 5, 1]));
/// let x = table.forward(&words);
/// let whole = pullback::cross_entropy(&x.matmul(&table.weight.t()), &next).item::<f32>();
/// let losses = pullback_workers::threads(2, |group| {
///     let table = VocabularyParallelEmbedding::from(&table, &group);
///     let x = table.forward(&words);
///     Ok(vocabulary_parallel_cross_entropy(&table.logits(&x), &next, &group).item::<f32>())
/// })?;
/// assert!(losses.iter().all(|loss| (loss - whole).abs() < 1e-5));
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Tree)]
pub struct VocabularyParallelEmbedding {
    /// This worker's rows: `[words / workers, features]`.
    pub weight: Tensor,
    /// The workers.
    #[tree(skip)]
    pub workers: Group,
}

impl VocabularyParallelEmbedding {
    /// This worker's share of a table that all workers have.
    ///
    /// ```
    /// # use pullback_nn::Embedding;
    /// # use pullback_nn::parallel::VocabularyParallelEmbedding;
    /// let table = Embedding::new(6, 2);
    /// let rows = pullback_workers::threads(3, |group| {
    ///     Ok(VocabularyParallelEmbedding::from(&table, &group).weight.to_vec::<f32>())
    /// })?;
    /// assert_eq!(rows.concat(), table.weight.to_vec::<f32>());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the number of words is not a multiple of the number of workers.
    #[track_caller]
    #[must_use]
    pub fn from(table: &Embedding, workers: &Group) -> VocabularyParallelEmbedding {
        let weight = own_share(&table.weight, 0, workers, "VocabularyParallelEmbedding");
        VocabularyParallelEmbedding { weight: weight.requires_grad(), workers: workers.clone() }
    }

    /// The logits of this worker's words, `[…, words / workers]`, from features that are the same
    /// on all workers: the output projection of a model with tied weights.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::Embedding;
    /// # use pullback_nn::parallel::VocabularyParallelEmbedding;
    /// let table = Embedding::new(6, 2);
    /// pullback_workers::threads(3, |group| {
    ///     let table = VocabularyParallelEmbedding::from(&table, &group);
    ///     assert_eq!(table.logits(&Tensor::ones([5, 2])).shape(), [5, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the number of features differs.
    #[track_caller]
    #[must_use]
    pub fn logits(&self, x: &Tensor) -> Tensor {
        spread(x, &self.workers).matmul(&self.weight.t())
    }
}

impl Layer for VocabularyParallelEmbedding {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let (place, own) = own_words(x, self.weight.shape()[0], &self.workers);
        let rows = pullback::Embedding::new().of(&self.weight, &place);
        let rows = rows * own.unsqueeze(-1).cast(self.weight.dtype());
        scope.output(gather_sum(&rows, &self.workers))
    }
}

/// Where words are among this worker's `count`, and which of them are.
#[track_caller]
fn own_words(words: &Tensor, count: usize, workers: &Group) -> (Tensor, Tensor) {
    let place = words - (workers.rank() * count) as i64;
    let own = place.ge(0i64).logical_and(place.lt(count as i64));
    (own.select(&place, 0i64), own)
}

/// The mean cross-entropy of logits of which each worker has those of some words, `[n, words /
/// workers]`, with labels `[n]` that all workers have: no worker holds all logits. The same on all
/// workers.
///
/// ```
/// # use pullback::{Tensor, cross_entropy};
/// # use pullback_nn::parallel::vocabulary_parallel_cross_entropy;
/// let (logits, labels) = (Tensor::from([[1.0, 2.0, 3.0, 4.0]]), Tensor::from([2i64]));
/// let whole = cross_entropy(&logits, &labels).item::<f64>();
/// let losses = pullback_workers::threads(2, |group| {
///     let own = logits.narrow(1, 2 * group.rank() as isize, 2);
///     Ok(vocabulary_parallel_cross_entropy(&own, &labels, &group).item::<f64>())
/// })?;
/// assert!(losses.iter().all(|loss| (loss - whole).abs() < 1e-12));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Panics
/// If shapes do not fit.
#[track_caller]
#[must_use]
pub fn vocabulary_parallel_cross_entropy(
    logits: &Tensor,
    labels: &Tensor,
    workers: &Group,
) -> Tensor {
    let wide = logits.cast(if logits.dtype() == DType::F64 { DType::F64 } else { DType::F32 });
    // Only so that nothing overflows: any shift gives the same result.
    let most = wide.detach().max_keep(-1).all_reduce_max(workers);
    let shifted = &wide - most;
    let total = gather_sum(&shifted.exp().sum_over(-1), workers);
    let (place, own) = own_words(labels, logits.shape()[logits.rank() - 1], workers);
    let chosen = shifted.gather(-1, &place.unsqueeze(-1)).squeeze_axis(-1);
    let chosen = gather_sum(&(chosen * own.cast(wide.dtype())), workers);
    (total.log() - chosen).mean()
}
