//! `ode`: y₀' = x₀, yᵢ' = xᵢ·yᵢ₋₁ from y(0) = 0 to y(2) by Runge–Kutta of order four, and the
//! gradient of the last element in reverse mode.

use super::Module;
use crate::job::{Job, read, show, vector};
use pullback::{Tensor, cat, checkpoint, grad, jit, scan_times};
use serde::Deserialize;
use serde_json::Value;

pub(super) const MODULE: Module = Module {
    name: "ode",
    functions: &[
        ("primal", |input| {
            let (x, steps) = problem(input)?;
            let f = jit(move |x: &Tensor| solve(x, steps));
            Ok(Job::compiled(f, x, show))
        }),
        ("gradient", |input| {
            let (x, steps) = problem(input)?;
            let f = jit(grad(move |x: &Tensor| solve(x, steps).select_at(0, -1)));
            Ok(Job::compiled(f, x, show))
        }),
    ],
};

#[derive(Deserialize)]
struct OdeInput {
    x: Vec<f64>,
    s: usize,
}

fn problem(input: &Value) -> Result<(Tensor, usize), String> {
    let OdeInput { x, s } = read(input)?;
    if x.is_empty() || s == 0 {
        return Err(format!("{} equations in {s} steps: there is nothing to solve", x.len()));
    }
    Ok((vector(&x), s))
}

/// Numbers that stay in the caches.
const CACHED: usize = 1 << 20;

fn solve(x: &Tensor, steps: usize) -> Tensor {
    let h = 2.0 / steps as f64;
    // A step keeps four vectors to go back. Where all of them together would leave the caches, it
    // is taken again instead.
    let again = 4 * x.shape()[0] * steps > CACHED;
    let turn = |y: &Tensor, _: &()| match again {
        true => (checkpoint(move |(x, y)| step(x, y, h), &(x.clone(), y.clone())), ()),
        false => (step(x, y, h), ()),
    };
    scan_times(steps, turn, &x.zeros_like()).0
}

/// From y to y one step later.
fn step(x: &Tensor, y: &Tensor, h: f64) -> Tensor {
    // The 1 in front is what y₀' = x₀·1 reads.
    let (one, n) = (Tensor::from([1.0]), x.shape()[0]);
    let slope = |y: &Tensor| x * cat(&[&one, &y.narrow(0, 0, n - 1)], 0);
    let k1 = slope(y);
    let k2 = slope(&(y + h / 2.0 * &k1));
    let k3 = slope(&(y + h / 2.0 * &k2));
    let k4 = slope(&(y + h * &k3));
    y + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
}
