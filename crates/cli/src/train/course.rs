//! How a learning rate goes over a run.

use super::options::Course;
use pullback_nn::schedule::{CosineAnnealingLr, OneCycleLr, Schedule};

/// A course over so many steps.
pub struct Along {
    pub course: Course,
    pub steps: u64,
}

impl Schedule for Along {
    fn lr(&self, base: f64, step: u64) -> f64 {
        match self.course {
            Course::Constant => base,
            Course::Cosine => CosineAnnealingLr { t_max: self.steps, eta_min: 0.0 }.lr(base, step),
            Course::OneCycle => OneCycleLr::new(self.steps).lr(base, step),
            Course::Linear => base * (1.0 - step.min(self.steps) as f64 / self.steps.max(1) as f64),
        }
    }
}
