//! The one-cycle policy.

use super::Schedule;
use super::cosine_annealing_lr::interpolate;

/// From a small learning rate up to the base, and down to a very small one:
/// `torch.optim.lr_scheduler.OneCycleLR`, with the base as its `max_lr` and without cycling the
/// momentum. Constant after `total_steps`.
///
/// ```
/// use pullback_nn::schedule::{OneCycleLr, Schedule};
/// let schedule = OneCycleLr { div_factor: 10.0, ..OneCycleLr::new(100) };
/// assert!((schedule.lr(0.1, 0) - 0.01).abs() < 1e-15);
/// // The peak, after 30% of the steps.
/// assert!((schedule.lr(0.1, 29) - 0.1).abs() < 1e-15);
/// assert!(schedule.lr(0.1, 99) < 1e-5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneCycleLr {
    /// The number of steps.
    pub total_steps: u64,
    /// The fraction of them in which it rises.
    pub pct_start: f64,
    /// The first learning rate is the base divided by this.
    pub div_factor: f64,
    /// The last learning rate is the first divided by this.
    pub final_div_factor: f64,
    /// The shape of the phases.
    pub anneal_strategy: AnnealStrategy,
    /// Falls to the first learning rate as fast as it rose, then further, instead of in one phase.
    pub three_phase: bool,
}

/// The shape of the phases of [`OneCycleLr`].
///
/// ```
/// use pullback_nn::schedule::{AnnealStrategy, OneCycleLr, Schedule};
/// let schedule = OneCycleLr { anneal_strategy: AnnealStrategy::Linear, ..OneCycleLr::new(100) };
/// let rises = schedule.lr(0.1, 2) - schedule.lr(0.1, 1);
/// assert!((schedule.lr(0.1, 3) - schedule.lr(0.1, 2) - rises).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnealStrategy {
    /// Half a cosine wave.
    Cos,
    /// A line.
    Linear,
}

impl OneCycleLr {
    /// With PyTorch's defaults: `pct_start` 0.3, `div_factor` 25, `final_div_factor` 10⁴, cosine
    /// annealing in two phases.
    ///
    /// ```
    /// # use pullback_nn::schedule::{OneCycleLr, Schedule};
    /// let schedule = OneCycleLr::new(1000);
    /// assert_eq!((schedule.pct_start, schedule.div_factor), (0.3, 25.0));
    /// assert!((schedule.lr(1.0, 0) - 1.0 / 25.0).abs() < 1e-15);
    /// ```
    pub fn new(total_steps: u64) -> OneCycleLr {
        OneCycleLr {
            total_steps,
            pct_start: 0.3,
            div_factor: 25.0,
            final_div_factor: 1e4,
            anneal_strategy: AnnealStrategy::Cos,
            three_phase: false,
        }
    }
}

impl Schedule for OneCycleLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let start = base / self.div_factor;
        let end = start / self.final_div_factor;
        let (total, last) = (self.total_steps as f64, self.total_steps.saturating_sub(1) as f64);
        let top = self.pct_start * total - 1.0;
        let phases = match self.three_phase {
            true => vec![(top, start, base), (2.0 * top, base, start), (last, start, end)],
            false => vec![(top, start, base), (last, base, end)],
        };
        let at = (step as f64).min(last);
        let mut begin = 0.0;
        for (until, from, to) in phases {
            if at <= until {
                let part = if until > begin { (at - begin) / (until - begin) } else { 1.0 };
                return match self.anneal_strategy {
                    AnnealStrategy::Linear => from + (to - from) * part,
                    AnnealStrategy::Cos => interpolate(from, to, part),
                };
            }
            begin = until;
        }
        end
    }
}
