//! [`Bernoulli`].

use super::Distribution;
use super::arguments::{broadcast, extended, or_safe, probability, within};
use super::distribution::described;
use crate::refuse::called;
use pullback::{Key, Operand, Tensor};

/// The Bernoulli distribution: 1 with probability `probs`, else 0.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Bernoulli, Distribution};
/// let d = Bernoulli::new(Tensor::from(0.25));
/// assert_eq!(d.variance().item::<f64>(), 0.1875);
/// let y = d.log_prob(&Tensor::from([0.0, 1.0, 0.5])).to_vec::<f64>();
/// assert_eq!((y[0], y[2]), ((-0.25f64).ln_1p(), f64::NEG_INFINITY));
/// ```
#[derive(Clone, Debug)]
pub struct Bernoulli {
    /// The probability of 1.
    pub probs: Tensor,
    /// log(p/(1 − p)), where the distribution is given by it.
    logits: Option<Tensor>,
}

impl Bernoulli {
    /// A distribution with this probability of 1.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Bernoulli, Distribution};
    /// let d = Bernoulli::new(Tensor::from([0.25, 0.5]));
    /// assert_eq!(d.mean().to_vec::<f64>(), [0.25, 0.5]);
    /// ```
    ///
    /// # Panics
    /// If a probability is not between 0 and 1.
    #[track_caller]
    pub fn new(probs: impl Operand) -> Bernoulli {
        let _line = called();
        let [probs] = broadcast("Bernoulli", [&probs]);
        probability("Bernoulli", ("probs", &probs));
        Bernoulli { probs, logits: None }
    }

    /// A distribution with these logarithms of the odds, log(p/(1 − p)), which are accurate for
    /// every probability.
    ///
    /// ```
    /// use pullback_nn::distributions::{Bernoulli, Distribution};
    /// let d = Bernoulli::with_logits(-100.0);
    /// assert_eq!(d.log_prob(&pullback::Tensor::from(1.0)).item::<f64>(), -100.0);
    /// ```
    ///
    /// # Panics
    /// For no shape or dtype: integers become floats.
    #[doc(alias = "logits")]
    #[track_caller]
    pub fn with_logits(logits: impl Operand) -> Bernoulli {
        let _line = called();
        let [logits] = broadcast("Bernoulli", [&logits]);
        Bernoulli { probs: logits.sigmoid(), logits: Some(logits) }
    }

    /// The logarithm of the odds, log(p/(1 − p)).
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::Bernoulli;
    /// assert_eq!(Bernoulli::new(Tensor::from(0.5)).logits().item::<f64>(), 0.0);
    /// ```
    ///
    /// # Panics
    /// Never.
    pub fn logits(&self) -> Tensor {
        self.logits.clone().unwrap_or_else(|| self.probs.logit())
    }

    /// `ones`·log p + `zeros`·log(1 − p).
    pub(super) fn log_likelihood(&self, ones: &Tensor, zeros: &Tensor) -> Tensor {
        match &self.logits {
            Some(logits) => ones * logits.log_sigmoid() + zeros * (-logits).log_sigmoid(),
            None => ones.xlogy(&self.probs) + zeros.xlog1py(&-&self.probs),
        }
    }
}

impl Distribution for Bernoulli {
    described!("Bernoulli", probs);

    fn has_rsample(&self) -> bool {
        false
    }

    fn sample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let shape = extended(sample_shape, self.probs.shape(), &[]);
        key.bernoulli(&self.probs.detach().expand(&shape[..]))
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let support = value.eq(0.0).logical_or(value.eq(1.0));
        let value = value.cast(value.dtype().promote(self.probs.dtype()));
        let ones = or_safe(&support, &value, 0.0);
        within(&support, &self.log_likelihood(&ones, &(1.0 - &ones)))
    }

    fn entropy(&self) -> Tensor {
        match &self.logits {
            Some(logits) => logits.softplus(1.0, 40.0) - logits * &self.probs,
            None => self.probs.entr() + (1.0 - &self.probs).entr(),
        }
    }

    fn mean(&self) -> Tensor {
        self.probs.clone()
    }

    fn variance(&self) -> Tensor {
        &self.probs * (1.0 - &self.probs)
    }
}
