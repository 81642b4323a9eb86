//! MNIST and the data sets in its format.

use super::{read_idx, wrong};
use crate::data::Dataset;
use crate::data::dataset::check_index;
use pullback::{DType, Result, Tensor, catch, no_grad};
use std::path::{Path, PathBuf};

const FORMAT: &str = "mnist";

/// MNIST, FashionMNIST or KMNIST from local files: items are `(f32[1, 28, 28] from 0 to 1, class)`.
///
/// The files are those of the original sites, `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`,
/// `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, plain or with `.gz`. They are looked for
/// in the folder itself, and where torchvision puts them: `MNIST/raw` below it (or
/// `FashionMNIST/raw`, `KMNIST/raw`).
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::{Dataset, Mnist, write_idx};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// write_idx(folder.join("train-images-idx3-ubyte.gz"), &Tensor::full([2, 28, 28], 255u8))?;
/// write_idx(folder.join("train-labels-idx1-ubyte.gz"), &Tensor::from([3u8, 9]))?;
/// let data = Mnist::open(folder, true)?;
/// let (image, label) = data.get(1)?;
/// assert_eq!((image.shape(), image.max().item::<f32>(), label), (&[1, 28, 28][..], 1.0, 9));
/// # Ok::<(), pullback::Error>(())
/// ```
#[doc(alias = "MNIST")]
pub struct Mnist {
    images: Tensor,
    labels: Tensor,
    classes: [&'static str; 10],
}

const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

const FASHION: [&str; 10] = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
];

const KUZUSHIJI: [&str; 10] = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"];

impl Mnist {
    /// Reads MNIST, the handwritten digits: the 60,000 training images or the 10,000 test images.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::{Dataset, Mnist, write_idx};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// write_idx(folder.join("t10k-images-idx3-ubyte"), &Tensor::full([2, 28, 28], 255u8))?;
    /// write_idx(folder.join("t10k-labels-idx1-ubyte"), &Tensor::from([3u8, 9]))?;
    /// assert_eq!(Mnist::open(folder, false)?.len(), 2);
    /// assert!(Mnist::open(folder, true).is_err()); // the training files are missing
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a file is missing, damaged, or does not fit the other; the message names it, what was
    /// expected and what was found.
    pub fn open(root: impl AsRef<Path>, train: bool) -> Result<Mnist> {
        Mnist::read(root.as_ref(), "MNIST", train, DIGITS)
    }

    /// Reads FashionMNIST, articles of clothing: the 60,000 training images or the 10,000 test
    /// images.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::{Mnist, write_idx};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # write_idx(folder.join("t10k-images-idx3-ubyte"), &Tensor::full([2, 28, 28], 255u8))?;
    /// # write_idx(folder.join("t10k-labels-idx1-ubyte"), &Tensor::from([3u8, 9]))?;
    /// let data = Mnist::open_fashion(folder, false)?;
    /// assert_eq!(data.classes()[9], "Ankle boot");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Mnist::open`].
    #[doc(alias = "FashionMNIST")]
    pub fn open_fashion(root: impl AsRef<Path>, train: bool) -> Result<Mnist> {
        Mnist::read(root.as_ref(), "FashionMNIST", train, FASHION)
    }

    /// Reads KMNIST, Japanese characters: the 60,000 training images or the 10,000 test images.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::{Mnist, write_idx};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # write_idx(folder.join("t10k-images-idx3-ubyte"), &Tensor::full([2, 28, 28], 255u8))?;
    /// # write_idx(folder.join("t10k-labels-idx1-ubyte"), &Tensor::from([3u8, 9]))?;
    /// let data = Mnist::open_kmnist(folder, false)?;
    /// assert_eq!(data.classes()[9], "wo");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Mnist::open`].
    #[doc(alias = "KMNIST")]
    pub fn open_kmnist(root: impl AsRef<Path>, train: bool) -> Result<Mnist> {
        Mnist::read(root.as_ref(), "KMNIST", train, KUZUSHIJI)
    }

