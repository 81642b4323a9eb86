use super::image::{between, check_dtype, dimensions, from_pixels, pixels, uniforms};
use super::{InterpolationMode, Transform};
use crate::data::ItemSeed;
use crate::refuse::demand;
use pullback::{Error, Result, Tensor};

const NAME: &str = "RandomRotation";

/// A range of angles in degrees: one number for ± that many, or `(least, most)`.
///
/// ```
/// use pullback_nn::data::transforms::Degrees;
/// assert_eq!(Degrees::from(10.0), Degrees { least: -10.0, most: 10.0 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Degrees {
    /// The smallest angle.
    pub least: f64,
    /// The largest angle.
    pub most: f64,
}

impl From<f64> for Degrees {
    fn from(degrees: f64) -> Degrees {
        Degrees { least: -degrees, most: degrees }
    }
}

impl From<(f64, f64)> for Degrees {
    fn from((least, most): (f64, f64)) -> Degrees {
        Degrees { least, most }
    }
}

/// Rotates an image counter-clockwise by a random angle: `torchvision.transforms.RandomRotation`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{RandomRotation, Transform};
/// let image = Tensor::from([[[1.0, 2.0], [3.0, 4.0]]]);
/// let turned = RandomRotation::new((90.0, 90.0)).apply(image, ItemSeed::new(0, 0, 0))?;
/// assert_eq!(turned.to_vec::<f64>(), [2.0, 4.0, 1.0, 3.0]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RandomRotation {
    degrees: Degrees,
    interpolation: InterpolationMode,
    expand: bool,
    center: Option<(f64, f64)>,
    fill: f64,
}

impl RandomRotation {
    /// Rotates by an angle from this range, in degrees: one number for ± that many, or `(least,
    /// most)`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomRotation, Transform};
    /// let image = Tensor::from([[[1.0, 2.0]]]);
    /// let turned = RandomRotation::new((180.0, 180.0)).apply(image, ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(turned.to_vec::<f64>(), [2.0, 1.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the range is not finite and in order.
    #[track_caller]
    #[must_use]
    pub fn new(degrees: impl Into<Degrees>) -> RandomRotation {
        let degrees = degrees.into();
        let Degrees { least, most } = degrees;
        demand(least <= most && (most - least).is_finite(), NAME, || {
            format!("angles from {least} to {most} are not a range")
        });
        let interpolation = InterpolationMode::Nearest;
        RandomRotation { degrees, interpolation, expand: false, center: None, fill: 0.0 }
    }

    /// The interpolation between pixels: nearest, the default, or bilinear. With bicubic, applying
    /// the transform is an error.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{InterpolationMode, RandomRotation, Transform};
    /// let turn = RandomRotation::new(10.0);
    /// let image = Tensor::ones([1, 4, 4]);
    /// let smooth = turn.interpolation(InterpolationMode::Bilinear);
    /// assert_eq!(smooth.apply(image.clone(), ItemSeed::new(0, 0, 0))?.shape(), [1, 4, 4]);
    /// let cubic = turn.interpolation(InterpolationMode::Bicubic);
    /// assert!(cubic.apply(image, ItemSeed::new(0, 0, 0)).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn interpolation(self, interpolation: InterpolationMode) -> RandomRotation {
        RandomRotation { interpolation, ..self }
    }

    /// Whether the result is large enough to hold the whole rotated image; by default its size is
    /// kept and the corners are cut off.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomRotation, Transform};
    /// let turn = RandomRotation::new((90.0, 90.0)).expand(true);
    /// let image = turn.apply(Tensor::ones([3, 4, 6]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.shape(), [3, 6, 4]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn expand(self, expand: bool) -> RandomRotation {
        RandomRotation { expand, ..self }
    }

    /// The centre of the rotation, `(x, y)` in pixels from the upper left corner; the middle of the
    /// image by default.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomRotation, Transform};
    /// // Around the upper left pixel by half a turn: that pixel stays, the others leave the image.
    /// let turn = RandomRotation::new((180.0, 180.0)).center((0.5, 0.5));
    /// let image = turn.apply(Tensor::ones([1, 2, 2]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.to_vec::<f32>(), [1.0, 0.0, 0.0, 0.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn center(self, center: (f64, f64)) -> RandomRotation {
        RandomRotation { center: Some(center), ..self }
    }

    /// The value outside the image; 0 by default.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomRotation, Transform};
    /// let turn = RandomRotation::new((45.0, 45.0)).fill(0.5);
    /// let image = turn.apply(Tensor::ones([1, 8, 8]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.min().item::<f32>(), 0.5);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn fill(self, fill: f64) -> RandomRotation {
        RandomRotation { fill, ..self }
    }
}

