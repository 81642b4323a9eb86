//! Pixels in another dtype.

use super::Transform;
use super::image::{check_dtype, dimensions};
use crate::data::ItemSeed;
use pullback::{DType, Error, Result, Tensor, catch};

/// Converts the pixels to another dtype, scaled to its range: bytes from 0 to 255, floats from 0 to
/// 1. `torchvision.transforms.ConvertImageDtype`.
///
/// ```
/// use pullback::{DType, Tensor};
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{ConvertImageDtype, Transform};
/// let image = Tensor::from([[[0u8, 255]]]);
/// let y = ConvertImageDtype::new(DType::F32).apply(image, ItemSeed::new(0, 0, 0))?;
/// assert_eq!(y.to_vec::<f32>(), [0.0, 1.0]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[doc(alias = "ConvertDtype")]
#[doc(alias = "ToDtype")]
#[derive(Clone, Copy, Debug)]
pub struct ConvertImageDtype {
    dtype: DType,
}

impl ConvertImageDtype {
    /// Converts to this dtype: a float dtype or `u8`. With another dtype, applying the transform is
    /// an error.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback::DType;
    /// use pullback_nn::data::transforms::{ConvertImageDtype, Transform};
    /// let bytes = ConvertImageDtype::new(DType::U8);
    /// let image = bytes.apply(Tensor::from([[[0.0f32, 1.0]]]), ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(image.to_vec::<u8>(), [0, 255]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(dtype: DType) -> ConvertImageDtype {
        ConvertImageDtype { dtype }
    }
}

impl Transform for ConvertImageDtype {
    /// # Errors
    /// If the pixels, or the dtype they should have, are neither floats nor `u8`.
    fn apply(&self, image: Tensor, _: ItemSeed) -> Result<Tensor> {
        const NAME: &str = "ConvertImageDtype";
        check_dtype(NAME, &image)?;
        let (from, to) = (image.dtype(), self.dtype);
        if !(to.is_float() || to == DType::U8) {
            return Err(Error::dtype(NAME, format!("makes floats or u8, not {to}")));
        }
        catch(|| match (from, to) {
            _ if from == to => image,
            (DType::U8, _) => image.cast(to) / 255.0,
            // As torchvision: each byte gets an interval of the same length.
            (_, DType::U8) => {
                let scaled = image.cast(from.promote(DType::F32)) * (255.0 + 1.0 - 1e-3);
                scaled.floor().clamp(0.0, 255.0).cast(DType::U8)
            }
            _ => image.cast(to),
        })
    }
}

/// Converts an image in the layout of files, `[height, width, channels]` or `[height, width]`, to
/// `[channels, height, width]`; bytes become `f32` from 0 to 1. `torchvision.transforms.ToTensor`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::ItemSeed;
/// use pullback_nn::data::transforms::{ToTensor, Transform};
/// let pixels = Tensor::from([[[255u8, 0, 0], [0, 255, 0]]]); // red, green
/// let image = ToTensor.apply(pixels, ItemSeed::new(0, 0, 0))?;
/// assert_eq!(image.shape(), [3, 1, 2]);
/// assert_eq!(image.to_vec::<f32>(), [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ToTensor;

impl Transform for ToTensor {
    /// # Errors
    /// If the tensor has neither two nor three axes.
    fn apply(&self, image: Tensor, _: ItemSeed) -> Result<Tensor> {
        const NAME: &str = "ToTensor";
        let image = match image.rank() {
            2 => image.unsqueeze(-1),
            _ => image,
        };
        dimensions(NAME, &image).map_err(|_| {
            let found = image.spec();
            let message =
                format!("takes [height, width, channels] or [height, width], not {found}");
            Error::shape(NAME, message)
        })?;
        catch(|| {
            let image = image.permute([2, 0, 1]).contiguous();
            if image.dtype() == DType::U8 { image.cast(DType::F32) / 255.0 } else { image }
        })
    }
}
