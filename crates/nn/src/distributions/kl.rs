//! Divergences between pairs of distributions.

use super::arguments::or_safe;
use super::{
    Bernoulli, Beta, Binomial, Categorical, Dirichlet, Distribution, Exponential, Gamma,
    Independent, Laplace, LogNormal, MultivariateNormal, Normal, OneHotCategorical, Poisson,
    Uniform,
};
use crate::refuse::{called, demand};
use pullback::Tensor;
use pullback::linalg::solve_triangular;
use std::f64::consts::{LN_2, PI};

/// The Kullback–Leibler divergence of `q` from `p`, ∫ p·log(p/q), of the shape that their batches
/// broadcast to. Infinite where `p` has mass where `q` has none.
///
/// There is one for equal types, except [`StudentT`](super::StudentT), and for a few pairs of
/// different ones: a pair without one does not compile.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Normal, kl_divergence};
/// let p = Normal::new(Tensor::from([0.0, 1.0]), 1.0);
/// assert_eq!(kl_divergence(&p, &Normal::new(0.0, 1.0)).to_vec::<f64>(), [0.0, 0.5]);
/// ```
///
/// # Panics
/// If the batches do not broadcast.
#[track_caller]
pub fn kl_divergence<P: KlDivergence<Q>, Q>(p: &P, q: &Q) -> Tensor {
    let _line = called();
    p.kl_divergence(q)
}

/// Distributions whose divergence from one of type `Q` has a closed form: see [`kl_divergence`].
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::distributions::{Distribution, Exponential, KlDivergence};
/// // For a distribution of your own, write the formula.
/// struct Point(f64);
/// impl KlDivergence<Exponential> for Point {
///     fn kl_divergence(&self, q: &Exponential) -> Tensor {
///         -q.log_prob(&Tensor::from(self.0))
///     }
/// }
/// assert_eq!(Point(3.0).kl_divergence(&Exponential::new(1.0)).item::<f64>(), 3.0);
/// ```
pub trait KlDivergence<Q> {
    /// The Kullback–Leibler divergence of `q` from this distribution.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::distributions::{KlDivergence, Normal};
    /// let p = Normal::new(Tensor::from([0.0, 1.0]), 1.0);
    /// assert_eq!(p.kl_divergence(&Normal::new(0.0, 1.0)).to_vec::<f64>(), [0.0, 0.5]);
    /// ```
    ///
    /// # Panics
    /// If the batches do not broadcast.
    #[track_caller]
    fn kl_divergence(&self, q: &Q) -> Tensor;
}

/// Infinite where a condition does not hold.
fn if_inside(inside: &Tensor, y: &Tensor) -> Tensor {
    inside.select(y, f64::INFINITY)
}

impl KlDivergence<Normal> for Normal {
    fn kl_divergence(&self, q: &Normal) -> Tensor {
        let _line = called();
        let ratio = (&self.scale / &q.scale).square();
        let moved = ((&self.loc - &q.loc) / &q.scale).square();
        (&ratio + moved - 1.0 - ratio.log()) * 0.5
    }
}

impl KlDivergence<LogNormal> for LogNormal {
    fn kl_divergence(&self, q: &LogNormal) -> Tensor {
        let _line = called();
        self.base.kl_divergence(&q.base)
    }
}

impl KlDivergence<Uniform> for Uniform {
    fn kl_divergence(&self, q: &Uniform) -> Tensor {
        let _line = called();
        let covered = q.low.le(&self.low).logical_and(q.high.ge(&self.high));
        if_inside(&covered, &(q.entropy() - self.entropy()))
    }
}

impl KlDivergence<Normal> for Uniform {
    fn kl_divergence(&self, q: &Normal) -> Tensor {
        let _line = called();
        // The mean of (x − loc)².
        let square = self.variance() + (self.mean() - &q.loc).square();
        square / (q.variance() * 2.0) + q.scale.log() + 0.5 * (2.0 * PI).ln() - self.entropy()
    }
}

impl KlDivergence<Laplace> for Laplace {
    fn kl_divergence(&self, q: &Laplace) -> Tensor {
        let _line = called();
        let (ratio, away) = (&self.scale / &q.scale, (&self.loc - &q.loc).abs());
        &away / &q.scale + &ratio * (-away / &self.scale).exp() - ratio.log() - 1.0
    }
}

impl KlDivergence<Normal> for Laplace {
    fn kl_divergence(&self, q: &Normal) -> Tensor {
        let _line = called();
        let square = self.variance() + (&self.loc - &q.loc).square();
        let constant = 0.5 * (2.0 * PI).ln() - LN_2 - 1.0;
        square / (q.variance() * 2.0) + (&q.scale / &self.scale).log() + constant
    }
}

impl KlDivergence<Exponential> for Exponential {
    fn kl_divergence(&self, q: &Exponential) -> Tensor {
        let _line = called();
        let ratio = &q.rate / &self.rate;
        &ratio - 1.0 - ratio.log()
    }
}

/// The divergence of a gamma distribution from another, each as concentration and rate.
fn gamma_from(p: (&Tensor, &Tensor), q: (&Tensor, &Tensor)) -> Tensor {
    let ((a, rate), (b, other)) = (p, q);
    (a - b) * a.digamma() - a.lgamma()
        + b.lgamma()
        + b * (rate / other).log()
        + a * (other / rate - 1.0)
}

