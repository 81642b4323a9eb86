//! [`linear_solve`]: A·x = b for a function A.

use super::flat::{DependenceCheck, Flat, known, norm, only_if, solving};
use super::krylov::{self, KrylovLimits};
use super::usual_tolerance;
use crate::{Error, ErrorKind, Tensor, Tree, custom_vjp, fail, linalg, mode, stack, vjp, vmap};
use pullback_ir::Line;
use std::sync::Arc;

/// A linear map of a vector, made from parameters once and then applied many times.
pub(super) type Operator = Arc<dyn Fn(&[Tensor]) -> Box<dyn Fn(&Tensor) -> Tensor> + Send + Sync>;

/// How a linear system is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinearMethod {
    /// [`LinearMethod::Dense`] up to 256 unknowns, [`LinearMethod::Gmres`] above.
    #[default]
    Auto,
    /// LU factorisation of the dense matrix, which is assembled by one product for each unknown.
    Dense,
    /// Conjugate gradients, for symmetric positive definite systems.
    Cg,
    /// BiCGSTAB (stabilised biconjugate gradients): for any system, in little memory; convergence
    /// is not guaranteed.
    BiCgStab,
    /// GMRES (generalised minimal residuals), restarted every 30 products: for any system.
    Gmres,
}

/// Options of [`linear_solve`], and of the linear systems in derivatives of
/// [`fixed_point`](crate::fixed_point) and [`root`](crate::root).
///
/// ```
/// use pullback::{LinearMethod, LinearSolve, Tensor};
/// let diagonal = Tensor::from([4.0, 2.0, 1.0]);
/// let solver = LinearSolve::new().method(LinearMethod::Cg).tolerance(1e-12);
/// let x = solver.of(|d: &Tensor, x: &Tensor| d * x, &diagonal, &Tensor::from([4.0, 4.0, 4.0]));
/// assert!((x.at(2).item::<f64>() - 4.0).abs() < 1e-10);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearSolve {
    method: LinearMethod,
    tolerance: Option<f64>,
    max_products: Option<usize>,
}