/// The size that holds an image of h×w pixels turned by an angle.
fn turned_size(h: usize, w: usize, (sin, cos): (f64, f64)) -> (usize, usize) {
    let (y, x) = (h as f64 / 2.0, w as f64 / 2.0);
    let corners = [(-x, -y), (-x, y), (x, y), (x, -y)];
    let length = |turned: [f64; 4], middle: f64| {
        // A length that is whole but for rounding is whole.
        let whole = |v: f64| (v * 1e4).round() / 1e4;
        let most = turned.into_iter().fold(f64::MIN, f64::max) + middle;
        let least = turned.into_iter().fold(f64::MAX, f64::min) + middle;
        (whole(most).ceil() - whole(least).floor()) as usize
    };
    let width = length(corners.map(|(x, y)| x * cos + y * sin), x);
    let height = length(corners.map(|(x, y)| y * cos - x * sin), y);
    (height, width)
}

impl Transform for RandomRotation {
    /// # Errors
    /// If the image is not `[c, h, w]` of floats or `u8`, or the interpolation is bicubic.
    fn apply(&self, image: Tensor, seed: ItemSeed) -> Result<Tensor> {
        let (channels, h, w) = dimensions(NAME, &image)?;
        check_dtype(NAME, &image)?;
        if self.interpolation == InterpolationMode::Bicubic {
            return Err(Error::argument(NAME, "interpolates nearest or bilinear, not bicubic"));
        }
        let [u] = uniforms(seed);
        let angle = between(u, (self.degrees.least, self.degrees.most)).to_radians();
        let (sin, cos) = angle.sin_cos();
        let (height, width) = if self.expand { turned_size(h, w, (sin, cos)) } else { (h, w) };
        let (x, y) = (w as f64 / 2.0, h as f64 / 2.0);
        let (cx, cy) = self.center.map_or((0.0, 0.0), |(cx, cy)| (cx - x, cy - y));
        let source = pixels(&image)?;
        let mut out = vec![0.0; channels * height * width];
        for (i, row) in (0..height).flat_map(|i| (0..width).map(move |j| (i, j))).enumerate() {
            // From the middle of the result, back to the middle of the source.
            let dy = row.0 as f64 + 0.5 - height as f64 / 2.0 - cy;
            let dx = row.1 as f64 + 0.5 - width as f64 / 2.0 - cx;
            let from_x = dx * cos - dy * sin + cx + x - 0.5;
            let from_y = dx * sin + dy * cos + cy + y - 0.5;
            for c in 0..channels {
                let plane = Plane { pixels: &source[c * h * w..][..h * w], h, w, fill: self.fill };
                out[c * height * width + i] = match self.interpolation {
                    InterpolationMode::Nearest => plane.nearest(from_y, from_x),
                    _ => plane.bilinear(from_y, from_x),
                };
            }
        }
        from_pixels(out, [channels, height, width], image.dtype())
    }
}

/// One channel.
struct Plane<'a> {
    pixels: &'a [f64],
    h: usize,
    w: usize,
    fill: f64,
}

impl Plane<'_> {
    fn at(&self, y: f64, x: f64) -> f64 {
        let inside = y >= 0.0 && x >= 0.0 && y < self.h as f64 && x < self.w as f64;
        if inside { self.pixels[y as usize * self.w + x as usize] } else { self.fill }
    }

    fn nearest(&self, y: f64, x: f64) -> f64 {
        // A hair to one side, so that a quarter turn takes every pixel once in spite of rounding.
        let near = |v: f64| (v * 1e9).round() / 1e9;
        self.at(near(y).round_ties_even(), near(x).round_ties_even())
    }

    fn bilinear(&self, y: f64, x: f64) -> f64 {
        let (top, left) = (y.floor(), x.floor());
        let (v, u) = (y - top, x - left);
        let above = self.at(top, left) * (1.0 - u) + self.at(top, left + 1.0) * u;
        let below = self.at(top + 1.0, left) * (1.0 - u) + self.at(top + 1.0, left + 1.0) * u;
        above * (1.0 - v) + below * v
    }
}
