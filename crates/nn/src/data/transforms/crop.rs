//! Parts of images: [`RandomCrop`], [`CenterCrop`].

use super::image::{below, dimensions, uniforms};
use super::pad::padded;
use super::{Margins, PaddingMode, Size, Transform};
use crate::data::ItemSeed;
use pullback::{Error, Result, Tensor, catch};

/// Crops an image to a given size at a random place: `torchvision.transforms.RandomCrop`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{RandomCrop, Transform};
/// // As for CIFAR-10: four zeros around 32×32 pixels, and 32×32 of them.
/// let crop = RandomCrop::new(32).padding(4);
/// let image = crop.apply(Tensor::ones([3, 32, 32]), ItemSeed::new(0, 0, 3))?;
/// assert_eq!(image.shape(), [3, 32, 32]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RandomCrop {
    size: Size,
    padding: Margins,
    pad_if_needed: bool,
    fill: f64,
    padding_mode: PaddingMode,
}

impl RandomCrop {
    /// Crops to this size: one number for a square, or `(height, width)`. Applying it to a smaller
    /// image is an error, unless it is padded.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomCrop, Transform};
    /// let crop = RandomCrop::new((2, 3));
    /// assert_eq!(crop.apply(Tensor::ones([1, 4, 4]), ItemSeed::new(0, 0, 0))?.shape(), [1, 2, 3]);
    /// assert!(crop.apply(Tensor::ones([1, 1, 1]), ItemSeed::new(0, 0, 0)).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(size: impl Into<Size>) -> RandomCrop {
        RandomCrop {
            size: size.into(),
            padding: Margins::default(),
            pad_if_needed: false,
            fill: 0.0,
            padding_mode: PaddingMode::Constant,
        }
    }

    /// Pads the image before the crop: one number for all sides, `(left and right, top and bottom)`
    /// or `[left, top, right, bottom]`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomCrop, Transform};
    /// let pad = RandomCrop::new((1, 4)).padding((1, 0));
    /// let image = pad.apply(Tensor::ones([1, 1, 2]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.to_vec::<f32>(), [0.0, 1.0, 1.0, 0.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn padding(self, padding: impl Into<Margins>) -> RandomCrop {
        RandomCrop { padding: padding.into(), ..self }
    }

    /// Whether to pad images that are smaller than the crop; by default they are an error.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomCrop, Transform};
    /// let crop = RandomCrop::new(4).pad_if_needed(true);
    /// let image = crop.apply(Tensor::ones([1, 2, 3]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.shape(), [1, 4, 4]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn pad_if_needed(self, yes: bool) -> RandomCrop {
        RandomCrop { pad_if_needed: yes, ..self }
    }

    /// The value of constant padding; 0 by default.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomCrop, Transform};
    /// let pad = RandomCrop::new((1, 4)).padding((1, 0)).fill(0.5);
    /// let image = pad.apply(Tensor::ones([1, 1, 2]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.to_vec::<f32>(), [0.5, 1.0, 1.0, 0.5]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn fill(self, fill: f64) -> RandomCrop {
        RandomCrop { fill, ..self }
    }

    /// What the padding holds; a constant by default. With `Reflect` or `Symmetric`, an image that
    /// is too small to be mirrored is an error.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{PaddingMode, RandomCrop, Transform};
    /// let pad = RandomCrop::new((1, 4)).padding((1, 0)).padding_mode(PaddingMode::Edge);
    /// let image = pad.apply(Tensor::from([[[1.0, 2.0]]]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.to_vec::<f64>(), [1.0, 1.0, 2.0, 2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn padding_mode(self, padding_mode: PaddingMode) -> RandomCrop {
        RandomCrop { padding_mode, ..self }
    }
}

impl Transform for RandomCrop {
    /// # Errors
    /// If the image is not `[c, h, w]`, or is smaller than the part.
    fn apply(&self, image: Tensor, seed: ItemSeed) -> Result<Tensor> {
        const NAME: &str = "RandomCrop";
        dimensions(NAME, &image)?;
        let pad = |image, margins| padded(NAME, image, margins, self.padding_mode, self.fill);
        let mut image = pad(image, self.padding)?;
        let (height, width) = self.size.square();
        if self.pad_if_needed {
            // On both sides, as torchvision does.
            let missing = |wanted: usize, axis: usize| wanted.saturating_sub(image.shape()[axis]);
            let (x, y) = (missing(width, 2), missing(height, 1));
            image = pad(image, Margins::from((x, y)))?;
        }
        let (_, h, w) = dimensions(NAME, &image)?;
        if height > h || width > w {
            let message =
                format!("an image of {h}×{w} pixels is smaller than a crop of {height}×{width}");
            let error = Error::argument(NAME, message);
            return Err(error.hint("use padding, or pad_if_needed(true)"));
        }
        if (height, width) == (h, w) {
            return Ok(image);
        }
        let [y, x] = uniforms(seed);
        let (top, left) = (below(y, h - height + 1), below(x, w - width + 1));
        catch(|| image.narrow(1, top as isize, height).narrow(2, left as isize, width))
    }
}

/// Crops the middle of an image, with zeros around one that is smaller:
/// `torchvision.transforms.CenterCrop`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{CenterCrop, Transform};
/// let image = Tensor::arange(0, 16).reshape([1, 4, 4]);
/// let middle = CenterCrop::new(2).apply(image, ItemSeed::new(0, 0, 0))?;
/// assert_eq!(middle.to_vec::<i64>(), [5, 6, 9, 10]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CenterCrop {
    size: Size,
}

impl CenterCrop {
    /// Crops to this size: one number for a square, or `(height, width)`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{CenterCrop, Transform};
    /// let image = Tensor::from([[[1.0, 2.0, 3.0, 4.0]]]);
    /// let middle = CenterCrop::new((1, 2)).apply(image, ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(middle.to_vec::<f64>(), [2.0, 3.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(size: impl Into<Size>) -> CenterCrop {
        CenterCrop { size: size.into() }
    }
}

impl Transform for CenterCrop {
    /// # Errors
    /// If the image is not `[c, h, w]`.
    fn apply(&self, image: Tensor, _: ItemSeed) -> Result<Tensor> {
        const NAME: &str = "CenterCrop";
        let (_, h, w) = dimensions(NAME, &image)?;
        let (height, width) = self.size.square();
        let (y, x) = (height.saturating_sub(h), width.saturating_sub(w));
        let around = Margins::from([x / 2, y / 2, x.div_ceil(2), y.div_ceil(2)]);
        let image = padded(NAME, image, around, PaddingMode::Constant, 0.0)?;
        let start = |n: usize, part: usize| ((n - part) as f64 / 2.0).round_ties_even() as isize;
        let (h, w) = (image.shape()[1], image.shape()[2]);
        catch(|| image.narrow(1, start(h, height), height).narrow(2, start(w, width), width))
    }
}
