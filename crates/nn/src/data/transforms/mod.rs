//! Transforms of images, with torchvision's names and options.
//!
//! An image is a tensor `[channels, height, width]`: floats from 0 to 1, or `u8` from 0 to 255. A
//! [`Transform`] makes another image of it; [`Transform::then`] and [`Compose`] chain them, and
//! [`Dataset::transform`](super::Dataset::transform) applies them to the images of a data set. What
//! is random about an item follows from the seed of the loader, the epoch and the index of the
//! item, so batches are the same for any number of workers.
//!
//! ```
//! use pullback_nn::data::transforms::{Normalize, RandomCrop, RandomHorizontalFlip, Transform};
//! use pullback_nn::data::{DataLoader, Dataset, digits};
//!
//! let augment = RandomCrop::new(8).padding(1)
//!     .then(RandomHorizontalFlip::new(0.5))
//!     .then(Normalize::new([0.3], [0.37])?);
//! let data = digits()?.train_set()?.transform(augment);
//! let loader = DataLoader::new(data).batch_size(64).shuffle(0).num_workers(2);
//! let (images, labels) = loader.iter().next().unwrap()?;
//! assert_eq!((images.shape(), labels.shape()), (&[64, 1, 8, 8][..], &[64][..]));
//! # Ok::<(), pullback::Error>(())
//! ```
//!
//! [`MixUp`] works on batches: see [`DataLoader::map_random`](super::DataLoader::map_random).

mod color_jitter;
mod compose;
mod crop;
mod dtype;
mod erasing;
mod flip;
mod image;
mod mix_up;
mod normalize;
mod pad;
mod resize;
mod rotation;
mod transform;
mod transformed;

pub use color_jitter::{ColorJitter, IntoFactors};
pub use compose::{Compose, Lambda, RandomApply};
pub use crop::{CenterCrop, RandomCrop};
pub use dtype::{ConvertImageDtype, ToTensor};
pub use erasing::{Cutout, RandomErasing};
pub use flip::{RandomHorizontalFlip, RandomVerticalFlip};
pub use image::{InterpolationMode, Size};
pub use mix_up::MixUp;
pub use normalize::Normalize;
pub use pad::{Margins, PaddingMode};
pub use resize::Resize;
pub use rotation::{Degrees, RandomRotation};
pub use transform::Transform;
pub use transformed::{Transformed, WithImage};
