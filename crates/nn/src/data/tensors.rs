//! Tensors as a data set.

use super::Dataset;
use super::dataset::check_index;
use pullback::{Error, Result, Tree, no_grad};

/// A data set of tensors with the same length along the first axis: item `i` is the slice `i` of
/// each.
///
/// The tensors may be in any tree: alone, in a tuple, a map, a struct with `#[derive(Tree)]`. An
/// item is such a tree again.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{Dataset, TensorDataset};
///
/// let data = TensorDataset::new((Tensor::zeros([10, 3]), Tensor::arange(0, 10)))?;
/// let (x, y) = data.get(4)?;
/// assert_eq!(x.shape(), [3]);
/// assert_eq!(y.item::<i64>(), 4);
/// # Ok::<(), pullback::Error>(())
/// ```
pub struct TensorDataset<T> {
    tensors: T,
    len: usize,
}

impl<T: Tree> TensorDataset<T> {
    /// A data set of tensors with the same length along the first axis. They are detached.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::{Dataset, TensorDataset};
    /// let (x, y) = (Tensor::zeros([10, 3]), Tensor::arange(0, 10));
    /// assert_eq!(TensorDataset::new((x, y))?.len(), 10);
    /// assert!(TensorDataset::new((Tensor::zeros([10, 3]), Tensor::arange(0, 9))).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no tensor, a tensor has no axis, or the lengths differ.
    pub fn new(tensors: T) -> Result<TensorDataset<T>> {
        let leaves = tensors.named_leaves();
        let Some((_, first)) = leaves.first() else {
            return Err(Error::argument("TensorDataset", "there is no tensor to take items from"));
        };
        for (name, x) in &leaves {
            let name = if name.is_empty() { "the tensor" } else { name };
            if x.rank() == 0 {
                let message = format!("{name} is {}: it has no axis to take items along", x.spec());
                return Err(Error::shape("TensorDataset", message));
            }
            if x.shape()[0] != first.shape()[0] {
                let message = format!(
                    "{name} is {}, so it has {} items, where the first tensor, {}, has {}",
                    x.spec(),
                    x.shape()[0],
                    first.spec(),
                    first.shape()[0]
                );
                return Err(Error::shape("TensorDataset", message));
            }
        }
        let len = first.shape()[0];
        Ok(TensorDataset { tensors: no_grad(|| tensors.map(&mut |x| x.detach())), len })
    }

    /// The tensors as a whole.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::TensorDataset;
    /// let data = TensorDataset::new((Tensor::zeros([10, 3]), Tensor::arange(0, 10)))?;
    /// let (x, y) = data.tensors();
    /// assert_eq!((x.shape(), y.shape()), (&[10, 3][..], &[10][..]));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn tensors(&self) -> &T {
        &self.tensors
    }
}

impl<T: Tree + Send + Sync + 'static> Dataset for TensorDataset<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<T> {
        check_index(index, self.len)?;
        Ok(self.tensors.map(&mut |x| x.select_at(0, index as isize)))
    }
}
