//! The training loop with many workers.

use crate::compared::{mlp, normal, values};
use pullback::{Error, Group, Key, Result, Tensor};
use pullback_nn::data::{DataLoader, TensorDataset};
use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
use pullback_nn::parallel::{DataParallel, Sharded};
use pullback_nn::state::Checkpoints;
use pullback_nn::train::{
    Callback, Ended, Every, JsonLog, LoopControl, Metrics, Outcome, TrainState, Trainer, read_log,
};
use pullback_nn::{Layer, Module};
use pullback_workers::threads;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

type Values = Vec<(String, Vec<f64>)>;

struct Run<'r> {
    folder: &'r Path,
    epochs: u64,
    resume: bool,
    stop_after: Option<u64>,
}

/// 22 examples in batches of 6: the last has 4.
fn train(run: &Run, group: &Group) -> Result<(Outcome, Values)> {
    let model = mlp();
    let optimizer = Sgd { lr: 0.05, momentum: 0.9, ..Sgd::default() }.over(model.parameters())?;
    let data = (normal(1, &[22, 6]), Key::new(3).randint([22], 0, 3));
    let loader = DataLoader::new(TensorDataset::new(data)?).batch_size(6).shuffle(5);
    let loader = loader.workers(group);
    let parallel = DataParallel::new(&model, group)?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut steps = 0;
    let outcome = Trainer::new(&model, &optimizer)
        .epochs(run.epochs)
        .workers(group)
        .handle_interrupt(false)
        .stop_at(stop.clone())
        .resume(run.resume)
        .batch_size(6)
        .checkpoints(Every::Steps(3), Checkpoints::new(run.folder.join("checkpoints")))
        .callback(JsonLog::new(run.folder.join("log.jsonl")))
        .evaluate(Every::Epochs(1), |_| Ok(Metrics::from(group.rank() as f64)))
        .run(&loader, |(x, y): &(Tensor, Tensor)| {
            optimizer.zero_grad();
            let loss = pullback::cross_entropy(&model.forward(x), y);
            parallel.backward_weighted(&loss, x.shape()[0])?;
            optimizer.step()?;
            steps += 1;
            // One worker alone is told to stop.
            if group.rank() + 1 == group.size() && run.stop_after == Some(steps) {
                stop.store(true, Ordering::Relaxed);
            }
            Ok(loss)
        })?;
    Ok((outcome, values(&model)))
}

fn near(a: &Values, b: &Values) -> bool {
    a.iter().zip(b).all(|((_, a), (_, b))| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12))
}

#[test]
fn workers_log_and_train_what_one_process_does() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let run =
        |i: usize| Run { folder: folders[i].path(), epochs: 3, resume: false, stop_after: None };
    let (alone, wanted) = train(&run(0), &Group::alone()).unwrap();
    let all = threads(3, |group| train(&run(1), &group)).unwrap();
    for (outcome, values) in &all {
        assert!(near(values, &wanted));
        assert_eq!((outcome.step, outcome.epoch), (12, 3));
        // The mean of ranks 0, 1 and 2.
        assert_eq!(outcome.metrics.get("val_loss"), Some(1.0));
        let loss = |outcome: &Outcome| outcome.metrics.get("epoch_loss").unwrap();
        assert!((loss(outcome) - loss(&alone)).abs() < 1e-12);
    }
    // One writer: each step is logged once.
    let log = |i: usize| read_log(folders[i].path().join("log.jsonl")).unwrap();
    let (one, three) = (log(0), log(1));
    assert_eq!((one.len(), three.len()), (12, 12));
    for (one, three) in one.iter().zip(&three) {
        let loss = |metrics: &Metrics| metrics.get("loss").unwrap();
        assert!((loss(&one.metrics) - loss(&three.metrics)).abs() < 1e-12);
    }
}

/// One worker is interrupted: all stop at the same step, and another number of workers resumes from
/// there to the result of a run that was never interrupted.
#[test]
fn all_stop_together_and_another_number_of_workers_resumes() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let whole = Run { folder: folders[0].path(), epochs: 3, resume: false, stop_after: None };
    let (_, wanted) = train(&whole, &Group::alone()).unwrap();
    let part = |stop_after| Run { folder: folders[1].path(), epochs: 3, resume: true, stop_after };
    let stopped = threads(3, |group| train(&part(Some(5)), &group)).unwrap();
    for (outcome, _) in &stopped {
        assert_eq!((outcome.step, &outcome.ended), (5, &Ended::Interrupted));
    }
    let stopped = threads(2, |group| train(&part(Some(2)), &group)).unwrap();
    assert!(stopped.iter().all(|(outcome, _)| outcome.step == 7));
    let (outcome, values) = train(&part(None), &Group::alone()).unwrap();
    assert_eq!((outcome.step, outcome.ended), (12, Ended::Finished));
    assert!(near(&values, &wanted));
}

