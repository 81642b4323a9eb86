//! Up once, and down once.

use super::Schedule;
use super::cosine::between;

/// From a small rate up to the base rate, and down to a very small one: `torch.optim.lr_scheduler.OneCycleLR`, with the base rate as
/// its `max_lr` and without cycling the momentum. After `steps` steps it stays where it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneCycle {
    /// How many steps it takes in all.
    pub steps: u64,
    /// Which part of them it rises.
    pub rising: f64,
    /// It begins with the base rate divided by this.
    pub start_divisor: f64,
    /// It ends with the rate it began with divided by this.
    pub end_divisor: f64,
    /// Along lines, not along cosines.
    pub linear: bool,
    /// Falls as fast as it rose, to where it began, and then further.
    pub three_phases: bool,
}

impl OneCycle {
    /// With PyTorch's defaults.
    pub fn new(steps: u64) -> OneCycle {
        let (linear, three_phases) = (false, false);
        OneCycle { steps, rising: 0.3, start_divisor: 25.0, end_divisor: 1e4, linear, three_phases }
    }
}

impl Schedule for OneCycle {
    fn rate(&self, base: f64, step: u64) -> f64 {
        let start = base / self.start_divisor;
        let end = start / self.end_divisor;
        let (total, last) = (self.steps as f64, self.steps.saturating_sub(1) as f64);
        let top = self.rising * total - 1.0;
        let phases = match self.three_phases {
            true => vec![(top, start, base), (2.0 * top, base, start), (last, start, end)],
            false => vec![(top, start, base), (last, base, end)],
        };
        let at = (step as f64).min(last);
        let mut begin = 0.0;
        for (until, from, to) in phases {
            if at <= until {
                let part = if until > begin { (at - begin) / (until - begin) } else { 1.0 };
                return if self.linear {
                    from + (to - from) * part
                } else {
                    between(from, to, part)
                };
            }
            begin = until;
        }
        end
    }
}
