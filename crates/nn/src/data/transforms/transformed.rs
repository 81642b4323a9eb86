use super::Transform;
use crate::data::{Dataset, ItemSeed};
use pullback::{Result, Tensor};

/// Items that have an image: a tensor, or a pair or triple that begins with one.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::transforms::WithImage;
/// let item = (Tensor::zeros([1, 2, 2]), 7i64);
/// let (image, label) = item.map_image(|x| Ok(x + 1.0))?;
/// assert_eq!((image.sum().item::<f32>(), label), (4.0, 7));
/// # Ok::<(), pullback::Error>(())
/// ```
pub trait WithImage: Sized {
    /// The same item with `f` applied to its image.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::transforms::WithImage;
    /// let (image, label) = (Tensor::zeros([1, 2, 2]), 7i64).map_image(|x| Ok(x + 1.0))?;
    /// assert_eq!((image.sum().item::<f32>(), label), (4.0, 7));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of `f`.
    fn map_image(self, f: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<Self>;
}

impl WithImage for Tensor {
    fn map_image(self, f: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<Tensor> {
        f(self)
    }
}

impl<A> WithImage for (Tensor, A) {
    fn map_image(self, f: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<(Tensor, A)> {
        Ok((f(self.0)?, self.1))
    }
}

impl<A, B> WithImage for (Tensor, A, B) {
    fn map_image(self, f: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<(Tensor, A, B)> {
        Ok((f(self.0)?, self.1, self.2))
    }
}

/// The data set that [`Dataset::transform`] returns.
pub struct Transformed<D, T> {
    data: D,
    transform: T,
}

impl<D, T> Transformed<D, T> {
    pub(in crate::data) fn new(data: D, transform: T) -> Transformed<D, T> {
        Transformed { data, transform }
    }

    /// The data set before the transform.
    ///
    /// ```
    /// use pullback_nn::data::transforms::CenterCrop;
    /// use pullback_nn::data::{Dataset, digits};
    /// let data = digits()?.test_set()?.transform(CenterCrop::new(6));
    /// assert_eq!(data.get(0)?.0.shape(), [1, 6, 6]);
    /// assert_eq!(data.dataset().get(0)?.0.shape(), [1, 8, 8]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn dataset(&self) -> &D {
        &self.data
    }
}

impl<D, T> Dataset for Transformed<D, T>
where
    D: Dataset,
    D::Item: WithImage,
    T: Transform,
{
    type Item = D::Item;

    fn len(&self) -> usize {
        self.data.len()
    }

    /// The item as epoch 0 of seed 0 has it.
    fn get(&self, index: usize) -> Result<D::Item> {
        self.draw(index, ItemSeed::new(0, 0, index))
    }

    fn draw(&self, index: usize, draw: ItemSeed) -> Result<D::Item> {
        let item = self.data.draw(index, draw.part(0))?;
        item.map_image(|image| self.transform.apply(image, draw.part(1)))
    }
}
