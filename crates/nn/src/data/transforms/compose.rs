//! Transforms made of others.

use super::Transform;
use super::image::{coin, probability, uniforms};
use crate::data::ItemSeed;
use pullback::{Result, Tensor};

/// Applies transforms one after another: `torchvision.transforms.Compose`.
///
/// ```
/// use pullback_nn::data::transforms::{CenterCrop, Compose, Normalize, RandomHorizontalFlip};
/// let chain = Compose::new()
///     .then(CenterCrop::new(24))
///     .then(RandomHorizontalFlip::new(0.5))
///     .then(Normalize::new([0.5, 0.5, 0.5], [0.25, 0.25, 0.25])?);
/// assert_eq!(chain.len(), 3);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Default)]
pub struct Compose(Vec<Box<dyn Transform>>);

impl Compose {
    /// An empty list of transforms, which leaves the image as it is.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{Compose, Transform};
    /// let image = Compose::new().apply(Tensor::ones([1, 2, 2]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.to_vec::<f32>(), [1.0; 4]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Compose {
        Compose::default()
    }

    /// Appends a transform.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{CenterCrop, Compose, Resize, Transform};
    /// let both = Compose::new().then(Resize::new(8)).then(CenterCrop::new(6));
    /// let image = both.apply(Tensor::zeros([3, 16, 20]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.shape(), [3, 6, 6]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn then(mut self, next: impl Transform) -> Compose {
        self.0.push(Box::new(next));
        self
    }

    /// The number of transforms.
    ///
    /// ```
    /// use pullback_nn::data::transforms::{CenterCrop, Compose, Resize, Transform};
    /// assert_eq!(Resize::new(8).then(CenterCrop::new(6)).len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no transforms.
    ///
    /// ```
    /// use pullback_nn::data::transforms::Compose;
    /// assert!(Compose::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Transform for Compose {
    /// # Errors
    /// Of the first transform that fails, with its place in the list.
    fn apply(&self, mut image: Tensor, mut seed: ItemSeed) -> Result<Tensor> {
        // A seed has a limited number of parts that are certainly distinct.
        const PARTS: usize = 32;
        for (i, transform) in self.0.iter().enumerate() {
            if i > 0 && i % PARTS == 0 {
                seed = seed.part(PARTS as u64);
            }
            let part = seed.part((i % PARTS) as u64);
            image = transform
                .apply(image, part)
                .map_err(|why| why.detail(format!("in transform {i} of {}", self.0.len())))?;
        }
        Ok(image)
    }
}

/// Applies a transform with probability `p`, and otherwise leaves the image as it is:
/// `torchvision.transforms.RandomApply`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{CenterCrop, RandomApply, Transform};
/// let seldom = RandomApply::new(CenterCrop::new(2), 0.25);
/// let image = Tensor::zeros([1, 4, 4]);
/// let size = |i| seldom.apply(image.clone(), ItemSeed::new(0, 0, i)).unwrap().shape()[1];
/// let cropped = (0..200).filter(|&i| size(i) == 2).count();
/// assert!((30..70).contains(&cropped));
/// ```
pub struct RandomApply<T> {
    transform: T,
    p: f64,
}

impl<T: Transform> RandomApply<T> {
    /// Applies `transform` with probability `p`; torchvision's default is 0.5.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{CenterCrop, RandomApply, Transform};
    /// let never = RandomApply::new(CenterCrop::new(2), 0.0);
    /// let image = never.apply(Tensor::zeros([1, 4, 4]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.shape(), [1, 4, 4]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[track_caller]
    #[must_use]
    pub fn new(transform: T, p: f64) -> RandomApply<T> {
        RandomApply { transform, p: probability("RandomApply", p) }
    }
}

impl<T: Transform> Transform for RandomApply<T> {
    fn apply(&self, image: Tensor, seed: ItemSeed) -> Result<Tensor> {
        let [u] = uniforms(seed);
        if coin(u, self.p) { self.transform.apply(image, seed.part(0)) } else { Ok(image) }
    }
}

/// A function as a transform: `torchvision.transforms.Lambda`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{Lambda, Transform};
/// let negative = Lambda(|x: Tensor| Ok(1.0 - x));
/// let y = negative.apply(Tensor::zeros([1, 1, 1]), ItemSeed::new(0, 0, 0))?;
/// assert_eq!(y.to_vec::<f32>(), [1.0]);
/// # Ok::<(), pullback::Error>(())
/// ```
pub struct Lambda<F>(
    /// The function.
    pub F,
);

impl<F> Transform for Lambda<F>
where
    F: Fn(Tensor) -> Result<Tensor> + Send + Sync + 'static,
{
    fn apply(&self, image: Tensor, _: ItemSeed) -> Result<Tensor> {
        (self.0)(image)
    }
}
