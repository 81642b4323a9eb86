//! Sums, means and maxima of rows of an embedding table.

use crate::init::normal_;
use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{BagMode, Tensor, Tree, no_grad};

/// Sums, means or maxima of rows of an embedding table: row numbers `[bags, k]` to `[bags,
/// columns]`.
///
/// It reads the numbers on the host, so it cannot be part of a compiled function.
///
/// ```
/// use pullback::{BagMode, Tensor};
/// use pullback_nn::{EmbeddingBag, Layer};
/// let layer = EmbeddingBag::new(100, 16, BagMode::Mean);
/// assert_eq!(layer.forward(&Tensor::from([[1i64, 2], [4, 4]])).shape(), [2, 16]);
/// ```
#[derive(Clone, Tree)]
pub struct EmbeddingBag {
    /// `[rows, columns]`
    pub weight: Tensor,
    /// The reduction of the rows of a bag.
    #[tree(skip)]
    pub mode: BagMode,
    /// A row that is left out of its bags.
    pub padding_idx: Option<usize>,
}

impl EmbeddingBag {
    /// A table of standard normal numbers.
    ///
    /// ```
    /// # use pullback::BagMode;
    /// # use pullback_nn::EmbeddingBag;
    /// let layer = EmbeddingBag::new(100, 16, BagMode::Sum);
    /// assert_eq!(layer.weight.shape(), [100, 16]);
    /// ```
    ///
    /// # Panics
    /// If the table has no rows or no columns.
    #[track_caller]
    #[must_use]
    pub fn new(num_embeddings: usize, embedding_dim: usize, mode: BagMode) -> EmbeddingBag {
        demand(num_embeddings > 0 && embedding_dim > 0, "EmbeddingBag", || {
            format!(
                "takes at least one row and one column, not {num_embeddings} and {embedding_dim}"
            )
        });
        let weight = Tensor::zeros([num_embeddings, embedding_dim]).requires_grad();
        normal_(&weight, 0.0, 1.0);
        EmbeddingBag { weight, mode, padding_idx: None }
    }

    /// Sets this row to zero and excludes it from its bags.
    ///
    /// ```
    /// # use pullback::{BagMode, Tensor};
    /// # use pullback_nn::{EmbeddingBag, Layer};
    /// let layer = EmbeddingBag::new(100, 16, BagMode::Mean).padding_idx(0);
    /// let y = layer.forward(&Tensor::from([[7i64, 0], [7, 7]]));
    /// assert!(y.at(0).is_close(&y.at(1), 1e-6, 0.0, false).all().item::<bool>());
    /// ```
    ///
    /// # Panics
    /// If it is not a row of the table.
    #[track_caller]
    #[must_use]
    pub fn padding_idx(self, row: usize) -> EmbeddingBag {
        let rows = self.weight.shape()[0];
        demand(row < rows, "EmbeddingBag", || format!("{row} is not one of the {rows} rows"));
        no_grad(|| self.weight.select_at(0, row as isize).zero_());
        EmbeddingBag { padding_idx: Some(row), ..self }
    }

    fn options(&self) -> pullback::EmbeddingBag {
        let rows = pullback::Embedding::new();
        pullback::EmbeddingBag::new(self.mode).rows(match self.padding_idx {
            Some(row) => rows.padding(row as i64),
            None => rows,
        })
    }

    /// The output `[bags, columns]` for a vector of row numbers, in which each bag starts at its
    /// offset.
    ///
    /// ```
    /// # use pullback::{BagMode, Tensor};
    /// # use pullback_nn::EmbeddingBag;
    /// let layer = EmbeddingBag::new(100, 16, BagMode::Sum);
    /// let (rows, offsets) = (Tensor::from([1i64, 2, 3, 4, 5]), Tensor::from([0i64, 3]));
    /// // The bags are [1, 2, 3] and [4, 5].
    /// assert_eq!(layer.forward_offsets(&rows, &offsets).shape(), [2, 16]);
    /// ```
    ///
    /// # Panics
    /// If a row number is not one of the table, or the offsets do not fit the numbers.
    #[track_caller]
    #[must_use]
    pub fn forward_offsets(&self, rows: &Tensor, offsets: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(self.options().offsets(offsets).of(&self.weight, rows))
    }
}

impl Layer for EmbeddingBag {
    /// # Panics
    /// If `x` is not `[bags, rows]` of integers, or one is not a row of the table.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(self.options().of(&self.weight, x))
    }
}