    fn read(root: &Path, folder: &str, train: bool, classes: [&'static str; 10]) -> Result<Mnist> {
        let part = if train { "train" } else { "t10k" };
        let find = |what: &str| find(root, folder, &format!("{part}-{what}"));
        let (image_file, label_file) = (find("images-idx3-ubyte")?, find("labels-idx1-ubyte")?);
        let (images, labels) = (read_idx(&image_file)?, read_idx(&label_file)?);
        let said = |file: &Path, what: String| wrong(FORMAT, &file.display().to_string(), what);
        if images.dtype() != DType::U8 || images.rank() != 3 {
            let found = images.spec();
            return Err(said(&image_file, format!("images are u8[n, h, w], but it holds {found}")));
        }
        if labels.dtype() != DType::U8 || labels.rank() != 1 {
            let found = labels.spec();
            return Err(said(&label_file, format!("labels are u8[n], but it holds {found}")));
        }
        let (n, m) = (images.shape()[0], labels.shape()[0]);
        if n != m {
            let other = image_file.display();
            let message = format!("it holds {m} labels, but {other} holds {n} images");
            return Err(said(&label_file, message));
        }
        let bytes = labels.try_to_vec::<u8>()?;
        if let Some(i) = bytes.iter().position(|&label| usize::from(label) >= classes.len()) {
            let message = format!("label {i} is {}, and classes are from 0 to 9", bytes[i]);
            return Err(said(&label_file, message));
        }
        Ok(Mnist { images, labels: labels.cast(DType::I64), classes })
    }

    /// All images as bytes, `u8[n, h, w]`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::{Mnist, write_idx};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # write_idx(folder.join("t10k-images-idx3-ubyte"), &Tensor::full([2, 28, 28], 255u8))?;
    /// # write_idx(folder.join("t10k-labels-idx1-ubyte"), &Tensor::from([3u8, 9]))?;
    /// assert_eq!(Mnist::open(folder, false)?.images().shape(), [2, 28, 28]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn images(&self) -> &Tensor {
        &self.images
    }

    /// The class of each item, `i64[n]`: PyTorch's `targets`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::{Mnist, write_idx};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # write_idx(folder.join("t10k-images-idx3-ubyte"), &Tensor::full([2, 28, 28], 255u8))?;
    /// # write_idx(folder.join("t10k-labels-idx1-ubyte"), &Tensor::from([3u8, 9]))?;
    /// assert_eq!(Mnist::open(folder, false)?.labels().to_vec::<i64>(), [3, 9]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[doc(alias = "targets")]
    pub fn labels(&self) -> &Tensor {
        &self.labels
    }

    /// The names of the classes.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::{Mnist, write_idx};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # write_idx(folder.join("t10k-images-idx3-ubyte"), &Tensor::full([2, 28, 28], 255u8))?;
    /// # write_idx(folder.join("t10k-labels-idx1-ubyte"), &Tensor::from([3u8, 9]))?;
    /// assert_eq!(Mnist::open(folder, false)?.classes()[3], "3");
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn classes(&self) -> &[&'static str] {
        &self.classes
    }
}

impl Dataset for Mnist {
    type Item = (Tensor, i64);

    fn len(&self) -> usize {
        self.images.shape()[0]
    }

    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        check_index(index, self.len())?;
        let at = index as isize;
        let label = self.labels.select_at(0, at).try_item::<i64>()?;
        let image = catch(|| no_grad(|| unit(&self.images.select_at(0, at).unsqueeze(0))))?;
        Ok((image, label))
    }
}

/// Bytes as floats from 0 to 1.
pub(super) fn unit(bytes: &Tensor) -> Tensor {
    bytes.cast(DType::F32) / 255.0
}

/// The file in one of the places where it may be.
fn find(root: &Path, folder: &str, name: &str) -> Result<PathBuf> {
    // Some copies have a dot for the last dash but one.
    let dotted = name.replacen("-idx", ".idx", 1);
    let folders = [root.to_path_buf(), root.join(folder).join("raw"), root.join("raw")];
    let names = [name.to_string(), format!("{name}.gz"), dotted.clone(), format!("{dotted}.gz")];
    let all = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    all.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let message =
            format!("there is no {name} or {name}.gz in it, nor in {folder}/raw below it");
        wrong(FORMAT, &root.display().to_string(), message)
    })
}
