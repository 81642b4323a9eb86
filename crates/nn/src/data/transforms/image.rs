//! What transforms share: shapes, sizes, random numbers, and pixels as numbers.

use crate::data::ItemSeed;
use crate::refuse::demand;
use pullback::{DType, Error, Result, Tensor, catch};

/// The interpolation between pixels: `torchvision.transforms.InterpolationMode`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{InterpolationMode, Resize, Transform};
/// let sharp = Resize::new((1, 4)).interpolation(InterpolationMode::Nearest);
/// let y = sharp.apply(Tensor::from([[[1.0, 5.0]]]), ItemSeed::new(0, 0, 0))?;
/// assert_eq!(y.to_vec::<f64>(), [1.0, 1.0, 5.0, 5.0]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterpolationMode {
    /// The value of the nearest pixel.
    Nearest,
    /// Linear along both axes.
    Bilinear,
    /// Cubic along both axes. Rotations do not have it.
    Bicubic,
}

/// The size of an image: one number, or `(height, width)`.
///
/// ```
/// use pullback_nn::data::transforms::Size;
/// assert_eq!(Size::from((3, 4)), Size::Exact(3, 4));
/// assert_eq!(Size::from(3), Size::Edge(3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A square of this length for crops; the length of the shorter edge for
    /// [`Resize`](super::Resize).
    Edge(usize),
    /// Height and width.
    Exact(usize, usize),
}

impl Size {
    /// Height and width, where one number is a square.
    pub(super) fn square(self) -> (usize, usize) {
        match self {
            Size::Edge(n) => (n, n),
            Size::Exact(height, width) => (height, width),
        }
    }
}

impl From<usize> for Size {
    fn from(n: usize) -> Size {
        Size::Edge(n)
    }
}

impl From<(usize, usize)> for Size {
    fn from((height, width): (usize, usize)) -> Size {
        Size::Exact(height, width)
    }
}

impl From<[usize; 2]> for Size {
    fn from([height, width]: [usize; 2]) -> Size {
        Size::Exact(height, width)
    }
}

/// Channels, height and width.
pub(super) fn dimensions(name: &'static str, image: &Tensor) -> Result<(usize, usize, usize)> {
    match image.shape() {
        &[c, h, w] if c * h * w > 0 => Ok((c, h, w)),
        _ => {
            let message = format!("takes an image [channels, height, width], not {}", image.spec());
            Err(Error::shape(name, message))
        }
    }
}

/// Refuses what is neither floats nor bytes.
pub(super) fn check_dtype(name: &'static str, image: &Tensor) -> Result<()> {
    if image.dtype().is_float() || image.dtype() == DType::U8 {
        return Ok(());
    }
    let message = format!("takes pixels as floats or u8, not {}", image.dtype());
    Err(Error::dtype(name, message).hint("cast the image first"))
}

/// Uniform numbers from 0 to 1, below 1.
pub(super) fn uniforms<const N: usize>(seed: ItemSeed) -> [f64; N] {
    let drawn = seed.key().uniform([N], DType::F64, 0.0, 1.0).to_vec::<f64>();
    std::array::from_fn(|i| drawn[i])
}

/// Whether something of probability `p` happens.
pub(super) fn coin(u: f64, p: f64) -> bool {
    u < p
}

/// A whole number from 0 to `n` − 1.
pub(super) fn below(u: f64, n: usize) -> usize {
    ((u * n as f64) as usize).min(n.saturating_sub(1))
}

/// A number between two.
pub(super) fn between(u: f64, (low, high): (f64, f64)) -> f64 {
    low + u * (high - low)
}

#[track_caller]
pub(super) fn probability(name: &'static str, p: f64) -> f64 {
    demand((0.0..=1.0).contains(&p), name, || {
        format!("a probability must be between 0 and 1, not {p}")
    });
    p
}

/// The pixels as `f64`, in row-major order.
pub(super) fn pixels(image: &Tensor) -> Result<Vec<f64>> {
    image.cast(DType::F64).try_to_vec::<f64>()
}

/// Pixels as an image of a dtype; bytes are rounded and held between 0 and 255.
pub(super) fn from_pixels(values: Vec<f64>, shape: [usize; 3], dtype: DType) -> Result<Tensor> {
    if dtype == DType::U8 {
        let byte = |v: f64| v.round_ties_even().clamp(0.0, 255.0) as u8;
        let bytes: Vec<u8> = values.into_iter().map(byte).collect();
        return catch(|| Tensor::from_vec(bytes, shape));
    }
    catch(|| Tensor::from_vec(values, shape).cast(dtype))
}

/// The largest value of a pixel.
pub(super) fn brightest(dtype: DType) -> f64 {
    if dtype == DType::U8 { 255.0 } else { 1.0 }
}
