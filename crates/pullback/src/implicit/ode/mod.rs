//! [`ode`]: the solution of a differential equation, and its adjoint.
//!
//! The cotangent a(t) of the state obeys an equation of its own, which runs backwards in time:
//!
//! ```text
//!   dy/dt = f(t, y, θ),    da/dt = −(∂f/∂y)ᵀ·a,    dθ̄/dt = −(∂f/∂θ)ᵀ·a.
//! ```
//!
//! Backward integrates the three together, from each of the given times to the one before, where ȳ
//! is added to a and y is set to the value that is known there: the results are saved, not the
//! steps. The adjoint is linear in ȳ, so it is integrated in units of the largest element of ȳ: the
//! tolerances then mean the same for every loss. As this is an [`ode`] again, it has a derivative
//! again.

mod adjoint;
mod steps;

use super::flat::{Flat, solving};
use crate::custom::without_values;
use crate::read_only::ReadOnly;
use crate::{DType, Error, Tensor, Tree, fail, kinks, mode, trace};
use pullback_ir::Line;
use std::sync::Arc;

/// dy/dt, from the parameters (the leaves of a tree), t and y.
pub(super) type VectorField = Arc<dyn Fn(&[Tensor], &Tensor, &Tensor) -> Tensor + Send + Sync>;

/// Options of [`ode`].
///
/// ```
/// use pullback::{Ode, Tensor};
/// let decay = |_: &Tensor, y: &Tensor, rate: &Tensor| -(rate * y);
/// let times = Tensor::from([0.0, 1.0]);
/// let y = Ode::new().rtol(1e-10).atol(1e-12).of(decay, &Tensor::from(1.0), &times, &Tensor::from(2.0));
/// assert!((y.at(1).item::<f64>() - (-2f64).exp()).abs() < 1e-9);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ode {
    rtol: Option<f64>,
    atol: Option<f64>,
    max_steps: usize,
    discrete: bool,
}

/// Solves the initial value problem dy/dt = f(t, y, θ), `y(times[0]) = y0`, at the given times: by
/// the Dormand–Prince method of order 5 (`dopri5`), with adaptive steps and interpolation of order
/// 4 between them.
///
/// ```
/// use pullback::{Tensor, grad, ode};
/// // Logistic growth: y(t) = 1 / (1 + 3·e^(−r·t)) from y(0) = 1/4.
/// let growth = |_t: &Tensor, y: &Tensor, r: &Tensor| r * y * (1.0 - y);
/// let times = Tensor::from([0.0, 1.0, 2.0]);
/// let last = move |r: &Tensor| ode(growth, &Tensor::from(0.25), &times, r).at(2);
/// let (r, e) = (Tensor::from(1.5), (-3f64).exp());
/// assert!((last(&r).item::<f64>() - 1.0 / (1.0 + 3.0 * e)).abs() < 1e-6);
/// assert!((grad(last)(&r).item::<f64>() - 6.0 * e / (1.0 + 3.0 * e).powi(2)).abs() < 1e-6);
/// ```
///
/// y and θ are trees; each tensor of the result has the times as its first axis. Times ascend or
/// descend.
///
/// Derivative: of y0, θ and the times, by the adjoint equation, to the tolerances; memory does not
/// grow with the number of steps. Both modes and all orders. [`Ode::discrete`] differentiates the
/// steps instead. [`autocast`](crate::autocast) is not applied inside f: 16 bits are less precise
/// than the tolerances.
///
/// # Panics
/// If the times are not in order, f gives other specs than y or depends on a tracked tensor that is
/// not in θ; if the step size underflows or the maximum number of steps is reached, with the time.
/// Inside a program the result is NaN then.
#[doc(alias = "odeint")]
#[track_caller]
pub fn ode<T, Y>(
    f: impl Fn(&Tensor, &Y, &T) -> Y + Send + Sync + 'static,
    y0: &Y,
    times: &Tensor,
    theta: &T,
) -> Y
where
    T: Tree + Send + Sync + 'static,
    Y: Tree + Send + Sync + 'static,
{
    Ode::new().of(f, y0, times, theta)
}

