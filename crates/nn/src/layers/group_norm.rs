//! Group normalisation.

use crate::refuse::demand;
use crate::{Layer, module_scope};
use pullback::{Tensor, Tree};

/// Group normalisation: the channels (axis 1) of each example in groups, each group to mean 0 and
/// variance 1, then `· weight + bias` per channel.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{GroupNorm, Layer};
/// let layer = GroupNorm::new(4, 16);
/// assert_eq!(layer.forward(&Tensor::randn([2, 16, 5, 5])).shape(), [2, 16, 5, 5]);
/// ```
#[derive(Clone, Tree)]
pub struct GroupNorm {
    /// `[channels]`, from ones.
    pub weight: Option<Tensor>,
    /// `[channels]`, from zeros.
    pub bias: Option<Tensor>,
    /// The number of groups.
    pub num_groups: usize,
    /// The number of channels.
    pub num_channels: usize,
    /// The number added to the variance.
    pub eps: f64,
}

impl GroupNorm {
    /// With `num_channels` channels in `num_groups` groups.
    ///
    /// ```
    /// # use pullback_nn::GroupNorm;
    /// let layer = GroupNorm::new(4, 16);
    /// assert_eq!(layer.weight.unwrap().shape(), [16]);
    /// ```
    ///
    /// # Panics
    /// If `num_channels` is not a positive multiple of `num_groups`.
    #[track_caller]
    #[must_use]
    pub fn new(num_groups: usize, num_channels: usize) -> GroupNorm {
        demand(
            num_groups > 0 && num_channels > 0 && num_channels.is_multiple_of(num_groups),
            "GroupNorm",
            || format!("{num_channels} channels are not divisible by {num_groups} groups"),
        );
        GroupNorm {
            weight: Some(Tensor::ones([num_channels]).requires_grad()),
            bias: Some(Tensor::zeros([num_channels]).requires_grad()),
            num_groups,
            num_channels,
            eps: 1e-5,
        }
    }

    /// The number added to the variance; 1e-5 by default.
    ///
    /// ```
    /// # use pullback_nn::GroupNorm;
    /// assert_eq!(GroupNorm::new(4, 16).eps(1e-3).eps, 1e-3);
    /// ```
    #[must_use]
    pub fn eps(self, eps: f64) -> GroupNorm {
        GroupNorm { eps, ..self }
    }

    /// Without weight and bias (PyTorch's `affine=False`).
    ///
    /// ```
    /// # use pullback_nn::{GroupNorm, Module};
    /// assert_eq!(GroupNorm::new(4, 16).without_affine().parameters().len(), 0);
    /// ```
    #[must_use]
    #[doc(alias = "affine")]
    pub fn without_affine(self) -> GroupNorm {
        GroupNorm { weight: None, bias: None, ..self }
    }
}

impl Layer for GroupNorm {
    /// # Panics
    /// If `x` does not have `num_channels` channels on axis 1, or float dtypes are mixed.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        demand(x.rank() >= 2 && x.shape()[1] == self.num_channels, "GroupNorm", || {
            format!("takes [n, {}, …], not {}", self.num_channels, x.spec())
        });
        let (weight, bias) = (self.weight.as_ref(), self.bias.as_ref());
        scope.output(x.group_norm(self.num_groups, weight, bias, self.eps))
    }
}