impl KlDivergence<Gamma> for Gamma {
    fn kl_divergence(&self, q: &Gamma) -> Tensor {
        let _line = called();
        gamma_from((&self.concentration, &self.rate), (&q.concentration, &q.rate))
    }
}

impl KlDivergence<Exponential> for Gamma {
    fn kl_divergence(&self, q: &Exponential) -> Tensor {
        let _line = called();
        gamma_from((&self.concentration, &self.rate), (&q.rate.ones_like(), &q.rate))
    }
}

impl KlDivergence<Gamma> for Exponential {
    fn kl_divergence(&self, q: &Gamma) -> Tensor {
        let _line = called();
        gamma_from((&self.rate.ones_like(), &self.rate), (&q.concentration, &q.rate))
    }
}

impl KlDivergence<Beta> for Beta {
    fn kl_divergence(&self, q: &Beta) -> Tensor {
        let _line = called();
        let (a, b, total) = (&self.concentration1, &self.concentration0, self.total());
        let (c, d) = (&q.concentration1, &q.concentration0);
        c.betaln(d) - a.betaln(b) + (a - c) * a.digamma() + (b - d) * b.digamma()
            - (&total - q.total()) * total.digamma()
    }
}

impl KlDivergence<Dirichlet> for Dirichlet {
    fn kl_divergence(&self, q: &Dirichlet) -> Tensor {
        let _line = called();
        let (a, b) = (&self.concentration, &q.concentration);
        let (sum, other) = (a.sum_over(-1), b.sum_over(-1));
        let parts = (b.lgamma() - a.lgamma()
            + (a - b) * (a.digamma() - sum.digamma().unsqueeze(-1)))
        .sum_over(-1);
        sum.lgamma() - other.lgamma() + parts
    }
}

impl KlDivergence<Bernoulli> for Bernoulli {
    fn kl_divergence(&self, q: &Bernoulli) -> Tensor {
        let _line = called();
        let (ones, zeros) = (&self.probs, 1.0 - &self.probs);
        // Where q rules out what p has, the second term is −∞.
        let cross = q.log_likelihood(ones, &zeros);
        -self.entropy() - cross
    }
}

impl KlDivergence<Binomial> for Binomial {
    /// # Panics
    /// If the numbers of trials differ.
    fn kl_divergence(&self, q: &Binomial) -> Tensor {
        let _line = called();
        let (n, m) = (self.total_count, q.total_count);
        demand(n == m, "kl_divergence", || {
            format!("binomial distributions of {n} and {m} trials have no closed divergence")
        });
        self.trial().kl_divergence(q.trial()) * n as f64
    }
}

impl KlDivergence<Categorical> for Categorical {
    fn kl_divergence(&self, q: &Categorical) -> Tensor {
        let _line = called();
        let possible = self.probs().gt(0.0);
        let ruled_out = q.probs().eq(0.0).logical_and(&possible);
        let other = or_safe(&q.probs().gt(0.0), q.logits(), 0.0);
        let log = or_safe(&possible, self.logits(), 0.0);
        let y = (self.probs() * (log - other)).sum_over(-1);
        if_inside(&ruled_out.any_over(-1).logical_not(), &y)
    }
}

impl KlDivergence<OneHotCategorical> for OneHotCategorical {
    fn kl_divergence(&self, q: &OneHotCategorical) -> Tensor {
        let _line = called();
        self.base.kl_divergence(&q.base)
    }
}

impl KlDivergence<Poisson> for Poisson {
    fn kl_divergence(&self, q: &Poisson) -> Tensor {
        let _line = called();
        let (a, b) = (&self.rate, &q.rate);
        let y = a.xlogy(a) - a.xlogy(b) - a + b;
        if_inside(&a.eq(0.0).logical_or(b.gt(0.0)), &y)
    }
}

impl KlDivergence<MultivariateNormal> for MultivariateNormal {
    fn kl_divergence(&self, q: &MultivariateNormal) -> Tensor {
        let _line = called();
        let k = self.event_shape()[0] as f64;
        // tr(Σ_q⁻¹·Σ_p) = |L_q⁻¹·L_p|².
        let ratio = solve_triangular(&q.scale_tril, &self.scale_tril, false, true, false);
        let trace = ratio.square().sum_over([-2, -1]);
        let moved = q.mahalanobis(&(&q.loc - &self.loc));
        q.half_log_det() - self.half_log_det() + (trace + moved - k) * 0.5
    }
}

impl<P: Distribution + KlDivergence<Q>, Q: Distribution> KlDivergence<Independent<Q>>
    for Independent<P>
{
    /// # Panics
    /// If they make different numbers of axes part of an event.
    fn kl_divergence(&self, q: &Independent<Q>) -> Tensor {
        let _line = called();
        let (n, m) = (self.reinterpreted_batch_ndims, q.reinterpreted_batch_ndims);
        demand(n == m, "kl_divergence", || {
            format!("{n} and {m} batch axes are part of an event: they must be as many")
        });
        self.summed(&self.base.kl_divergence(&q.base))
    }
}
