//! A convolutional network on handwritten digits: batch normalisation, `train` and `eval`, and a
//! schedule.
//!
//! `cargo run --release --example cnn_digits`
//!
//! Running statistics are buffers: tensors that the forward pass writes in place, inside a compiled
//! step too. A learning rate is a tensor as well, so a schedule changes it without compiling again.

use pullback::{Result, Tensor, cross_entropy, jit, manual_seed, no_grad};
use pullback_nn::data::{DataLoader, digits};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::schedule::{CosineAnnealingLr, LinearWarmup, Scheduler};
use pullback_nn::{
    BatchNorm2d, Conv2d, Flatten, Layer, Linear, MaxPool2d, Module, Relu, Residual, Sequential,
};

/// Convolution, normalisation, activation. Tuples of layers are layers, and the normalisation makes
/// a bias superfluous.
fn block(inputs: usize, outputs: usize) -> (Conv2d, BatchNorm2d, Relu) {
    let conv = Conv2d::new(inputs, outputs, 3).padding(1).without_bias();
    (conv, BatchNorm2d::new(outputs), Relu)
}

/// 8×8 pixels to 4×4 to 2×2, with more channels each time.
fn network(channels: usize) -> Sequential {
    Sequential::new()
        .then(block(1, channels))
        .then(MaxPool2d::new(2))
        .then(block(channels, 2 * channels))
        .then(Residual::new(block(2 * channels, 2 * channels)))
        .then(MaxPool2d::new(2))
        .then(Flatten::new())
        .then(Linear::new(2 * channels * 2 * 2, 10))
}

/// What a run gives.
pub struct Figures {
    /// How many parameters the model has.
    pub parameters: usize,
    /// The fraction of the test images that are recognised with the running statistics.
    pub accuracy: f64,
    /// How many batches the first normalisation has seen.
    pub batches: i64,
}

/// Trains on 1,437 images of 8×8 pixels, tests on 360.
pub fn run(quick: bool) -> Result<Figures> {
    manual_seed(0);
    let digits = digits()?;
    let epochs = if quick { 8 } else { 30 };
    let loader = DataLoader::new(digits.train_set()?).batch_size(64).shuffle(0).drop_last(true);

    let model = network(if quick { 16 } else { 32 });
    let opt = AdamW { lr: 4e-3, ..AdamW::default() }.over(model.parameters())?;
    let steps = (epochs * loader.len()) as u64;
    let cosine = CosineAnnealingLr { t_max: steps - steps / 10, eta_min: 0.0 };
    let mut schedule = Scheduler::new(
        &opt,
        LinearWarmup { total_iters: steps / 10, start_factor: 0.1, then: cosine },
    );
    let step = jit(|(x, y): &(Tensor, Tensor)| {
        opt.zero_grad();
        let loss = cross_entropy(&model.forward(x), y);
        loss.backward()?;
        opt.step()?;
        Ok(loss)
    });

    model.train();
    for _ in 0..epochs {
        for batch in &loader {
            step.call(&batch?)?;
            schedule.step();
        }
    }

    model.eval();
    let (x, y) = &digits.test;
    let right = no_grad(|| model.forward(x)).argmax(1).eq(y);
    let accuracy = right.sum().item::<i64>() as f64 / y.len() as f64;
    // Buffers have names too: this one is `0.1.num_batches_tracked`.
    let counts = model.named_buffers().into_iter().find(|(name, _)| name.ends_with("tracked"));
    let batches = counts.map_or(0, |(_, count)| count.item());
    Ok(Figures { parameters: model.parameter_count(), accuracy, batches })
}

/// Prints the figures.
pub fn main() -> Result<()> {
    let Figures { parameters, accuracy, batches } = run(false)?;
    println!("{parameters} parameters, {batches} batches, test accuracy {:.1}%", 100.0 * accuracy);
    Ok(())
}
