//! The rate as a function of the step.

/// A learning rate for every step. Nothing is remembered, so any step can be asked for.
pub trait Schedule {
    /// The rate of step `step` (0 for the first) in a group whose rate is `base` to begin with.
    fn rate(&self, base: f64, step: u64) -> f64;
}

impl<S: Schedule + ?Sized> Schedule for Box<S> {
    fn rate(&self, base: f64, step: u64) -> f64 {
        (**self).rate(base, step)
    }
}

impl<S: Schedule + ?Sized> Schedule for &S {
    fn rate(&self, base: f64, step: u64) -> f64 {
        (**self).rate(base, step)
    }
}
