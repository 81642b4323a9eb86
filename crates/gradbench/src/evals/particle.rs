//! `particle`: how to place a charge so that a particle, pushed away by it and by another, flies
//! through the origin.
//!
//! The force is the gradient of a potential, taken at every step of the flight; how far the flight
//! misses is minimised by gradient descent. So one derivative is inside the other, with a loop
//! between them that ends when the particle crosses the axis.

use super::Module;
use super::descent::{Mode, argmin, in_all_modes};
use crate::job::{Job, read, show};
use pullback::{Tensor, jit, while_loop};
use serde::Deserialize;
use serde_json::Value;

pub(super) const MODULE: Module = in_all_modes!("particle", job);

#[derive(Deserialize)]
struct ParticleInput {
    w: f64,
}

/// `outer` is the mode of the descent, `inner` that of the force.
fn job(input: &Value, outer: Mode, inner: Mode) -> Result<Job, String> {
    let start = Tensor::from(read::<ParticleInput>(input)?.w);
    let best = jit(move |w: &Tensor| argmin(outer, |w| miss(inner, w), w));
    Ok(Job::compiled(best, start, show))
}

/// Seconds from one step of the flight to the next.
const STEP: f64 = 0.1;

/// The square of where the flight crosses the axis.
fn miss(mode: Mode, w: &Tensor) -> Tensor {
    let moved = Tensor::from([10.0, 10.0]) - Tensor::from([0.0, 1.0]) * w;
    let fixed = Tensor::from([10.0, 0.0]);
    let distance = |x: &Tensor, charge: &Tensor| (x - charge).square().sum().sqrt();
    let potential = |x: &Tensor| 1.0 / distance(x, &moved) + 1.0 / distance(x, &fixed);
    let above = |x: &Tensor| x.select_at(0, 1).gt(0.0);
    let start = (Tensor::from([0.0, 8.0]), Tensor::from([0.75, 0.0]));
    let (x, speed) = while_loop(
        |(x, speed): &(Tensor, Tensor)| above(&(x + speed * STEP)),
        |(x, speed)| (x + speed * STEP, speed - mode.gradient(potential, x) * STEP),
        &start,
    );
    let (below, down) = (x + &speed * STEP, speed.select_at(0, 1));
    let crossing = &below - (below.select_at(0, 1) / down) * &speed;
    crossing.select_at(0, 0).square()
}
