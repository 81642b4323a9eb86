//! A neural ordinary differential equation: gradients through a solver.
//!
//! `cargo run --release --example neural_ode`
//!
//! A network is the velocity field; Runge and Kutta's method of order 4, a `scan` over the steps,
//! gives the path. The loss compares paths, and its gradient passes through every step of the
//! solver. The truth is a spiral, dx/dt = A·x³.

use pullback::{Reduction, Result, Tensor, jit, manual_seed, next_key, no_grad, scan_times};
use pullback_nn::losses::{L1Loss, Loss};
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::schedule::{CosineAnnealingLr, Scheduler};
use pullback_nn::{Layer, Linear, Module, Tanh};

/// The time between two points of a path.
const STEP: f64 = 0.05;
/// How many points the spiral has.
const POINTS: usize = 200;
/// How many steps of the solver the loss looks at.
const WINDOW: usize = 10;

/// The path from `start`, a point `[2]` or many `[n, 2]`: `[steps, …]`, without the start.
///
/// In a compiled function `scan_times` is one equation, however many steps it has.
fn solve(velocity: impl Fn(&Tensor) -> Tensor, start: &Tensor, steps: usize) -> Tensor {
    let runge_kutta = |x: &Tensor, _: &()| {
        let k1 = velocity(x);
        let k2 = velocity(&(x + &k1 * (STEP / 2.0)));
        let k3 = velocity(&(x + &k2 * (STEP / 2.0)));
        let k4 = velocity(&(x + &k3 * STEP));
        let next = x + (k1 + 2.0 * (k2 + k3) + k4) * (STEP / 6.0);
        (next.clone(), next)
    };
    scan_times(steps, runge_kutta, start).1
}

/// What a run gives.
pub struct Figures {
    /// The mean distance between the learned spiral and the true one, over its whole length, before
    /// training.
    pub before: f32,
    /// And after.
    pub after: f32,
}

/// Learns the field from short pieces of the spiral.
pub fn run(quick: bool) -> Result<Figures> {
    manual_seed(0);
    let start = Tensor::from([2.0f32, 0.0]);
    let matrix = Tensor::from([[-0.1f32, 2.0], [-2.0, -0.1]]);
    let spiral = solve(|x| x.powi(3).matmul(&matrix), &start, POINTS);

    // The network sees x³, as is usual for this spiral.
    let model = (Linear::new(2, 50), Tanh, Linear::new(50, 2));
    let field = |x: &Tensor| model.forward(&x.powi(3));
    let off = || {
        let learned = no_grad(|| solve(field, &start, POINTS));
        (learned - &spiral).norm_over(-1).mean().item::<f32>()
    };
    let before = off();

    // All windows of the spiral: the last axis of `unfold` is the place in the window, [windows, 2,
    // WINDOW + 1].
    let windows = spiral.unfold(0, WINDOW + 1, 1).permute([2, 0, 1]).contiguous();
    let opt = Adam { lr: 1e-2, ..Adam::default() }.over(model.parameters())?;
    let criterion = L1Loss::new(Reduction::Mean);
    let step = jit(|_: &()| {
        let chosen = next_key().randint([32], 0, (POINTS - WINDOW) as i64);
        let pieces = windows.index_select(1, &chosen);
        opt.zero_grad();
        let path = solve(field, &pieces.at(0), WINDOW);
        let loss = criterion.forward(&path, &pieces.at(1..));
        loss.backward()?;
        opt.step()?;
        Ok(loss)
    });
    let steps = if quick { 2000 } else { 10_000 };
    let mut schedule = Scheduler::new(&opt, CosineAnnealingLr { t_max: steps, eta_min: 0.0 });
    for _ in 0..steps {
        step.call(&())?;
        schedule.step();
    }
    Ok(Figures { before, after: off() })
}

/// Prints the figures.
pub fn main() -> Result<()> {
    let Figures { before, after } = run(false)?;
    println!("distance from the spiral before training {before:.3}, after it {after:.3}");
    Ok(())
}
