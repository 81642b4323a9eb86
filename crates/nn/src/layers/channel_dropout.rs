//! Dropout of whole channels.

use super::dimensions::tree_by_axes;
use super::dropout::probability;
use crate::{Layer, module_scope};
use pullback::{Flag, Tensor, next_key_on};

/// [`ChannelDropout`] with one axis after the channels: `[n, channels, l]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Dropout1d, Layer};
/// let y = Dropout1d::new(0.5).forward(&Tensor::ones([4, 8, 5]));
/// assert_eq!(y.shape(), [4, 8, 5]);
/// // Whole channels are 0, or multiplied by 1/(1 − p).
/// let sums = y.sum_over(2).to_vec::<f32>();
/// assert!(sums.iter().all(|&sum| sum == 0.0 || sum == 10.0));
/// ```
pub type Dropout1d = ChannelDropout<1>;
/// [`ChannelDropout`] with two axes after the channels: `[n, channels, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Dropout2d, Layer, Module};
/// let layer = Dropout2d::new(0.5);
/// assert_eq!(layer.forward(&Tensor::ones([4, 8, 5, 5])).shape(), [4, 8, 5, 5]);
/// layer.eval();
/// assert_eq!(layer.forward(&Tensor::ones([1, 2, 1, 1])).to_vec::<f32>(), [1.0, 1.0]);
/// ```
pub type Dropout2d = ChannelDropout<2>;
/// [`ChannelDropout`] with three axes after the channels: `[n, channels, d, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{Dropout3d, Layer};
/// let y = Dropout3d::new(0.5).forward(&Tensor::ones([4, 8, 2, 5, 5]));
/// assert_eq!(y.shape(), [4, 8, 2, 5, 5]);
/// ```
pub type Dropout3d = ChannelDropout<3>;

/// [`Dropout`](crate::Dropout) of whole channels, which are followed by `N` axes. Known as
/// [`Dropout1d`], [`Dropout2d`] and [`Dropout3d`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{ChannelDropout, Layer};
/// let y = ChannelDropout::<1>::new(1.0).forward(&Tensor::ones([2, 3, 4]));
/// assert_eq!((y.shape(), y.sum().item::<f32>()), (&[2, 3, 4][..], 0.0));
/// ```
#[derive(Clone)]
pub struct ChannelDropout<const N: usize> {
    /// The dropout probability.
    pub p: f64,
    /// Whether it is in training mode, in which elements are dropped.
    pub training: Flag,
}

tree_by_axes!(ChannelDropout is ["Dropout1d", "Dropout2d", "Dropout3d"] { p, training });

impl<const N: usize> ChannelDropout<N> {
    /// Drops channels with probability `p`.
    ///
    /// ```
    /// # use pullback_nn::Dropout2d;
    /// assert_eq!(Dropout2d::new(0.25).p, 0.25);
    /// ```
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[track_caller]
    #[must_use]
    pub fn new(p: f64) -> Self {
        ChannelDropout { p: probability(Self::NAME, p), training: Flag::new(true) }
    }
}

impl<const N: usize> Layer for ChannelDropout<N> {
    /// # Panics
    /// In training, if `x` is not `[n, c, …]` with one, two or three more axes, or that without
    /// `n`.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = match self.training.get() && self.p > 0.0 {
            true => x.channel_dropout(self.p, N, Some(&next_key_on(x.device()))),
            false => x.clone(),
        };
        scope.output(y)
    }
}
