use super::Transform;
use super::image::dimensions;
use crate::data::ItemSeed;
use pullback::{Error, Result, Tensor, catch};

const NAME: &str = "Normalize";

/// Normalises each channel to (x − mean) / std: `torchvision.transforms.Normalize`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{Normalize, Transform};
/// let normal = Normalize::new([0.5], [0.25])?;
/// let y = normal.apply(Tensor::ones([1, 1, 2]), ItemSeed::new(0, 0, 0))?;
/// assert_eq!(y.to_vec::<f32>(), [2.0, 2.0]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Normalize {
    mean: Vec<f64>,
    std: Vec<f64>,
}

impl Normalize {
    /// Normalises with a mean and a standard deviation for each channel.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{Normalize, Transform};
    /// let normalize = Normalize::new([1.0, 0.0], [2.0, 1.0])?;
    /// let image = normalize.apply(Tensor::from([[[5.0f32]], [[3.0]]]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.to_vec::<f32>(), [2.0, 3.0]);
    /// assert!(Normalize::new([0.5], [0.0]).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the number of means is not that of deviations, or a deviation is 0 or not finite.
    pub fn new(mean: impl Into<Vec<f64>>, std: impl Into<Vec<f64>>) -> Result<Normalize> {
        let (mean, std) = (mean.into(), std.into());
        if mean.len() != std.len() {
            let message = format!("{} means but {} standard deviations", mean.len(), std.len());
            return Err(Error::argument(NAME, message));
        }
        if let Some(i) = std.iter().position(|s| *s == 0.0 || !s.is_finite()) {
            let message =
                format!("standard deviation {i} is {}, and pixels are divided by it", std[i]);
            return Err(Error::argument(NAME, message));
        }
        Ok(Normalize { mean, std })
    }
}

impl Transform for Normalize {
    /// # Errors
    /// If the image is not `[c, h, w]` of floats, or has another number of channels.
    fn apply(&self, image: Tensor, _: ItemSeed) -> Result<Tensor> {
        let (channels, _, _) = dimensions(NAME, &image)?;
        if !image.dtype().is_float() {
            let error = Error::dtype(NAME, format!("takes floats, not {}", image.dtype()));
            return Err(error.hint("use ConvertImageDtype or ToTensor before"));
        }
        if channels != self.mean.len() {
            let n = self.mean.len();
            let message = format!("{n} means do not fit an image of {channels} channels");
            return Err(Error::shape(NAME, message));
        }
        let by_channel =
            |values: &[f64]| Tensor::from(values).cast(image.dtype()).reshape([channels, 1, 1]);
        catch(|| (&image - by_channel(&self.mean)) / by_channel(&self.std))
    }
}
