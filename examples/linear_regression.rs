//! Linear regression: the training loop with every step in sight.
//!
//! `cargo run --release --example linear_regression`
//!
//! A layer, a loss, an optimiser and a loader, and nothing compiled: zero the gradients, run
//! forward, run backward, step.

use pullback::{Reduction, Result, Tensor, manual_seed, no_grad};
use pullback_nn::data::{DataLoader, TensorDataset};
use pullback_nn::losses::{Loss, MseLoss};
use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
use pullback_nn::{Layer, Linear, Module};

/// What a run gives.
pub struct Figures {
    /// The mean squared error over all points at the end.
    pub loss: f32,
    /// The largest difference between a learned number and the one the data was made with.
    pub error: f32,
}

/// Recovers a plane from noisy points on it.
pub fn run(quick: bool) -> Result<Figures> {
    manual_seed(0);

    // Points y = x·weightᵀ + bias with some noise. Tensors made of `f32` are `f32`, as layers are.
    let (weight, bias) = (Tensor::from([[2.0f32, -3.4, 0.5]]), Tensor::from([4.2f32]));
    let x = Tensor::randn([1000, 3]);
    let y = x.linear(&weight, Some(&bias)) + 0.01 * Tensor::randn([1000, 1]);

    let model = Linear::new(3, 1);
    let criterion = MseLoss::new(Reduction::Mean);
    // An optimiser is a struct of options, put to work over some parameters.
    let opt = Sgd { lr: 0.05, ..Sgd::default() }.over(model.parameters())?;
    let data = TensorDataset::new((x.clone(), y.clone()))?;
    let loader = DataLoader::new(data).batch_size(50).shuffle(0);

    for _ in 0..if quick { 5 } else { 20 } {
        for batch in &loader {
            let (x, y) = batch?;
            opt.zero_grad();
            let loss = criterion.forward(&model.forward(&x), &y);
            loss.backward()?;
            opt.step()?;
        }
    }

    // `no_grad` as in PyTorch: what is computed inside is not recorded.
    let loss = no_grad(|| criterion.forward(&model.forward(&x), &y)).item();
    let off = |learned: &Tensor, truth: &Tensor| (learned - truth).abs().max().item::<f32>();
    let bias_error = model.bias.as_ref().map_or(0.0, |learned| off(learned, &bias));
    Ok(Figures { loss, error: off(&model.weight, &weight).max(bias_error) })
}

/// Prints the figures.
pub fn main() -> Result<()> {
    let Figures { loss, error } = run(false)?;
    println!("mean squared error      {loss:.6}   (the noise alone is 0.0001)");
    println!("furthest from the truth {error:.6}");
    Ok(())
}
