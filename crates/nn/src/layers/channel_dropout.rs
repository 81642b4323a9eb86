//! Whole channels dropped at random while training.

use super::dimensions::tree_by_axes;
use super::dropout::probability;
use crate::{Layer, module_scope};
use pullback::{Flag, Tensor, next_key_on};

/// [`ChannelDropout`] over one axis.
pub type Dropout1d = ChannelDropout<1>;
/// [`ChannelDropout`] over two axes.
pub type Dropout2d = ChannelDropout<2>;
/// [`ChannelDropout`] over three axes.
pub type Dropout3d = ChannelDropout<3>;

/// [`Dropout`](crate::Dropout) of whole channels, which are followed by `N` axes. Known as
/// [`Dropout1d`], [`Dropout2d`] and [`Dropout3d`].
#[derive(Clone)]
pub struct ChannelDropout<const N: usize> {
    /// The probability of a zero.
    pub p: f64,
    /// Whether it drops.
    pub training: Flag,
}

tree_by_axes!(ChannelDropout is ["Dropout1d", "Dropout2d", "Dropout3d"] { p, training });

impl<const N: usize> ChannelDropout<N> {
    /// Channels of zeros with probability `p`.
    ///
    /// # Panics
    /// If it is not a probability.
    #[track_caller]
    #[must_use]
    pub fn new(p: f64) -> Self {
        ChannelDropout { p: probability(Self::NAME, p), training: Flag::new(true) }
    }
}

impl<const N: usize> Layer for ChannelDropout<N> {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let y = match self.training.get() && self.p > 0.0 {
            true => x.channel_dropout(self.p, N, Some(&next_key_on(x.device()))),
            false => x.clone(),
        };
        scope.output(y)
    }
}
