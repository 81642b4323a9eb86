//! The learning rate as a function of the step.

/// The learning rate as a function of the step. It has no state: steps may be evaluated in any
/// order.
///
/// ```
/// use pullback_nn::schedule::Schedule;
/// /// Halved every epoch of 100 steps.
/// struct Halving;
///
/// impl Schedule for Halving {
///     fn lr(&self, base: f64, step: u64) -> f64 {
///         base * 0.5f64.powi((step / 100) as i32)
///     }
/// }
///
/// assert_eq!(Halving.lr(0.8, 250), 0.2);
/// ```
pub trait Schedule {
    /// The learning rate of step `step`, counted from 0, in a group that started with `base`.
    ///
    /// ```
    /// # use pullback_nn::schedule::{Schedule, StepLr};
    /// let schedule = StepLr { step_size: 10, gamma: 0.5 };
    /// assert_eq!([0, 9, 10, 20].map(|step| schedule.lr(0.8, step)), [0.8, 0.8, 0.4, 0.2]);
    /// ```
    ///
    /// # Panics
    /// Never.
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
