//! Normalisation over batches and groups.

use crate::ops::cast::one_float;
use crate::ops::one_pass::{is_value_alone, one_pass_over};
use crate::{DType, Error, Tensor};
use pullback_ir::Scalar;

/// A running value moved towards a new one, in its own dtype, without history.
#[track_caller]
fn moved(running: &Tensor, new: &Tensor, momentum: f64) -> Tensor {
    let running = running.detach();
    (running.wide() * (1.0 - momentum) + new * momentum).cast(running.dtype())
}

impl Tensor {
    /// One value per channel (axis 1), to broadcast against this tensor.
    #[track_caller]
    fn per_channel(&self, x: &Tensor) -> Tensor {
        let mut shape = vec![1; self.rank()];
        if self.rank() > 1 && x.len() != self.shape()[1] && x.len() != 1 {
            let message = format!(
                "{} does not have one element for each of the {} channels of {}",
                x.spec(),
                self.shape()[1],
                self.spec()
            );
            return self.checked(Err(Error::shape("norm", message).on([self.spec(), x.spec()])));
        }
        match shape.get_mut(1) {
            Some(channels) => *channels = x.len(),
            None => return x.clone(),
        }
        x.reshape(&shape[..])
    }

    /// `y · weight + bias`, with one of each per channel of this tensor.
    #[track_caller]
    fn scaled_per_channel(
        &self,
        mut y: Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
    ) -> Tensor {
        if let (Some(w), Some(b)) = (weight, bias) {
            return y.affine(&self.per_channel(w), &self.per_channel(b));
        }
        if let Some(w) = weight {
            y *= self.per_channel(w);
        }
        if let Some(b) = bias {
            y += self.per_channel(b);
        }
        y
    }

    /// x · scale + shift, which broadcast.
    #[track_caller]
    fn affine(&self, scale: &Tensor, shift: &Tensor) -> Tensor {
        let all = [self, scale, shift];
        // The gradients of what is repeated would be stored before they are summed.
        if !all.into_iter().all(is_value_alone) {
            return self * scale + shift;
        }
        one_pass_over("affine", &[], self.shape(), all, |[x, scale, shift]| x * scale + shift)
    }

    /// A weight with one element for each channel of this tensor, or the same number for all.
    #[track_caller]
    fn channel_row(&self, weight: Option<&Tensor>, otherwise: i64) -> Tensor {
        let shape = &self.shape()[1..2];
        match weight {
            Some(w) => self.per_channel(w).reshape([w.len()]).expand(shape),
            None => self.new_splat(Scalar::Int(otherwise), shape, self.dtype()),
        }
    }

