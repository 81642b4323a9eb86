//! [`fixed_point`]: the x with x = f(θ, x).

use super::flat::{DependenceCheck, Flat, VectorFn, known, norm, only_if, solving};
use super::{LinearSolve, implicit, usual_tolerance};
use crate::{Error, Tensor, Tree, fail, linalg, mode, while_loop};
use pullback_ir::Line;
use std::sync::Arc;

/// Options of [`fixed_point`].
///
/// ```
/// use pullback::{FixedPoint, Tensor};
/// // cos has its fixed point at 0.739…; five earlier steps make it come faster.
/// let x = FixedPoint::new().anderson(5).of(|_: &(), x: &Tensor| x.cos(), &(), &Tensor::from(0.0));
/// assert!((x.item::<f64>() - 0.7390851332151607).abs() < 1e-9);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FixedPoint {
    tolerance: Option<f64>,
    most: usize,
    damping: f64,
    memory: usize,
    linear: LinearSolve,
}

/// The fixed point x = f(θ, x), found by iteration from an initial guess, with an implicit
/// derivative.
///
/// ```
/// use pullback::{Tensor, fixed_point, grad};
/// // Heron's rule: √a is where x = (x + a/x)/2.
/// let root = |a: &Tensor| fixed_point(|a: &Tensor, x: &Tensor| (x + a / x) * 0.5, a, &Tensor::from(1.0));
/// assert!((root(&Tensor::from(9.0)).item::<f64>() - 3.0).abs() < 1e-9);
/// assert!((grad(root)(&Tensor::from(9.0)).item::<f64>() - 1.0 / 6.0).abs() < 1e-9);
/// assert!((grad(grad(root))(&Tensor::from(9.0)).item::<f64>() + 1.0 / 108.0).abs() < 1e-9);
/// ```
///
/// θ and x are trees. Derivative: with w the solution of w = x̄ + (∂f/∂x)ᵀ·w, θ̄ = (∂f/∂θ)ᵀ·w, at
/// the fixed point: memory does not grow with the iterations. Both modes and all orders. The
/// gradient of the guess is zero. [`autocast`](crate::autocast) is not applied inside f: 16 bits
/// are less precise than the tolerance.
///
/// # Panics
/// If it does not converge, with the residual; if f gives other specs than x, or depends on a
/// tracked tensor that is not in θ. Inside a program the result is NaN where it does not converge.
#[track_caller]
pub fn fixed_point<T, X>(f: impl Fn(&T, &X) -> X + Send + Sync + 'static, theta: &T, guess: &X) -> X
where
    T: Tree + Send + Sync + 'static,
    X: Tree + Send + Sync + 'static,
{
    FixedPoint::new().of(f, theta, guess)
}

impl Default for FixedPoint {
    fn default() -> FixedPoint {
        FixedPoint {
            tolerance: None,
            most: 1000,
            damping: 1.0,
            memory: 0,
            linear: LinearSolve::new(),
        }
    }
}

impl FixedPoint {
    /// Plain iteration, at most a thousand times, until x moves by 1e-10 of 1 + |x| (1e-5 in f32).
    ///
    /// ```
    /// use pullback::{FixedPoint, Tensor};
    /// let step = |a: &Tensor, x: &Tensor| a * x.cos();
    /// let x = FixedPoint::new().of(step, &Tensor::from(0.5), &Tensor::from(0.0));
    /// assert!((x.item::<f64>() - 0.4501836112948736).abs() < 1e-9);
    /// ```
    #[must_use]
    pub fn new() -> FixedPoint {
        FixedPoint::default()
    }

    /// How far f(x) may be from x, relative to 1 + |x|; 1e-10 unless set, and 1e-5 in f32.
    ///
    /// ```
    /// use pullback::{FixedPoint, Tensor};
    /// let step = |a: &Tensor, x: &Tensor| a * x.cos();
    /// let (a, guess) = (Tensor::from(0.5), Tensor::from(0.0));
    /// let rough = FixedPoint::new().tolerance(1e-2).of(step, &a, &guess).item::<f64>();
    /// let exact = FixedPoint::new().tolerance(1e-14).of(step, &a, &guess).item::<f64>();
    /// assert!((rough - exact).abs() < 2e-2 && rough != exact);
    /// ```
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> FixedPoint {
        self.tolerance = Some(tolerance);
        self
    }

    /// The maximum number of calls of f; a thousand unless set.
    ///
    /// ```
    /// use pullback::{FixedPoint, Tensor, catch};
    /// let step = |a: &Tensor, x: &Tensor| a * x.cos();
    /// let (a, guess) = (Tensor::from(0.5), Tensor::from(0.0));
    /// let error = catch(|| FixedPoint::new().max_iterations(3).of(step, &a, &guess)).unwrap_err();
    /// assert!(error.to_string().starts_with("fixed_point"), "{error}");
    /// ```
    ///
    /// # Panics
    /// [`FixedPoint::of`], where more would be needed.
    #[must_use]
    pub fn max_iterations(mut self, most: usize) -> FixedPoint {
        self.most = most;
        self
    }

    /// The fraction of each step that is taken; 1, all of it, unless set. Less where the iteration
    /// oscillates.
    ///
    /// ```
    /// use pullback::{FixedPoint, Tensor, catch};
    /// let step = |a: &Tensor, x: &Tensor| a / x; // 1, 9, 1, 9, …
    /// let (a, guess) = (Tensor::from(9.0), Tensor::from(1.0));
    /// assert!(catch(|| FixedPoint::new().of(step, &a, &guess)).is_err());
    /// let x = FixedPoint::new().damping(0.5).of(step, &a, &guess);
    /// assert!((x.item::<f64>() - 3.0).abs() < 1e-9);
    /// ```
    ///
    /// # Panics
    /// [`FixedPoint::of`], if it is not above 0 and at most 1.
    #[must_use]
    pub fn damping(mut self, part: f64) -> FixedPoint {
        self.damping = part;
        self
    }

    /// Combines this many earlier steps so that their residuals cancel (Anderson acceleration):
    /// fewer iterations, and convergence in some cases where plain iteration diverges. 0, plain
    /// iteration, unless set.
    ///
    /// ```
    /// use pullback::{FixedPoint, Tensor, catch};
    /// let step = |a: &Tensor, x: &Tensor| a - x * 2.0; // diverges from a/3
    /// let (a, guess) = (Tensor::from(6.0), Tensor::from(0.0));
    /// assert!(catch(|| FixedPoint::new().of(step, &a, &guess)).is_err());
    /// let x = FixedPoint::new().anderson(2).of(step, &a, &guess);
    /// assert!((x.item::<f64>() - 2.0).abs() < 1e-9);
    /// ```
    #[must_use]
    pub fn anderson(mut self, memory: usize) -> FixedPoint {
        self.memory = memory;
        self
    }

    /// How the linear system of the derivative is solved.
    ///
    /// ```
    /// use pullback::{FixedPoint, LinearMethod, LinearSolve, Tensor, grad};
    /// let solver = FixedPoint::new().linear(LinearSolve::new().method(LinearMethod::BiCgStab));
    /// let heron = |a: &Tensor, x: &Tensor| (x + a / x) * 0.5;
    /// let sqrt = move |a: &Tensor| solver.of(heron, a, &Tensor::from(1.0));
    /// assert!((grad(sqrt)(&Tensor::from(9.0)).item::<f64>() - 1.0 / 6.0).abs() < 1e-9);
    /// ```
    #[must_use]
    pub fn linear(mut self, linear: LinearSolve) -> FixedPoint {
        self.linear = linear;
        self
    }

    /// The fixed point; see [`fixed_point`].
    ///
    /// ```
    /// use pullback::{FixedPoint, Tensor};
    /// let heron = |a: &Tensor, x: &Tensor| (x + a / x) * 0.5;
    /// let x = FixedPoint::new().of(heron, &Tensor::from(9.0), &Tensor::from(1.0));
    /// assert!((x.item::<f64>() - 3.0).abs() < 1e-9);
    /// ```
    ///
    /// # Panics
    /// As [`fixed_point`]; if the damping is not above 0 and at most 1.
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
        if !(self.damping > 0.0 && self.damping <= 1.0) {
            let message =
                format!("the damping must be above 0 and at most 1, not {}", self.damping);
            fail::raise(Error::argument("fixed_point", message).at(at));
        }
        let flat = Arc::new(Flat::of("fixed_point", guess, at));
        let map = flat.map(f, theta);
        let step = map.clone();
        let residual: VectorFn = Arc::new(move |theta: &[Tensor], x: &Tensor| step(theta, x) - x);
        let options = *self;
        let find = Box::new(move |theta: &[Tensor], x: &Tensor, watch: &DependenceCheck| {
            options.find(&|x| watch.call(x, |x| map(theta, x)), x, at)
        });
        solving(at, || {
            let (theta, guess) = (theta.leaves(), flat.join(guess));
            flat.split(&implicit("fixed_point", residual, find, self.linear, &theta, &guess))
        })
    }

    fn find(&self, f: &dyn Fn(&Tensor) -> Tensor, guess: &Tensor, at: Line) -> Tensor {
        let tolerance = self.tolerance.unwrap_or(usual_tolerance(guess.dtype()));
        let first = f(guess);
        let history = match self.memory {
            0 => Vec::new(),
            m => vec![guess.new_zeros([m, guess.len()]); 2],
        };
        // x, f(x), calls, and earlier x with their residuals.
        type AndersonState = (Tensor, Tensor, Tensor, Vec<Tensor>);
        let off = |s: &AndersonState| norm(&(&s.1 - &s.0)) / (norm(&s.1) + 1.0);
        let should_continue =
            |s: &AndersonState| off(s).gt(tolerance).logical_and(s.2.lt(self.most));
        let step = |(x, y, calls, history): &AndersonState| {
            let (next, history) = match &history[..] {
                [xs, residuals] => self.combined(x, &(y - x), calls, xs, residuals),
                _ => (x + (y - x) * self.damping, Vec::new()),
            };
            (next.clone(), f(&next), calls + 1i64, history)
        };
        let last = while_loop(
            should_continue,
            step,
            &(guess.clone(), first, guess.new_tensor(1i64), history),
        );
        let off = off(&last);
        only_if(&off.le(tolerance), last.1, || {
            let (calls, off) = (known(&last.2).unwrap_or(0.0), known(&off).unwrap_or(f64::NAN));
            let message = format!(
                "no fixed point was found: after {calls} calls f(x) is {off:e} from x (relative to 1 + |x|), not {tolerance:e}"
            );
            Error::argument("fixed_point", message)
                .at(at)
                .hint("plain iteration needs a contraction; try anderson(5), damping(0.5), or root(..) of f(x) − x")
        })
    }

    /// Anderson's step: the weights, of sum 1, with which the kept residuals are shortest; and what
    /// is kept now.
    fn combined(
        &self,
        x: &Tensor,
        residual: &Tensor,
        calls: &Tensor,
        xs: &Tensor,
        residuals: &Tensor,
    ) -> (Tensor, Vec<Tensor>) {
        let m = self.memory;
        let (number, dtype) = (x.new_iota(m), x.dtype());
        let here = number.eq(calls.remainder(m)).unsqueeze(1);
        let (xs, residuals) = (here.select(x, xs), here.select(residual, residuals));
        // Calls begin at 1: that many rows are filled, in the order 1, 2, …, 0.
        let filled = (&number - 1i64).remainder(m).lt(calls).cast(dtype);
        let products = residuals.matmul(&residuals.t());
        let scale = products.diagonal().max();
        let ridge = 1.0 - &filled + 64.0 * super::krylov::spacing(dtype);
        let system = products / scale.gt(0.0).select(&scale, 1.0) + x.new_eye(m, m, dtype) * ridge;
        let weights = linalg::solve_ex(&system, &filled, true).0;
        let weights = &weights / weights.sum();
        (weights.matmul(&(&xs + &residuals * self.damping)), vec![xs, residuals])
    }
}
