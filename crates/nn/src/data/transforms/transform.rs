use super::Compose;
use crate::data::ItemSeed;
use pullback::{Result, Tensor};
use std::sync::Arc;

/// A function from image to image, which may be random.
///
/// ```
/// use pullback::{Result, Tensor};
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::Transform;
///
/// /// Noise of a given size.
/// struct Noise(f64);
///
/// impl Transform for Noise {
///     fn apply(&self, image: Tensor, seed: ItemSeed) -> Result<Tensor> {
///         let noise = seed.key().normal(image.shape(), image.dtype(), 0.0, self.0);
///         Ok(image + noise)
///     }
/// }
///
/// let image = Noise(0.1).apply(Tensor::zeros([3, 4, 4]), ItemSeed::new(0, 0, 7))?;
/// assert_eq!(image.shape(), [3, 4, 4]);
/// # Ok::<(), pullback::Error>(())
/// ```
pub trait Transform: Send + Sync + 'static {
    /// The transformed image `[channels, height, width]`. All random numbers are drawn from `seed`;
    /// a transform that holds others gives each a [part](ItemSeed::part) of it.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{CenterCrop, Transform};
    /// let crop = CenterCrop::new(2);
    /// let image = crop.apply(Tensor::zeros([3, 4, 4]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.shape(), [3, 2, 2]);
    /// assert!(crop.apply(Tensor::zeros([4, 4]), ItemSeed::new(0, 0, 0)).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the image does not fit the transform: its shape, dtype or size.
    fn apply(&self, image: Tensor, seed: ItemSeed) -> Result<Tensor>;

    /// This transform followed by another.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{CenterCrop, Resize, Transform};
    /// let both = Resize::new(8).then(CenterCrop::new(6));
    /// let image = both.apply(Tensor::zeros([3, 16, 20]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.shape(), [3, 6, 6]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    fn then(self, next: impl Transform) -> Compose
    where
        Self: Sized,
    {
        Compose::new().then(self).then(next)
    }
}

impl Transform for Box<dyn Transform> {
    fn apply(&self, image: Tensor, seed: ItemSeed) -> Result<Tensor> {
        (**self).apply(image, seed)
    }
}

impl<T: Transform + ?Sized> Transform for Arc<T> {
    fn apply(&self, image: Tensor, seed: ItemSeed) -> Result<Tensor> {
        (**self).apply(image, seed)
    }
}