/// The solution x of a(θ, x) = b, for a function `a` that is linear in x: a matrix-free linear
/// solve.
///
/// ```
/// use pullback::{Tensor, grad, linear_solve};
/// // −u″ + k·u = 1 between zeros, by differences.
/// let operator = |k: &Tensor, u: &Tensor| {
///     let around = u.pad([(1, 1)]);
///     k * u - (around.narrow(0, 2, 4) - 2.0 * u + around.narrow(0, 0, 4)) * 25.0
/// };
/// let middle = move |k: &Tensor| linear_solve(operator, k, &Tensor::full([4], 1.0)).at(1);
/// let slope = grad(middle)(&Tensor::from(2.0)).item::<f64>();
/// let h = 1e-5;
/// let by_hand = (middle(&Tensor::from(2.0 + h)) - middle(&Tensor::from(2.0 - h))).item::<f64>() / (2.0 * h);
/// assert!((slope - by_hand).abs() < 1e-9);
/// ```
///
/// Derivative: b̄ is the solution of the transposed system with x̄, and θ̄ = −(∂ a(θ, x)/∂θ)ᵀ·b̄.
/// The transposed operator is the pullback of `a`. Both modes and all orders.
/// [`autocast`](crate::autocast) is not applied inside `a`: 16 bits are less precise than the
/// tolerance.
///
/// # Panics
/// If `a` is not linear, the system is singular or the iteration does not converge, with the
/// residual; if `a` depends on a tracked tensor that is not in θ. Inside a program the result is
/// NaN where `a` is not linear or there is no solution.
#[doc(alias = "custom_linear_solve")]
#[track_caller]
pub fn linear_solve<T, X>(a: impl Fn(&T, &X) -> X + Send + Sync + 'static, theta: &T, b: &X) -> X
where
    T: Tree + Send + Sync + 'static,
    X: Tree + Send + Sync + 'static,
{
    LinearSolve::new().of(a, theta, b)
}

impl LinearSolve {
    /// Solves by the method that suits the size ([`LinearMethod::Auto`]), to a relative residual of
    /// 1e-10 in f64 and 1e-5 in f32.
    ///
    /// ```
    /// use pullback::{LinearSolve, Tensor};
    /// let scale = |d: &Tensor, x: &Tensor| d * x;
    /// let (d, b) = (Tensor::from([4.0, 2.0, 1.0]), Tensor::from([4.0, 4.0, 4.0]));
    /// let x = LinearSolve::new().of(scale, &d, &b);
    /// assert_eq!(x.to_vec::<f64>(), [1.0, 2.0, 4.0]);
    /// ```
    #[must_use]
    pub fn new() -> LinearSolve {
        LinearSolve::default()
    }

    /// The method by which the system is solved.
    ///
    /// ```
    /// use pullback::{LinearMethod, LinearSolve, Tensor};
    /// let scale = |d: &Tensor, x: &Tensor| d * x;
    /// let (d, b) = (Tensor::from([4.0, 2.0, 1.0]), Tensor::from([4.0, 4.0, 4.0]));
    /// let x = LinearSolve::new().method(LinearMethod::Cg).of(scale, &d, &b);
    /// assert!((x.at(1).item::<f64>() - 2.0).abs() < 1e-8);
    /// ```
    #[must_use]
    pub fn method(mut self, method: LinearMethod) -> LinearSolve {
        self.method = method;
        self
    }

    /// The relative residual |b − A·x| / |b| at which an iteration stops; 1e-10 unless set, and
    /// 1e-5 in f32.
    ///
    /// ```
    /// use pullback::{LinearMethod, LinearSolve, Tensor};
    /// let scale = |d: &Tensor, x: &Tensor| d * x;
    /// let (d, b) = (Tensor::from([4.0, 2.0, 1.0]), Tensor::from([4.0, 4.0, 4.0]));
    /// let solver = LinearSolve::new().method(LinearMethod::Gmres).tolerance(1e-3);
    /// let x = solver.of(scale, &d, &b);
    /// assert!((&d * x - &b).norm().item::<f64>() <= 1e-3 * b.norm().item::<f64>());
    /// ```
    #[must_use]
    pub fn tolerance(mut self, relative: f64) -> LinearSolve {
        self.tolerance = Some(relative);
        self
    }

    /// The maximum number of products with the operator: unless set, ten for each unknown, and at
    /// least a thousand.
    ///
    /// ```
    /// use pullback::{LinearMethod, LinearSolve, Tensor, catch};
    /// let scale = |d: &Tensor, x: &Tensor| d * x;
    /// let (d, b) = (Tensor::from([4.0, 2.0, 1.0]), Tensor::from([4.0, 4.0, 4.0]));
    /// let solver = LinearSolve::new().method(LinearMethod::Cg).max_products(1);
    /// assert!(catch(|| solver.of(scale, &d, &b)).is_err()); // three are needed
    /// ```
    ///
    /// # Panics
    /// [`LinearSolve::of`], where more would be needed.
    #[must_use]
    pub fn max_products(mut self, most: usize) -> LinearSolve {
        self.max_products = Some(most);
        self
    }

    /// The solution; see [`linear_solve`].
    ///
    /// ```
    /// use pullback::{LinearSolve, Tensor, grad};
    /// let scale = |d: &Tensor, x: &Tensor| d * x;
    /// let x = |d: &Tensor| LinearSolve::new().of(scale, d, &Tensor::from(4.0));
    /// assert_eq!(x(&Tensor::from(2.0)).item::<f64>(), 2.0);
    /// assert_eq!(grad(x)(&Tensor::from(2.0)).item::<f64>(), -1.0); // −4/d²
    /// ```
    ///
    /// # Panics
    /// As [`linear_solve`].
    #[track_caller]
    pub fn of<T, X>(&self, a: impl Fn(&T, &X) -> X + Send + Sync + 'static, theta: &T, b: &X) -> X
    where
        T: Tree + Send + Sync + 'static,
        X: Tree + Send + Sync + 'static,
    {
        let at = mode::user_line(Line::caller());
        let flat = Arc::new(Flat::of("linear_solve", b, at));
        let map = flat.map(a, theta);
        let operator: Operator = Arc::new(move |theta: &[Tensor]| {
            let (map, theta) = (map.clone(), theta.to_vec());
            Box::new(move |x: &Tensor| map(&theta, x))
        });
        solving(at, || {
            let (theta, b) = (theta.leaves(), flat.join(b));
            flat.split(&self.apply("linear_solve", operator, &theta, &b, true))
        })
    }

    /// The solution of a system whose operator depends on parameters. If it is the user's own, its
    /// captures have not been checked.
    #[track_caller]
    pub(super) fn apply(
        self,
        name: &'static str,
        a: Operator,
        theta: &[Tensor],
        b: &Tensor,
        own: bool,
    ) -> Tensor {
        let (at, again) = (mode::user_line(Line::caller()), a.clone());
        let forward = move |(theta, b): &(Vec<Tensor>, Tensor)| {
            let watch = DependenceCheck::new(name, at);
            let x = mode::set_recording(false, || {
                let product = a(theta);
                match own {
                    true => {
                        let product = |x: &Tensor| watch.call(x, &*product);
                        self.find(name, &product, &if_linear(name, at, &product, b))
                    }
                    false => self.find(name, &*product, b),
                }
            });
            (x.clone(), (theta.clone(), x))
        };
        let backward = move |(theta, x): &(Vec<Tensor>, Tensor), dx: &Tensor| {
            let w = self.apply(name, transposed(&again), theta, dx, false);
            let (_, pullback) = vjp(|theta: &Vec<Tensor>| again(theta)(x), theta);
            (pullback(&-&w), w)
        };
        custom_vjp(name, forward, backward).trusted().call(&(theta.to_vec(), b.clone()))
    }

    /// Whether a system of this size is solved by its matrix.
    pub(super) fn is_dense(&self, unknowns: usize) -> bool {
        match self.method {
            LinearMethod::Auto => unknowns <= 256,
            method => method == LinearMethod::Dense,
        }
    }

    /// The solution, as a value.
    #[track_caller]
    pub(super) fn find(&self, name: &'static str, a: krylov::MatVec, b: &Tensor) -> Tensor {
        let at = mode::user_line(Line::caller());
        // A right side that is not finite has no finite solution: a gradient that overflowed stays
        // visible, and is no error here.
        if b.is_empty() || known(&b.is_finite().all()) == Some(0.0) {
            return b * f64::NAN;
        }
        // In units of the largest element, whose squares cannot overflow.
        let size = b.abs().max();
        let unit = size.gt(0.0).select(&size, 1.0);
        self.find_unit(name, a, &(b / &unit), at) * unit
    }

    /// The solution for a right side whose largest element is 1, or 0.
    fn find_unit(&self, name: &'static str, a: krylov::MatVec, b: &Tensor, at: Line) -> Tensor {
        let n = b.len();
        let limits = KrylovLimits {
            tolerance: self.tolerance.unwrap_or(usual_tolerance(b.dtype())),
            most: self.max_products.unwrap_or(10 * n.max(100)),
        };
        let (how, (x, residual, products)) = match self.method {
            LinearMethod::Cg => ("conjugate gradients", krylov::cg(a, b, &limits)),
            LinearMethod::BiCgStab => ("BiCGSTAB", krylov::bicgstab(a, b, &limits)),
            LinearMethod::Auto | LinearMethod::Gmres if !self.is_dense(n) => {
                ("GMRES", krylov::gmres(a, b, &limits, 30))
            }
            LinearMethod::Auto | LinearMethod::Gmres | LinearMethod::Dense => {
                let matrix = matrix(a, b);
                let (x, place) = linalg::solve_ex(&matrix, b, true);
                let solved = place.eq(0i32).logical_and(x.is_finite().all());
                return only_if(&solved, x, || {
                    let message =
                        format!("the linear system of {n} unknowns is singular, or not finite");
                    Error::argument(name, message).at(at)
                });
            }
        };
        let small = residual.le(krylov::norm(b) * limits.tolerance);
        only_if(&small, x, || {
            let (residual, products) =
                (known(&residual).unwrap_or(f64::NAN), known(&products).unwrap_or(0.0));
            let size = known(&krylov::norm(b)).unwrap_or(1.0);
            let message = format!(
                "{how} did not solve the linear system of {n} unknowns: after {products} products the residual is {:e} of the right side, not {:e}",
                residual / size,
                limits.tolerance
            );
            Error::argument(name, message).at(at).hint("the system may be singular; try another LinearMethod, or raise tolerance(..) or max_products(..)")
        })
    }
}

/// The right side, if the function is linear. For a linear function, negating and doubling the
/// argument negates and doubles the result exactly.
fn if_linear(name: &'static str, at: Line, a: krylov::MatVec, b: &Tensor) -> Tensor {
    if b.is_empty() {
        return b.clone();
    }
    let (once, twice) = (a(b), a(&(b * -2.0)));
    let off = norm(&(&twice + &once * 2.0)).gt(norm(&twice) * 1e-4);
    only_if(&off.logical_not(), b.clone(), || {
        let message = "the function is not linear: of −2·b it is not −2 times what it is of b";
        Error::argument(name, message).at(at)
    })
}

/// The transposed operator: the pullback, at zero as at any other point. It is taken inside each
/// product, so that it can be differentiated itself.
fn transposed(a: &Operator) -> Operator {
    let a = a.clone();
    Arc::new(move |theta: &[Tensor]| {
        let (a, theta) = (a.clone(), theta.to_vec());
        Box::new(move |w: &Tensor| vjp(|x: &Tensor| a(&theta)(x), &w.zeros_like()).1(w))
    })
}

/// The matrix of an operator: its products with all unit vectors, at once unless it reads values.
fn matrix(a: krylov::MatVec, like: &Tensor) -> Tensor {
    let units = like.new_eye(like.len(), like.len(), like.dtype());
    match fail::catch(|| vmap(|v: &Tensor| a(v), 0, 1)(&units)) {
        Ok(matrix) => matrix,
        Err(error) if matches!(error.kind(), ErrorKind::Program | ErrorKind::InPlace) => {
            let columns: Vec<Tensor> =
                (0..like.len()).map(|i| a(&units.select_at(0, i as isize))).collect();
            stack(&columns.iter().collect::<Vec<_>>(), 1)
        }
        Err(error) => fail::raise(error),
    }
}
