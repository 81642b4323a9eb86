//! Parts of images that are replaced: [`RandomErasing`], [`Cutout`].

use super::Transform;
use super::image::{below, between, coin, dimensions, probability, uniforms};
use crate::data::ItemSeed;
use crate::refuse::demand;
use pullback::{Error, Result, Tensor, catch};

/// How often a rectangle is drawn before an image stays as it is.
const TRIES: usize = 10;

/// What a rectangle is filled with.
#[derive(Clone, Debug)]
enum EraseValue {
    Number(f64),
    Channels(Vec<f64>),
    Noise,
}

/// Replaces a random rectangle by a value, with probability `p`:
/// `torchvision.transforms.RandomErasing`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{RandomErasing, Transform};
/// let erase = RandomErasing::new(1.0).scale((0.1, 0.3));
/// let image = erase.apply(Tensor::ones([1, 10, 10]), ItemSeed::new(0, 0, 0))?;
/// let gone = 100.0 - image.sum().item::<f32>();
/// assert!((5.0..40.0).contains(&gone), "{gone}");
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RandomErasing {
    p: f64,
    scale: (f64, f64),
    ratio: (f64, f64),
    filling: EraseValue,
}

impl RandomErasing {
    /// Erases with probability `p`, by zeros; torchvision's default is 0.5.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomErasing, Transform};
    /// let always = RandomErasing::new(1.0);
    /// let erased = always.apply(Tensor::ones([1, 10, 10]), ItemSeed::new(0, 0, 0))?;
    /// assert!(erased.sum().item::<f32>() < 100.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[track_caller]
    #[must_use]
    pub fn new(p: f64) -> RandomErasing {
        RandomErasing {
            p: probability("RandomErasing", p),
            scale: (0.02, 0.33),
            ratio: (0.3, 3.3),
            filling: EraseValue::Number(0.0),
        }
    }

    /// The range of the erased fraction of the image; from 0.02 to 0.33 by default.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomErasing, Transform};
    /// let quarter = RandomErasing::new(1.0).scale((0.25, 0.25)).ratio((1.0, 1.0));
    /// let erased = quarter.apply(Tensor::ones([1, 10, 10]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(erased.sum().item::<f32>(), 75.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If it is not a range between 0 and 1.
    #[track_caller]
    #[must_use]
    pub fn scale(self, (least, most): (f64, f64)) -> RandomErasing {
        demand(0.0 <= least && least <= most && most <= 1.0, "RandomErasing", || {
            format!("scale from {least} to {most} is not a range between 0 and 1")
        });
        RandomErasing { scale: (least, most), ..self }
    }

    /// The range of height over width of the rectangle; from 0.3 to 3.3 by default.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomErasing, Transform};
    /// // An area of 16 of 100 pixels, four times as high as wide: 8×2.
    /// let tall = RandomErasing::new(1.0).scale((0.16, 0.16)).ratio((4.0, 4.0));
    /// let erased = tall.apply(Tensor::ones([1, 10, 10]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(erased.sum_over(1).min().item::<f32>(), 2.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If it is not a finite range above 0.
    #[track_caller]
    #[must_use]
    pub fn ratio(self, (least, most): (f64, f64)) -> RandomErasing {
        demand(0.0 < least && least <= most && most.is_finite(), "RandomErasing", || {
            format!("ratio from {least} to {most} is not a range above 0")
        });
        RandomErasing { ratio: (least, most), ..self }
    }

    /// The value in the rectangle; 0 by default.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomErasing, Transform};
    /// let erase = RandomErasing::new(1.0).value(0.5);
    /// let image = erase.apply(Tensor::ones([1, 10, 10]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.min().item::<f32>(), 0.5);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn value(self, value: f64) -> RandomErasing {
        RandomErasing { filling: EraseValue::Number(value), ..self }
    }

    /// A value for each channel. With a number of values that is not that of the channels, applying
    /// the transform is an error.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomErasing, Transform};
    /// let erase = RandomErasing::new(1.0).values([0.25, 0.5]);
    /// let image = erase.apply(Tensor::ones([2, 10, 10]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.select_at(0, 1).min().item::<f32>(), 0.5);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn values(self, values: impl Into<Vec<f64>>) -> RandomErasing {
        RandomErasing { filling: EraseValue::Channels(values.into()), ..self }
    }

    /// Normal noise in the rectangle: torchvision's `value="random"`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomErasing, Transform};
    /// let erase = RandomErasing::new(1.0).random();
    /// let image = erase.apply(Tensor::zeros([1, 10, 10]), ItemSeed::new(0, 0, 0))?;
    /// assert!(image.abs().max().item::<f32>() > 0.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn random(self) -> RandomErasing {
        RandomErasing { filling: EraseValue::Noise, ..self }
    }
}

