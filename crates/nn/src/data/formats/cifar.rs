//! CIFAR-10 and CIFAR-100, the binary version.
//!
//! A file is records one after another: the label, a byte (for CIFAR-100 two, the coarse one and
//! the fine one), and 3,072 bytes of pixels, 32×32 of red, of green and of blue.

use super::mnist::unit;
use super::{read_text, wrong};
use crate::data::Dataset;
use crate::data::dataset::check_index;
use pullback::{Result, Tensor, catch};
use std::path::{Path, PathBuf};

const FORMAT: &str = "cifar";
const SIDE: usize = 32;
const PIXELS: usize = 3 * SIDE * SIDE;

/// One of the two data sets.
struct CifarVariant {
    title: &'static str,
    /// The folder in the archive of the binary version, and in that of the Python version.
    folders: (&'static str, &'static str),
    archive: &'static str,
    train: &'static [&'static str],
    test: &'static str,
    /// Bytes of labels in a record.
    labels: usize,
}

const TEN: CifarVariant = CifarVariant {
    title: "CIFAR-10",
    folders: ("cifar-10-batches-bin", "cifar-10-batches-py"),
    archive: "cifar-10-binary.tar.gz",
    train: &[
        "data_batch_1.bin",
        "data_batch_2.bin",
        "data_batch_3.bin",
        "data_batch_4.bin",
        "data_batch_5.bin",
    ],
    test: "test_batch.bin",
    labels: 1,
};

const HUNDRED: CifarVariant = CifarVariant {
    title: "CIFAR-100",
    folders: ("cifar-100-binary", "cifar-100-python"),
    archive: "cifar-100-binary.tar.gz",
    train: &["train.bin"],
    test: "test.bin",
    labels: 2,
};

/// Records in memory.
struct Records {
    /// 3,072 bytes an image.
    pixels: Vec<u8>,
    /// The labels of each record, one column after another.
    labels: [Vec<i64>; 2],
}

impl CifarVariant {
    /// The folder that the files are in.
    fn folder(&self, root: &Path) -> Result<PathBuf> {
        let said = |what: String| Err(wrong(FORMAT, &root.display().to_string(), what));
        let places = [root.to_path_buf(), root.join(self.folders.0)];
        if let Some(place) = places.iter().find(|place| place.join(self.test).is_file()) {
            return Ok(place.clone());
        }
        let (archive, title, test) = (self.archive, self.title, self.test);
        let python = |place: &Path| {
            place.join(self.folders.1).is_dir()
                || place.join("batches.meta").is_file()
                || place.join(test.trim_end_matches(".bin")).is_file()
        };
        if python(root) {
            return said(format!(
                "this is the Python version of {title}, which contains pickles: take the binary version, {archive}"
            ));
        }
        if root.join(archive).is_file() {
            return said(format!("{archive} is here, but not unpacked: run `tar xf {archive}`"));
        }
        said(format!(
            "there is no {test} in it, nor in {} below it: they are in {archive}, the binary version of {title}",
            self.folders.0
        ))
    }

    fn read(&self, root: &Path, train: bool) -> Result<(Records, PathBuf)> {
        let folder = self.folder(root)?;
        let mut records = Records { pixels: Vec::new(), labels: [Vec::new(), Vec::new()] };
        let files = if train { self.train } else { std::slice::from_ref(&self.test) };
        for file in files {
            self.add(&folder.join(file), &mut records)?;
        }
        Ok((records, folder))
    }

    fn add(&self, path: &Path, records: &mut Records) -> Result<()> {
        let said = |what: String| wrong(FORMAT, &path.display().to_string(), what);
        let bytes = std::fs::read(path).map_err(|e| said(e.to_string()))?;
        let size = self.labels + PIXELS;
        if bytes.is_empty() || bytes.len() % size != 0 {
            let n = bytes.len();
            return Err(said(format!(
                "a record has {size} bytes, and the file has {n}: {} records and {} bytes",
                n / size,
                n % size
            )));
        }
        for (i, record) in bytes.chunks(size).enumerate() {
            let (labels, pixels) = record.split_at(self.labels);
            let limits = if self.labels == 1 { &[10][..] } else { &[20, 100] };
            for ((&label, &limit), column) in labels.iter().zip(limits).zip(&mut records.labels) {
                if label >= limit {
                    let (last, offset) = (limit - 1, i * size);
                    return Err(said(format!(
                        "the label of record {i}, at offset {offset}, is {label}, and classes are from 0 to {last}"
                    )));
                }
                column.push(i64::from(label));
            }
            records.pixels.extend_from_slice(pixels);
        }
        Ok(())
    }
}

