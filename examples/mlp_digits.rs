//! A multilayer perceptron on handwritten digits: a model of one's own, and a training step that is
//! compiled.
//!
//! `cargo run --release --example mlp_digits`
//!
//! A model is a struct with `#[derive(Tree)]` whose fields are layers. `jit` traces the whole step
//! once (forward, backward and the optimiser) and compiles it; parameters and the optimiser's state
//! are written in place, so later calls continue where the last one ended.

use pullback::{Result, Tensor, Tree, cross_entropy, jit, manual_seed, no_grad};
use pullback_nn::data::{DataLoader, digits};
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::{Dropout, Layer, Linear, Module};

/// 64 pixels, two hidden layers, 10 digits.
#[derive(Tree)]
struct Mlp {
    input: Linear,
    hidden: Linear,
    output: Linear,
    dropout: Dropout,
}

impl Mlp {
    fn new(width: usize) -> Mlp {
        Mlp {
            input: Linear::new(64, width),
            hidden: Linear::new(width, width),
            output: Linear::new(width, 10),
            dropout: Dropout::new(0.2),
        }
    }
}

impl Layer for Mlp {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = x.flatten(1, -1);
        let x = self.dropout.forward(&self.input.forward(&x).relu());
        let x = self.dropout.forward(&self.hidden.forward(&x).relu());
        self.output.forward(&x)
    }
}

/// What a run gives.
pub struct Figures {
    /// How many parameters the model has.
    pub parameters: usize,
    /// The mean loss of the last epoch.
    pub loss: f64,
    /// The fraction of the test images that are recognised.
    pub accuracy: f64,
}

/// Trains on 1,437 images of 8×8 pixels, tests on 360.
pub fn run(quick: bool) -> Result<Figures> {
    manual_seed(0);
    let digits = digits()?;
    // A last batch that is not full would be compiled for itself, so it is left out: the order is
    // another in each epoch.
    let loader = DataLoader::new(digits.train_set()?).batch_size(64).shuffle(0).drop_last(true);

    let model = Mlp::new(128);
    let opt = AdamW { lr: 3e-3, ..AdamW::default() }.over(model.parameters())?;
    let step = jit(|(x, y): &(Tensor, Tensor)| {
        opt.zero_grad();
        let loss = cross_entropy(&model.forward(x), y);
        loss.backward()?;
        opt.step()?;
        Ok(loss)
    });

    let mut loss = 0.0;
    for _ in 0..if quick { 40 } else { 100 } {
        loss = 0.0;
        for batch in &loader {
            loss += f64::from(step.call(&batch?)?.item::<f32>()) / loader.len() as f64;
        }
    }

    // `eval` turns dropout off, as in PyTorch. It is seen by compiled functions too.
    model.eval();
    let (x, y) = &digits.test;
    let right = no_grad(|| model.forward(x)).argmax(1).eq(y);
    let accuracy = right.sum().item::<i64>() as f64 / y.len() as f64;
    Ok(Figures { parameters: model.parameter_count(), loss, accuracy })
}

/// Prints the figures.
pub fn main() -> Result<()> {
    let Figures { parameters, loss, accuracy } = run(false)?;
    println!("{parameters} parameters, loss {loss:.4}, test accuracy {:.1}%", 100.0 * accuracy);
    Ok(())
}
