use super::image::{check_dtype, dimensions};
use super::{InterpolationMode, Size, Transform};
use crate::data::ItemSeed;
use pullback::{DType, Error, Interpolate, Result, Tensor, catch};

/// Resizes an image: `torchvision.transforms.Resize`.
///
/// A size of one number is the length of the shorter edge; the aspect ratio is kept.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{Resize, Transform};
/// let image = Tensor::zeros([3, 20, 30]);
/// let size = |r: Resize| r.apply(image.clone(), ItemSeed::new(0, 0, 0)).unwrap().shape().to_vec();
/// assert_eq!(size(Resize::new(10)), [3, 10, 15]);
/// assert_eq!(size(Resize::new((8, 8))), [3, 8, 8]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Resize {
    size: Size,
    interpolation: InterpolationMode,
    max_size: Option<usize>,
    antialias: bool,
}

impl Resize {
    /// Resizes to this size, bilinear and antialiased. One number is the length of the shorter
    /// edge.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{Resize, Transform};
    /// let small = Resize::new((1, 2)).apply(Tensor::ones([3, 4, 4]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(small.shape(), [3, 1, 2]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(size: impl Into<Size>) -> Resize {
        let interpolation = InterpolationMode::Bilinear;
        Resize { size: size.into(), interpolation, max_size: None, antialias: true }
    }

    /// The interpolation between pixels; bilinear by default.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{InterpolationMode, Resize, Transform};
    /// let nearest = Resize::new((1, 4)).interpolation(InterpolationMode::Nearest);
    /// let image = nearest.apply(Tensor::from([[[1.0, 2.0]]]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.to_vec::<f64>(), [1.0, 1.0, 2.0, 2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn interpolation(self, interpolation: InterpolationMode) -> Resize {
        Resize { interpolation, ..self }
    }

    /// The largest length of the longer edge. With a size of `(height, width)`, applying the
    /// transform is an error.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{Resize, Transform};
    /// let resize = Resize::new(10).max_size(12);
    /// let image = resize.apply(Tensor::zeros([3, 20, 40]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.shape(), [3, 6, 12]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn max_size(self, max_size: usize) -> Resize {
        Resize { max_size: Some(max_size), ..self }
    }

    /// Whether to antialias when shrinking: the mean over all source pixels of a target pixel;
    /// `true` by default.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{Resize, Transform};
    /// let image = Tensor::from([[[0.0, 0.0, 0.0, 8.0]]]);
    /// let plain = Resize::new((1, 1)).antialias(false);
    /// assert_eq!(plain.apply(image.clone(), ItemSeed::new(0, 0, 0))?.to_vec::<f64>(), [0.0]);
    /// let smooth = Resize::new((1, 1)).apply(image, ItemSeed::new(0, 0, 0))?;
    /// assert!(smooth.item::<f64>() > 0.0);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn antialias(self, antialias: bool) -> Resize {
        Resize { antialias, ..self }
    }

    /// Height and width for an image of this size.
    fn goal(&self, h: usize, w: usize) -> Result<(usize, usize)> {
        let (short, long) = (h.min(w), h.max(w));
        let (height, width) = match (self.size, self.max_size) {
            (Size::Exact(height, width), None) => (height, width),
            (Size::Exact(..), Some(_)) => {
                let message = "`max_size` needs a size of one number, the shorter edge";
                return Err(Error::argument("Resize", message));
            }
            (Size::Edge(n), most) => {
                // In 128 bits: sizes may be absurd.
                let scaled = |n: usize, by: usize, over: usize| {
                    usize::try_from(n as u128 * by as u128 / over as u128).unwrap_or(usize::MAX)
                };
                let mut edges = (n, scaled(n, long, short));
                if let Some(most) = most.filter(|&most| edges.1 > most) {
                    edges = (scaled(most, edges.0, edges.1), most);
                }
                if h <= w { edges } else { (edges.1, edges.0) }
            }
        };
        if height == 0 || width == 0 {
            let message = format!("an image of {h}×{w} pixels cannot become {height}×{width}");
            return Err(Error::argument("Resize", message));
        }
        Ok((height, width))
    }
}

impl Transform for Resize {
    /// # Errors
    /// If the image is not `[c, h, w]` of floats or `u8`, or would have no pixels.
    fn apply(&self, image: Tensor, _: ItemSeed) -> Result<Tensor> {
        let (_, h, w) = dimensions("Resize", &image)?;
        check_dtype("Resize", &image)?;
        let (height, width) = self.goal(h, w)?;
        if (height, width) == (h, w) {
            return Ok(image);
        }
        let (mode, antialias) = match self.interpolation {
            InterpolationMode::Nearest => (pullback::InterpolateMode::Nearest, false),
            InterpolationMode::Bilinear => (pullback::InterpolateMode::Linear, self.antialias),
            InterpolationMode::Bicubic => (pullback::InterpolateMode::Cubic, self.antialias),
        };
        catch(|| {
            let resized = Interpolate::to([height, width]).mode(mode).antialias(antialias);
            if image.dtype() != DType::U8 || self.interpolation == InterpolationMode::Nearest {
                return resized.of(&image.unsqueeze(0)).squeeze_axis(0);
            }
            let y = resized.of(&image.cast(DType::F32).unsqueeze(0)).squeeze_axis(0);
            y.round().clamp(0.0, 255.0).cast(DType::U8)
        })
    }
}
