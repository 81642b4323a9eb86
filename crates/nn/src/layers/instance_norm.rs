//! Instance normalisation.

use super::dimensions::tree_by_axes;
use crate::refuse::{demand, unrecorded};
use crate::{Layer, module_scope};
use pullback::{Flag, Tensor};

/// Instance normalisation of `[n, channels, l]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{InstanceNorm1d, Layer};
/// let layer = InstanceNorm1d::new(8);
/// assert_eq!(layer.forward(&Tensor::randn([4, 8, 5])).shape(), [4, 8, 5]);
/// ```
pub type InstanceNorm1d = InstanceNorm<1>;
/// Instance normalisation of `[n, channels, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{InstanceNorm2d, Layer};
/// let layer = InstanceNorm2d::new(8).affine();
/// assert_eq!(layer.forward(&Tensor::randn([4, 8, 5, 5])).shape(), [4, 8, 5, 5]);
/// ```
pub type InstanceNorm2d = InstanceNorm<2>;
/// Instance normalisation of `[n, channels, d, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{InstanceNorm3d, Layer};
/// let layer = InstanceNorm3d::new(3);
/// assert_eq!(layer.forward(&Tensor::randn([2, 3, 4, 5, 5])).shape(), [2, 3, 4, 5, 5]);
/// ```
pub type InstanceNorm3d = InstanceNorm<3>;

/// Instance normalisation: each channel (axis 1) of each example to mean 0 and variance 1 over the
/// last `N` axes. The batch axis may be missing. Known as [`InstanceNorm1d`], [`InstanceNorm2d`]
/// and [`InstanceNorm3d`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{InstanceNorm, Layer};
/// let y = InstanceNorm::<2>::new(3).forward(&(Tensor::randn([2, 3, 8, 8]) + 5.0));
/// assert_eq!(y.shape(), [2, 3, 8, 8]);
/// assert!(y.mean_over([2, 3]).abs().max().item::<f32>() < 1e-5);
/// ```
#[derive(Clone)]
pub struct InstanceNorm<const N: usize> {
    /// `[channels]`, from ones; absent by default.
    pub weight: Option<Tensor>,
    /// `[channels]`, from zeros; absent by default.
    pub bias: Option<Tensor>,
    /// The running mean of each channel; absent by default.
    pub running_mean: Option<Tensor>,
    /// The running variance of each channel; absent by default.
    pub running_var: Option<Tensor>,
    /// Exists because PyTorch has it; it is not incremented there either.
    pub num_batches_tracked: Option<Tensor>,
    /// The number of channels.
    pub num_features: usize,
    /// The number added to the variance.
    pub eps: f64,
    /// The weight of the newest batch in the running statistics.
    pub momentum: f64,
    /// Whether running statistics, where there are some, follow the batch; else they are used.
    pub training: Flag,
}

tree_by_axes!(InstanceNorm is ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"] {
    weight, bias, num_features, eps, momentum, training;
    buffers running_mean, running_var, num_batches_tracked
});

impl<const N: usize> InstanceNorm<N> {
    /// For this many channels, without weights and running statistics.
    ///
    /// ```
    /// # use pullback_nn::{InstanceNorm2d, Module};
    /// let layer = InstanceNorm2d::new(8);
    /// assert_eq!((layer.parameter_count(), layer.eps), (0, 1e-5));
    /// ```
    ///
    /// # Panics
    /// If `num_features` is 0.
    #[track_caller]
    #[must_use]
    pub fn new(num_features: usize) -> Self {
        demand(num_features > 0, Self::NAME, || "takes at least one channel".into());
        InstanceNorm {
            weight: None,
            bias: None,
            running_mean: None,
            running_var: None,
            num_batches_tracked: None,
            num_features,
            eps: 1e-5,
            momentum: 0.1,
            training: Flag::new(true),
        }
    }

    /// The number added to the variance; 1e-5 by default.
    ///
    /// ```
    /// # use pullback_nn::InstanceNorm2d;
    /// assert_eq!(InstanceNorm2d::new(8).eps(1e-3).eps, 1e-3);
    /// ```
    #[must_use]
    pub fn eps(self, eps: f64) -> Self {
        InstanceNorm { eps, ..self }
    }

    /// The weight of the newest batch in the running statistics; 0.1 by default.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{InstanceNorm1d, Layer};
    /// let layer = InstanceNorm1d::new(1).track_running_stats().momentum(0.5);
    /// layer.forward(&Tensor::from([[[3f32, 5.0]]]));
    /// assert_eq!(layer.running_mean.unwrap().to_vec::<f32>(), [2.0]);
    /// ```
    #[must_use]
    pub fn momentum(self, momentum: f64) -> Self {
        InstanceNorm { momentum, ..self }
    }

    /// With a weight and a bias per channel.
    ///
    /// ```
    /// # use pullback_nn::{InstanceNorm2d, Module};
    /// assert_eq!(InstanceNorm2d::new(8).affine().parameter_count(), 16);
    /// ```
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn affine(self) -> Self {
        let channels = self.num_features;
        let weight = Some(Tensor::ones([channels]).requires_grad());
        InstanceNorm { weight, bias: Some(Tensor::zeros([channels]).requires_grad()), ..self }
    }

    /// With running statistics, which are used in evaluation.
    ///
    /// ```
    /// # use pullback_nn::{InstanceNorm2d, Module};
    /// let layer = InstanceNorm2d::new(8).track_running_stats();
    /// assert_eq!(layer.named_buffers()[0].0, "running_mean");
    /// ```
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn track_running_stats(self) -> Self {
        let channels = self.num_features;
        InstanceNorm {
            running_mean: Some(Tensor::zeros([channels])),
            running_var: Some(Tensor::ones([channels])),
            num_batches_tracked: Some(Tensor::from(0i64)),
            ..self
        }
    }
}

impl<const N: usize> Layer for InstanceNorm<N> {
    /// # Panics
    /// If `x` does not have `num_features` channels on axis 1 (or 0, without a batch), or float
    /// dtypes are mixed; if there is only one value per channel, unless running statistics are
    /// used.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let alone = x.rank() == N + 1;
        let batch = if alone { x.unsqueeze(0) } else { x.clone() };
        let fits = batch.rank() == N + 2 && batch.shape()[1] == self.num_features;
        demand(fits, Self::NAME, || {
            let shape = ["[n, c, l]", "[n, c, h, w]", "[n, c, d, h, w]"][N - 1];
            format!("takes {shape} with c = {}, or no n, not {}", self.num_features, x.spec())
        });
        let (weight, bias, eps) = (self.weight.as_ref(), self.bias.as_ref(), self.eps);
        let running = self.running_mean.as_ref().zip(self.running_var.as_ref());
        let by_itself = running.is_none() || self.training.get();
        let several = batch.shape()[2..].iter().product::<usize>() > 1;
        demand(!by_itself || several, Self::NAME, || {
            format!("takes more than one value per channel, and {} has one", x.spec())
        });
        let y = match running {
            Some((mean, var)) if !by_itself => batch.channel_norm(mean, var, weight, bias, eps),
            Some(running) => {
                let (y, mean, var) =
                    batch.instance_norm_running(running, weight, bias, self.momentum, eps);
                unrecorded(|| {
                    running.0.copy_(mean);
                    running.1.copy_(var);
                });
                y
            }
            None => batch.instance_norm(weight, bias, eps),
        };
        scope.output(if alone { y.squeeze_axis(0) } else { y })
    }
}
