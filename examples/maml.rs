//! Model-agnostic meta-learning: gradients through gradient steps.
//!
//! `cargo run --release --example maml`
//!
//! A task is a sine wave of its own amplitude and phase, known from ten points. MAML looks for
//! parameters from which one step of gradient descent on those ten points fits the wave: its loss
//! is that after the step, so its gradient contains second derivatives. `grad` gives the step,
//! `vmap` does all tasks at once, `backward` goes through everything.

use pullback::{DType, Result, Tensor, Tree, grad, jit, manual_seed, next_key, no_grad, vmap};
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::{Layer, Linear, Module, Relu};

type Network = (Linear, Relu, Linear, Relu, Linear);

/// Points `[n, 1]` and values `[n, 1]` to adapt to, and such to be tested on; with a leading axis
/// for many tasks.
type Task = (Tensor, Tensor, Tensor, Tensor);

const POINTS: usize = 10;
const INNER_RATE: f64 = 0.01;

/// Waves with amplitudes from 0.1 to 5 and any phase, `[count, POINTS, 1]`.
fn tasks(count: usize) -> Task {
    let uniform = |shape: [usize; 3], low, high| next_key().uniform(shape, DType::F32, low, high);
    let amplitude = uniform([count, 1, 1], 0.1, 5.0);
    let phase = uniform([count, 1, 1], 0.0, std::f64::consts::PI);
    let wave = |x: &Tensor| &amplitude * (x + &phase).sin();
    let x = [(); 2].map(|()| uniform([count, POINTS, 1], -5.0, 5.0));
    (x[0].clone(), wave(&x[0]), x[1].clone(), wave(&x[1]))
}

fn mse(model: &Network, x: &Tensor, y: &Tensor) -> Tensor {
    (model.forward(x) - y).square().mean()
}

/// The model with its parameters moved along a direction, which is shaped as the model itself. It
/// is a new model: nothing is written in place, so gradients of what it gives depend on the old
/// one, and to the direction.
fn moved(model: &Network, direction: &Network, by: f64) -> Network {
    let pairs = model.leaves().into_iter().zip(direction.leaves());
    model.with_leaves(&Vec::from_iter(pairs.map(|(w, along)| w + along * by)))
}

/// The model after steps of gradient descent on some points.
fn adapted(model: &Network, x: &Tensor, y: &Tensor, steps: usize) -> Network {
    let mut model = model.map(&mut Tensor::clone);
    for _ in 0..steps {
        let slopes = grad(|model: &Network| mse(model, x, y))(&model);
        model = moved(&model, &slopes, -INNER_RATE);
    }
    model
}

/// The mean loss on the test points of many tasks, after this many steps on the others.
fn loss_after(model: &Network, tasks: &Task, steps: usize) -> Tensor {
    let one = |(x, y, test_x, test_y): &Task| mse(&adapted(model, x, y, steps), test_x, test_y);
    vmap(one, 0, 0)(tasks).mean()
}

/// Trains for the loss after `inner` steps of adaptation: 0 is plain training on all tasks.
fn trained(inner: usize, iterations: usize) -> Result<Network> {
    let width = 40;
    let (first, second) = (Linear::new(1, width), Linear::new(width, width));
    let model = (first, Relu, second, Relu, Linear::new(width, 1));
    let opt = Adam { lr: 2e-3, ..Adam::default() }.over(model.parameters())?;
    let step = jit(|_: &()| {
        opt.zero_grad();
        let loss = loss_after(&model, &tasks(25), inner);
        loss.backward()?;
        opt.step()?;
        Ok(loss)
    });
    for _ in 0..iterations {
        step.call(&())?;
    }
    Ok(model)
}

/// What a run gives: mean squared errors on new tasks.
pub struct Figures {
    /// Of the meta-learned model before it adapts.
    pub before: f32,
    /// After one step on ten points.
    pub after: f32,
    /// Of a model trained plainly on the same tasks, after the same step.
    pub plain: f32,
    /// How far the gradient through the update is from a difference of two losses, relatively.
    pub gradient_error: f64,
}

/// The slope of the loss along its own gradient is the gradient's square. In `f64`, in which small
/// differences are exact enough; without the second derivatives the gradient would be another.
fn gradient_error(model: &Network) -> f64 {
    let model = model.to_dtype(DType::F64);
    let tasks = tasks(5).map(&mut |x| x.cast(DType::F64));
    let loss = |model: &Network| loss_after(model, &tasks, 1);
    let slopes = grad(loss)(&model);
    let square: f64 = slopes.leaves().iter().map(|slope| slope.square().sum().item::<f64>()).sum();
    let h = 1e-6;
    let rise = loss(&moved(&model, &slopes, h)) - loss(&moved(&model, &slopes, -h));
    (rise.item::<f64>() / (2.0 * h * square) - 1.0).abs()
}

/// Trains both models, and lets both adapt to 500 new tasks.
pub fn run(quick: bool) -> Result<Figures> {
    manual_seed(0);
    let iterations = if quick { 1500 } else { 10_000 };
    let (meta, plain) = (trained(1, iterations)?, trained(0, iterations)?);
    let new = tasks(500);
    let measure = |model: &Network, steps| no_grad(|| loss_after(model, &new, steps)).item();
    Ok(Figures {
        before: measure(&meta, 0),
        after: measure(&meta, 1),
        plain: measure(&plain, 1),
        gradient_error: gradient_error(&meta),
    })
}

/// Prints the figures.
pub fn main() -> Result<()> {
    let Figures { before, after, plain, gradient_error } = run(false)?;
    println!("meta-learned: {before:.2} before, {after:.2} after one step on ten points");
    println!("trained plainly: {plain:.2} after that step");
    println!("gradient against differences: {gradient_error:.1e}");
    Ok(())
}
