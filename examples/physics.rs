//! Differentiable physics: a throw that is learned through its simulation.
//!
//! `cargo run --release --example physics`
//!
//! A ball flies with drag, bounces off the floor and must be at a place at a time. The simulation
//! is ordinary tensor code in a `scan`, so the distance at its end has a gradient by the velocity
//! at its start, through flight and bounce. In `f64`, and checked against differences of two
//! throws.

use pullback::{Result, Tensor, jit, no_grad, scan_times, value_and_grad};
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::schedule::{CosineAnnealingLr, Scheduler};

/// Seconds per step, and how many there are.
const STEP: f64 = 0.005;
const STEPS: usize = 300;
const GRAVITY: f64 = 9.81;
const DRAG: f64 = 0.05;
/// The floor is a stiff spring with a damper, in which the ball sinks by millimetres.
const STIFFNESS: f64 = 4000.0;
const DAMPING: f64 = 8.0;

/// Where a ball thrown from a height of 1 m with this velocity (right, up) is at every step,
/// `[STEPS, 2]`.
fn throw(velocity: &Tensor) -> Tensor {
    let down = Tensor::from([0.0, -GRAVITY]);
    let up = Tensor::from([0.0, 1.0]);
    let step = |(x, v): &(Tensor, Tensor), _: &()| {
        // How deep the ball is in the floor. `relu` has the derivative 0 in the air.
        let depth = (-x.at(1)).relu();
        let touching = depth.gt(0.0).cast(v.dtype());
        let floor = &up * (STIFFNESS * depth - DAMPING * touching * v.at(1));
        let drag = v * v.norm() * -DRAG;
        // Velocity first, then the place with the new velocity: stable also on the stiff floor.
        let v = v + (&down + floor + drag) * STEP;
        let x = x + &v * STEP;
        ((x.clone(), v), x)
    };
    scan_times(STEPS, step, &(Tensor::from([0.0, 1.0]), velocity.clone())).1
}

/// What a run gives.
pub struct Figures {
    /// How far from the target the first throw is at the end, in metres.
    pub before: f64,
    /// How far the learned one is.
    pub after: f64,
    /// The velocity that was learned: right and up.
    pub velocity: Vec<f64>,
    /// How often the ball touches the floor, at least once.
    pub bounces: usize,
    /// The largest relative difference between the gradient and a difference of two throws.
    pub gradient_error: f64,
}

/// Learns to throw.
pub fn run(quick: bool) -> Result<Figures> {
    // The loss has a local minimum for each number of bounces: a start with one bounce converges to
    // the nearest. After one bounce, 1.5 s after the throw, 5 m away and 0.9 m up.
    let target = Tensor::from([5.0, 0.9]);
    let miss = |velocity: &Tensor| (throw(velocity).at(-1) - &target).square().sum();

    // The parameter is a tensor of one's own: optimisers take any leaf.
    let velocity = Tensor::from([2.0, 2.5]).requires_grad();
    let far = || no_grad(|| miss(&velocity)).sqrt().item::<f64>();
    let before = far();
    let opt = Adam { lr: 0.1, ..Adam::default() }.over([velocity.clone()])?;
    let step = jit(|_: &()| {
        opt.zero_grad();
        let loss = miss(&velocity);
        loss.backward()?;
        opt.step()?;
        Ok(loss)
    });
    let steps = if quick { 150 } else { 400 };
    let mut schedule = Scheduler::new(&opt, CosineAnnealingLr { t_max: steps, eta_min: 0.0 });
    for _ in 0..steps {
        step.call(&())?;
        schedule.step();
    }
    let after = far();

    let heights = no_grad(|| throw(&velocity)).at((.., 1)).to_vec::<f64>();
    let bounces = heights.windows(2).filter(|pair| pair[0] > 0.0 && pair[1] <= 0.0).count();

    // Somewhere off the target, where the gradient is not 0.
    let at = Tensor::from([4.0, 3.0]);
    let gradient = value_and_grad(miss)(&at).1.to_vec::<f64>();
    let mut gradient_error = 0.0f64;
    for (i, slope) in gradient.iter().enumerate() {
        let h = 1e-6;
        let nudge = Tensor::from([0, 1]).eq(i).cast(at.dtype()) * h;
        let rise = (miss(&(&at + &nudge)) - miss(&(&at - &nudge))).item::<f64>() / (2.0 * h);
        gradient_error = gradient_error.max((slope - rise).abs() / rise.abs());
    }
    Ok(Figures { before, after, velocity: velocity.to_vec(), bounces, gradient_error })
}

/// Prints the figures.
pub fn main() -> Result<()> {
    let Figures { before, after, velocity, bounces, gradient_error } = run(false)?;
    println!("missed by {before:.2} m, and by {:.2} mm after learning", 1000.0 * after);
    println!("velocity {:.3} m/s right, {:.3} m/s up, {bounces} bounces", velocity[0], velocity[1]);
    println!("gradient against differences: {gradient_error:.1e}");
    Ok(())
}
