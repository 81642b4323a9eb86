//! Normalisation over batches and groups: composites of what is there.

use crate::{Error, Tensor};

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
        if let Some(w) = weight {
            y *= self.per_channel(w);
        }
        if let Some(b) = bias {
            y += self.per_channel(b);
        }
        y
    }

    /// (x − mean) / √(variance + eps) · weight + bias, with one of each per channel (axis 1).
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
        let scale = (self.per_channel(variance) + eps).rsqrt();
        let y = (self - self.per_channel(mean)) * scale;
        self.scaled_per_channel(y, weight, bias)
    }

    /// Batch normalisation as in training: [`Tensor::channel_norm`] with the mean and variance over every axis but 1.
    #[track_caller]
    #[must_use]
    pub fn batch_norm(&self, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Tensor {
        let axes: Vec<isize> = self.all_axes().into_iter().filter(|&i| i != 1).collect();
        let x = self.wide();
        let (mean, variance) = (x.mean_over(axes.clone()), x.var_with(axes, 0.0));
        let y = x.channel_norm(&mean, &variance, None, None, eps).cast(self.real_dtype());
        self.scaled_per_channel(y, weight, bias)
    }

    /// Channels (axis 1) in groups, each normalised for itself, then scaled per channel.
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
                format!("the channels of {} do not fall into {groups} groups", self.spec());
            return self.checked(Err(Error::shape("group_norm", message).on([self.spec()])));
        }
        let n = self.shape()[0];
        let each = self.len().checked_div(n * groups).unwrap_or(0);
        let grouped = self.wide().reshape([n, groups, each]);
        let centred = &grouped - grouped.mean_keep(-1);
        let y = &centred * (centred.square().mean_keep(-1) + eps).rsqrt();
        let y = y.cast(self.real_dtype()).reshape(self.shape());
        self.scaled_per_channel(y, weight, bias)
    }
}
