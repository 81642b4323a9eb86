//! Mixed precision in the training loop: its dtype, its scaler, and resuming with both, bit by bit.

use pullback::{DType, Result, Tensor, Tree, jit};
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::precision::{GradScaler, GradScalerOptions};
use pullback_nn::state::Checkpoints;
use pullback_nn::train::{Callback, Every, LoopControl, Outcome, TrainState, Trainer};
use pullback_nn::{Layer, Linear, Module};
use std::path::Path;

#[derive(Tree)]
struct Net {
    first: Linear,
    second: Linear,
}

fn net() -> Net {
    let net = Net { first: Linear::new(4, 8), second: Linear::new(8, 2) };
    let mut start = 0.3;
    for x in net.parameters() {
        let values: Vec<f32> = (0..x.len()).map(|i| 0.4 * (start + 1.7 * i as f32).sin()).collect();
        pullback::no_grad(|| x.copy_(Tensor::from_vec(values, x.shape())));
        start += 1.0;
    }
    net
}

/// Batches of which one holds numbers that f16 does not.
fn batches() -> Vec<(Tensor, Tensor)> {
    let batch = |t: usize| {
        let wave =
            |n: usize, a: f32| (0..n).map(|i| (a * (i + 7 * t) as f32).sin()).collect::<Vec<f32>>();
        let x = Tensor::from_vec(wave(24, 0.7), [6, 4]);
        let x = if t == 2 { x * 1e6f32 } else { x };
        (x, Tensor::from_vec(wave(12, 1.1), [6, 2]))
    };
    (0..5).map(batch).collect()
}

struct Run {
    net: Net,
    scaler: GradScaler,
    outcome: Result<Outcome>,
    /// The dtype of the outputs in the last step.
    seen: DType,
}

fn run(folder: &Path, epochs: u64, compiled: bool, with_scaler: bool) -> Run {
    let net = net();
    let opt = Adam { lr: 0.01, ..Adam::default() }.over(net.parameters()).unwrap();
    let scaler =
        GradScaler::new(GradScalerOptions { growth_interval: 3, ..GradScalerOptions::default() })
            .unwrap();
    let seen = std::cell::Cell::new(DType::F64);
    let step = jit(|(x, y): &(Tensor, Tensor)| {
        opt.zero_grad();
        let out = net.second.forward(&net.first.forward(x).relu());
        seen.set(out.dtype());
        let loss = (out - y).square().mean();
        scaler.scale(&loss).backward()?;
        scaler.step(&opt)?;
        scaler.update()?;
        Ok(loss)
    });
    let trainer = Trainer::new(&net, &opt)
        .epochs(epochs)
        .precision(DType::F16)
        .checkpoints(Every::Steps(4), Checkpoints::new(folder))
        .resume(true);
    let trainer = if with_scaler { trainer.scaler(&scaler) } else { trainer };
    let outcome = trainer.run(&batches(), |batch| match compiled {
        true => step.call(batch),
        false => pullback::catch(|| step.eager(batch)),
    });
    drop(step);
    drop(opt);
    Run { net, scaler, outcome, seen: seen.get() }
}

fn bits(run: &Run) -> Vec<u64> {
    let scaler = run.scaler.named_state().into_iter().map(|(_, x)| x);
    let all = run.net.parameters().into_iter().chain(scaler);
    all.flat_map(|x| x.to_f64_vec()).map(f64::to_bits).collect()
}

#[test]
fn resumed_runs_are_the_same_bit_by_bit() {
    for compiled in [false, true] {
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at_once = run(whole.path(), 6, compiled, true);
        let outcome = at_once.outcome.as_ref().unwrap();
        assert_eq!((outcome.step, at_once.seen), (30, DType::F16));
        // One batch of each epoch is skipped, whatever its loss was.
        assert!(at_once.scaler.skipped().unwrap() >= 6);
        assert_eq!(outcome.metrics.get("scale"), Some(at_once.scaler.current().unwrap()));
        assert!(outcome.metrics.get("epoch_loss").unwrap().is_finite());
        run(parts.path(), 2, compiled, true).outcome.unwrap();
        let resumed = run(parts.path(), 6, compiled, true);
        resumed.outcome.as_ref().unwrap();
        assert_eq!(bits(&resumed), bits(&at_once));
    }
}

