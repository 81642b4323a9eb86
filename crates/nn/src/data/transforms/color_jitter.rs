use super::Transform;
use super::image::{between, brightest, check_dtype, dimensions, from_pixels, pixels, uniforms};
use crate::data::ItemSeed;
use crate::refuse::demand;
use pullback::{Error, Result, Tensor};

const NAME: &str = "ColorJitter";

/// A range of factors: one number x for those from max(0, 1 − x) to 1 + x, or `(least, most)`.
///
/// ```
/// use pullback_nn::data::transforms::IntoFactors;
/// assert_eq!(0.25.factors(1.0), (0.75, 1.25));
/// assert_eq!((0.5, 2.0).factors(1.0), (0.5, 2.0));
/// ```
pub trait IntoFactors {
    /// The smallest and the largest factor, where `middle` is the factor that leaves an image as it
    /// is.
    ///
    /// ```
    /// use pullback_nn::data::transforms::IntoFactors;
    /// assert_eq!(0.25.factors(1.0), (0.75, 1.25));
    /// assert_eq!((0.5, 2.0).factors(1.0), (0.5, 2.0));
    /// ```
    fn factors(self, middle: f64) -> (f64, f64);
}

impl IntoFactors for f64 {
    fn factors(self, middle: f64) -> (f64, f64) {
        let least = middle - self;
        (if middle > 0.0 { least.max(0.0) } else { least }, middle + self)
    }
}

impl IntoFactors for (f64, f64) {
    fn factors(self, _: f64) -> (f64, f64) {
        self
    }
}

/// Changes brightness, contrast, saturation and hue at random, in random order:
/// `torchvision.transforms.ColorJitter`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{ColorJitter, Transform};
/// let jitter = ColorJitter::new().brightness(0.2).contrast(0.2).saturation((0.5, 1.5)).hue(0.1);
/// let image = jitter.apply(Tensor::full([3, 4, 4], 0.5f32), ItemSeed::new(0, 0, 0))?;
/// assert!(image.ge(0.0).logical_and(image.le(1.0)).all().item::<bool>());
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ColorJitter {
    brightness: Option<(f64, f64)>,
    contrast: Option<(f64, f64)>,
    saturation: Option<(f64, f64)>,
    hue: Option<(f64, f64)>,
}

/// Refuses a range that is none, or goes over its bounds.
#[track_caller]
fn checked(what: &str, range: (f64, f64), bounds: (f64, f64)) -> Option<(f64, f64)> {
    let (least, most) = range;
    let inside = bounds.0 <= least && least <= most && most <= bounds.1;
    demand(inside, NAME, || {
        let (low, high) = bounds;
        format!("{what} from {least} to {most} is not a range between {low} and {high}")
    });
    Some(range)
}

impl ColorJitter {
    /// Changes nothing yet; the methods below add changes.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{ColorJitter, Transform};
    /// let jitter = ColorJitter::new();
    /// let same = jitter.apply(Tensor::full([3, 1, 1], 0.5f32), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(same.to_vec::<f32>(), [0.5; 3]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> ColorJitter {
        ColorJitter::default()
    }

    /// The range of the factor that all values are multiplied by.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{ColorJitter, Transform};
    /// let half = ColorJitter::new().brightness((0.5, 0.5));
    /// let image = half.apply(Tensor::full([1, 1, 2], 0.5f32), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.to_vec::<f32>(), [0.25; 2]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the range is not in order, or goes below 0.
    #[track_caller]
    #[must_use]
    pub fn brightness(self, range: impl IntoFactors) -> ColorJitter {
        let brightness = checked("brightness", range.factors(1.0), (0.0, f64::INFINITY));
        ColorJitter { brightness, ..self }
    }

    /// The range of the factor of the distance from the mean of the greyscale image.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{ColorJitter, Transform};
    /// let flat = ColorJitter::new().contrast((0.0, 0.0));
    /// let image = flat.apply(Tensor::from([[[0.25, 0.75]]]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.to_vec::<f64>(), [0.5, 0.5]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the range is not in order, or goes below 0.
    #[track_caller]
    #[must_use]
    pub fn contrast(self, range: impl IntoFactors) -> ColorJitter {
        let contrast = checked("contrast", range.factors(1.0), (0.0, f64::INFINITY));
        ColorJitter { contrast, ..self }
    }

    /// The range of the factor of the distance of each pixel from its grey value. It does not
    /// change images of one channel.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{ColorJitter, Transform};
    /// let grey = ColorJitter::new().saturation((0.0, 0.0));
    /// let red = Tensor::from([[[1.0]], [[0.0]], [[0.0]]]);
    /// let image = grey.apply(red, ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.to_vec::<f64>(), [0.2989; 3]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the range is not in order, or goes below 0.
    #[track_caller]
    #[must_use]
    pub fn saturation(self, range: impl IntoFactors) -> ColorJitter {
        let saturation = checked("saturation", range.factors(1.0), (0.0, f64::INFINITY));
        ColorJitter { saturation, ..self }
    }

    /// The range of the shift of the hue, as a fraction of the colour circle. It does not change
    /// images of one channel.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{ColorJitter, Transform};
    /// let opposite = ColorJitter::new().hue((0.5, 0.5));
    /// let red = Tensor::from([[[1.0]], [[0.0]], [[0.0]]]);
    /// let cyan = opposite.apply(red, ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(cyan.to_vec::<f64>(), [0.0, 1.0, 1.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the range is not in order, or goes beyond ±0.5.
    #[track_caller]
    #[must_use]
    pub fn hue(self, range: impl IntoFactors) -> ColorJitter {
        let hue = checked("hue", range.factors(0.0), (-0.5, 0.5));
        ColorJitter { hue, ..self }
    }
}

