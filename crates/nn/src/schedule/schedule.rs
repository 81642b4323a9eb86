//! The learning rate as a function of the step.

/// A learning rate for every step. It has no state: steps may be evaluated in any order.
pub trait Schedule {
    /// The learning rate of step `step`, counted from 0, in a group that started with `base`.
    fn lr(&self, base: f64, step: u64) -> f64;
}

impl<S: Schedule + ?Sized> Schedule for Box<S> {
    fn lr(&self, base: f64, step: u64) -> f64 {
        (**self).lr(base, step)
    }
}

impl<S: Schedule + ?Sized> Schedule for &S {
    fn lr(&self, base: f64, step: u64) -> f64 {
        (**self).lr(base, step)
    }
}
