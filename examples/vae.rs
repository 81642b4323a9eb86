//! Autoencoder and variational autoencoder on digits: reparameterisation, and random numbers inside
//! a compiled step.
//!
//! `cargo run --release --example vae`
//!
//! Both squeeze 64 pixels through 8 numbers and back. The variational one gives a distribution in
//! the middle and draws from it: as mean + deviation · noise, so that the gradient goes through
//! mean and deviation. New digits are decoded from pure noise.

use pullback::{Reduction, Result, Tensor, Tree, jit, manual_seed, no_grad};
use pullback_nn::data::{DataLoader, digits};
use pullback_nn::distributions::{Distribution, Normal, kl_divergence};
use pullback_nn::losses::{BceWithLogitsLoss, Loss};
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::{Layer, Linear, Module, Silu};

const LATENT: usize = 8;

#[derive(Tree)]
struct Autoencoder {
    encoder: (Linear, Silu),
    mean: Linear,
    log_variance: Linear,
    decoder: (Linear, Silu, Linear),
}

impl Autoencoder {
    fn new(width: usize) -> Autoencoder {
        Autoencoder {
            encoder: (Linear::new(64, width), Silu),
            mean: Linear::new(width, LATENT),
            log_variance: Linear::new(width, LATENT),
            decoder: (Linear::new(LATENT, width), Silu, Linear::new(width, 64)),
        }
    }

    /// Where each image lies: mean and logarithm of the variance.
    fn encode(&self, x: &Tensor) -> (Tensor, Tensor) {
        let hidden = self.encoder.forward(x);
        (self.mean.forward(&hidden), self.log_variance.forward(&hidden))
    }

    /// The reconstruction's cross-entropy and the divergence from a standard normal distribution,
    /// in nats per image.
    fn losses(&self, x: &Tensor, variational: bool) -> (Tensor, Tensor) {
        let (mean, log_variance) = self.encode(x);
        let code = Normal::new(&mean, (0.5 * log_variance).exp());
        let z = if variational { code.rsample(&[]) } else { mean };
        let each = BceWithLogitsLoss::new(Reduction::Sum).forward(&self.decoder.forward(&z), x);
        let kl = kl_divergence(&code, &Normal::new(0.0, 1.0)).sum();
        let images = x.shape()[0] as f64;
        (each / images, kl / images)
    }
}

/// What a run gives, in nats per test image.
pub struct Figures {
    /// Cross-entropy of the plain autoencoder's reconstructions.
    pub plain: f32,
    /// Cross-entropy of the variational one's.
    pub variational: f32,
    /// Its divergence from the standard normal distribution.
    pub kl: f32,
    /// The cross-entropy of a perfect reconstruction: pixels are grey, so it is not 0.
    pub perfect: f32,
    /// Two digits decoded from noise.
    pub dreamt: Tensor,
}

/// Trains both on 1,437 images and measures them on 360.
pub fn run(quick: bool) -> Result<Figures> {
    manual_seed(0);
    let digits = digits()?;
    let test = digits.test.0.flatten(1, -1);
    let mut measured = Vec::new();
    let mut dreamt = Tensor::zeros([2, 8, 8]);
    for variational in [false, true] {
        let model = Autoencoder::new(256);
        // The plain one has no use for variances: parameters without a gradient are left alone.
        let opt = Adam { lr: 2e-3, ..Adam::default() }.over(model.parameters())?;
        let step = jit(|(x, _): &(Tensor, Tensor)| {
            opt.zero_grad();
            let (reconstruction, kl) = model.losses(&x.flatten(1, -1), variational);
            let loss = if variational { reconstruction + kl } else { reconstruction };
            loss.backward()?;
            opt.step()?;
            Ok(loss)
        });
        let loader = DataLoader::new(digits.train_set()?).batch_size(64).shuffle(0).drop_last(true);
        for _ in 0..if quick { 40 } else { 300 } {
            for batch in &loader {
                step.call(&batch?)?;
            }
        }
        measured.push(no_grad(|| model.losses(&test, variational)));
        let noise = Tensor::randn([2, LATENT]);
        dreamt = no_grad(|| model.decoder.forward(&noise)).sigmoid().reshape([2, 8, 8]);
    }
    let perfect = BceWithLogitsLoss::new(Reduction::Sum).forward(&test.logit_within(1e-6), &test);
    Ok(Figures {
        plain: measured[0].0.item(),
        variational: measured[1].0.item(),
        kl: measured[1].1.item(),
        perfect: perfect.item::<f32>() / test.shape()[0] as f32,
        dreamt,
    })
}

/// Prints the figures, and two digits.
pub fn main() -> Result<()> {
    let Figures { plain, variational, kl, perfect, dreamt } = run(false)?;
    println!("cross-entropy of the test images, in nats (a perfect copy has {perfect:.2}):");
    println!("  autoencoder              {plain:.2}");
    println!("  variational autoencoder  {variational:.2}, and {kl:.2} for the code\n");
    let values = dreamt.to_vec::<f32>();
    for row in 0..8 {
        let line = |digit: usize| {
            let pixels = &values[64 * digit + 8 * row..][..8];
            let shade = |v: &f32| [' ', '.', ':', 'o', '#', '@'][(v * 5.99) as usize];
            pixels.iter().flat_map(|v| [shade(v); 2]).collect::<String>()
        };
        println!("  {}      {}", line(0), line(1));
    }
    Ok(())
}