impl Default for Ode {
    fn default() -> Ode {
        Ode { rtol: None, atol: None, max_steps: 100_000, discrete: false }
    }
}

impl Ode {
    /// A relative tolerance of 1e-7 and an absolute one of 1e-9 (in f32: 1e-5 and 1e-6), at most
    /// 100 000 steps, and derivatives by the adjoint equation.
    ///
    /// ```
    /// use pullback::{Ode, Tensor};
    /// let decay = |_: &Tensor, y: &Tensor, rate: &Tensor| -(rate * y);
    /// let (y0, times, rate) = (Tensor::from(1.0), Tensor::from([0.0, 1.0]), Tensor::from(2.0));
    /// let y = Ode::new().of(decay, &y0, &times, &rate);
    /// assert!((y.at(1).item::<f64>() - (-2f64).exp()).abs() < 1e-6);
    /// ```
    #[must_use]
    pub fn new() -> Ode {
        Ode::default()
    }

    /// The relative tolerance: the error of a step may be `atol + rtol · |y|` in each element. 1e-7
    /// unless set, and 1e-5 in f32.
    ///
    /// ```
    /// use pullback::{Ode, Tensor};
    /// let decay = |_: &Tensor, y: &Tensor, rate: &Tensor| -(rate * y);
    /// let (y0, times, rate) = (Tensor::from(1.0), Tensor::from([0.0, 1.0]), Tensor::from(2.0));
    /// let error = |rtol: f64| {
    ///     let y = Ode::new().rtol(rtol).of(decay, &y0, &times, &rate);
    ///     (y.at(1).item::<f64>() - (-2f64).exp()).abs()
    /// };
    /// assert!(error(1e-10) < 1e-9 && error(1e-3) > 1e-7);
    /// ```
    ///
    /// # Panics
    /// [`Ode::of`], if it is negative or not finite, or if both tolerances are 0.
    #[must_use]
    pub fn rtol(mut self, relative: f64) -> Ode {
        self.rtol = Some(relative);
        self
    }

    /// The absolute tolerance: see [`Ode::rtol`]. 1e-9 unless set, and 1e-6 in f32.
    ///
    /// ```
    /// use pullback::{Ode, Tensor};
    /// let decay = |_: &Tensor, y: &Tensor, rate: &Tensor| -(rate * y);
    /// let (y0, times, rate) = (Tensor::from(1.0), Tensor::from([0.0, 1.0]), Tensor::from(2.0));
    /// let y = Ode::new().rtol(0.0).atol(1e-10).of(decay, &y0, &times, &rate);
    /// assert!((y.at(1).item::<f64>() - (-2f64).exp()).abs() < 1e-9);
    /// ```
    ///
    /// # Panics
    /// As [`Ode::rtol`].
    #[must_use]
    pub fn atol(mut self, absolute: f64) -> Ode {
        self.atol = Some(absolute);
        self
    }

    /// The maximum number of steps between the first time and the last; 100 000 unless set.
    ///
    /// ```
    /// use pullback::{Ode, Tensor, catch};
    /// let decay = |_: &Tensor, y: &Tensor, rate: &Tensor| -(rate * y);
    /// let (y0, times, rate) = (Tensor::from(1.0), Tensor::from([0.0, 1.0]), Tensor::from(2.0));
    /// let error = catch(|| Ode::new().max_steps(2).of(decay, &y0, &times, &rate)).unwrap_err();
    /// assert!(error.to_string().starts_with("ode"), "{error}");
    /// ```
    ///
    /// # Panics
    /// [`Ode::of`], where more would be needed.
    #[must_use]
    pub fn max_steps(mut self, most: usize) -> Ode {
        self.max_steps = most;
        self
    }

