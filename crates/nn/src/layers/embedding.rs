//! The embedding table.

use crate::init::normal_;
use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{Tensor, Tree, no_grad};

/// A lookup table of embeddings: integers of any shape `[..]` to their rows, `[.., columns]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Embedding, Layer};
/// let layer = Embedding::new(100, 16).padding_idx(0);
/// assert_eq!(layer.forward(&Tensor::from([[1i64, 2, 0], [4, 0, 0]])).shape(), [2, 3, 16]);
/// ```
#[derive(Clone, Tree)]
pub struct Embedding {
    /// `[rows, columns]`
    pub weight: Tensor,
    /// A row that starts at zero and gets no gradient.
    pub padding_idx: Option<usize>,
    /// Whether the gradient of a row is divided by how often it occurs in the input.
    pub scale_grad_by_freq: bool,
}

impl Embedding {
    /// A table of standard normal numbers.
    ///
    /// ```
    /// # use pullback_nn::Embedding;
    /// let layer = Embedding::new(100, 16);
    /// assert_eq!(layer.weight.shape(), [100, 16]);
    /// ```
    ///
    /// # Panics
    /// If the table has no rows or no columns.
    #[track_caller]
    #[must_use]
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> Embedding {
        demand(num_embeddings > 0 && embedding_dim > 0, "Embedding", || {
            format!(
                "takes at least one row and one column, not {num_embeddings} and {embedding_dim}"
            )
        });
        let weight = Tensor::zeros([num_embeddings, embedding_dim]).requires_grad();
        normal_(&weight, 0.0, 1.0);
        Embedding { weight, padding_idx: None, scale_grad_by_freq: false }
    }

    /// With the given table, `[rows, columns]`. It is trained only if it requires grad.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Embedding, Layer};
    /// let layer = Embedding::from_pretrained(Tensor::from([[1.0, 2.0], [3.0, 4.0]]));
    /// assert_eq!(layer.forward(&Tensor::from([1i64])).to_vec::<f64>(), [3.0, 4.0]);
    /// ```
    #[must_use]
    pub fn from_pretrained(weight: Tensor) -> Embedding {
        Embedding { weight, padding_idx: None, scale_grad_by_freq: false }
    }

    /// Sets this row to zero and excludes it from the gradient.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Embedding, Layer};
    /// let layer = Embedding::new(100, 2).padding_idx(0);
    /// assert_eq!(layer.forward(&Tensor::from([0i64])).to_vec::<f32>(), [0.0, 0.0]);
    /// layer.forward(&Tensor::from([0i64, 5])).sum().backward()?;
    /// assert_eq!(layer.weight.grad().unwrap().at(0).to_vec::<f32>(), [0.0, 0.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If it is not a row of the table.
    #[track_caller]
    #[must_use]
    pub fn padding_idx(self, row: usize) -> Embedding {
        let rows = self.weight.shape().first().copied().unwrap_or(0);
        demand(row < rows, "Embedding", || format!("{row} is not one of the {rows} rows"));
        no_grad(|| self.weight.select_at(0, row as isize).zero_());
        Embedding { padding_idx: Some(row), ..self }
    }

    /// Divides the gradient of a row by how often the row occurs in the input.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{Embedding, Layer};
    /// let layer = Embedding::new(10, 1).scale_grad_by_freq();
    /// layer.forward(&Tensor::from([3i64, 3, 4])).sum().backward()?;
    /// let grad = layer.weight.grad().unwrap();
    /// assert_eq!((grad.at((3, 0)).item::<f32>(), grad.at((4, 0)).item::<f32>()), (1.0, 1.0));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn scale_grad_by_freq(self) -> Embedding {
        Embedding { scale_grad_by_freq: true, ..self }
    }

    /// The op's options.
    fn options(&self) -> pullback::Embedding {
        let options = pullback::Embedding::new().scale_grad_by_freq(self.scale_grad_by_freq);
        match self.padding_idx {
            Some(row) => options.padding(row as i64),
            None => options,
        }
    }
}

impl Layer for Embedding {
    /// # Panics
    /// If `x` is not of integers, or one is not a row of the table.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        scope.output(self.options().of(&self.weight, x))
    }
}
