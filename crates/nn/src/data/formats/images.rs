//! Folders of images, one folder a class.

use super::wrong;
use crate::data::Dataset;
use crate::data::dataset::check_index;
use image::imageops::FilterType;
use image::{ImageReader, Limits};
use pullback::{Error, Result, Tensor, catch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FORMAT: &str = "images";
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];
/// A picture that would take more is refused: 256 MiB.
const MOST_MEMORY: u64 = 256 << 20;

/// The dtype and range of the pixels of an [`ImageFolder`].
#[derive(Clone, Debug, PartialEq)]
pub enum Pixels {
    /// Bytes from 0 to 255, `u8`.
    Bytes,
    /// From 0 to 1, `f32`.
    Unit,
    /// From 0 to 1, minus the mean and divided by the standard deviation of each channel; `f32`.
    Normalised {
        /// The mean of each channel.
        mean: Vec<f32>,
        /// The standard deviation of each channel.
        std: Vec<f32>,
    },
}

/// A folder with one folder of PNG and JPEG files for each class: items are `([channels, height,
/// width], class)`.
///
/// Classes are the folders in sorted order; the files of a class, those in nested folders included,
/// come in sorted order. Files with other extensions are ignored; a file that cannot be decoded is
/// an error that names it, when it is read.
///
/// ```
/// use image::{Rgb, RgbImage};
/// use pullback_nn::data::transforms::RandomHorizontalFlip;
/// use pullback_nn::data::{DataLoader, Dataset, ImageFolder};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// for class in ["cat", "dog"] {
///     std::fs::create_dir(folder.join(class)).unwrap();
///     let picture = RgbImage::from_pixel(6, 4, Rgb([255, 0, 0]));
///     picture.save(folder.join(class).join("1.png")).unwrap();
/// }
/// let pictures = ImageFolder::open(folder)?.resize(8, 8);
/// assert_eq!(pictures.classes(), ["cat", "dog"]);
/// let pictures = pictures.transform(RandomHorizontalFlip::new(0.5));
/// let loader = DataLoader::new(pictures).batch_size(2).shuffle(0).num_workers(2);
/// let (images, labels) = loader.iter().next().unwrap()?;
/// assert_eq!((images.shape(), labels.shape()), (&[2, 3, 8, 8][..], &[2][..]));
/// # Ok::<(), pullback::Error>(())
/// ```
pub struct ImageFolder {
    classes: Vec<String>,
    files: Vec<(PathBuf, i64)>,
    size: Option<(u32, u32)>,
    gray: bool,
    pixels: Pixels,
}

impl ImageFolder {
    /// Lists the files of a folder; they are read on access.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, ImageFolder};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// std::fs::create_dir(folder.join("cat")).unwrap();
    /// image::RgbImage::new(6, 4).save(folder.join("cat/1.png")).unwrap();
    /// let (image, class) = ImageFolder::open(folder)?.get(0)?;
    /// assert_eq!((image.shape(), class), (&[3, 4, 6][..], 0));
    /// assert!(ImageFolder::open("missing").is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the folder cannot be listed, has no folders in it, or one of them has no image.
    pub fn open(path: impl AsRef<Path>) -> Result<ImageFolder> {
        ImageFolder::with_extensions(path, &ENDINGS)
    }

    /// [`ImageFolder::open`] with only the files that have one of these extensions, in upper or
    /// lower case: torchvision's `extensions`. The format, PNG or JPEG, is detected from the
    /// content.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, ImageFolder};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// std::fs::create_dir(folder.join("cat")).unwrap();
    /// image::RgbImage::new(6, 4).save(folder.join("cat/1.png")).unwrap();
    /// image::RgbImage::new(6, 4).save(folder.join("cat/2.jpg")).unwrap();
    /// assert_eq!(ImageFolder::with_extensions(folder, &["png"])?.len(), 1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`ImageFolder::open`].
    #[doc(alias = "extensions")]
    pub fn with_extensions(path: impl AsRef<Path>, extensions: &[&str]) -> Result<ImageFolder> {
        let root = path.as_ref();
        // With or without the dot.
        let endings: Vec<&str> = extensions.iter().map(|e| e.trim_start_matches('.')).collect();
        let (mut classes, mut files) = (Vec::new(), Vec::new());
        for folder in listed(root)?.into_iter().filter(|entry| entry.is_dir()) {
            let before = files.len();
            let class = classes.len() as i64;
            gather(&folder, &endings, &mut |file| files.push((file, class)))?;
            if files.len() == before {
                let what = format!("there is no image in it that ends in {}", endings.join(", "));
                return Err(wrong(FORMAT, &folder.display().to_string(), what));
            }
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            classes.push(name.into_owned());
        }
        if classes.is_empty() {
            let what = "there is no folder in it, and each class is one";
            return Err(wrong(FORMAT, &root.display().to_string(), what));
        }
        Ok(ImageFolder { classes, files, size: None, gray: false, pixels: Pixels::Unit })
    }

