//! `saddle`: min over x of max over y of (x₁² + x₂²) − (y₁² + y₂²), both by gradient descent, the
//! one inside the other.

use super::Module;
use super::descent::{Mode, argmin, in_all_modes};
use crate::job::{Job, read, show, vector};
use pullback::{Tensor, cat, jit};
use serde::Deserialize;
use serde_json::Value;

pub(super) const MODULE: Module = in_all_modes!("saddle", job);

#[derive(Deserialize)]
struct SaddleInput {
    start: [f64; 2],
}

/// `outer` is the mode in which the minimum is sought, and then the maximum there; `inner` that of
/// the maximum within the minimum.
fn job(input: &Value, outer: Mode, inner: Mode) -> Result<Job, String> {
    let start = vector(&read::<SaddleInput>(input)?.start);
    let saddle = jit(move |start: &Tensor| {
        let argmax = |mode: Mode, x: &Tensor| argmin(mode, |y| -f(x, y), start);
        let x = argmin(outer, |x| f(x, &argmax(inner, x)), start);
        let y = argmax(outer, &x);
        cat(&[&x, &y], 0)
    });
    Ok(Job::compiled(saddle, start, show))
}

fn f(x: &Tensor, y: &Tensor) -> Tensor {
    x.square().sum() - y.square().sum()
}
