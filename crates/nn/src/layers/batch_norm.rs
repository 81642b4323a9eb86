//! Batch normalisation.

use super::dimensions::tree_by_axes;
use crate::refuse::{demand, unrecorded};
use crate::{Layer, module_scope};
use pullback::{DType, Flag, Group, Tensor, cat};

/// Batch normalisation of `[n, channels]` or `[n, channels, l]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{BatchNorm1d, Layer};
/// let layer = BatchNorm1d::new(3);
/// assert_eq!(layer.forward(&Tensor::randn([8, 3])).shape(), [8, 3]);
/// assert_eq!(layer.forward(&Tensor::randn([8, 3, 5])).shape(), [8, 3, 5]);
/// ```
pub type BatchNorm1d = BatchNorm<1>;
/// Batch normalisation of `[n, channels, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{BatchNorm2d, Layer, Module};
/// let layer = BatchNorm2d::new(8);
/// layer.forward(&Tensor::randn([4, 8, 5, 5]));
/// assert_eq!(layer.num_batches_tracked.as_ref().unwrap().item::<i64>(), 1);
/// layer.eval();
/// ```
pub type BatchNorm2d = BatchNorm<2>;
/// Batch normalisation of `[n, channels, d, h, w]`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{BatchNorm3d, Layer};
/// let layer = BatchNorm3d::new(3);
/// assert_eq!(layer.forward(&Tensor::randn([2, 3, 4, 5, 5])).shape(), [2, 3, 4, 5, 5]);
/// ```
pub type BatchNorm3d = BatchNorm<3>;

/// Batch normalisation: each channel (axis 1) to mean 0 and variance 1 over the batch and the other
/// axes, then `· weight + bias`. In evaluation ([`Module::eval`](crate::Module::eval)) the running
/// mean and variance of the training batches are used instead. Known as [`BatchNorm1d`],
/// [`BatchNorm2d`] and [`BatchNorm3d`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::{BatchNorm, Layer};
/// let layer = BatchNorm::<2>::new(3);
/// let y = layer.forward(&(Tensor::randn([8, 3, 5, 5]) * 4.0 + 7.0));
/// assert_eq!(y.shape(), [8, 3, 5, 5]);
/// assert!(y.mean().item::<f32>().abs() < 1e-5);
/// ```
#[derive(Clone)]
pub struct BatchNorm<const N: usize> {
    /// `[channels]`, from ones.
    pub weight: Option<Tensor>,
    /// `[channels]`, from zeros.
    pub bias: Option<Tensor>,
    /// The running mean of each channel, from zeros.
    pub running_mean: Option<Tensor>,
    /// The running variance of each channel, from ones.
    pub running_var: Option<Tensor>,
    /// The number of batches in the running statistics.
    pub num_batches_tracked: Option<Tensor>,
    /// The number of channels.
    pub num_features: usize,
    /// The number added to the variance.
    pub eps: f64,
    /// The weight of the newest batch in the running statistics; `None` gives every batch the same.
    pub momentum: Option<f64>,
    /// Whether the batch is normalised by its own statistics, and the running ones follow it.
    pub training: Flag,
    /// The workers whose batches are normalised as one.
    pub workers: Option<Group>,
}

tree_by_axes!(BatchNorm is ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"] {
    weight, bias, num_features, eps, momentum, training;
    buffers running_mean, running_var, num_batches_tracked;
    skipped workers
});

impl<const N: usize> BatchNorm<N> {
    /// For this many channels, with momentum 0.1 and eps 1e-5.
    ///
    /// ```
    /// # use pullback_nn::BatchNorm2d;
    /// let layer = BatchNorm2d::new(8);
    /// assert_eq!((layer.eps, layer.momentum), (1e-5, Some(0.1)));
    /// assert_eq!(layer.running_mean.unwrap().shape(), [8]);
    /// ```
    ///
    /// # Panics
    /// If `num_features` is 0.
    #[track_caller]
    #[must_use]
    pub fn new(num_features: usize) -> Self {
        demand(num_features > 0, Self::NAME, || "takes at least one channel".into());
        BatchNorm {
            weight: Some(Tensor::ones([num_features]).requires_grad()),
            bias: Some(Tensor::zeros([num_features]).requires_grad()),
            running_mean: Some(Tensor::zeros([num_features])),
            running_var: Some(Tensor::ones([num_features])),
            num_batches_tracked: Some(Tensor::from(0i64)),
            num_features,
            eps: 1e-5,
            momentum: Some(0.1),
            training: Flag::new(true),
            workers: None,
        }
    }

