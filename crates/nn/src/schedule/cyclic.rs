//! Up and down, again and again.

use super::Schedule;

/// From the base rate up to `times` as much in `up` steps, down again in `down`, and so on:
/// `torch.optim.lr_scheduler.CyclicLR`, with the base rate as its `base_lr` and without cycling the momentum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cyclic {
    /// The highest rate, in base rates.
    pub times: f64,
    /// How many steps it rises.
    pub up: u64,
    /// How many steps it falls.
    pub down: u64,
    /// How the height of cycles changes.
    pub height: Height,
}

/// How the height of cycles above the base rate changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Height {
    /// All are the same (`triangular`).
    Same,
    /// Each is half of the last (`triangular2`).
    Halved,
    /// Times this number to the power of the step (`exp_range`).
    Power(f64),
}

impl Schedule for Cyclic {
    fn rate(&self, base: f64, step: u64) -> f64 {
        let period = (self.up + self.down).max(1);
        let (cycle, at) = (step / period, step % period);
        let part = match at <= self.up {
            true => at as f64 / self.up.max(1) as f64,
            false => (period - at) as f64 / self.down as f64,
        };
        let height = match self.height {
            Height::Same => 1.0,
            Height::Halved => 0.5f64.powf(cycle as f64),
            Height::Power(gamma) => gamma.powf(step as f64),
        };
        base + (self.times - 1.0) * base * part * height
    }
}
