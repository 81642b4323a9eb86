//! `lse`: log Σ exp xᵢ with the largest x taken out, and its gradient in reverse mode.

use super::Module;
use crate::job::{Job, read, show, vector};
use pullback::{Tensor, grad, jit};
use serde::Deserialize;
use serde_json::Value;

pub(super) const MODULE: Module = Module {
    name: "lse",
    functions: &[
        ("primal", |input| {
            let (x, f) = (numbers(input)?, jit(primal));
            Ok(Job::compiled(f, x, show))
        }),
        ("gradient", |input| {
            let (x, f) = (numbers(input)?, jit(grad(primal)));
            Ok(Job::compiled(f, x, show))
        }),
    ],
};

#[derive(Deserialize)]
struct LseInput {
    x: Vec<f64>,
}

fn numbers(input: &Value) -> Result<Tensor, String> {
    let LseInput { x } = read(input)?;
    if x.is_empty() {
        return Err("x has no numbers, and so no largest one".into());
    }
    Ok(vector(&x))
}

/// The largest x is taken from its place, so that its derivative goes to one number: that of `max`,
/// which equal ones share, takes a mask as long as x.
fn primal(x: &Tensor) -> Tensor {
    let (largest, _) = x.max_at(0);
    (x - &largest).exp().sum().log() + largest
}