impl Transform for ColorJitter {
    /// # Errors
    /// If the image is not `[c, h, w]` of floats or `u8` with one channel or three.
    fn apply(&self, image: Tensor, seed: ItemSeed) -> Result<Tensor> {
        let (channels, h, w) = dimensions(NAME, &image)?;
        check_dtype(NAME, &image)?;
        if channels != 1 && channels != 3 {
            let message = format!("takes images of one channel or three, not of {channels}");
            return Err(Error::shape(NAME, message));
        }
        let drawn = uniforms::<8>(seed);
        let mut order = [0, 1, 2, 3];
        order.sort_by(|&a, &b| drawn[4 + a].total_cmp(&drawn[4 + b]));
        let bound = brightest(image.dtype());
        let mut colours = Colours { pixels: pixels(&image)?, plane: h * w, bound };
        for what in order {
            let ranges = [self.brightness, self.contrast, self.saturation, self.hue];
            let Some(factor) = ranges[what].map(|range| between(drawn[what], range)) else {
                continue;
            };
            match what {
                0 => colours.blend(factor, |_, _| 0.0),
                1 => {
                    let mean = colours.grey().iter().sum::<f64>() / (h * w) as f64;
                    colours.blend(factor, |_, _| mean);
                }
                2 if channels == 3 => {
                    let grey = colours.grey();
                    colours.blend(factor, |_, i| grey[i]);
                }
                3 if channels == 3 => colours.turn(factor),
                _ => {}
            }
        }
        from_pixels(colours.pixels, [channels, h, w], image.dtype())
    }
}

/// The pixels of an image, channel after channel.
struct Colours {
    pixels: Vec<f64>,
    plane: usize,
    bound: f64,
}

impl Colours {
    /// The brightness of each pixel.
    fn grey(&self) -> Vec<f64> {
        let n = self.plane;
        match self.pixels.len() == n {
            true => self.pixels.clone(),
            false => (0..n)
                .map(|i| {
                    0.2989 * self.pixels[i]
                        + 0.587 * self.pixels[n + i]
                        + 0.114 * self.pixels[2 * n + i]
                })
                .collect(),
        }
    }

    /// factor·x + (1 − factor)·other, of each channel and place, held between 0 and the bound.
    fn blend(&mut self, factor: f64, other: impl Fn(usize, usize) -> f64) {
        let (n, bound) = (self.plane, self.bound);
        for (i, x) in self.pixels.iter_mut().enumerate() {
            *x = (factor * *x + (1.0 - factor) * other(i / n, i % n)).clamp(0.0, bound);
        }
    }

    /// All hues moved by this part of the circle.
    fn turn(&mut self, by: f64) {
        let n = self.plane;
        for i in 0..n {
            let rgb = [0, 1, 2].map(|c| self.pixels[c * n + i] / self.bound);
            let [h, s, v] = to_hsv(rgb);
            let turned = to_rgb([(h + by).rem_euclid(1.0), s, v]);
            (0..3).for_each(|c| self.pixels[c * n + i] = turned[c] * self.bound);
        }
    }
}

/// Hue, saturation and value, each from 0 to 1.
fn to_hsv([r, g, b]: [f64; 3]) -> [f64; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let range = most - least;
    if range == 0.0 {
        return [0.0, 0.0, most];
    }
    let sixths = if most == r {
        (g - b) / range
    } else if most == g {
        2.0 + (b - r) / range
    } else {
        4.0 + (r - g) / range
    };
    [(sixths / 6.0).rem_euclid(1.0), range / most, most]
}

fn to_rgb([h, s, v]: [f64; 3]) -> [f64; 3] {
    let sector = (h * 6.0).floor();
    let f = h * 6.0 - sector;
    let (p, q, t) = (v * (1.0 - s), v * (1.0 - s * f), v * (1.0 - s * (1.0 - f)));
    match sector as i64 {
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        5 => [v, p, q],
        _ => [v, t, p],
    }
}