/// Writes down the steps whose overflow it is notified of.
struct SeenOverflows<'a>(&'a std::cell::RefCell<Vec<(u64, String)>>);

impl Callback for SeenOverflows<'_> {
    fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
        self.0.borrow_mut().extend(now.overflow.map(|why| (now.step, why.to_string())));
        Ok(LoopControl::Continue(()))
    }
}

#[test]
fn skipped_steps_are_told_with_op_and_line_and_leave_no_trace() {
    let trained = |compiled: bool, named: Option<u64>| {
        let net = net();
        let opt = Adam { lr: 0.01, ..Adam::default() }.over(net.parameters()).unwrap();
        let scaler = GradScaler::new(GradScalerOptions {
            growth_interval: 3,
            ..GradScalerOptions::default()
        })
        .unwrap();
        let (calls, count) = (std::cell::Cell::new(0), Tensor::from(0i64));
        let step = jit(|(x, y): &(Tensor, Tensor)| {
            opt.zero_grad();
            let out = net.second.forward(&net.first.forward(x).relu());
            let loss = (out - y).square().mean();
            scaler.scale(&loss).backward()?;
            scaler.step(&opt)?;
            scaler.update()?;
            Ok(loss)
        });
        let seen = std::cell::RefCell::default();
        let trainer = Trainer::new(&net, &opt)
            .epochs(6)
            .precision(DType::F16)
            .scaler(&scaler)
            .keep("count", vec![("count".to_string(), count.clone())])
            .callback(SeenOverflows(&seen));
        let trainer = match named {
            Some(count) => trainer.name_overflows(count),
            None => trainer,
        };
        let outcome = trainer
            .run(&batches(), |batch| {
                calls.set(calls.get() + 1);
                pullback::no_grad(|| drop(count.add_(1i64)));
                match compiled {
                    true => step.call(batch),
                    false => pullback::catch(|| step.eager(batch)),
                }
            })
            .unwrap();
        assert_eq!(count.item::<i64>(), 30);
        let all = net.parameters().into_iter().chain(opt.named_state().into_iter().map(|(_, x)| x));
        let all = all.chain(scaler.named_state().into_iter().map(|(_, x)| x));
        let bits: Vec<u64> = all.flat_map(|x| x.to_f64_vec()).map(f64::to_bits).collect();
        (outcome.notes, seen.into_inner(), calls.get(), scaler.skipped().unwrap(), bits)
    };
    for compiled in [false, true] {
        let (notes, seen, calls, skipped, bits) = trained(compiled, None);
        assert!(skipped > 4);
        assert_eq!((calls, seen.len(), notes.len()), (33, 3, 4), "{notes:?}");
        for (note, (step, why)) in notes.iter().zip(&seen) {
            assert_eq!(note, &format!("step {step}: {why}"));
            assert!(note.contains("made an infinity in f16["), "{note}");
            assert!(note.contains("precision_trainer.rs:"), "{note}");
        }
        // The inputs of the third batch are beyond f16 already.
        assert!(
            seen.iter().any(|(step, why)| *step == 3 && why.contains("`cast` made")),
            "{seen:?}"
        );
        let more =
            format!("{} more steps were skipped because gradients were not finite", skipped - 3);
        assert!(notes[3].starts_with(&more), "{notes:?}");
        let (notes, seen, calls, _, unwatched) = trained(compiled, Some(0));
        assert_eq!((calls, seen.len(), notes.len()), (30, 0, 1), "{notes:?}");
        assert!(notes[0].starts_with(&format!("{skipped} steps were skipped")), "{notes:?}");
        assert_eq!(bits, unwatched, "compiled: {compiled}");
    }
}

#[test]
fn without_the_scaler_a_loss_that_is_not_finite_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = run(folder.path(), 1, false, false).outcome.unwrap_err().to_string();
    assert!(error.contains("at step 3"), "{error}");
}

#[test]
fn other_dtypes_are_refused() {
    let net = net();
    let opt = Adam::default().over(net.parameters()).unwrap();
    let outcome =
        Trainer::new(&net, &opt).precision(DType::F64).run(&batches(), |_| Ok(Tensor::from(0.0)));
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("mixed precision is in bf16 or f16, not in f64"), "{error}");
}
