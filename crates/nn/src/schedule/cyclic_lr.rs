//! Cyclic learning rates.

use super::Schedule;

/// From the base up to `max_factor` times it in `step_size_up` steps, down again in
/// `step_size_down`, repeated: `torch.optim.lr_scheduler.CyclicLR`, with the base as its `base_lr`
/// and without cycling the momentum.
///
/// ```
/// use pullback_nn::schedule::{CyclicLr, CyclicMode, Schedule};
/// let schedule = CyclicLr {
///     max_factor: 3.0,
///     step_size_up: 2,
///     step_size_down: 2,
///     mode: CyclicMode::Triangular,
/// };
/// assert_eq!([0, 1, 2, 3, 4].map(|step| schedule.lr(1.0, step)), [1.0, 2.0, 3.0, 2.0, 1.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CyclicLr {
    /// PyTorch's `max_lr` over its `base_lr`: every group has a base of its own.
    #[doc(alias = "max_lr")]
    pub max_factor: f64,
    /// The number of steps in which it rises.
    pub step_size_up: u64,
    /// The number of steps in which it falls.
    pub step_size_down: u64,
    /// How the amplitude of cycles changes.
    pub mode: CyclicMode,
}

/// How the amplitude of cycles above the base changes.
///
/// ```
/// use pullback_nn::schedule::{CyclicLr, CyclicMode, Schedule};
/// let schedule = CyclicLr {
///     max_factor: 3.0,
///     step_size_up: 2,
///     step_size_down: 2,
///     mode: CyclicMode::Triangular2,
/// };
/// // The peaks of the first three cycles.
/// assert_eq!([2, 6, 10].map(|step| schedule.lr(1.0, step)), [3.0, 2.0, 1.5]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CyclicMode {
    /// Constant.
    Triangular,
    /// Halved at each cycle.
    Triangular2,
    /// Times this number (PyTorch's `gamma`) to the power of the step.
    ExpRange(f64),
}

impl Schedule for CyclicLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let CyclicLr { max_factor, step_size_up: up, step_size_down: down, mode } = *self;
        let period = (up + down).max(1);
        let (cycle, at) = (step / period, step % period);
        let part = match at <= up {
            true => at as f64 / up.max(1) as f64,
            false => (period - at) as f64 / down as f64,
        };
        let amplitude = match mode {
            CyclicMode::Triangular => 1.0,
            CyclicMode::Triangular2 => 0.5f64.powf(cycle as f64),
            CyclicMode::ExpRange(gamma) => gamma.powf(step as f64),
        };
        base + (max_factor - 1.0) * base * part * amplitude
    }
}
