//! Resuming is bitwise: N steps, save, load into fresh objects, N steps are 2N steps. With dropout,
//! batch normalisation, Adam, a schedule and shuffled data, op by op and compiled.

use pullback::{Tensor, Tree, jit, manual_seed};
use pullback_nn::data::{DataLoader, TensorDataset};
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::schedule::{CosineAnnealingLr, LinearWarmup, Scheduler};
use pullback_nn::state::{Checkpoint, Checkpoints, MetricMode};
use pullback_nn::train::{
    Callback, EarlyStop, Ended, Every, LoopControl, Outcome, TrainState, Trainer,
};
use pullback_nn::{BatchNorm, Dropout, Layer, Linear, Module};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The random generator is one for the process, so tests take turns.
fn generator_alone() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Tree)]
struct Net {
    first: Linear,
    norm: BatchNorm<1>,
    dropout: Dropout,
    second: Linear,
}

impl Net {
    fn new() -> Net {
        Net {
            first: Linear::new(6, 16),
            norm: BatchNorm::new(16),
            dropout: Dropout::new(0.3),
            second: Linear::new(16, 2),
        }
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Tensor {
        let hidden = self.norm.forward(&self.first.forward(x)).relu();
        (self.second.forward(&self.dropout.forward(&hidden)) - y).square().mean()
    }
}

/// 44 examples: five full batches and one of four in an epoch.
fn data() -> (Tensor, Tensor) {
    let x = pullback::Key::new(3).normal([44, 6], pullback::DType::F32, 0.0, 1.0);
    let y = (x.narrow(1, 0, 2) * x.narrow(1, 2, 2)).tanh();
    (x, y)
}

/// The losses of each step, as bits.
#[derive(Clone, Default)]
struct Losses(Arc<Mutex<Vec<(u64, u64)>>>);

impl Callback for Losses {
    fn on_step(&mut self, now: &TrainState) -> pullback::Result<LoopControl> {
        let bits = now.metrics.get("loss").unwrap().to_bits();
        self.0.lock().unwrap().push((now.step, bits));
        Ok(LoopControl::Continue(()))
    }
}

/// Raises a flag after a step, as Ctrl-C does.
struct RaiseAt(u64, Arc<AtomicBool>);

impl Callback for RaiseAt {
    fn on_step(&mut self, now: &TrainState) -> pullback::Result<LoopControl> {
        self.1.store(now.step == self.0, Ordering::Relaxed);
        Ok(LoopControl::Continue(()))
    }
}

/// What a run leaves: its losses, and the bits of model and optimiser.
struct Left {
    losses: Vec<(u64, u64)>,
    bits: Vec<(String, Vec<u64>)>,
    outcome: Outcome,
}

fn bits(named: Vec<(String, Tensor)>) -> Vec<(String, Vec<u64>)> {
    let bits = |x: &Tensor| x.to_f64_vec().iter().map(|v| v.to_bits()).collect();
    named.iter().map(|(name, x)| (name.clone(), bits(x))).collect()
}

/// Trains a fresh model that started from `seed` until 20 steps are taken, or it is interrupted
/// after some step.
fn train(folder: &Path, seed: u64, compiled: bool, interrupt: Option<u64>) -> Left {
    manual_seed(seed);
    let model = Net::new();
    let optimizer = Adam { lr: 0.01, ..Adam::default() }.over(model.parameters()).unwrap();
    let lrs = LinearWarmup {
        total_iters: 5,
        start_factor: 0.1,
        then: CosineAnnealingLr { t_max: 15, eta_min: 0.0 },
    };
    let loader = DataLoader::new(TensorDataset::new(data()).unwrap()).batch_size(8).shuffle(7);
    let loader = loader.num_workers(seed as usize % 3);
    let plain = |(x, y): &(Tensor, Tensor)| {
        optimizer.zero_grad();
        let loss = model.loss(x, y);
        loss.backward()?;
        optimizer.step()?;
        Ok(loss)
    };
    let fast = jit(plain);
    let (losses, stop) = (Losses::default(), Arc::new(AtomicBool::new(false)));
    let (x, y) = data();
    let outcome = Trainer::new(&model, &optimizer)
        .steps(20)
        .schedule(Every::Steps(1), Scheduler::new(&optimizer, lrs))
        .evaluate(Every::Steps(3), |model: &Net| Ok(model.loss(&x, &y)))
        .early_stop(EarlyStop::new("val_loss", MetricMode::Min).patience(100))
        .checkpoints(Every::Epochs(1), Checkpoints::new(folder))
        .resume(true)
        .stop_at(stop.clone())
        .callback(losses.clone())
        .callback(RaiseAt(interrupt.unwrap_or(u64::MAX), stop))
        .run(&loader, |batch| if compiled { fast.call(batch) } else { plain(batch) })
        .unwrap();
    let state = [model.named_state(), optimizer.named_state()].concat();
    Left { losses: losses.0.lock().unwrap().clone(), bits: bits(state), outcome }
}

fn resumes_bitwise(compiled: bool, interruptions: &[u64]) {
    let _alone = generator_alone();
    let straight = tempfile::tempdir().unwrap();
    let whole = train(straight.path(), 1, compiled, None);
    assert_eq!((whole.outcome.step, whole.outcome.epoch), (20, 3));
    assert_eq!(whole.losses.len(), 20);
    for &at in interruptions {
        let folder = tempfile::tempdir().unwrap();
        let before = train(folder.path(), 1, compiled, Some(at));
        assert_eq!((before.outcome.step, &before.outcome.ended), (at, &Ended::Interrupted));
        // Another seed: nothing of the second process may come from its own start.
        let after = train(folder.path(), 99 + at, compiled, None);
        assert_eq!(after.outcome.ended, Ended::Finished);
        let losses = [before.losses, after.losses].concat();
        assert_eq!(losses, whole.losses, "interrupted after step {at}");
        assert_eq!(after.bits, whole.bits, "interrupted after step {at}");
        for name in ["epoch_loss", "val_loss", "lr"] {
            let value = |left: &Outcome| left.metrics.get(name).unwrap().to_bits();
            assert_eq!(value(&after.outcome), value(&whole.outcome), "{name}");
        }
        assert_eq!(after.outcome.best, whole.outcome.best);
    }
}

#[test]
fn a_run_that_is_interrupted_anywhere_goes_on_as_if_it_was_not() {
    // In the middle of an epoch, at its end (6, 12), just after, at an evaluation (9).
    resumes_bitwise(false, &[1, 4, 6, 7, 9, 12, 17]);
}

#[test]
fn also_where_steps_are_compiled() {
    resumes_bitwise(true, &[4, 6, 13]);
}

#[test]
fn a_model_that_is_put_back_goes_the_same_way_again() {
    let _alone = generator_alone();
    let folder = tempfile::tempdir().unwrap();
    manual_seed(5);
    let model = Net::new();
    let optimizer = Adam { lr: 0.01, ..Adam::default() }.over(model.parameters()).unwrap();
    let step = jit(|(x, y): &(Tensor, Tensor)| {
        optimizer.zero_grad();
        let loss = model.loss(x, y);
        loss.backward()?;
        optimizer.step()?;
        Ok(loss)
    });
    let batch = data();
    let some = || -> Vec<u32> {
        (0..5).map(|_| step.call(&batch).unwrap().item::<f32>().to_bits()).collect()
    };
    some();
    let checkpoints = Checkpoints::new(folder.path());
    checkpoints.save(&Checkpoint::of(&model).optimizer(&optimizer)).unwrap();
    let first = some();
    // The compiled step reads what is restored in place.
    let saved = checkpoints.latest().unwrap().unwrap().checkpoint;
    saved.restore(&model, &optimizer).unwrap();
    assert_eq!(some(), first);
    assert_eq!(step.explain().specialisations.len(), 1);
}
