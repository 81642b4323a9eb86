//! How a learning rate goes over a run.

use super::options::Course;
use pullback_nn::schedule::{Cosine, OneCycle, Schedule};

/// A course over so many steps.
pub struct Along {
    pub course: Course,
    pub steps: u64,
}

impl Schedule for Along {
    fn rate(&self, base: f64, step: u64) -> f64 {
        match self.course {
            Course::Constant => base,
            Course::Cosine => Cosine { steps: self.steps, lowest: 0.0 }.rate(base, step),
            Course::OneCycle => OneCycle::new(self.steps).rate(base, step),
            Course::Linear => base * (1.0 - step.min(self.steps) as f64 / self.steps.max(1) as f64),
        }
    }
}
