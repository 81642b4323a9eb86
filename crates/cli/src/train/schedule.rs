//! The schedule of the learning rate.

use super::options::ScheduleKind;
use pullback_nn::schedule::{CosineAnnealingLr, OneCycleLr, Schedule};

/// A schedule over `steps` steps.
pub struct ScheduleOver {
    pub course: ScheduleKind,
    pub steps: u64,
}

impl Schedule for ScheduleOver {
    fn lr(&self, base: f64, step: u64) -> f64 {
        match self.course {
            ScheduleKind::Constant => base,
            ScheduleKind::Cosine => {
                CosineAnnealingLr { t_max: self.steps, eta_min: 0.0 }.lr(base, step)
            }
            ScheduleKind::OneCycle => OneCycleLr::new(self.steps).lr(base, step),
            ScheduleKind::Linear => {
                base * (1.0 - step.min(self.steps) as f64 / self.steps.max(1) as f64)
            }
        }
    }
}
