//! Whole runs on the digits: where plain f16 stalls or diverges, and what mixed precision with a
//! scaler makes of it; op by op and compiled.
//!
//! The margin: after the same number of taken steps from the same start, the loss over the training
//! data is within 5% of that of f32, and the accuracy on the test data within 2 points.

use pullback::{DType, Result, Tensor, autocast, jit, manual_seed, no_grad};
use pullback_nn::data::digits;
use pullback_nn::models::{Cnn, Mlp};
use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
use pullback_nn::precision::{GradScaler, GradScalerOptions, PrecisionReport};
use pullback_nn::{Layer, Module};
use std::sync::{Mutex, PoisonError};

/// How a run computes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    F32,
    /// Weights, activations and gradients in this dtype, and nothing else done about it.
    Plain(DType),
    /// Autocast with f32 weights, without a scaler.
    Mixed(DType),
    /// Autocast with a scaler.
    Scaled(DType),
}

/// What a run came to.
#[derive(Debug)]
struct Came {
    loss: f64,
    accuracy: f64,
    skipped: u64,
    scale: f64,
}

/// Five layers: deep enough for gradients to shrink.
fn network() -> Mlp {
    // The generator is one for the process, and tests run concurrently.
    static GENERATOR: Mutex<()> = Mutex::new(());
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    manual_seed(7);
    Mlp::new(&[64, 48, 48, 48, 48, 10])
}

/// Trains on the cross entropy times `weight`, with a rate that makes up for it: in exact
/// arithmetic the weight changes nothing.
fn train(how: How, weight: f64, compiled: bool) -> Came {
    let data = digits().unwrap();
    let n = data.train.0.shape()[0];
    let (images, labels) = (data.train.0.reshape([n, 64]), data.train.1.clone());
    let net = match how {
        How::Plain(dtype) => network().to_dtype(dtype),
        How::F32 | How::Mixed(_) | How::Scaled(_) => network(),
    };
    let sgd = Sgd { lr: 0.05 / weight, momentum: 0.9, ..Sgd::default() };
    let opt = sgd.over(net.parameters()).unwrap();
    let scaling = GradScalerOptions { growth_interval: 10, ..GradScalerOptions::default() };
    let scaler = GradScaler::new(scaling).unwrap();
    let loss_of = |x: &Tensor, y: &Tensor| match how {
        How::F32 => pullback::cross_entropy(&net.forward(x), y),
        How::Plain(dtype) => pullback::cross_entropy(&net.forward(&x.cast(dtype)), y),
        How::Mixed(dtype) | How::Scaled(dtype) => {
            autocast(dtype, || pullback::cross_entropy(&net.forward(x), y))
        }
    };
    let step = |(x, y): &(Tensor, Tensor)| -> Result<Tensor> {
        opt.zero_grad();
        let loss = loss_of(x, y) * weight;
        match how {
            How::Scaled(_) => {
                scaler.scale(&loss).backward()?;
                scaler.step(&opt)?;
                scaler.update()?;
            }
            How::F32 | How::Plain(_) | How::Mixed(_) => {
                loss.backward()?;
                opt.step()?;
            }
        }
        Ok(loss)
    };
    let program = jit(step);
    let batches = n / 96;
    let mut taken = 0;
    while taken < STEPS {
        // The rate ends at zero: the noise of the last steps would be larger than what is compared.
        let left = 1.0 - taken as f64 / STEPS as f64;
        opt.lrs()[0].fill_(0.05 / weight * left);
        let at = (taken % batches * 96) as isize;
        let batch = (images.narrow(0, at, 96), labels.narrow(0, at, 96));
        match compiled {
            true => program.call(&batch).unwrap(),
            false => step(&batch).unwrap(),
        };
        // A step that was skipped is taken again.
        taken += usize::from(how != How::Scaled(DType::F16) || !scaler.overflowed().unwrap());
    }
    let m = data.test.0.shape()[0];
    no_grad(|| {
        let scores = match how {
            How::Plain(dtype) => net.forward(&data.test.0.reshape([m, 64]).cast(dtype)),
            How::F32 | How::Mixed(_) | How::Scaled(_) => net.forward(&data.test.0.reshape([m, 64])),
        };
        let right = scores.argmax(1).eq(&data.test.1).cast(DType::F64).mean().item::<f64>();
        Came {
            loss: loss_of(&images, &labels).cast(DType::F64).item(),
            accuracy: right,
            skipped: scaler.skipped().unwrap(),
            scale: scaler.current().unwrap(),
        }
    })
}