/// Whoever is slow is named by the logs, also if that is the worker which writes them.
#[test]
fn the_slow_worker_is_in_the_logs() {
    for slow in [0, 2] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log.jsonl");
        let notes = threads(3, |group| {
            let model = mlp();
            let optimizer = Sgd::default().over(model.parameters())?;
            let parallel = DataParallel::new(&model, &group)?;
            let trainer = Trainer::new(&model, &optimizer).steps(4).workers(&group);
            let trainer = trainer.handle_interrupt(false).callback(JsonLog::new(&log));
            let outcome = trainer.run(&vec![normal(1, &[2, 6])], |x| {
                if group.rank() == slow {
                    std::thread::sleep(Duration::from_millis(100));
                }
                optimizer.zero_grad();
                let loss = model.forward(x).square().mean();
                parallel.backward(&loss)?;
                optimizer.step()?;
                Ok(loss)
            })?;
            Ok(outcome.notes)
        });
        for notes in notes.unwrap() {
            let start = format!("waited longest for worker {slow}: ");
            assert!(notes.iter().any(|note| note.starts_with(&start)), "{notes:?}");
        }
        let last = read_log(&log).unwrap().pop().unwrap().metrics;
        assert_eq!(last.get("slowest_worker"), Some(slow as f64));
        let waited = |rank: usize| last.get(&format!("waited_for_{rank}")).unwrap();
        assert!(waited(slow) > 0.3 && last.get("waited_for_it") == Some(waited(slow)), "{last:?}");
        assert!(waited(1) < waited(slow), "{last:?}");
    }
}

/// Fails as a log does on a full disk.
struct FullDisk;

impl Callback for FullDisk {
    fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
        match now.step {
            2 => Err(Error::argument("log", "no space left on device")),
            _ => Ok(LoopControl::Continue(())),
        }
    }
}

fn failing(group: &Group, step_fails: bool) -> String {
    let model = [Tensor::from(1.0).requires_grad()];
    let optimizer = Sgd::default().over(model.clone()).unwrap();
    let batches = vec![Tensor::from(1.0); 4];
    let parallel = DataParallel::new(&model, group).unwrap();
    let trainer = Trainer::new(&model, &optimizer).handle_interrupt(false).workers(group);
    let trainer = if step_fails { trainer } else { trainer.callback(FullDisk) };
    let mut steps = 0;
    let run = trainer.run(&batches, |x: &Tensor| {
        steps += 1;
        match step_fails && group.rank() == 1 && steps == 2 {
            true => Err(Error::argument("step", "a bad example")),
            false => {
                optimizer.zero_grad();
                let loss = x * &model[0];
                parallel.backward(&loss)?;
                optimizer.step()?;
                Ok(loss)
            }
        }
    });
    run.unwrap_err().to_string()
}

#[test]
fn an_error_of_one_worker_is_a_sentence_on_all() {
    let errors = threads(3, |group| Ok(failing(&group, false))).unwrap();
    assert!(errors.iter().all(|text| text.contains("no space left on device")), "{errors:?}");
    assert!(errors[2].contains("worker 0 failed"), "{errors:?}");
    let errors = threads(3, |group| Ok(failing(&group, true))).unwrap();
    assert!(errors.iter().all(|text| text.contains("a bad example")), "{errors:?}");
    assert!(errors[0].contains("worker 1 failed"), "{errors:?}");
}

/// A folder for checkpoints that is a file: worker 0 cannot write, and all say so.
#[test]
fn a_checkpoint_that_cannot_be_written_is_an_error_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    std::fs::write(&taken, "a file").unwrap();
    let errors = threads(2, |group| {
        let model = [Tensor::from(1.0).requires_grad()];
        let optimizer = Sgd::default().over(model.clone())?;
        let trainer = Trainer::new(&model, &optimizer).handle_interrupt(false).workers(&group);
        let trainer = trainer.checkpoints(Every::Steps(1), Checkpoints::new(&taken));
        Ok(trainer.run(&vec![Tensor::from(1.0)], |x| Ok(x.clone())).unwrap_err().to_string())
    });
    let errors = errors.unwrap();
    assert!(errors.iter().all(|text| text.contains("taken cannot be made")), "{errors:?}");
}

/// The parts of worker 0 are no checkpoint.
#[test]
fn worker_0_does_not_save_what_is_spread() {
    let folder = tempfile::tempdir().unwrap();
    let errors = threads(2, |group| {
        let model = mlp();
        let sharded = Sharded::new(&model, &group, 2)?;
        let optimizer = Sgd { momentum: 0.9, ..Sgd::default() }.over(sharded.parameters())?;
        let trainer = Trainer::new(&model, &optimizer).handle_interrupt(false).workers(&group);
        let trainer = trainer.checkpoints(Every::Steps(1), Checkpoints::new(folder.path()));
        let run = trainer.run(&vec![normal(1, &[4, 6])], |x| {
            sharded.zero_grad();
            let loss = model.forward(x).square().mean();
            sharded.backward(&loss)?;
            sharded.step(&optimizer)?;
            Ok(loss)
        });
        Ok(run.unwrap_err().to_string())
    });
    for error in errors.unwrap() {
        assert!(error.contains("differ between workers"), "{error}");
        assert!(error.contains("`Trainer::sharded`"), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_batch_without_an_item_for_each_worker_is_refused() {
    let errors = threads(4, |group| {
        let data = TensorDataset::new(normal(1, &[10, 2]))?;
        let loader = DataLoader::new(data).batch_size(8).workers(&group);
        Ok(loader.iter().find_map(Result::err).unwrap().to_string())
    });
    assert!(errors.unwrap()[0].contains("a batch has 2 items"));
}