    /// Resizes every image to this height and width. With a 0, reading an item is an `Err`.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, ImageFolder};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # std::fs::create_dir(folder.join("cat")).unwrap();
    /// # image::RgbImage::new(6, 4).save(folder.join("cat/1.png")).unwrap();
    /// let data = ImageFolder::open(folder)?.resize(8, 10);
    /// assert_eq!(data.get(0)?.0.shape(), [3, 8, 10]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn resize(self, height: u32, width: u32) -> ImageFolder {
        ImageFolder { size: Some((height, width)), ..self }
    }

    /// Converts every image to greyscale, with one channel.
    ///
    /// ```
    /// use pullback_nn::data::{Dataset, ImageFolder};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # std::fs::create_dir(folder.join("cat")).unwrap();
    /// # image::RgbImage::new(6, 4).save(folder.join("cat/1.png")).unwrap();
    /// let data = ImageFolder::open(folder)?.gray();
    /// assert_eq!(data.get(0)?.0.shape(), [1, 4, 6]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[doc(alias = "Grayscale")]
    #[must_use]
    pub fn gray(self) -> ImageFolder {
        ImageFolder { gray: true, ..self }
    }

    /// The dtype and range of the pixels: [`Pixels::Unit`] by default. With a number of means or
    /// deviations that is not the number of channels, reading an item is an `Err`.
    ///
    /// ```
    /// use pullback::DType;
    /// use pullback_nn::data::{Dataset, ImageFolder, Pixels};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # std::fs::create_dir(folder.join("cat")).unwrap();
    /// # image::RgbImage::new(6, 4).save(folder.join("cat/1.png")).unwrap();
    /// let data = ImageFolder::open(folder)?.pixels(Pixels::Bytes);
    /// assert_eq!(data.get(0)?.0.dtype(), DType::U8);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn pixels(self, pixels: Pixels) -> ImageFolder {
        ImageFolder { pixels, ..self }
    }

    /// The names of the classes; the class of an item is an index into this list.
    ///
    /// ```
    /// use pullback_nn::data::ImageFolder;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # for class in ["cat", "dog"] {
    /// #     std::fs::create_dir(folder.join(class)).unwrap();
    /// #     image::RgbImage::new(6, 4).save(folder.join(class).join("1.png")).unwrap();
    /// # }
    /// assert_eq!(ImageFolder::open(folder)?.classes(), ["cat", "dog"]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The class index of each name.
    ///
    /// ```
    /// use pullback_nn::data::ImageFolder;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # for class in ["cat", "dog"] {
    /// #     std::fs::create_dir(folder.join(class)).unwrap();
    /// #     image::RgbImage::new(6, 4).save(folder.join(class).join("1.png")).unwrap();
    /// # }
    /// assert_eq!(ImageFolder::open(folder)?.class_to_idx()["dog"], 1);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn class_to_idx(&self) -> BTreeMap<&str, i64> {
        self.classes.iter().enumerate().map(|(i, name)| (name.as_str(), i as i64)).collect()
    }

    /// The class of each item, for example to weight a
    /// [`WeightedRandomSampler`](crate::data::WeightedRandomSampler).
    ///
    /// ```
    /// use pullback_nn::data::ImageFolder;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # for class in ["cat", "dog"] {
    /// #     std::fs::create_dir(folder.join(class)).unwrap();
    /// #     image::RgbImage::new(6, 4).save(folder.join(class).join("1.png")).unwrap();
    /// # }
    /// assert_eq!(ImageFolder::open(folder)?.targets(), [0, 1]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn targets(&self) -> Vec<i64> {
        self.files.iter().map(|(_, class)| *class).collect()
    }

    /// The path and the class of each item: torchvision's `samples`.
    ///
    /// ```
    /// use pullback_nn::data::ImageFolder;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # for class in ["cat", "dog"] {
    /// #     std::fs::create_dir(folder.join(class)).unwrap();
    /// #     image::RgbImage::new(6, 4).save(folder.join(class).join("1.png")).unwrap();
    /// # }
    /// assert_eq!(ImageFolder::open(folder)?.files()[1], (folder.join("dog/1.png"), 1));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[doc(alias = "samples")]
    pub fn files(&self) -> &[(PathBuf, i64)] {
        &self.files
    }

    fn read(&self, path: &Path) -> Result<Tensor> {
        let name = path.display().to_string();
        let error = |e: &dyn std::fmt::Display| wrong(FORMAT, &name, e);
        let reader = ImageReader::open(path).map_err(|e| error(&e))?;
        // The format is taken from the bytes, not from the name.
        let mut reader = reader.with_guessed_format().map_err(|e| error(&e))?;
        let mut limits = Limits::default();
        limits.max_alloc = Some(MOST_MEMORY);
        reader.limits(limits);
        let mut image = reader.decode().map_err(|e| error(&e))?;
        if let Some((height, width)) = self.size {
            if height == 0 || width == 0 {
                return Err(error(&format!("it cannot be scaled to {height} by {width}")));
            }
            image = image.resize_exact(width, height, FilterType::Triangle);
        }
        let (height, width) = (image.height() as usize, image.width() as usize);
        let (channels, bytes) = match self.gray {
            true => (1, image.into_luma8().into_raw()),
            false => (3, image.into_rgb8().into_raw()),
        };
        if let Pixels::Normalised { mean, std } = &self.pixels
            && (mean.len() != channels || std.len() != channels)
        {
            let (m, s) = (mean.len(), std.len());
            let message = format!(
                "takes a mean and a standard deviation for each of {channels} channels, not {m} and {s}"
            );
            return Err(Error::argument(FORMAT, message));
        }
        // Channels come first in a tensor, last in a file.
        let plane = height * width;
        let at = |i: usize| bytes[i % plane * channels + i / plane];
        let shape = [channels, height, width];
        match &self.pixels {
            Pixels::Bytes => {
                let values: Vec<u8> = (0..bytes.len()).map(at).collect();
                catch(|| Tensor::from_vec(values, shape))
            }
            Pixels::Unit => {
                let values: Vec<f32> = (0..bytes.len()).map(|i| f32::from(at(i)) / 255.0).collect();
                catch(|| Tensor::from_vec(values, shape))
            }
            Pixels::Normalised { mean, std } => {
                let one = |i: usize| (f32::from(at(i)) / 255.0 - mean[i / plane]) / std[i / plane];
                let values: Vec<f32> = (0..bytes.len()).map(one).collect();
                catch(|| Tensor::from_vec(values, shape))
            }
        }
    }
}

impl Dataset for ImageFolder {
    type Item = (Tensor, i64);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        check_index(index, self.files.len())?;
        let (path, class) = &self.files[index];
        Ok((self.read(path)?, *class))
    }
}

/// What is in a folder, sorted.
fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let error = |e: std::io::Error| wrong(FORMAT, &folder.display().to_string(), e);
    let entries = std::fs::read_dir(folder).map_err(error)?;
    let mut paths =
        entries.map(|entry| Ok(entry.map_err(error)?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Calls `found` with every image in a folder and the folders in it. Links to folders are not
/// followed: they may form cycles.
fn gather(folder: &Path, endings: &[&str], found: &mut dyn FnMut(PathBuf)) -> Result<()> {
    for path in listed(folder)? {
        if path.is_dir() {
            if !path.is_symlink() {
                gather(&path, endings, found)?;
            }
            continue;
        }
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if endings.iter().any(|known| ending.eq_ignore_ascii_case(known)) {
            found(path);
        }
    }
    Ok(())
}
