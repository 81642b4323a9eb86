use crate::distributions::{Beta, Distribution};
use crate::refuse::demand;
use pullback::{DType, Error, Key, Result, Tensor, catch};

const NAME: &str = "MixUp";

/// Mixes the images and labels of a batch in pairs: `torchvision.transforms.v2.MixUp`.
///
/// Each image is λ times itself plus 1 − λ times its neighbour in the batch, with λ drawn from
/// Beta(alpha, alpha), and so is its label as a vector of probabilities. It works on batches:
///
/// ```
/// use pullback_nn::data::transforms::MixUp;
/// use pullback_nn::data::{DataLoader, digits};
///
/// let mix_up = MixUp::new(10).alpha(0.2);
/// let loader = DataLoader::new(digits()?.train_set()?).batch_size(32).shuffle(0).num_workers(2);
/// let loader = loader.map_random(move |batch, key| mix_up.apply(batch, &key));
/// let (images, labels) = loader.iter().next().unwrap()?;
/// assert_eq!((images.shape(), labels.shape()), (&[32, 1, 8, 8][..], &[32, 10][..]));
/// assert!((labels.sum_over(1) - 1.0).abs().max().item::<f32>() < 1e-6);
/// # Ok::<(), pullback::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MixUp {
    alpha: f64,
    num_classes: usize,
}

impl MixUp {
    /// MixUp for labels from 0 to `num_classes` − 1, with `alpha` 1.
    ///
    /// ```
    /// use pullback::{Key, Tensor};
    /// use pullback_nn::data::transforms::MixUp;
    /// let batch = (Tensor::zeros([4, 1, 2, 2]), Tensor::from([0i64, 1, 2, 0]));
    /// let (_, labels) = MixUp::new(3).apply(batch, &Key::new(0))?;
    /// assert_eq!(labels.shape(), [4, 3]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new(num_classes: usize) -> MixUp {
        MixUp { alpha: 1.0, num_classes }
    }

    /// Both parameters of the beta distribution of λ; 1 by default, which is uniform.
    ///
    /// ```
    /// use pullback::{Key, Tensor};
    /// use pullback_nn::data::transforms::MixUp;
    /// // With a small `alpha`, λ is close to 0 or to 1.
    /// let batch = (Tensor::zeros([2, 1]), Tensor::from([0i64, 1]));
    /// let (_, labels) = MixUp::new(2).alpha(1e-3).apply(batch, &Key::new(0))?;
    /// assert!(labels.max().item::<f32>() > 0.99);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If `alpha` is not positive and finite.
    #[track_caller]
    #[must_use]
    pub fn alpha(self, alpha: f64) -> MixUp {
        demand(alpha > 0.0 && alpha.is_finite(), NAME, || {
            format!("alpha must be positive and finite, not {alpha}")
        });
        MixUp { alpha, ..self }
    }

    /// Mixes a batch: images `[n, ..]` of floats, and labels of integers `[n]` or probabilities
    /// `[n, num_classes]`, which become `f32[n, num_classes]`.
    ///
    /// ```
    /// use pullback::{Key, Tensor};
    /// use pullback_nn::data::transforms::MixUp;
    /// let batch = (Tensor::from([[0.0f32], [1.0]]), Tensor::from([0i64, 1]));
    /// let (images, labels) = MixUp::new(2).apply(batch, &Key::new(0))?;
    /// // The second image is 1 where its label is 1.
    /// assert_eq!(images.to_vec::<f32>()[1], labels.to_vec::<f32>()[3]);
    /// assert!(MixUp::new(2).apply((images, Tensor::from([0i64])), &Key::new(0)).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the images are not floats, the labels do not fit them, or a label is not a class.
    pub fn apply(&self, (images, labels): (Tensor, Tensor), key: &Key) -> Result<(Tensor, Tensor)> {
        if !images.dtype().is_float() || images.rank() == 0 {
            let message = format!("takes a batch [n, ..] of floats, not {}", images.spec());
            return Err(Error::dtype(NAME, message).hint("use ConvertImageDtype before"));
        }
        let (n, classes) = (images.shape()[0], self.num_classes);
        let labels = match (labels.dtype().is_float(), labels.shape()) {
            (false, &[m]) if m == n => catch(|| labels.one_hot(classes, DType::F32))?,
            (true, &[m, k]) if m == n && k == classes => labels,
            _ => {
                let found = labels.spec();
                let message = format!(
                    "takes labels i64[{n}] or probabilities [{n}, {classes}] with {n} images, not {found}"
                );
                return Err(Error::shape(NAME, message));
            }
        };
        let lambda = catch(|| {
            let both = Tensor::from(self.alpha);
            Beta::new(&both, &both).sample_with(key, &[]).item::<f64>()
        })?;
        let mixed = |x: &Tensor| x * lambda + x.roll(1, 0) * (1.0 - lambda);
        catch(|| (mixed(&images), mixed(&labels)))
    }
}
