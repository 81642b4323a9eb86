//! Mirrored images.

use super::Transform;
use super::image::{coin, dimensions, probability, uniforms};
use crate::data::ItemSeed;
use pullback::{Result, Tensor, catch};

macro_rules! flips {
    ($(#[$doc:meta])* $name:ident $text:literal $axis:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            p: f64,
        }

        impl $name {
            /// Flips with probability `p`; torchvision's default is 0.5.
            ///
            /// ```
            /// use pullback::Tensor;
            /// use pullback_nn::data::ItemSeed;
            /// use pullback_nn::data::transforms::{RandomHorizontalFlip, RandomVerticalFlip};
            /// use pullback_nn::data::transforms::Transform;
            /// let both = RandomHorizontalFlip::new(1.0).then(RandomVerticalFlip::new(1.0));
            /// let image = Tensor::from([[[1.0, 2.0], [3.0, 4.0]]]);
            /// let flipped = both.apply(image, ItemSeed::new(0, 0, 0))?;
            /// assert_eq!(flipped.to_vec::<f64>(), [4.0, 3.0, 2.0, 1.0]);
            /// # Ok::<(), pullback::Error>(())
            /// ```
            ///
            /// # Panics
            /// If `p` is not between 0 and 1.
            #[track_caller]
            #[must_use]
            pub fn new(p: f64) -> $name {
                $name { p: probability($text, p) }
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::new(0.5)
            }
        }

        impl Transform for $name {
            /// # Errors
            /// If the image is not `[c, h, w]`.
            fn apply(&self, image: Tensor, seed: ItemSeed) -> Result<Tensor> {
                dimensions($text, &image)?;
                let [u] = uniforms(seed);
                if coin(u, self.p) { catch(|| image.flip($axis)) } else { Ok(image) }
            }
        }
    };
}

flips! {
    /// Left and right exchanged with probability `p`:
    /// `torchvision.transforms.RandomHorizontalFlip`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomHorizontalFlip, Transform};
    /// let image = Tensor::from([[[1.0, 2.0]]]);
    /// let y = RandomHorizontalFlip::new(1.0).apply(image, ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(y.to_vec::<f64>(), [2.0, 1.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    RandomHorizontalFlip "RandomHorizontalFlip" 2
}

flips! {
    /// Top and bottom exchanged with probability `p`:
    /// `torchvision.transforms.RandomVerticalFlip`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::ItemSeed;
    /// use pullback_nn::data::transforms::{RandomVerticalFlip, Transform};
    /// let image = Tensor::from([[[1.0], [2.0]]]);
    /// let y = RandomVerticalFlip::new(1.0).apply(image, ItemSeed::new(0, 0, 0))?;
    /// assert_eq!(y.to_vec::<f64>(), [2.0, 1.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    RandomVerticalFlip "RandomVerticalFlip" 1
}