    /// Differentiates the steps that were taken, which the tape then keeps: the exact derivative of
    /// what was computed, with the lengths of the steps as constants (discretise, then optimise).
    ///
    /// In compiled code only forward mode can do that.
    ///
    /// ```
    /// use pullback::{Ode, Tensor, grad};
    /// let decay = |_: &Tensor, y: &Tensor, rate: &Tensor| -(rate * y);
    /// let (y0, times, rate) = (Tensor::from(1.0), Tensor::from([0.0, 1.0]), Tensor::from(2.0));
    /// let end = |rate: &Tensor| Ode::new().discrete().of(decay, &y0, &times, rate).at(1);
    /// assert!((grad(end)(&rate).item::<f64>() + (-2f64).exp()).abs() < 1e-6);
    /// ```
    #[must_use]
    pub fn discrete(mut self) -> Ode {
        self.discrete = true;
        self
    }

    /// The solution; see [`ode`].
    ///
    /// ```
    /// use pullback::{Ode, Tensor};
    /// let decay = |_: &Tensor, y: &Tensor, rate: &Tensor| -(rate * y);
    /// let (y0, times, rate) = (Tensor::from(1.0), Tensor::from([0.0, 1.0]), Tensor::from(2.0));
    /// let y = Ode::new().of(decay, &y0, &times, &rate);
    /// assert_eq!(y.shape(), [2]);
    /// assert!((y.at(1).item::<f64>() - (-2f64).exp()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// As [`ode`].
    #[track_caller]
    pub fn of<T, Y>(
        &self,
        f: impl Fn(&Tensor, &Y, &T) -> Y + Send + Sync + 'static,
        y0: &Y,
        times: &Tensor,
        theta: &T,
    ) -> Y
    where
        T: Tree + Send + Sync + 'static,
        Y: Tree + Send + Sync + 'static,
    {
        let at = mode::user_line(Line::caller());
        if let Err(error) = self.check(times) {
            fail::raise(error.at(at));
        }
        let flat = Arc::new(Flat::of("ode", y0, at));
        let (like, inside, conventions) =
            (without_values(theta), flat.clone(), kinks::conventions());
        let field: VectorField = Arc::new(move |theta: &[Tensor], t: &Tensor, y: &Tensor| {
            let _held = ReadOnly::of(theta.iter().chain([t, y]));
            let (y, theta) = (inside.split(y), like.with_leaves(theta));
            let run = || mode::with_own_lines(|| f(t, &y, &theta));
            inside.join(&kinks::with_state(conventions, run))
        });
        solving(at, || {
            let (y0, times, theta) = (flat.join(y0), times.cast(flat.dtype()), theta.leaves());
            flat.split(&match self.discrete {
                true => steps::solve(self, &*field, &theta, &y0, &times, at),
                false => adjoint::solve(*self, field, &theta, &y0, &times, (true, at)),
            })
        })
    }

    /// Relative and absolute.
    fn tolerances(&self, dtype: DType) -> (f64, f64) {
        let (rtol, atol) = if dtype == DType::F64 { (1e-7, 1e-9) } else { (1e-5, 1e-6) };
        (self.rtol.unwrap_or(rtol), self.atol.unwrap_or(atol))
    }

    fn check(&self, times: &Tensor) -> crate::Result<()> {
        let wrong = |message: String| Err(Error::argument("ode", message).on([times.spec()]));
        if times.rank() != 1 || times.is_empty() {
            return wrong("the times must be a list of at least one".to_string());
        }
        let (rtol, atol) = self.tolerances(times.dtype());
        let fine = |t: f64| t >= 0.0 && t.is_finite();
        if !(fine(rtol) && fine(atol) && rtol + atol > 0.0) {
            return wrong(format!(
                "the tolerances must be positive, not rtol {rtol} and atol {atol}"
            ));
        }
        if !trace::knows(times) {
            return Ok(());
        }
        let list = times.to_f64_vec();
        let pair = list.windows(2).find(|w| {
            let forwards = list[list.len() - 1] > list[0];
            !(if forwards { w[0] < w[1] } else { w[0] > w[1] })
        });
        match pair {
            Some(w) => {
                wrong(format!("the times must ascend or descend: {} is followed by {}", w[0], w[1]))
            }
            None if list.iter().any(|t| !t.is_finite()) => {
                wrong("the times must be finite".to_string())
            }
            None => Ok(()),
        }
    }
}
