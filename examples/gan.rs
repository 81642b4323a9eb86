//! A generative adversarial network: two models that train against each other.
//!
//! `cargo run --release --example gan`
//!
//! The data is a ring of eight blobs in the plane. The discriminator learns to distinguish data
//! from fakes (`detach` keeps its loss away from the generator); the generator learns to be taken
//! for real. Each has an optimiser of its own, which steps its own parameters alone.

use pullback::{DType, Reduction, Result, Tensor, Tree, cat, jit, manual_seed, next_key, no_grad};
use pullback_nn::losses::{BceWithLogitsLoss, Loss};
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::{Layer, LeakyRelu, Linear, Module, Relu};

const NOISE: usize = 8;
const BLOBS: usize = 8;
const SPREAD: f64 = 0.15;

/// Generator and discriminator: nested tuples of layers are layers.
type Network<A> = (Linear, A, Linear, A, Linear);

fn network<A: Copy + Tree>(inputs: usize, outputs: usize, activation: A) -> Network<A> {
    let (first, second) = (Linear::new(inputs, 64), Linear::new(64, 64));
    (first, activation, second, activation, Linear::new(64, outputs))
}

/// The middles of the blobs, `[8, 2]`, on a circle of radius 2.
fn middles() -> Tensor {
    let angles = Tensor::arange(0, BLOBS as i64).cast(DType::F32) * (std::f64::consts::TAU / 8.0);
    2.0 * pullback::stack(&[&angles.cos(), &angles.sin()], 1)
}

/// Points from blobs drawn at random.
fn data(count: usize) -> Tensor {
    let blob = next_key().randint([count], 0, BLOBS as i64);
    middles().index_select(0, &blob) + SPREAD * Tensor::randn([count, 2])
}

/// What a run gives, of 2,000 generated points.
pub struct Figures {
    /// The fraction that lies within four standard deviations of a blob.
    pub on_ring: f64,
    /// The share of the blob that gets the fewest points; an eighth would be even.
    pub rarest: f64,
}

/// Trains both, one step of each in turn.
pub fn run(quick: bool) -> Result<Figures> {
    manual_seed(0);
    let generator = network(NOISE, 2, Relu);
    let discriminator = network(2, 1, LeakyRelu::new(0.2));
    let adam = Adam { lr: 1e-3, betas: (0.5, 0.999), ..Adam::default() };
    let generator_opt = adam.over(generator.parameters())?;
    let discriminator_opt = adam.over(discriminator.parameters())?;
    let criterion = BceWithLogitsLoss::new(Reduction::Mean);

    // Both steps are one compiled program. Random numbers are drawn inside, new ones at every call.
    let batch = 256;
    let step = jit(|_: &()| {
        let (real, fake) = (data(batch), generator.forward(&Tensor::randn([batch, NOISE])));

        discriminator_opt.zero_grad();
        let points = cat(&[&real, &fake.detach()], 0);
        let truth = cat(&[&Tensor::ones([batch, 1]), &Tensor::zeros([batch, 1])], 0);
        let told_apart = criterion.forward(&discriminator.forward(&points), &truth);
        told_apart.backward()?;
        discriminator_opt.step()?;

        // The discriminator gets gradients here too, and clears them at its next step.
        generator_opt.zero_grad();
        let fooled = criterion.forward(&discriminator.forward(&fake), &Tensor::ones([batch, 1]));
        fooled.backward()?;
        generator_opt.step()?;
        Ok((told_apart, fooled))
    });
    for _ in 0..if quick { 5000 } else { 20_000 } {
        step.call(&())?;
    }

    let made = no_grad(|| generator.forward(&Tensor::randn([2000, NOISE])));
    // The distance of each point to each middle, [2000, 8].
    let far = (made.unsqueeze(1) - middles()).norm_over(-1);
    let (distance, blob) = far.min_at(1);
    let on_ring = distance.lt(4.0 * SPREAD).cast(DType::F64).mean().item();
    let counts = blob.bincount(None, BLOBS);
    Ok(Figures { on_ring, rarest: counts.min().item::<i64>() as f64 / 2000.0 })
}

/// Prints the figures.
pub fn main() -> Result<()> {
    let Figures { on_ring, rarest } = run(false)?;
    println!("{:.1}% of the points lie on a blob", 100.0 * on_ring);
    println!("the rarest blob gets {:.1}% (even would be 12.5%)", 100.0 * rarest);
    Ok(())
}
