//! [`Categorical`].

use super::Distribution;
use super::arguments::{axes, extended, floats, require};
use crate::refuse::{called, demand};
use pullback::{DType, Device, Key, Operand, Tensor};

/// The categorical distribution over k classes, with probabilities along the last axis. Values are
/// class indices, `i64`.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Categorical, Distribution};
/// let d = Categorical::new(Tensor::from([1.0, 3.0]));
/// assert_eq!(d.probs().to_vec::<f64>(), [0.25, 0.75]);
/// let drawn = d.sample(&[1000]).cast(pullback::DType::F64).mean().item::<f64>();
/// assert!((drawn - 0.75).abs() < 0.1);
/// ```
#[derive(Clone, Debug)]
pub struct Categorical {
    /// The logarithms of the probabilities, which sum to 1.
    log_probs: Tensor,
    probs: Tensor,
}

impl Categorical {
    /// A distribution over classes with these probabilities `[.., k]`, which need not sum to 1.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Categorical, Distribution};
    /// let d = Categorical::new(Tensor::from([[1.0, 1.0], [1.0, 3.0]]));
    /// let p = d.log_prob(&Tensor::from([1i64, 1])).exp().to_vec::<f64>();
    /// assert!((p[0] - 0.5).abs() < 1e-12 && (p[1] - 0.75).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// If there is no axis of classes, a probability is negative or not finite, or all of a row are
    /// 0.
    #[track_caller]
    pub fn new(probs: impl Operand) -> Categorical {
        let _line = called();
        let [probs] = floats([&probs]);
        axes("Categorical", ("probs", &probs), 1);
        require("Categorical", ("probs", &probs), "at least 0 and finite", |p| {
            p.ge(0.0).logical_and(p.is_finite())
        });
        require("Categorical", ("probs", &probs), "positive for some class of each row", |p| {
            p.sum_over(-1).gt(0.0)
        });
        let probs = &probs / probs.sum_keep(-1);
        Categorical { log_probs: probs.log(), probs }
    }

    /// A distribution over classes with these unnormalised logarithms of the probabilities `[..,
    /// k]`, such as the output of a network.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Categorical, Distribution};
    /// let d = Categorical::with_logits(Tensor::from([5.0, 5.0]));
    /// assert!((d.entropy().item::<f64>() - 2f64.ln()).abs() < 1e-15);
    /// ```
    ///
    /// # Panics
    /// If there is no axis of classes, or one is NaN or +∞.
    #[doc(alias = "logits")]
    #[track_caller]
    pub fn with_logits(logits: impl Operand) -> Categorical {
        let _line = called();
        let [logits] = floats([&logits]);
        axes("Categorical", ("logits", &logits), 1);
        require("Categorical", ("logits", &logits), "below infinity", |x| x.lt(f64::INFINITY));
        let log_probs = logits.log_softmax(-1);
        Categorical { probs: log_probs.exp(), log_probs }
    }

    /// The probabilities, `[.., k]`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::Categorical;
    /// let d = Categorical::new(Tensor::from([1.0, 3.0]));
    /// assert_eq!(d.probs().to_vec::<f64>(), [0.25, 0.75]);
    /// ```
    pub fn probs(&self) -> &Tensor {
        &self.probs
    }

    /// The logarithms of the probabilities, `[.., k]`.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::Categorical;
    /// let d = Categorical::new(Tensor::from([0.0, 3.0]));
    /// assert_eq!(d.logits().to_vec::<f64>(), [f64::NEG_INFINITY, 0.0]);
    /// ```
    pub fn logits(&self) -> &Tensor {
        &self.log_probs
    }

    /// The number of classes.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::Categorical;
    /// assert_eq!(Categorical::new(Tensor::ones([4, 3])).num_classes(), 3);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn num_classes(&self) -> usize {
        self.probs.shape()[self.probs.rank() - 1]
    }

    /// Σ p·f over the classes that are possible.
    pub(super) fn expected(&self, f: &Tensor) -> Tensor {
        let possible = self.probs.gt(0.0);
        possible.select(&self.probs * possible.select(f, 0.0), 0.0).sum_over(-1)
    }
}

impl Distribution for Categorical {
    fn name(&self) -> &'static str {
        "Categorical"
    }

    fn batch_shape(&self) -> &[usize] {
        &self.probs.shape()[..self.probs.rank() - 1]
    }

    fn device(&self) -> Device {
        self.probs.device()
    }

    fn has_rsample(&self) -> bool {
        false
    }

    fn sample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let count = sample_shape.iter().product();
        // `[.., samples]`: the samples go first.
        let drawn = key.multinomial(&self.probs.detach(), count, true).move_axis(-1, 0);
        drawn.reshape(&extended(sample_shape, self.batch_shape(), &[])[..])
    }

    /// Of indices from 0 to k − 1.
    ///
    /// # Panics
    /// If the value is not of integers, does not broadcast, or is no class.
    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        demand(!value.dtype().is_float(), "Categorical", || {
            format!("a value is the index of a class, i64, not {}", value.spec())
        });
        let k = self.num_classes();
        // Broadcast by a sum with zeros: shapes only.
        let zeros = self.log_probs.select_at(-1, 0).zeros_like().cast(DType::I64);
        let index = value.cast(DType::I64) + zeros;
        let mut shape = index.shape().to_vec();
        shape.push(k);
        let log = self.log_probs.expand(&shape[..]);
        log.gather(-1, &index.unsqueeze(-1)).squeeze_axis(-1)
    }

    fn entropy(&self) -> Tensor {
        -self.expected(&self.log_probs)
    }

    /// NaN: classes are not numbers.
    fn mean(&self) -> Tensor {
        self.probs.new_full(self.batch_shape(), f64::NAN)
    }

    /// NaN: classes are not numbers.
    fn variance(&self) -> Tensor {
        self.mean()
    }
}
