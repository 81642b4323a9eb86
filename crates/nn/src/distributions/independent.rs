//! [`Independent`].

use super::Distribution;
use crate::refuse::{called, demand};
use pullback::{Device, Key, Tensor};

/// A distribution whose last batch axes are part of an event: log-probabilities and entropies are
/// summed over them.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Distribution, Independent, Normal};
/// let d = Independent::new(Normal::new(Tensor::zeros([4, 3]), 1.0), 1);
/// assert_eq!((d.batch_shape(), d.event_shape()), (&[4][..], &[3][..]));
/// assert_eq!(d.log_prob(&d.sample(&[7])).shape(), [7, 4]);
/// ```
#[derive(Clone, Debug)]
pub struct Independent<D> {
    /// The distribution whose batch axes are reinterpreted.
    pub base: D,
    /// The number of its last batch axes that are part of the event.
    pub reinterpreted_batch_ndims: usize,
    event_shape: Vec<usize>,
}

impl<D: Distribution> Independent<D> {
    /// Makes the last `reinterpreted_batch_ndims` batch axes of `base` part of the event.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Distribution, Independent, Normal};
    /// let d = Independent::new(Normal::new(Tensor::zeros([5, 4, 3]), 1.0), 2);
    /// assert_eq!((d.batch_shape(), d.event_shape()), (&[5][..], &[4, 3][..]));
    /// ```
    ///
    /// # Panics
    /// If `base` has fewer batch axes.
    #[track_caller]
    pub fn new(base: D, reinterpreted_batch_ndims: usize) -> Independent<D> {
        let batch = base.batch_shape();
        demand(reinterpreted_batch_ndims <= batch.len(), "Independent", || {
            format!("{reinterpreted_batch_ndims} axes are more than batches of {batch:?} have")
        });
        let event = &batch[batch.len() - reinterpreted_batch_ndims..];
        let event_shape = [event, base.event_shape()].concat();
        Independent { base, reinterpreted_batch_ndims, event_shape }
    }

    /// The sum over the axes that are part of an event.
    pub(super) fn summed(&self, x: &Tensor) -> Tensor {
        match self.reinterpreted_batch_ndims {
            0 => x.clone(),
            n => x.sum_over((1..=n as isize).map(|axis| -axis).collect::<Vec<_>>()),
        }
    }
}

impl<D: Distribution> Distribution for Independent<D> {
    fn name(&self) -> &'static str {
        self.base.name()
    }

    fn batch_shape(&self) -> &[usize] {
        let batch = self.base.batch_shape();
        &batch[..batch.len() - self.reinterpreted_batch_ndims]
    }

    fn event_shape(&self) -> &[usize] {
        &self.event_shape
    }

    fn device(&self) -> Device {
        self.base.device()
    }

    fn has_rsample(&self) -> bool {
        self.base.has_rsample()
    }

    fn sample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        self.base.sample_with(key, sample_shape)
    }

    fn rsample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        self.base.rsample_with(key, sample_shape)
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        self.summed(&self.base.log_prob(value))
    }

    fn entropy(&self) -> Tensor {
        let _line = called();
        self.summed(&self.base.entropy())
    }

    fn mean(&self) -> Tensor {
        self.base.mean()
    }

    fn variance(&self) -> Tensor {
        self.base.variance()
    }
}