/// The image with a rectangle replaced.
fn replaced(image: &Tensor, rectangle: Rectangle, value: &Tensor) -> Result<Tensor> {
    let Rectangle { top, left, height, width } = rectangle;
    catch(|| {
        let part = |x: &Tensor| x.narrow(1, top as isize, height).narrow(2, left as isize, width);
        let shape = [image.shape()[0], height, width];
        image.put(part, &value.cast(image.dtype()).expand(shape))
    })
}

struct Rectangle {
    top: usize,
    left: usize,
    height: usize,
    width: usize,
}

impl Transform for RandomErasing {
    /// # Errors
    /// If the image is not `[c, h, w]`, or there is not one value for each channel.
    fn apply(&self, image: Tensor, seed: ItemSeed) -> Result<Tensor> {
        const NAME: &str = "RandomErasing";
        let (channels, h, w) = dimensions(NAME, &image)?;
        if let EraseValue::Channels(values) = &self.filling
            && values.len() != channels
        {
            let n = values.len();
            let message = format!("{n} values do not fit an image of {channels} channels");
            return Err(Error::shape(NAME, message));
        }
        let drawn = uniforms::<{ 3 + 2 * TRIES }>(seed);
        if !coin(drawn[0], self.p) {
            return Ok(image);
        }
        let logs = (self.ratio.0.ln(), self.ratio.1.ln());
        let fits = (0..TRIES).find_map(|i| {
            let area = (h * w) as f64 * between(drawn[3 + 2 * i], self.scale);
            let ratio = between(drawn[4 + 2 * i], logs).exp();
            let height = (area * ratio).sqrt().round_ties_even() as usize;
            let width = (area / ratio).sqrt().round_ties_even() as usize;
            (height < h && width < w).then_some((height, width))
        });
        let Some((height, width)) = fits.filter(|&(height, width)| height * width > 0) else {
            return Ok(image);
        };
        let (top, left) = (below(drawn[1], h - height + 1), below(drawn[2], w - width + 1));
        let value = match &self.filling {
            EraseValue::Number(value) => Tensor::from(*value),
            EraseValue::Channels(values) => Tensor::from(&values[..]).reshape([channels, 1, 1]),
            EraseValue::Noise => {
                let key = seed.part(0).key();
                key.normal([channels, height, width], pullback::DType::F32, 0.0, 1.0)
            }
        };
        replaced(&image, Rectangle { top, left, height, width }, &value)
    }
}

/// Sets squares around random points to zero, cut off at the edges of the image: Cutout (DeVries
/// and Taylor, 2017).
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{Cutout, Transform};
/// let image = Cutout::new(4).apply(Tensor::ones([3, 16, 16]), ItemSeed::new(0, 0, 1))?;
/// let gone = 768.0 - image.sum().item::<f32>();
/// assert!((3.0 * 4.0..=3.0 * 16.0).contains(&gone));
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Cutout {
    length: usize,
    n_holes: usize,
}

impl Cutout {
    /// One square with sides of this length.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{Cutout, Transform};
    /// let image = Cutout::new(4).apply(Tensor::ones([1, 16, 16]), ItemSeed::new(0, 0, 1))?;
    /// let erased = 256.0 - image.sum().item::<f32>();
    /// assert!((4.0..=16.0).contains(&erased)); // cut off at the edges
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(length: usize) -> Cutout {
        Cutout { length, n_holes: 1 }
    }

    /// The number of squares, which may overlap; 1 by default.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{Cutout, Transform};
    /// let erased = |holes| {
    ///     let cutout = Cutout::new(4).n_holes(holes);
    ///     let image = cutout.apply(Tensor::ones([1, 32, 32]), ItemSeed::new(0, 0, 1));
    ///     1024.0 - image.unwrap().sum().item::<f32>()
    /// };
    /// assert_eq!(erased(0), 0.0);
    /// assert!(erased(8) > 16.0);
    /// ```
    #[must_use]
    pub fn n_holes(self, n_holes: usize) -> Cutout {
        Cutout { n_holes, ..self }
    }
}

impl Transform for Cutout {
    /// # Errors
    /// If the image is not `[c, h, w]`.
    fn apply(&self, mut image: Tensor, seed: ItemSeed) -> Result<Tensor> {
        let (_, h, w) = dimensions("Cutout", &image)?;
        // From `length / 2` before a point, as far as the image goes.
        let cut = |u: f64, n: usize| {
            let middle = below(u, n);
            let start = middle.saturating_sub(self.length / 2);
            let end = middle.saturating_add(self.length.div_ceil(2)).min(n);
            (start, end.saturating_sub(start))
        };
        let shape = [self.n_holes, 2];
        let drawn = catch(|| seed.key().uniform(shape, pullback::DType::F64, 0.0, 1.0))?;
        for place in drawn.try_to_vec::<f64>()?.chunks(2) {
            let ((top, height), (left, width)) = (cut(place[0], h), cut(place[1], w));
            if height * width > 0 {
                let square = Rectangle { top, left, height, width };
                image = replaced(&image, square, &Tensor::from(0.0))?;
            }
        }
        Ok(image)
    }
}