    /// The number added to the variance; 1e-5 by default.
    ///
    /// ```
    /// # use pullback_nn::BatchNorm2d;
    /// assert_eq!(BatchNorm2d::new(8).eps(1e-3).eps, 1e-3);
    /// ```
    #[must_use]
    pub fn eps(self, eps: f64) -> Self {
        BatchNorm { eps, ..self }
    }

    /// The weight of the newest batch in the running statistics: a number, or `None` for the mean
    /// over all batches.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{BatchNorm1d, Layer};
    /// let layer = BatchNorm1d::new(1).momentum(None);
    /// layer.forward(&Tensor::from([[1f32], [3.0]]));
    /// layer.forward(&Tensor::from([[5f32], [7.0]]));
    /// // The mean of the means 2 and 6.
    /// assert_eq!(layer.running_mean.unwrap().to_vec::<f32>(), [4.0]);
    /// ```
    #[must_use]
    pub fn momentum(self, momentum: impl Into<Option<f64>>) -> Self {
        BatchNorm { momentum: momentum.into(), ..self }
    }

    /// Without weight and bias (PyTorch's `affine=False`).
    ///
    /// ```
    /// # use pullback_nn::{BatchNorm2d, Module};
    /// assert_eq!(BatchNorm2d::new(8).without_affine().parameters().len(), 0);
    /// ```
    #[must_use]
    #[doc(alias = "affine")]
    pub fn without_affine(self) -> Self {
        BatchNorm { weight: None, bias: None, ..self }
    }

    /// Without running statistics: those of the batch are used in evaluation too (PyTorch's
    /// `track_running_stats=False`).
    ///
    /// ```
    /// # use pullback_nn::{BatchNorm2d, Module};
    /// assert_eq!(BatchNorm2d::new(8).without_running_stats().named_buffers().len(), 0);
    /// ```
    #[must_use]
    #[doc(alias = "track_running_stats")]
    pub fn without_running_stats(self) -> Self {
        BatchNorm { running_mean: None, running_var: None, num_batches_tracked: None, ..self }
    }