    /// (x − mean) / √(variance + eps) · weight + bias, with one of each per channel (axis 1), as
    /// x · scale + shift.
    ///
    /// Derivative: weight/√(variance + eps) by x; of its formula by the others.
    /// PyTorch's name: `nn.functional.batch_norm`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0, 10.0], [3.0, 30.0]]);
    /// let (mean, variance) = (Tensor::from([2.0, 20.0]), Tensor::from([1.0, 100.0]));
    /// let y = x.channel_norm(&mean, &variance, None, None, 0.0);
    /// assert_eq!(y.to_vec::<f64>(), [-1.0, -1.0, 1.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If float dtypes are mixed, or an operand does not have one element for each channel.
    #[doc(alias = "batch_norm")]
    #[track_caller]
    #[must_use]
    pub fn channel_norm(
        &self,
        mean: &Tensor,
        variance: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Tensor {
        one_float("channel_norm", [self, mean, variance].into_iter().chain(weight).chain(bias));
        let given = [Some(mean), Some(variance), weight, bias].into_iter().flatten();
        let dtype = given.fold(self.reduced_dtype(), |dtype: DType, x| dtype.promote(x.dtype()));
        let mut scale = (self.per_channel(variance).wide() + eps).rsqrt();
        if let Some(w) = weight {
            scale *= self.per_channel(w);
        }
        let mut shift = -(self.per_channel(mean) * &scale);
        if let Some(b) = bias {
            shift += self.per_channel(b);
        }
        self.affine(&scale, &shift).cast(dtype)
    }

    /// [`Tensor::batch_norm`], and the mean and variance of each channel in the compute type.
    #[track_caller]
    fn batch_normed(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> [Tensor; 3] {
        one_float("batch_norm", [self].into_iter().chain(weight).chain(bias));
        // Inside autocast the statistics and the weights of a low batch are f32, and the result is
        // low.
        let wide = |w: &Tensor| w.dtype() == DType::F32;
        if self.is_raised() && self.rank() >= 2 && weight.into_iter().chain(bias).all(wide) {
            let (w, b) = (self.channel_row(weight, 1), self.channel_row(bias, 0));
            return self.fused_batch_norm(&w.cast(DType::F32), &b.cast(DType::F32), eps);
        }
        let x = self.real().up();
        if x.rank() < 2 {
            let axes: Vec<isize> = self.all_axes();
            let x = self.wide();
            let (mean, variance) = (x.mean_over(axes.clone()), x.var_with(axes, 0.0));
            let y = x.channel_norm(&mean, &variance, None, None, eps).cast(self.reduced_dtype());
            return [self.scaled_per_channel(y, weight, bias), mean, variance];
        }
        // A weight of another dtype is promoted with the input.
        if weight.into_iter().chain(bias).any(|w| w.dtype() != x.dtype()) {
            let (ones, zeros) = (x.channel_row(None, 1), x.channel_row(None, 0));
            let [y, mean, variance] = x.fused_batch_norm(&ones, &zeros, eps);
            return [self.scaled_per_channel(y, weight, bias), mean, variance];
        }
        x.fused_batch_norm(&x.channel_row(weight, 1), &x.channel_row(bias, 0), eps)
    }

    /// Batch normalisation as in training: [`Tensor::channel_norm`] with the mean and variance over
    /// every axis but 1.
    ///
    /// Derivative: with n the normalised x and g = dy·weight, dx = (g − mean(g) − n·mean(g·n))/σ;
    /// dweight = Σ dy·n; dbias = Σ dy.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // The batch axis is 0, channels are axis 1.
    /// let x = Tensor::from([[1.0, 10.0], [3.0, 30.0]]);
    /// let y = x.batch_norm(None, Some(&Tensor::from([0.0, 5.0])), 0.0);
    /// assert_eq!(y.to_vec::<f64>(), [-1.0, 4.0, 1.0, 6.0]);
    /// ```
    ///
    /// # Panics
    /// If float dtypes are mixed, or an operand does not have one element for each channel.
    #[track_caller]
    #[must_use]
    pub fn batch_norm(&self, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Tensor {
        let [y, _, _] = self.batch_normed(weight, bias, eps);
        y
    }

    /// [`Tensor::batch_norm`], and the running mean and variance moved towards those of the batch:
    /// (1 − momentum)·running + momentum·batch, with the unbiased variance. They carry no gradient.
    ///
    /// Derivative: of batch normalisation, for the first result.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[0.0], [2.0]]);
    /// let (mean, var) = (Tensor::from([0.0]), Tensor::from([1.0]));
    /// let (_, mean, var) = x.batch_norm_running((&mean, &var), None, None, 0.5, 1e-5);
    /// assert_eq!((mean.item::<f64>(), var.item::<f64>()), (0.5, 1.5));
    /// ```
    ///
    /// # Panics
    /// If float dtypes are mixed, or an operand does not have one element for each channel.
    #[track_caller]
    #[must_use]
    pub fn batch_norm_running(
        &self,
        running: (&Tensor, &Tensor),
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        momentum: f64,
        eps: f64,
    ) -> (Tensor, Tensor, Tensor) {
        one_float("batch_norm", [self, running.0, running.1]);
        let [y, mean, variance] = self.batch_normed(weight, bias, eps);
        let n = self.len() as f64 / mean.len() as f64;
        let (mean, variance) = (mean.detach(), variance.detach() * (n / (n - 1.0)));
        (y, moved(running.0, &mean, momentum), moved(running.1, &variance, momentum))
    }

    /// Each channel of each sample normalised separately, then scaled per channel:
    /// [`Tensor::group_norm`] with a group for every channel.
    ///
    /// Derivative: of group normalisation.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[[1.0, 3.0], [10.0, 30.0]]]);
    /// let y = x.instance_norm(None, None, 0.0);
    /// assert_eq!(y.to_vec::<f64>(), [-1.0, 1.0, -1.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If there are no channels (axis 1), float dtypes are mixed, or an operand does not have
    /// one element for each channel.
    #[track_caller]
    #[must_use]
    pub fn instance_norm(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Tensor {
        self.group_norm(self.shape().get(1).copied().unwrap_or(0), weight, bias, eps)
    }

    /// [`Tensor::instance_norm`], and the running mean and variance moved towards the means over
    /// the samples of those of the channels.
    ///
    /// Derivative: of instance normalisation, for the first result.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[[1.0, 3.0]]]);
    /// let (mean, var) = (Tensor::from([0.0]), Tensor::from([1.0]));
    /// let (y, mean, var) = x.instance_norm_running((&mean, &var), None, None, 0.5, 0.0);
    /// assert_eq!(y.to_vec::<f64>(), [-1.0, 1.0]);
    /// assert_eq!((mean.item::<f64>(), var.item::<f64>()), (1.0, 1.5));
    /// ```
    ///
    /// # Panics
    /// If there are no channels (axis 1), float dtypes are mixed, or an operand does not have
    /// one element for each channel.
    #[track_caller]
    #[must_use]
    pub fn instance_norm_running(
        &self,
        running: (&Tensor, &Tensor),
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        momentum: f64,
        eps: f64,
    ) -> (Tensor, Tensor, Tensor) {
        one_float("instance_norm", [self, running.0, running.1]);
        let y = self.instance_norm(weight, bias, eps);
        let axes: Vec<isize> = self.all_axes().into_iter().filter(|&i| i > 1).collect();
        let x = self.detach().wide();
        let (mean, variance) = (x.mean_over(axes.clone()), x.var_with(axes, 1.0));
        let (mean, variance) = (mean.mean_over(0), variance.mean_over(0));
        (y, moved(running.0, &mean, momentum), moved(running.1, &variance, momentum))
    }

    /// x / (k + alpha · mean of x² over `size` neighbouring channels)^beta, channels beyond the
    /// edges counting as 0.
    ///
    /// Derivative: of its formula.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[[1.0], [2.0]]]);
    /// // Channel 0 sees itself and zeros, channel 1 itself and channel 0.
    /// let y = x.local_response_norm(2, 2.0, 1.0, 1.0);
    /// assert_eq!(y.to_vec::<f64>(), [0.5, 2.0 / 6.0]);
    /// ```
    ///
    /// # Panics
    /// If there are no channels (axis 1), no axis after them, or `size` is 0.
    #[track_caller]
    #[must_use]
    pub fn local_response_norm(&self, size: usize, alpha: f64, beta: f64, k: f64) -> Tensor {
        if self.rank() < 3 || size == 0 {
            let message =
                format!("takes [n, c, …] and a size of at least 1, not {} and {size}", self.spec());
            return self
                .checked(Err(Error::argument("local_response_norm", message).on([self.spec()])));
        }
        let x = self.wide();
        let mut pads = vec![(0, 0); self.rank()];
        pads[1] = (size / 2, (size - 1) / 2);
        let near = x.square().pad(&pads).unfold(1, size, 1).mean_over(-1);
        (&x / (near * alpha + k).pow(beta)).cast(self.reduced_dtype())
    }

    /// Channels (axis 1) in groups, each normalised separately, then scaled per channel.
    ///
    /// Derivative: with n the normalised x and g = dy·weight, dx = (g − mean(g) − n·mean(g·n))/σ
    /// over each group; dweight = Σ dy·n; dbias = Σ dy.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// // Four channels in two groups.
    /// let x = Tensor::from([[1.0, 3.0, 10.0, 30.0]]);
    /// let y = x.group_norm(2, None, None, 0.0);
    /// assert_eq!(y.to_vec::<f64>(), [-1.0, 1.0, -1.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the number of channels (axis 1) is no multiple of `groups`, float dtypes are mixed, or
    /// an operand does not have one element for each channel.
    #[track_caller]
    #[must_use]
    pub fn group_norm(
        &self,
        groups: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Tensor {
        let channels = self.shape().get(1).copied().unwrap_or(0);
        if groups == 0 || channels % groups != 0 || self.rank() < 2 {
            let message =
                format!("the channels of {} are not divisible by {groups} groups", self.spec());
            return self.checked(Err(Error::shape("group_norm", message).on([self.spec()])));
        }
        one_float("group_norm", [self].into_iter().chain(weight).chain(bias));
        let n = self.shape()[0];
        let each = self.len().checked_div(n * groups).unwrap_or(0);
        let grouped = self.real().up().reshape([n, groups, each]);
        let ones = grouped.new_splat(Scalar::Int(1), &[each], grouped.dtype());
        let y = grouped.layer_norm(&ones, &ones.zeros_like_splat(), eps).reshape(self.shape());
        self.scaled_per_channel(y, weight, bias)
    }
}
