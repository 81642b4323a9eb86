//! A physics-informed network: it learns a function from an equation that its derivatives obey.
//!
//! `cargo run --release --example pinn`
//!
//! The heat equation u_t = α·u_xx on 0 ≤ x ≤ 1, from u = sin(πx), with ends held at 0. There is no
//! data: the loss is how far the equation is from being fulfilled at random points. `jvp` in `jvp`
//! gives the second derivative, and `backward` goes through both of them to the parameters: third
//! derivatives, by composition.

use pullback::{Result, Tensor, Tree, cat, jit, jvp, manual_seed, no_grad};
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::schedule::{CosineAnnealingLr, Scheduler};
use pullback_nn::{Layer, Linear, Module, Tanh};
use std::f64::consts::PI;

/// How fast heat spreads.
const ALPHA: f64 = 0.2;

#[derive(Tree)]
struct Heat {
    network: (Linear, Tanh, Linear, Tanh, Linear),
}

impl Heat {
    fn new(width: usize) -> Heat {
        let (first, second) = (Linear::new(2, width), Linear::new(width, width));
        Heat { network: (first, Tanh, second, Tanh, Linear::new(width, 1)) }
    }

    /// The temperature at places and times `[n, 1]`. By construction it satisfies the initial and
    /// boundary conditions, so the loss has no terms for them.
    fn at(&self, x: &Tensor, t: &Tensor) -> Tensor {
        let free = self.network.forward(&cat(&[x, t], 1));
        (PI * x).sin() + t * x * (1.0 - x) * free
    }

    /// u_t − α·u_xx
    fn residual(&self, x: &Tensor, t: &Tensor) -> Tensor {
        // Row k of the result depends on row k of the argument alone, so one direction of ones
        // gives the derivative of every row.
        let ones = x.ones_like();
        let (_, u_t) = jvp(|t: &Tensor| self.at(x, t), t, &ones);
        let u_x = |x: &Tensor| jvp(|x: &Tensor| self.at(x, t), x, &ones).1;
        let (_, u_xx) = jvp(u_x, x, &ones);
        u_t - ALPHA * u_xx
    }
}

/// What a run gives.
pub struct Figures {
    /// The mean square of the residual of the equation at random points.
    pub residual: f32,
    /// The largest difference from the exact solution on a grid.
    pub error: f32,
}

/// Trains, and compares with the solution sin(πx)·exp(−απ²t).
pub fn run(quick: bool) -> Result<Figures> {
    manual_seed(0);
    let model = Heat::new(32);
    let opt = Adam { lr: 5e-3, ..Adam::default() }.over(model.parameters())?;
    let step = jit(|_: &()| {
        let (x, t) = (Tensor::rand([128, 1]), Tensor::rand([128, 1]));
        opt.zero_grad();
        let loss = model.residual(&x, &t).square().mean();
        loss.backward()?;
        opt.step()?;
        Ok(loss)
    });
    let steps = if quick { 1500 } else { 10_000 };
    let mut schedule = Scheduler::new(&opt, CosineAnnealingLr { t_max: steps, eta_min: 0.0 });
    let mut residual = f32::NAN;
    for _ in 0..steps {
        residual = step.call(&())?.item();
        schedule.step();
    }

    let line = Tensor::linspace(0.0f32, 1.0, 51);
    let grid = pullback::cartesian_prod(&[&line, &line]);
    let (x, t) = (grid.at((.., 0..1)), grid.at((.., 1..2)));
    let exact = (PI * &x).sin() * (-ALPHA * PI * PI * &t).exp();
    let error = (no_grad(|| model.at(&x, &t)) - exact).abs().max().item();
    Ok(Figures { residual, error })
}

/// Prints the figures.
pub fn main() -> Result<()> {
    let Figures { residual, error } = run(false)?;
    println!("what the equation lacks   {residual:.2e}");
    println!("from the exact solution   {error:.2e} at most");
    Ok(())
}
