//! [`root`]: the x with f(θ, x) = 0.

use super::flat::{DependenceCheck, Flat, known, norm, only_if, solving};
use super::{LinearSolve, implicit, usual_tolerance};
use crate::{Error, Tensor, Tree, jacobian, jvp, linalg, mode, while_loop};
use pullback_ir::Line;
use std::sync::Arc;

/// Options of [`root`].
///
/// ```
/// use pullback::{Root, Tensor};
/// let x = Root::new().max_iterations(20).of(|a: &Tensor, x: &Tensor| x.powi(3) - a, &Tensor::from(8.0), &Tensor::from(1.0));
/// assert!((x.item::<f64>() - 2.0).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Root {
    tolerance: Option<f64>,
    most: usize,
    linear: LinearSolve,
}

/// The root x of f(θ, x) = 0 near an initial guess, by Newton's method with a backtracking line
/// search (steps are halved until |f| falls), with an implicit derivative.
///
/// ```
/// use pullback::{Tensor, grad, root};
/// // x + e^x = a
/// let x = |a: &Tensor| root(|a: &Tensor, x: &Tensor| x + x.exp() - a, a, &Tensor::from(0.0));
/// let a = Tensor::from(1.0 + 1f64.exp());
/// assert!((x(&a).item::<f64>() - 1.0).abs() < 1e-12);
/// assert!((grad(x)(&a).item::<f64>() - 1.0 / (1.0 + 1f64.exp())).abs() < 1e-12);
/// ```
///
/// θ and x are trees; f gives as many numbers as x has. The Jacobian is dense up to 256 unknowns;
/// above, or with an iterative [`LinearMethod`](crate::LinearMethod), only products with it are
/// computed.
///
/// Derivative: with w the solution of (∂f/∂x)ᵀ·w = −x̄, θ̄ = (∂f/∂θ)ᵀ·w, at the root. Both modes
/// and all orders. The gradient of the guess is zero. [`autocast`](crate::autocast) is not applied
/// inside f: 16 bits are less precise than the tolerance.
///
/// # Panics
/// If it does not converge, with |f|; if f gives other specs than x, or depends on a tracked tensor
/// that is not in θ. Inside a program the result is NaN where it does not converge.
#[doc(alias = "custom_root")]
#[track_caller]
pub fn root<T, X>(f: impl Fn(&T, &X) -> X + Send + Sync + 'static, theta: &T, guess: &X) -> X
where
    T: Tree + Send + Sync + 'static,
    X: Tree + Send + Sync + 'static,
{
    Root::new().of(f, theta, guess)
}

impl Default for Root {
    fn default() -> Root {
        Root { tolerance: None, most: 50, linear: LinearSolve::new() }
    }
}

impl Root {
    /// Newton's method with at most fifty steps, until one is shorter than 1e-10 of 1 + |x| (1e-5
    /// in f32).
    ///
    /// ```
    /// use pullback::{Root, Tensor};
    /// let cubed = |a: &Tensor, x: &Tensor| x.powi(3) - a;
    /// let (a, guess) = (Tensor::from(8.0), Tensor::from(1.0));
    /// let x = Root::new().of(cubed, &a, &guess);
    /// assert!((x.item::<f64>() - 2.0).abs() < 1e-12);
    /// ```
    #[must_use]
    pub fn new() -> Root {
        Root::default()
    }

    /// How long Newton's last step may be, relative to 1 + |x|; 1e-10 unless set, and 1e-5 in f32.
    /// The error is about its square.
    ///
    /// ```
    /// use pullback::{Root, Tensor};
    /// let cubed = |a: &Tensor, x: &Tensor| x.powi(3) - a;
    /// let (a, guess) = (Tensor::from(8.0), Tensor::from(1.0));
    /// let x = Root::new().tolerance(1e-3).of(cubed, &a, &guess);
    /// assert!((x.item::<f64>() - 2.0).abs() < 1e-5);
    /// ```
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Root {
        self.tolerance = Some(tolerance);
        self
    }

    /// The maximum number of steps; fifty unless set.
    ///
    /// ```
    /// use pullback::{Root, Tensor, catch};
    /// let cubed = |a: &Tensor, x: &Tensor| x.powi(3) - a;
    /// let (a, guess) = (Tensor::from(8.0), Tensor::from(1.0));
    /// let error = catch(|| Root::new().max_iterations(2).of(cubed, &a, &guess)).unwrap_err();
    /// assert!(error.to_string().starts_with("root"), "{error}");
    /// ```
    ///
    /// # Panics
    /// [`Root::of`], where more would be needed.
    #[must_use]
    pub fn max_iterations(mut self, most: usize) -> Root {
        self.most = most;
        self
    }

    /// How the linear systems of the steps and of the derivative are solved.
    ///
    /// ```
    /// use pullback::{LinearMethod, LinearSolve, Root, Tensor};
    /// let cubed = |a: &Tensor, x: &Tensor| x.powi(3) - a;
    /// let (a, guess) = (Tensor::from(8.0), Tensor::from(1.0));
    /// let solver = Root::new().linear(LinearSolve::new().method(LinearMethod::Gmres));
    /// assert!((solver.of(cubed, &a, &guess).item::<f64>() - 2.0).abs() < 1e-9);
    /// ```
    #[must_use]
    pub fn linear(mut self, linear: LinearSolve) -> Root {
        self.linear = linear;
        self
    }

    /// The root; see [`root`].
    ///
    /// ```
    /// use pullback::{Root, Tensor, grad};
    /// let cubed = |a: &Tensor, x: &Tensor| x.powi(3) - a;
    /// let cbrt = |a: &Tensor| Root::new().of(cubed, a, &Tensor::from(1.0));
    /// assert!((grad(cbrt)(&Tensor::from(8.0)).item::<f64>() - 1.0 / 12.0).abs() < 1e-9);
    /// ```
    ///
    /// # Panics
    /// As [`root`].
    #[track_caller]
    pub fn of<T, X>(
        &self,
        f: impl Fn(&T, &X) -> X + Send + Sync + 'static,
        theta: &T,
        guess: &X,
    ) -> X
    where
        T: Tree + Send + Sync + 'static,
        X: Tree + Send + Sync + 'static,
    {
        let at = mode::user_line(Line::caller());
        let flat = Arc::new(Flat::of("root", guess, at));
        let map = flat.map(f, theta);
        let (options, residual) = (*self, map.clone());
        let find = Box::new(move |theta: &[Tensor], x: &Tensor, watch: &DependenceCheck| {
            options.find(&|x| watch.call(x, |x| map(theta, x)), x, at)
        });
        solving(at, || {
            let (theta, guess) = (theta.leaves(), flat.join(guess));
            flat.split(&implicit("root", residual, find, self.linear, &theta, &guess))
        })
    }

    fn find(&self, f: &dyn Fn(&Tensor) -> Tensor, guess: &Tensor, at: Line) -> Tensor {
        let tolerance = self.tolerance.unwrap_or(usual_tolerance(guess.dtype()));
        let value = f(guess);
        // x, f(x), steps, length of the last one.
        type NewtonState = (Tensor, Tensor, Tensor, Tensor);
        let should_continue = |s: &NewtonState| s.3.gt(tolerance).logical_and(s.2.lt(self.most));
        let step = |(x, value, steps, _): &NewtonState| {
            let full = self.newton(f, x, value);
            let length = norm(&full) / (norm(x) + 1.0);
            let (x, value) = shortened(f, x, value, &full);
            (x, value, steps + 1i64, length)
        };
        let far = guess.new_tensor(f64::INFINITY).cast(guess.dtype());
        let last =
            while_loop(should_continue, step, &(guess.clone(), value, guess.new_tensor(0i64), far));
        only_if(&last.3.le(tolerance), last.0, || {
            let number = |x: &Tensor| known(x).unwrap_or(f64::NAN);
            let message = format!(
                "no root was found: after {} steps |f(x)| is {:e}, and the next step would be {:e} long (relative to 1 + |x|), not {tolerance:e}",
                number(&last.2),
                number(&norm(&last.1)),
                number(&last.3)
            );
            Error::argument("root", message)
                .at(at)
                .hint("start nearer to a root; at a singular Jacobian there is no step")
        })
    }

    /// Newton's step; NaN at a singular Jacobian, which ends the iteration.
    fn newton(&self, f: &dyn Fn(&Tensor) -> Tensor, x: &Tensor, value: &Tensor) -> Tensor {
        if !self.linear.is_dense(x.len()) {
            return self.linear.find("root", &|v| jvp(|x: &Tensor| f(x), x, v).1, &-value);
        }
        let slope = jacobian(|x: &Tensor| f(x))(x);
        let (step, place) = linalg::solve_ex(&slope, &-value, true);
        place.eq(0i32).select(step, f64::NAN)
    }
}

/// x after the longest of the step, its half, its quarter, … that makes |f| smaller, and f there.
fn shortened(
    f: &dyn Fn(&Tensor) -> Tensor,
    x: &Tensor,
    value: &Tensor,
    full: &Tensor,
) -> (Tensor, Tensor) {
    type LineSearchState = (Tensor, Tensor, Tensor); // the part that is taken, x, f(x)
    let to = |part: Tensor| {
        let x = x + full * &part;
        let value = f(&x);
        (part, x, value)
    };
    let size = norm(value);
    // As often as the precision allows. NaN is no smaller than anything.
    let should_continue = |s: &LineSearchState| {
        norm(&s.2).le(&size * (1.0 - &s.0 * 1e-4)).logical_not().logical_and(s.0.gt(1e-6))
    };
    let (_, x, value) =
        while_loop(should_continue, |s: &LineSearchState| to(&s.0 * 0.5), &to(size.ones_like()));
    (x, value)
}
