//! An LSTM that continues waves: sequences, and a state that is handed on.
//!
//! `cargo run --release --example lstm`
//!
//! It learns to predict the next value of sine waves of many frequencies. Then it gets the
//! beginning of waves it has not seen and continues them: each prediction is its next input, and
//! its state goes from call to call.

use pullback::{DType, Reduction, Result, Tensor, Tree, cat, jit, manual_seed, next_key, no_grad};
use pullback_nn::losses::{Loss, MseLoss};
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::schedule::{CosineAnnealingLr, Scheduler};
use pullback_nn::{Layer, Linear, Lstm, Module};

#[derive(Tree)]
struct Forecaster {
    lstm: Lstm,
    output: Linear,
}

impl Forecaster {
    fn new(hidden: usize) -> Forecaster {
        Forecaster { lstm: Lstm::new(1, hidden), output: Linear::new(hidden, 1) }
    }

    /// The prediction after every step of `[steps, batch, 1]`.
    fn forward(&self, x: &Tensor) -> Tensor {
        self.output.forward(&self.lstm.forward(x).0)
    }

    /// The `steps` values that it expects after those of `x`.
    fn go_on(&self, x: &Tensor, steps: usize) -> Tensor {
        no_grad(|| {
            let (y, mut state) = self.lstm.forward(x);
            // The last prediction is the first new value. A range keeps the axis, `[1, batch, 1]`.
            let mut values = vec![self.output.forward(&y.at(-1..))];
            while values.len() < steps {
                let (y, next) = self.lstm.forward_from(&values[values.len() - 1], &state);
                values.push(self.output.forward(&y));
                state = next;
            }
            cat(&Vec::from_iter(&values), 0)
        })
    }
}

/// Waves of random frequency and phase, `[steps, batch, 1]`. Drawn from the global generator, also
/// inside a compiled step.
fn waves(steps: usize, batch: usize) -> Tensor {
    let frequency = next_key().uniform([batch], DType::F32, 0.2, 0.5);
    let phase = next_key().uniform([batch], DType::F32, 0.0, std::f64::consts::TAU);
    let time = Tensor::arange(0, steps as i64).cast(DType::F32).unsqueeze(1);
    (time * frequency + phase).sin().unsqueeze(2)
}

/// What a run gives.
pub struct Figures {
    /// The mean squared error of the last prediction of the next value.
    pub loss: f32,
    /// The root mean square error over 20 values that it predicts from its own predictions.
    pub error: f32,
}

/// Trains on new waves in every step.
pub fn run(quick: bool) -> Result<Figures> {
    manual_seed(0);
    let (length, batch, hidden) = (40, 32, 32);
    let model = Forecaster::new(hidden);
    let opt = Adam { lr: 1e-2, ..Adam::default() }.over(model.parameters())?;
    let criterion = MseLoss::new(Reduction::Mean);
    // The argument is nothing: the data is drawn inside. Every call draws new data.
    let step = jit(|_: &()| {
        let wave = waves(length + 1, batch);
        opt.zero_grad();
        // The first predictions do not count: a wave cannot be known from so little of it.
        let (predicted, truth) = (model.forward(&wave.at(..-1)), wave.at(1..));
        let loss = criterion.forward(&predicted.at(10..), &truth.at(10..));
        loss.backward()?;
        opt.step()?;
        Ok(loss)
    });
    let steps = if quick { 1000 } else { 5000 };
    let mut schedule = Scheduler::new(&opt, CosineAnnealingLr { t_max: steps, eta_min: 0.0 });
    let mut loss = f32::NAN;
    for _ in 0..steps {
        loss = step.call(&())?.item();
        schedule.step();
    }

    let wave = waves(length + 20, 100);
    let (heard, truth) = (wave.at(..length), wave.at(length..));
    let error = (model.go_on(&heard, 20) - truth).square().mean().sqrt().item();
    Ok(Figures { loss, error })
}

/// Prints the figures.
pub fn main() -> Result<()> {
    let Figures { loss, error } = run(false)?;
    println!("next value:     mean squared error {loss:.6}");
    println!("next 20 values: off by {error:.3} (a flat line is off by 0.71)");
    Ok(())
}
