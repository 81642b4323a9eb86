//! Functions that are given by what their result satisfies: fixed points, roots, solutions of
//! linear systems and of differential equations.
//!
//! The derivative does not depend on how the result was found. If F(θ, x) = 0 and x is moved with θ
//! so that it stays so, then F_x·dx + F_θ·dθ = 0, and a cotangent x̄ is pulled back by one linear
//! system,
//!
//! ```text
//!   F_xᵀ·w = −x̄,    θ̄ = F_θᵀ·w,
//! ```
//!
//! at the solution alone. So no step of the iteration is kept, and it may contain what has no
//! derivative. All of it is [`custom_vjp`] with residuals θ and x: the rule is tensor code that
//! solves a linear system, which is an implicit function itself, so forward mode, second
//! derivatives, `jit` and `vmap` follow.
//!
//! - [`fixed_point`]: x = f(θ, x), [`root`]: f(θ, x) = 0, [`linear_solve`]: A(θ)·x = b for a
//!   function A, and [`ode`]: dy/dt = f(t, y, θ), whose rule is the adjoint equation.
//! - Parameters and unknowns are trees. What is differentiated must be among the parameters: a
//!   function that captures a tracked tensor is refused.
//! - The initial guess has a gradient of zero.
//! - Kinks are counted at the solution (of `ode`, at the given times), where the derivative is
//!   taken, and not during the iteration. The function keeps the conventions of the call, in every
//!   backward pass.
//! - [`autocast`](crate::autocast) is not applied inside the function: 16 bits are less precise
//!   than the tolerance.
//! - Iterations are [`while_loop`](crate::while_loop)s, so all of it compiles and batches. In eager
//!   code one that fails is an error with the residual; inside a program, which cannot raise
//!   errors, its result is NaN.
//!
//! The rules skip the check: comparing them with differences takes hundreds of solves. The tests of
//! this library do that.

mod fixed_point;
mod flat;
mod krylov;
mod linear;
mod ode;
mod root;

pub use fixed_point::{FixedPoint, fixed_point};
pub use linear::{LinearMethod, LinearSolve, linear_solve};
pub use ode::{Ode, ode};
pub use root::{Root, root};

use crate::{DType, Tensor, custom_vjp, kinks, mode, vjp};
use flat::{DependenceCheck, VectorFn};
use pullback_ir::Line;
use std::sync::Arc;

/// Finds x from θ and a first guess, by checked calls of the function.
type SolverFn = dyn Fn(&[Tensor], &Tensor, &DependenceCheck) -> Tensor + Send + Sync;

/// The x with F(θ, x) = 0 that `find` finds from a first guess.
#[track_caller]
fn implicit(
    name: &'static str,
    residual: VectorFn,
    find: Box<SolverFn>,
    linear: LinearSolve,
    theta: &[Tensor],
    guess: &Tensor,
) -> Tensor {
    if guess.is_empty() {
        return guess.clone();
    }
    let (at, at_solution) = (mode::user_line(Line::caller()), residual.clone());
    let forward = move |(theta, guess): &(Vec<Tensor>, Tensor)| {
        let watch = DependenceCheck::new(name, at);
        let x = mode::set_recording(false, || find(theta, guess, &watch));
        (x.clone(), (theta.clone(), x))
    };
    let backward = move |(theta, x): &(Vec<Tensor>, Tensor), dx: &Tensor| {
        let point: Vec<Tensor> = theta.iter().chain([x]).cloned().collect();
        let w = linear.apply(name, slope_transposed(&residual), &point, &-dx, false);
        let (_, pullback) = vjp(|theta: &Vec<Tensor>| residual(theta, x), theta);
        (pullback(&w), dx.zeros_like())
    };
    let x = custom_vjp(name, forward, backward).trusted().call(&(theta.to_vec(), guess.clone()));
    // The derivative is that of F at the solution, and so are its kinks.
    kinks::only_counted(|| at_solution(theta, &x));
    x
}

/// F_xᵀ, as an operator that depends on θ and x.
fn slope_transposed(residual: &VectorFn) -> linear::Operator {
    let residual = residual.clone();
    Arc::new(move |point: &[Tensor]| {
        let (theta, x) = (point[..point.len() - 1].to_vec(), &point[point.len() - 1]);
        let residual = residual.clone();
        let (_, pullback) = vjp(move |x: &Tensor| residual(&theta, x), x);
        Box::new(pullback)
    })
}

/// The default tolerance.
fn usual_tolerance(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-10 } else { 1e-5 }
}
