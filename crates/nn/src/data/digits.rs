//! The embedded data set: handwritten digits.

use super::{Csv, Dataset, TensorDataset};
use flate2::read::GzDecoder;
use pullback::{DType, Key, Result, Tensor};

/// The file in `data/`, next to its licence.
const FILE: &[u8] = include_bytes!("../../data/digits.csv.gz");

/// The seed of the split of [`digits`] into training and test sets: fixed, so that results can be
/// compared.
pub const DIGITS_SEED: u64 = 0;

/// 1,797 handwritten digits of 8×8 pixels.
pub struct Digits {
    /// 1,437 images for training, `f32[n,1,8,8]` from 0 to 1, and their labels, `i64[n]`.
    pub train: (Tensor, Tensor),
    /// 360 images for testing.
    pub test: (Tensor, Tensor),
}

impl Digits {
    /// The 1,437 training images and their labels as a data set.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, digits};
    /// let train = digits()?.train_set()?;
    /// let (image, label) = train.get(0)?;
    /// assert_eq!((train.len(), image.shape()), (1437, &[1, 8, 8][..]));
    /// assert!((0..10).contains(&label.item::<i64>()));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `train` was changed so that images and labels differ in number.
    pub fn train_set(&self) -> Result<impl Dataset<Item = (Tensor, Tensor)> + use<>> {
        TensorDataset::new(self.train.clone())
    }

    /// The 360 test images and their labels as a data set.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, digits};
    /// assert_eq!(digits()?.test_set()?.len(), 360);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `test` was changed so that images and labels differ in number.
    pub fn test_set(&self) -> Result<impl Dataset<Item = (Tensor, Tensor)> + use<>> {
        TensorDataset::new(self.test.clone())
    }
}

/// The embedded digits, split into training and test by a fixed seed. (Optical Recognition of
/// Handwritten Digits, E. Alpaydin and C. Kaynak, UCI, CC BY 4.0.)
///
/// ```
/// let digits = pullback_nn::data::digits()?;
/// assert_eq!(digits.train.0.shape(), [1437, 1, 8, 8]);
/// assert_eq!(digits.test.1.shape(), [360]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the embedded file is damaged, which tests exclude.
pub fn digits() -> Result<Digits> {
    let csv = Csv::new().header(false).dtype(DType::F32).label("64");
    let table = csv.read_from(GzDecoder::new(FILE), "the embedded digits.csv.gz")?;
    let n = table.len();
    let images = (table.features / 16.0).reshape([n, 1, 8, 8]);
    let labels = table.labels.unwrap_or_else(|| Tensor::zeros_with([n], DType::I64));

    let order = Key::new(DIGITS_SEED).permutation(n);
    let test = n / 5 + 1;
    let part = |start: usize, count: usize| {
        let chosen = order.narrow(0, start as isize, count);
        (images.index_select(0, &chosen), labels.index_select(0, &chosen))
    };
    Ok(Digits { train: part(test, n - test), test: part(0, test) })
}