impl Records {
    fn image(&self, index: usize) -> Result<Tensor> {
        let bytes = &self.pixels[index * PIXELS..][..PIXELS];
        catch(|| unit(&Tensor::from_vec(bytes, [3, SIDE, SIDE])))
    }

    fn len(&self) -> usize {
        self.pixels.len() / PIXELS
    }
}

/// The names of classes: a file beside the data, one a line, as many as there should be.
fn names(path: &Path, count: usize) -> Result<Vec<String>> {
    if !path.is_file() {
        return Ok((0..count).map(|i| i.to_string()).collect());
    }
    let text = read_text(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let names: Vec<String> = lines.map(str::to_string).collect();
    if names.len() != count {
        let message = format!("it names {} classes, and there are {count}", names.len());
        return Err(wrong(FORMAT, &path.display().to_string(), message));
    }
    Ok(names)
}

/// CIFAR-10 from the files of its binary version: items are `(f32[3, 32, 32] from 0 to 1, class)`.
///
/// ```
/// use pullback_nn::data::{Cifar10, Dataset};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// // A record is a label and 3,072 pixels.
/// let record = |label| [vec![label], vec![51; 3072]].concat();
/// std::fs::write(folder.join("test_batch.bin"), [record(3), record(8)].concat()).unwrap();
/// let data = Cifar10::open(folder, false)?;
/// let (image, label) = data.get(1)?;
/// assert_eq!((image.shape(), image.max().item::<f32>()), (&[3, 32, 32][..], 0.2));
/// assert_eq!(data.classes()[label as usize], "ship");
/// # Ok::<(), pullback::Error>(())
/// ```
#[doc(alias = "CIFAR10")]
pub struct Cifar10 {
    records: Records,
}

const TEN_CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

impl Cifar10 {
    /// Reads the 50,000 training images, or the 10,000 test images, from the folder with
    /// `test_batch.bin` or the one above it.
    ///
    /// ```
    /// use pullback_nn::data::{Cifar10, Dataset};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// std::fs::write(folder.join("test_batch.bin"), [vec![6], vec![255; 3072]].concat()).unwrap();
    /// let data = Cifar10::open(folder, false)?;
    /// assert_eq!((data.len(), data.get(0)?.1), (1, 6));
    /// assert!(Cifar10::open("missing", false).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a file is missing, damaged, or of the Python version (pickles); the message names the
    /// file, what was expected and what was found.
    pub fn open(root: impl AsRef<Path>, train: bool) -> Result<Cifar10> {
        Ok(Cifar10 { records: TEN.read(root.as_ref(), train)?.0 })
    }

    /// The names of the classes.
    ///
    /// ```
    /// use pullback_nn::data::Cifar10;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # let record = [vec![6], vec![255; 3072]].concat();
    /// # std::fs::write(folder.join("test_batch.bin"), record).unwrap();
    /// let data = Cifar10::open(folder, false)?;
    /// assert_eq!((data.classes().len(), data.classes()[6]), (10, "frog"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn classes(&self) -> &'static [&'static str] {
        &TEN_CLASSES
    }

    /// The class of each item: PyTorch's `targets`.
    ///
    /// ```
    /// use pullback_nn::data::Cifar10;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # let record = [vec![6], vec![255; 3072]].concat();
    /// # std::fs::write(folder.join("test_batch.bin"), record).unwrap();
    /// let data = Cifar10::open(folder, false)?;
    /// assert_eq!(data.labels(), [6]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[doc(alias = "targets")]
    pub fn labels(&self) -> &[i64] {
        &self.records.labels[0]
    }
}

impl Dataset for Cifar10 {
    type Item = (Tensor, i64);

