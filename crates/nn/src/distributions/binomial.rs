//! [`Binomial`].

use super::arguments::{extended, or_safe, within};
use super::{Bernoulli, Beta, Distribution};
use crate::refuse::{called, demand};
use pullback::{DType, Device, Key, Operand, Tensor, no_grad};

/// Up to so many trials are drawn one by one; more are halved first.
const HALVED_ABOVE: u64 = 32;
/// The largest number of trials: each is an exact `f64`.
const MAX_TRIALS: u64 = 1 << 53;

/// The number of successes among `total_count` independent trials.
///
/// Draws of many trials are exact and cheap: the order statistics of uniform numbers are beta
/// variates, each of which halves the number of trials that are left.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Binomial, Distribution};
/// let d = Binomial::new(4, 0.5);
/// let p = d.log_prob(&Tensor::from([0.0, 2.0])).exp().to_vec::<f64>();
/// assert!((p[0] - 1.0 / 16.0).abs() < 1e-7 && (p[1] - 6.0 / 16.0).abs() < 1e-7);
/// ```
#[derive(Clone, Debug)]
pub struct Binomial {
    /// The number of trials.
    pub total_count: u64,
    trial: Bernoulli,
}

impl Binomial {
    /// A binomial distribution with this number of trials and probability of success.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{Binomial, Distribution};
    /// let d = Binomial::new(10, Tensor::from([0.5, 0.25]));
    /// assert_eq!(d.mean().to_vec::<f64>(), [5.0, 2.5]);
    /// ```
    ///
    /// # Panics
    /// If a probability is not between 0 and 1, or there are more than 2⁵³ trials.
    #[track_caller]
    pub fn new(total_count: u64, probs: impl Operand) -> Binomial {
        let _line = called();
        check(total_count);
        Binomial { total_count, trial: Bernoulli::new(probs) }
    }

    /// A binomial distribution with this number of trials and logarithms of the odds.
    ///
    /// ```
    /// use pullback_nn::distributions::{Binomial, Distribution};
    /// assert_eq!(Binomial::with_logits(10, 0.0).mean().item::<f32>(), 5.0);
    /// ```
    ///
    /// # Panics
    /// If there are more than 2⁵³ trials.
    #[doc(alias = "logits")]
    #[track_caller]
    pub fn with_logits(total_count: u64, logits: impl Operand) -> Binomial {
        let _line = called();
        check(total_count);
        Binomial { total_count, trial: Bernoulli::with_logits(logits) }
    }

    /// The probability of success.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::Binomial;
    /// assert_eq!(Binomial::new(10, Tensor::from(0.25)).probs().item::<f64>(), 0.25);
    /// ```
    pub fn probs(&self) -> &Tensor {
        &self.trial.probs
    }

    /// One trial.
    pub(super) fn trial(&self) -> &Bernoulli {
        &self.trial
    }

    fn count(&self) -> f64 {
        self.total_count as f64
    }
}

#[track_caller]
fn check(total_count: u64) {
    demand(total_count <= MAX_TRIALS, "Binomial", || {
        format!("total_count must be at most 2⁵³, not {total_count}")
    });
}

impl Distribution for Binomial {
    fn name(&self) -> &'static str {
        "Binomial"
    }

    fn batch_shape(&self) -> &[usize] {
        self.trial.batch_shape()
    }

    fn device(&self) -> Device {
        self.trial.device()
    }

    fn has_rsample(&self) -> bool {
        false
    }

    fn sample_with(&self, key: &Key, sample_shape: &[usize]) -> Tensor {
        let _line = called();
        let probs = &self.trial.probs;
        let shape = extended(sample_shape, probs.shape(), &[]);
        let drawn = no_grad(|| {
            draw(key, self.total_count, &probs.detach().cast(DType::F64).expand(&shape[..]))
        });
        drawn.cast(probs.dtype())
    }

    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _line = called();
        let n = self.count();
        let value = value.cast(value.dtype().promote(self.trial.probs.dtype()));
        let support = value.ge(0.0).logical_and(value.le(n)).logical_and(value.floor().eq(&value));
        let k = or_safe(&support, &value, 0.0);
        let misses = n - &k;
        // The binomial coefficient of n over k.
        let ways = k.full_like(n + 1.0).lgamma() - (&k + 1.0).lgamma() - (&misses + 1.0).lgamma();
        within(&support, &(ways + self.trial.log_likelihood(&k, &misses)))
    }

    /// The sum over all `total_count + 1` values.
    fn entropy(&self) -> Tensor {
        let _line = called();
        demand(self.total_count < 1 << 24, "Binomial", || {
            format!("the entropy is a sum over {} values: too many", self.count() + 1.0)
        });
        let probs = &self.trial.probs;
        let mut shape = vec![self.total_count as usize + 1];
        shape.resize(1 + probs.rank(), 1);
        let all = probs.new_arange(0, self.total_count as i64 + 1).reshape(&shape[..]);
        let log = self.log_prob(&all.cast(probs.dtype()));
        let possible = log.is_finite();
        let log = or_safe(&possible, &log, 0.0);
        -possible.select(log.exp() * &log, 0.0).sum_over(0)
    }

    fn mean(&self) -> Tensor {
        &self.trial.probs * self.count()
    }

    fn variance(&self) -> Tensor {
        self.trial.variance() * self.count()
    }
}

/// How many of `n` uniform numbers are below `p`.
///
/// With more than a few, the middle one of them, Y, is drawn first. If it is below p, so are those
/// before it, and what is left are the numbers between Y and 1; else those between 0 and Y.
fn draw(key: &Key, n: u64, p: &Tensor) -> Tensor {
    let mut key = key.clone();
    let (mut most, mut p) = (n, p.clone());
    let mut left = p.full_like(n as f64);
    let mut found = p.zeros_like();
    while most > HALVED_ABOVE {
        let (here, next) = key.split();
        key = next;
        // The (h + 1)-th smallest of `left` numbers; of none or one, it is drawn and not used.
        let half = (&left * 0.5).floor();
        let rest = (&left - &half).clamp_min(1.0);
        let middle = Beta { concentration1: &half + 1.0, concentration0: rest };
        let y = middle.sample_with(&here, &[]);
        let any = left.gt(0.0);
        let below = y.le(&p).logical_and(&any);
        found = &found + below.select(&half + 1.0, 0.0);
        let over = ((&p - &y) / (1.0 - &y)).clamp(0.0, 1.0);
        p = below.select(over, any.select((&p / &y).clamp(0.0, 1.0), 0.0));
        left = below.select(&left - &half - 1.0, half);
        most /= 2;
    }
    let mut shape = vec![most as usize];
    shape.extend(p.shape());
    let place = p.new_arange(0, most as i64).cast(DType::F64);
    let mut thin = vec![most as usize];
    thin.resize(shape.len(), 1);
    let there = place.reshape(&thin[..]).lt(&left);
    let hits = key.uniform(&shape[..], DType::F64, 0.0, 1.0).lt(&p).logical_and(there);
    found + hits.cast(DType::F64).sum_over(0)
}