    /// Normalises the batches of all workers as one batch, also if their numbers of examples
    /// differ: `torch.nn.SyncBatchNorm`. In training every worker calls the layer, with two
    /// collectives forward and two backward. With [`DataParallel`](crate::parallel::DataParallel)
    /// the result is that of one process with the whole batch.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::{BatchNorm1d, Layer};
    /// let means = pullback_workers::threads(2, |group| {
    ///     let layer = BatchNorm1d::new(1).synchronised(&group);
    ///     let y = layer.forward(&Tensor::from([[[1f32], [3.0]], [[5.0], [7.0]]][group.rank()]));
    ///     Ok(layer.running_mean.unwrap().item::<f32>() + y.mean().item::<f32>().abs())
    /// })?;
    /// // The running mean is 0.1 · 4; the normalised halves have means −0.89 and 0.89.
    /// assert!(means.iter().all(|m| (m - 0.4 - 0.8944).abs() < 1e-4));
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "SyncBatchNorm")]
    pub fn synchronised(self, workers: &Group) -> Self {
        BatchNorm { workers: Some(workers.clone()), ..self }
    }

    /// [`BatchNorm::by_batch`] over the batches of all workers.
    ///
    /// The mean comes first and the variance around it second, as in one process: the sum of
    /// squares alone would lose digits. Derivatives are those of the collectives.
    #[track_caller]
    fn by_batches(
        &self,
        x: &Tensor,
        running: Option<(&Tensor, &Tensor)>,
        workers: &Group,
    ) -> Tensor {
        let axes: Vec<isize> = (0..x.rank() as isize).filter(|&axis| axis != 1).collect();
        let each = (x.len() / self.num_features) as f64;
        let wide = x.cast(if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 });
        let count = wide.new_tensor([each]).cast(wide.dtype());
        let sums = cat(&[&wide.sum_over(&axes), &count], 0).all_reduce(workers);
        let count = sums.at(-1);
        let mean = sums.narrow(0, 0, self.num_features) / &count;
        let shape: Vec<isize> = (0..x.rank()).map(|axis| if axis == 1 { -1 } else { 1 }).collect();
        let per_channel = |x: &Tensor| x.reshape(&shape[..]);
        let off = &wide - per_channel(&mean);
        let var = off.square().sum_over(&axes).all_reduce(workers) / &count;
        if let Some((running_mean, running_var)) = running {
            let tracked = self.num_batches_tracked.as_ref();
            unrecorded(|| {
                tracked.map(|tracked| tracked.add_(1));
                let share = match (self.momentum, tracked) {
                    (None, Some(tracked)) => 1.0 / tracked.cast(running_mean.dtype()),
                    (momentum, _) => running_mean.new_tensor(momentum.unwrap_or(0.0)),
                };
                let unbiased = var.detach() * (&count / (&count - 1.0)).detach();
                let follow = |running: &Tensor, new: Tensor| {
                    let (new, share) = (new.cast(running.dtype()), share.cast(running.dtype()));
                    running.add_((new - running) * share);
                };
                follow(running_mean, mean.detach());
                follow(running_var, unbiased);
            });
        }
        let y = off * per_channel(&(var + self.eps).rsqrt());
        let y = match &self.weight {
            Some(weight) => y * per_channel(weight),
            None => y,
        };
        let y = match &self.bias {
            Some(bias) => y + per_channel(bias),
            None => y,
        };
        y.cast(x.dtype())
    }

    /// The batch by its own statistics; the running ones follow it.
    #[track_caller]
    fn by_batch(&self, x: &Tensor, running: Option<(&Tensor, &Tensor)>) -> Tensor {
        let each = x.len() / self.num_features;
        demand(each > 1, Self::NAME, || {
            format!("training takes more than one value per channel, and {} has {each}", x.spec())
        });
        let (weight, bias, eps) = (self.weight.as_ref(), self.bias.as_ref(), self.eps);
        let Some((mean, var)) = running else { return x.batch_norm(weight, bias, eps) };
        if let Some(count) = &self.num_batches_tracked {
            unrecorded(|| count.add_(1));
        }
        match (self.momentum, &self.num_batches_tracked) {
            (None, Some(count)) => {
                // With all weight on the new, "running" statistics are those of the batch.
                let none = (mean.zeros_like(), var.zeros_like());
                let (y, batch_mean, batch_var) =
                    x.batch_norm_running((&none.0, &none.1), weight, bias, 1.0, eps);
                let share = 1.0 / count.cast(mean.dtype());
                unrecorded(|| {
                    mean.add_((batch_mean - mean) * &share);
                    var.add_((batch_var - var) * &share);
                });
                y
            }
            (momentum, _) => {
                let momentum = momentum.unwrap_or(0.0);
                let (y, new_mean, new_var) =
                    x.batch_norm_running((mean, var), weight, bias, momentum, eps);
                unrecorded(|| {
                    mean.copy_(new_mean);
                    var.copy_(new_var);
                });
                y
            }
        }
    }
}

impl<const N: usize> Layer for BatchNorm<N> {
    /// # Panics
    /// If `x` does not have `num_features` channels on axis 1, or float dtypes are mixed; in
    /// training, if there is only one value per channel.
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let rank = x.rank() == N + 2 || (N == 1 && x.rank() == 2);
        demand(rank && x.shape()[1] == self.num_features, Self::NAME, || {
            let shape = ["[n, c] or [n, c, l]", "[n, c, h, w]", "[n, c, d, h, w]"][N - 1];
            format!("takes {shape} with c = {}, not {}", self.num_features, x.spec())
        });
        let running = self.running_mean.as_ref().zip(self.running_var.as_ref());
        let y = match running {
            Some((mean, var)) if !self.training.get() => {
                x.channel_norm(mean, var, self.weight.as_ref(), self.bias.as_ref(), self.eps)
            }
            running => match self.workers.as_ref().filter(|group| group.size() > 1) {
                Some(workers) => self.by_batches(x, running, workers),
                None => self.by_batch(x, running),
            },
        };
        scope.output(y)
    }
}