    fn len(&self) -> usize {
        self.records.len()
    }

    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        check_index(index, self.len())?;
        Ok((self.records.image(index)?, self.records.labels[0][index]))
    }
}

/// CIFAR-100 from the files of its binary version: items are `(f32[3, 32, 32] from 0 to 1, class)`.
///
/// The class is the fine one of a hundred, or with [`Cifar100::coarse`] one of twenty.
///
/// ```
/// use pullback_nn::data::{Cifar100, Dataset};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// std::fs::write(folder.join("test.bin"), [vec![7, 63], vec![0; 3072]].concat()).unwrap();
/// let data = Cifar100::open(folder, false)?;
/// assert_eq!(data.get(0)?.1, 63);
/// assert_eq!(data.coarse().get(0)?.1, 7);
/// # Ok::<(), pullback::Error>(())
/// ```
#[doc(alias = "CIFAR100")]
pub struct Cifar100 {
    records: Records,
    /// Those of the coarse classes, and of the fine ones.
    classes: [Vec<String>; 2],
    fine: bool,
}

impl Cifar100 {
    /// Reads the 50,000 training images, or the 10,000 test images, from the folder with `test.bin`
    /// or the one above it.
    ///
    /// ```
    /// use pullback_nn::data::{Cifar100, Dataset};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// // A record is a coarse label, a fine label and 3,072 pixels.
    /// std::fs::write(folder.join("train.bin"), [vec![7, 63], vec![0; 3072]].concat()).unwrap();
    /// # std::fs::write(folder.join("test.bin"), [vec![7, 63], vec![0; 3072]].concat()).unwrap();
    /// let data = Cifar100::open(folder, true)?;
    /// assert_eq!((data.len(), data.get(0)?.1), (1, 63));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a file is missing, damaged, or of the Python version (pickles); the message names the
    /// file, what was expected and what was found.
    pub fn open(root: impl AsRef<Path>, train: bool) -> Result<Cifar100> {
        let (records, folder) = HUNDRED.read(root.as_ref(), train)?;
        let coarse = names(&folder.join("coarse_label_names.txt"), 20)?;
        let fine = names(&folder.join("fine_label_names.txt"), 100)?;
        Ok(Cifar100 { records, classes: [coarse, fine], fine: true })
    }

    /// Takes the 20 coarse classes as labels.
    ///
    /// ```
    /// use pullback_nn::data::{Cifar100, Dataset};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # std::fs::write(folder.join("test.bin"), [vec![7, 63], vec![0; 3072]].concat()).unwrap();
    /// let data = Cifar100::open(folder, false)?.coarse();
    /// assert_eq!((data.get(0)?.1, data.classes().len()), (7, 20));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn coarse(self) -> Cifar100 {
        Cifar100 { fine: false, ..self }
    }

    /// The names of the classes, from `fine_label_names.txt` or `coarse_label_names.txt` next to
    /// the data; without the file, their numbers.
    ///
    /// ```
    /// use pullback_nn::data::Cifar100;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # std::fs::write(folder.join("test.bin"), [vec![7, 63], vec![0; 3072]].concat()).unwrap();
    /// let data = Cifar100::open(folder, false)?;
    /// assert_eq!((data.classes().len(), &data.classes()[63][..]), (100, "63"));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn classes(&self) -> &[String] {
        &self.classes[usize::from(self.fine)]
    }

    /// The class of each item: PyTorch's `targets`.
    ///
    /// ```
    /// use pullback_nn::data::Cifar100;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// # std::fs::write(folder.join("test.bin"), [vec![7, 63], vec![0; 3072]].concat()).unwrap();
    /// let data = Cifar100::open(folder, false)?;
    /// assert_eq!(data.labels(), [63]);
    /// assert_eq!(data.coarse().labels(), [7]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[doc(alias = "targets")]
    pub fn labels(&self) -> &[i64] {
        &self.records.labels[usize::from(self.fine)]
    }
}

impl Dataset for Cifar100 {
    type Item = (Tensor, i64);

    fn len(&self) -> usize {
        self.records.len()
    }

    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        check_index(index, self.len())?;
        Ok((self.records.image(index)?, self.labels()[index]))
    }
}