#[track_caller]
fn within_margin(found: &Came, wanted: &Came) {
    assert!(
        (found.loss - wanted.loss).abs() <= 0.05 * wanted.loss,
        "{found:?} instead of {wanted:?}"
    );
    assert!((found.accuracy - wanted.accuracy).abs() <= 0.02, "{found:?} instead of {wanted:?}");
}

/// Steps that are taken, those that are skipped not counted.
const STEPS: usize = 420;

/// The loss of guessing.
const GUESSING: f64 = std::f64::consts::LN_10;

#[test]
fn gradients_that_vanish_in_f16() {
    let weight = 2f64.powi(-24);
    for compiled in [false, true] {
        let full = train(How::F32, weight, compiled);
        assert!(full.loss < 0.2 && full.accuracy > 0.9, "{full:?}");
        // Nothing moves: gradients are zero, of weights in f16 and of weights in f32 alike.
        for how in [How::Plain(DType::F16), How::Mixed(DType::F16)] {
            let stalled = train(how, weight, compiled);
            assert!((stalled.loss - GUESSING).abs() < 0.1, "{how:?}: {stalled:?}");
        }
        let scaled = train(How::Scaled(DType::F16), weight, compiled);
        within_margin(&scaled, &full);
        assert!(scaled.scale > 65536.0, "{scaled:?}");
        within_margin(&train(How::Mixed(DType::BF16), weight, compiled), &full);
    }
}

#[test]
fn gradients_that_overflow_in_f16() {
    let weight = 2f64.powi(20);
    for compiled in [false, true] {
        let full = train(How::F32, weight, compiled);
        for how in [How::Plain(DType::F16), How::Mixed(DType::F16)] {
            let diverged = train(how, weight, compiled);
            assert!(diverged.loss.is_nan(), "{how:?}: {diverged:?}");
        }
        let scaled = train(How::Scaled(DType::F16), weight, compiled);
        within_margin(&scaled, &full);
        assert!(scaled.skipped > 10 && scaled.scale < 1.0, "{scaled:?}");
    }
}

#[test]
fn weights_in_bf16_lose_updates_that_master_weights_keep() {
    // A rate so small that a step is less than half the distance of neighbours in bf16.
    let x = Tensor::ones([1, 1]);
    let run = |w: Tensor, low: bool| {
        let opt = Sgd { lr: 1e-3, ..Sgd::default() }.over([w.clone()]).unwrap();
        for _ in 0..100 {
            opt.zero_grad();
            let y = match low {
                true => x.cast(DType::BF16).linear(&w, None),
                false => autocast(DType::BF16, || x.linear(&w, None)),
            };
            y.sum().backward().unwrap();
            opt.step().unwrap();
        }
        w.to_f64_vec()[0]
    };
    assert_eq!(run(Tensor::ones([1, 1]).cast(DType::BF16).requires_grad(), true), 1.0);
    let kept = run(Tensor::ones([1, 1]).requires_grad(), false);
    assert!((kept - 0.9).abs() < 1e-5, "{kept}");
}

#[test]
fn models_with_convolutions_and_the_report() {
    let data = digits().unwrap();
    let (cnn, mlp) = (Cnn::new(1, &[8, 16, 16], 10), network());
    let (x, y) = (data.train.0.narrow(0, 0, 64), data.train.1.narrow(0, 0, 64));
    for (low, within) in [(DType::BF16, 0.03), (DType::F16, 0.004)] {
        let of = |net: &dyn Fn(&Tensor) -> Tensor| {
            let low = autocast(low, || net(&x));
            let (low, full) = (low.to_f64_vec(), net(&x).to_f64_vec());
            let most = full.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            for (a, b) in low.iter().zip(&full) {
                assert!((a - b).abs() <= within * most, "{a} is not {b}");
            }
        };
        no_grad(|| {
            of(&|x| cnn.forward(x));
            of(&|x| mlp.forward(x));
        });
    }
    let loss = |m: &Cnn| Ok(pullback::cross_entropy(&m.forward(&x), &y) * 2f64.powi(-24));
    let report = PrecisionReport::new(&cnn, DType::F16, 1.0, loss).unwrap();
    assert_eq!(report.layers.len(), cnn.parameters().len());
    assert!(report.layers.iter().all(|l| l.flushed > 0.3), "{report}");
    let better = PrecisionReport::new(&cnn, DType::F16, report.suggested.unwrap(), loss).unwrap();
    let lost = |r: &PrecisionReport| r.layers.iter().map(|l| l.flushed).fold(0.0, f64::max);
    assert!(lost(&better) < 0.05 && lost(&better) < 0.1 * lost(&report), "{better}");
    assert!(better.layers.iter().all(|l| l.not_finite == 0.0), "{better}");
}
