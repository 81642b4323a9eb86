//! The training loop: how long it runs, what it does when, what stops it.

use pullback::{Result, Tensor, Tree, no_grad};
use pullback_nn::data::{DataLoader, StreamLoader, from_fn, stream};
use pullback_nn::optim::Optimizer;
use pullback_nn::schedule::{PlateauScheduler, ReduceLrOnPlateau};
use pullback_nn::state::{Checkpoint, Checkpoints, MetricMode};
use pullback_nn::train::{
    Accuracy, Callback, Confusion, EarlyStop, Ended, Every, LoopControl, Metrics, MonitoredPlateau,
    Outcome, TrainState, Trainer,
};
use pullback_nn::{Dropout, Module};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[derive(Tree)]
struct Model {
    weight: Tensor,
    dropout: Dropout,
}

fn model() -> Model {
    Model { weight: Tensor::from(0.0).requires_grad(), dropout: Dropout::new(0.5) }
}

struct Nothing(Tensor);

impl Optimizer for Nothing {
    fn step(&self) -> Result<()> {
        Ok(())
    }

    fn groups(&self) -> Vec<Vec<Tensor>> {
        Vec::new()
    }

    fn lrs(&self) -> Vec<Tensor> {
        vec![self.0.clone()]
    }

    fn named_state(&self) -> Vec<(String, Tensor)> {
        vec![("0.lr".to_string(), self.0.clone())]
    }
}

fn nothing() -> Nothing {
    Nothing(Tensor::from(0.25))
}

/// Notes all calls as lines.
#[derive(Clone, Default)]
struct Notes(Rc<RefCell<Vec<String>>>);

impl Notes {
    fn note(&self, what: &str, now: &TrainState) {
        self.0.borrow_mut().push(format!("{what} {}/{} {}", now.step, now.epoch, now.metrics));
    }
}

impl Callback for Notes {
    fn on_start(&mut self, now: &TrainState) -> Result<()> {
        self.note(&format!("start to {:?}", now.last_step), now);
        Ok(())
    }

    fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
        self.note("step", now);
        Ok(LoopControl::Continue(()))
    }

    fn on_epoch(&mut self, now: &TrainState) -> Result<LoopControl> {
        self.note("epoch", now);
        Ok(LoopControl::Continue(()))
    }

    fn on_eval(&mut self, now: &TrainState) -> Result<LoopControl> {
        self.note("eval", now);
        Ok(LoopControl::Continue(()))
    }

    fn on_end(&mut self, now: &TrainState, outcome: &Outcome) -> Result<()> {
        self.note(&format!("end {}", outcome.ended), now);
        Ok(())
    }
}

#[test]
fn everything_happens_in_its_order() {
    let (model, optimizer, notes) = (model(), nothing(), Notes::default());
    let in_training = Cell::new(false);
    let outcome = Trainer::new(&model, &optimizer)
        .epochs(2)
        .evaluate(Every::Steps(3), |model: &Model| {
            assert!(!model.dropout.training.get() && !pullback::is_grad_enabled());
            Ok([("loss", 0.5), ("accuracy", 0.75)])
        })
        .callback(notes.clone())
        .run(&vec![1.0, 2.0], |&batch| {
            in_training.set(model.dropout.training.get());
            Ok(batch)
        })
        .unwrap();
    assert!(in_training.get());
    let notes = notes.0.take();
    assert_eq!(
        notes,
        [
            "start to Some(4) 0/0 ",
            "step 1/0 loss 1, lr 0.25",
            "step 2/1 loss 2, lr 0.25, epoch_loss 1.5",
            "epoch 2/1 loss 2, lr 0.25, epoch_loss 1.5",
            "step 3/1 loss 1, lr 0.25, val_loss 0.5, val_accuracy 0.75",
            "eval 3/1 loss 1, lr 0.25, val_loss 0.5, val_accuracy 0.75",
            "step 4/2 loss 2, lr 0.25, epoch_loss 1.5, val_loss 0.5, val_accuracy 0.75",
            "epoch 4/2 loss 2, lr 0.25, epoch_loss 1.5, val_loss 0.5, val_accuracy 0.75",
            "eval 4/2 loss 2, lr 0.25, epoch_loss 1.5, val_loss 0.5, val_accuracy 0.75",
            "end finished 4/2 loss 2, lr 0.25, epoch_loss 1.5, val_loss 0.5, val_accuracy 0.75",
        ]
    );
    assert_eq!((outcome.step, outcome.epoch, outcome.ended), (4, 2, Ended::Finished));
}

#[test]
fn steps_go_over_as_many_epochs_as_it_takes_and_streams_have_any_length() {
    let (model, optimizer) = (model(), nothing());
    let run = |trainer: Trainer<Model>| {
        let loader = StreamLoader::new(stream(|_| Ok((0..5i64).map(Ok)))).batch_size(2);
        let sizes = RefCell::new(Vec::new());
        let outcome = trainer.run(&loader, |batch| {
            sizes.borrow_mut().push(batch.len());
            Ok(0.0)
        });
        let outcome = outcome.unwrap();
        (outcome.step, outcome.epoch, sizes.take())
    };
    let trainer = || Trainer::new(&model, &optimizer);
    assert_eq!(run(trainer().steps(4)), (4, 1, vec![2, 2, 1, 2]));
    assert_eq!(run(trainer().epochs(2)), (6, 2, vec![2, 2, 1, 2, 2, 1]));
    assert_eq!(run(trainer().steps(0)), (0, 0, vec![]));
}

#[test]
fn no_batches_are_an_error_and_not_an_endless_loop() {
    let (model, optimizer) = (model(), nothing());
    let error = Trainer::new(&model, &optimizer).run(&Vec::<f64>::new(), |&x| Ok(x)).unwrap_err();
    assert_eq!(error.to_string(), "train: there are no batches to train on");
    let loader = StreamLoader::new(stream(|_| Ok((0..0i64).map(Ok)))).batch_size(2);
    let error = Trainer::new(&model, &optimizer).run(&loader, |_| Ok(0.0)).unwrap_err();
    assert_eq!(error.to_string(), "train: there are no batches to train on");
}

#[test]
fn a_loss_that_is_not_finite_stops_with_its_step() {
    let (model, optimizer) = (model(), nothing());
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let losses = vec![1.0, f64::NAN, 2.0];
    let error = Trainer::new(&model, &optimizer)
        .epochs(3)
        .checkpoints(Every::Steps(1), checkpoints.clone())
        .run(&losses, |&loss| Ok(loss))
        .unwrap_err();
    assert!(
        error.to_string().starts_with("train: the loss is NaN at step 2, in epoch 1"),
        "{error}"
    );
    // What it was before that is saved, and what it is now is not.
    assert_eq!(checkpoints.latest().unwrap().unwrap().checkpoint.record.step, 1);
    let run =
        Trainer::new(&model, &optimizer).allow_non_finite(true).run(&losses, |&loss| Ok(loss));
    assert_eq!(run.unwrap().step, 3);
}

#[test]
fn errors_of_steps_and_wrong_losses_end_the_run() {
    let (model, optimizer) = (model(), nothing());
    let trainer = || Trainer::new(&model, &optimizer);
    let fail = || pullback::Error::argument("mine", "broke");
    let error = trainer().run(&vec![0], |_| Err::<f64, _>(fail())).unwrap_err();
    assert_eq!(error.to_string(), "mine: broke");
    let error = trainer().run(&vec![0], |_| Ok(Tensor::zeros([2]))).unwrap_err();
    assert!(error.to_string().contains("has 2 elements, not one"), "{error}");
    let error = trainer()
        .evaluate(Every::Steps(1), |model: &Model| {
            let _ = model;
            Err::<f64, _>(fail())
        })
        .run(&vec![0], |_| Ok(0.0))
        .unwrap_err();
    assert_eq!(error.to_string(), "mine: broke");
    // Also then, the model is in training again.
    assert!(model.dropout.training.get());
}

#[test]
fn early_stopping_restores_the_best_weights_also_after_resuming() {
    let values = [5.0, 3.0, 4.0, 3.5, 3.2];
    for interrupted_after in [None, Some(2u64), Some(3), Some(4)] {
        let folder = tempfile::tempdir().unwrap();
        let train = |steps: u64| {
            let (model, optimizer) = (model(), nothing());
            let outcome = Trainer::new(&model, &optimizer)
                .steps(steps)
                .evaluate(Every::Steps(1), |model: &Model| {
                    Ok(values[model.weight.item::<f64>() as usize - 1])
                })
                .early_stop(
                    EarlyStop::new("val_loss", MetricMode::Min).patience(3).restore_best(true),
                )
                .checkpoints(Every::Steps(1), Checkpoints::new(folder.path()))
                .resume(true)
                .run(&vec![(); 100], |()| {
                    no_grad(|| model.weight.add_(1.0));
                    Ok(0.0)
                })
                .unwrap();
            (model.weight.item::<f64>(), outcome)
        };
        if let Some(steps) = interrupted_after {
            train(steps);
        }
        let (weight, outcome) = train(100);
        let why = "val_loss was not better 3 times in a row; the best was 3 at step 2";
        assert_eq!(outcome.ended, Ended::Early(why.to_string()), "after {interrupted_after:?}");
        assert_eq!((outcome.step, outcome.best, weight), (5, Some((3.0, 2)), 2.0));
    }
}

#[test]
fn other_tensors_are_kept_and_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let train = |steps: u64, group: &str| {
        let (model, optimizer, average) = (model(), nothing(), Tensor::from(0.0));
        let trainer = Trainer::new(&model, &optimizer)
            .steps(steps)
            .keep(group, vec![("weight".to_string(), average.clone())])
            .checkpoints(Every::Steps(1), Checkpoints::new(folder.path()))
            .resume(true);
        let run = trainer.run(&vec![1.0; 10], |&x| {
            average.add_(x);
            Ok(0.0)
        });
        run.map(|_| average.item::<f64>())
    };
    assert_eq!(train(3, "average").unwrap(), 3.0);
    assert_eq!(train(5, "average").unwrap(), 5.0);
    let error = train(7, "other").unwrap_err().to_string();
    assert!(error.contains("does not fit the other: 1 missing"), "{error}");
    for name in ["best", "optimizer", "random", "a.b"] {
        let error = train(7, name).unwrap_err().to_string();
        assert!(error.contains(&format!("kept under the name `{name}`")), "{error}");
    }
}

#[test]
fn a_plateau_lowers_the_rate_also_after_resuming() {
    let folder = tempfile::tempdir().unwrap();
    let train = |steps: u64| {
        let (model, optimizer) = (model(), nothing());
        let how = ReduceLrOnPlateau { patience: 3, factor: 0.5, ..ReduceLrOnPlateau::default() };
        let plateau = PlateauScheduler::new(&optimizer, how).unwrap();
        Trainer::new(&model, &optimizer)
            .steps(steps)
            .evaluate(Every::Steps(2), |_: &Model| Ok(1.0))
            .schedule(Every::Steps(1), MonitoredPlateau::new("val_loss", plateau))
            .checkpoints(Every::Steps(2), Checkpoints::new(folder.path()))
            .resume(true)
            .run(&vec![0.0; 4], |&x| Ok(x))
            .unwrap();
        optimizer.0.item::<f64>()
    };
    // The first evaluation is the best; the fifth is the fourth after it that is not better.
    assert_eq!(train(8), 0.25);
    assert_eq!(train(10), 0.125);
}

#[test]
fn callbacks_and_flags_stop_a_run_and_it_is_saved() {
    struct StopAt(u64);
    impl Callback for StopAt {
        fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
            let stop = now.step == self.0;
            Ok(if stop {
                LoopControl::Break("enough".to_string())
            } else {
                LoopControl::Continue(())
            })
        }
    }
    let (model, optimizer) = (model(), nothing());
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let notes = Notes::default();
    let trainer = || {
        let trainer = Trainer::new(&model, &optimizer).steps(100).resume(true);
        trainer.checkpoints(Every::Steps(50), checkpoints.clone())
    };
    let batches = vec![0.0; 10];
    let outcome =
        trainer().callback(StopAt(13)).callback(notes.clone()).run(&batches, |&x| Ok(x)).unwrap();
    assert_eq!((outcome.step, outcome.ended), (13, Ended::Stopped("enough".to_string())));
    // Other callbacks are notified of the step, too.
    assert!(notes.0.borrow().iter().any(|line| line.starts_with("step 13/1")));
    assert_eq!(checkpoints.latest().unwrap().unwrap().checkpoint.record.step, 13);
    // A flag that is up already stops before the first step, and the same checkpoint is not saved
    // twice.
    let stop = Arc::new(AtomicBool::new(true));
    let outcome = trainer().stop_at(stop).run(&batches, |&x| Ok(x)).unwrap();
    assert_eq!((outcome.step, outcome.ended), (13, Ended::Interrupted));
    assert_eq!(checkpoints.list().unwrap().len(), 1);
}

#[test]
fn a_checkpoint_of_something_else_is_not_resumed_from() {
    let (model, optimizer) = (model(), nothing());
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let other = vec![Tensor::zeros([3])];
    checkpoints.save(&Checkpoint::of(&other).optimizer(&optimizer)).unwrap();
    let resume = || {
        let trainer = Trainer::new(&model, &optimizer).resume(true);
        trainer.checkpoints(Every::Steps(1), checkpoints.clone()).run(&vec![0.0], |&x| Ok(x))
    };
    let error = resume().unwrap_err().to_string();
    assert!(error.contains("missing: `weight` f64[]"), "{error}");
    // One that no loop has written.
    checkpoints.save(&Checkpoint::of(&model).optimizer(&optimizer)).unwrap();
    let error = resume().unwrap_err().to_string();
    assert!(
        error.contains("cannot be resumed from: it is not the state of a training loop"),
        "{error}"
    );
}

#[test]
fn a_corrupt_checkpoint_is_passed_over_and_told_about() {
    let (model, optimizer) = (model(), nothing());
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let train = |steps| {
        let trainer = Trainer::new(&model, &optimizer).steps(steps).resume(true);
        trainer.checkpoints(Every::Steps(2), checkpoints.clone()).run(&vec![0.0], |&x| Ok(x))
    };
    train(4).unwrap();
    let newest = checkpoints.list().unwrap().pop().unwrap();
    std::fs::write(newest.join("state.safetensors"), "no").unwrap();
    let outcome = train(4).unwrap();
    assert_eq!(outcome.step, 4);
    assert!(outcome.notes[0].contains("state.safetensors"), "{:?}", outcome.notes);
    assert_eq!(checkpoints.latest().unwrap().unwrap().passed_over.len(), 0);
}

#[test]
fn how_many_examples_a_second() {
    let (model, optimizer) = (model(), nothing());
    let seen = Rc::new(Cell::new((0.0, 0.0)));
    struct Rate(Rc<Cell<(f64, f64)>>);
    impl Callback for Rate {
        fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
            self.0.set((now.metrics.get("examples_per_second").unwrap(), now.seconds));
            Ok(LoopControl::Continue(()))
        }
    }
    let slow = |_: &i32| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        Ok(0.0)
    };
    let trainer = Trainer::new(&model, &optimizer).batch_size(32).callback(Rate(seen.clone()));
    trainer.run(&vec![1, 2, 3], slow).unwrap();
    // Two batches of 32 in at least 40 ms, as the first counts by itself; and the clock is read for
    // the rate before it is read for callbacks.
    let (rate, seconds) = seen.get();
    assert!(rate <= 64.0 / 0.04 && rate * seconds >= 64.0, "{rate} in {seconds}");
}

#[test]
fn accuracy_and_confusion() {
    let scores =
        Tensor::from([[0.1, 0.7, 0.2], [0.5, 0.5, 0.0], [f64::NAN, 0.0, 1.0], [0.2, 0.3, 0.5]]);
    let labels = Tensor::from([1i64, 1, 2, 0]);
    let mut first = Accuracy::new();
    first.add(&scores, &labels);
    assert_eq!(first.value(), 0.25);
    let mut second = Accuracy::top(2);
    second.add(&scores, &labels);
    assert_eq!(second.value(), 0.75);
    for (labels, words) in [
        (Tensor::from([1i64, 1, 2, 3]), "label 3 is not one of 3 classes"),
        (Tensor::from([1i64, 1, 2, -1]), "label -1 is not one of 3 classes"),
        (Tensor::from([1.0, 1.0, 2.0, 0.0]), "numbers of classes, not f64"),
        (Tensor::from([1i64, 1, 2]), "3 labels do not fit"),
    ] {
        let text = pullback::catch(|| second.add(&scores, &labels)).unwrap_err().to_string();
        assert!(text.contains(words) && text.contains("train.rs"), "{text}");
    }
    assert_eq!(second.value(), 0.75);
    let mut confusion = Confusion::new(3);
    confusion.add(&scores.narrow(0, 0, 2), &labels.narrow(0, 0, 2));
    assert_eq!(confusion.rows(), [[0, 0, 0], [1, 1, 0], [0, 0, 0]]);
    assert_eq!(confusion.accuracy(), 0.5);
    assert_eq!(confusion.to_string(), "    0 1 2\n 0  0 0 0\n 1  1 1 0\n 2  0 0 0");
    let metrics = Metrics::from([("loss", Tensor::from(0.5f32)), ("n", Tensor::from(3i64))]);
    assert_eq!((metrics.get("loss"), metrics.get("n")), (Some(0.5), Some(3.0)));
    assert!(model().parameters().len() == 1);
}

#[test]
fn a_look_at_the_first_batch_is_no_harm() {
    let (model, optimizer) = (model(), nothing());
    let loader = DataLoader::new(from_fn(10, |i| Ok(i as i64))).batch_size(2);
    loader.iter().next().unwrap().unwrap();
    let mut first = Vec::new();
    let outcome = Trainer::new(&model, &optimizer).epochs(2).run(&loader, |batch: &Tensor| {
        first.push(batch.at(0).item::<i64>());
        Ok(0.0)
    });
    // The first epoch is what was left of it.
    assert_eq!((outcome.unwrap().epoch, first), (2, vec![2, 4, 6, 8, 0, 2, 4, 6, 8]));
    assert_eq!((loader.state().epoch, loader.state().batch), (2, 0));
}

#[test]
fn no_batch_of_a_stream_is_lost_where_a_run_ends() {
    let (model, optimizer) = (model(), nothing());
    let loader = StreamLoader::new(stream(|_| Ok((0..10i64).map(Ok)))).num_workers(2);
    let mut seen = Vec::new();
    for steps in [3, 4, 5] {
        let run = Trainer::new(&model, &optimizer).steps(steps).run(&loader, |batch: &Tensor| {
            seen.push(batch.at(0).item::<i64>());
            Ok(0.0)
        });
        run.unwrap();
    }
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
}

#[test]
fn the_best_checkpoint_is_the_one_that_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let (model, optimizer) = (model(), nothing());
    let mut values = [0.5, 0.1, 0.9].into_iter();
    let checkpoints =
        Checkpoints::new(folder.path()).keep_last(1).keep_best("val_loss", MetricMode::Min);
    let outcome = Trainer::new(&model, &optimizer)
        .steps(12)
        .evaluate(Every::Steps(4), |_| Ok(values.next().unwrap()))
        .checkpoints(Every::Steps(1), checkpoints.clone())
        .run(&vec![0.0; 5], |&x| Ok(x));
    assert_eq!(outcome.unwrap().metrics.get("val_loss"), Some(0.9));
    // Those after it have no value of their own, although none was worse in between.
    assert_eq!(checkpoints.best().unwrap().unwrap().checkpoint.record.step, 8);
}

#[test]
fn evaluation_leaves_each_part_in_its_mode() {
    let (model, optimizer) = (model(), nothing());
    let mut modes = Vec::new();
    let run = Trainer::new(&model, &optimizer)
        .evaluate(Every::Steps(1), |model: &Model| {
            assert!(!model.dropout.training.get());
            Ok(0.0)
        })
        .run(&vec![0.0; 3], |&x| {
            modes.push(model.dropout.training.get());
            model.dropout.eval();
            Ok(x)
        });
    run.unwrap();
    assert_eq!(modes, [true, false, false]);
}

#[test]
fn what_cannot_be_resumed_from_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let train = |batch: usize, kept: usize, groups: usize| {
        let (model, other) = (model(), Tensor::zeros([kept]));
        let optimizer = vec![nothing(), nothing()].into_iter().take(groups).collect::<Vec<_>>();
        let loader = DataLoader::new(from_fn(40, |i| Ok(i as i64))).batch_size(batch);
        let run = Trainer::new(&model, &optimizer)
            .steps(3)
            .keep("other", vec![("x".to_string(), other)])
            .checkpoints(Every::Steps(1), Checkpoints::new(folder.path()))
            .resume(true)
            .run(&loader, |_: &Tensor| {
                no_grad(|| model.weight.add_(1.0));
                optimizer.iter().for_each(|o| drop(o.0.fill_(0.5)));
                Ok(0.0)
            });
        let rate = optimizer[0].0.item::<f64>();
        let found = (model.weight.item::<f64>(), rate, loader.state().batch);
        (run.map(|outcome| outcome.step).map_err(|error| error.to_string()), found)
    };
    assert_eq!(train(2, 2, 1), (Ok(3), (3.0, 0.5, 3)));
    let rows = [
        (4, 2, 1, "its data"),
        (2, 5, 1, "does not fit the other: 1 mismatching"),
        (2, 2, 2, "does not fit the optimizer: 1 missing"),
    ];
    for (batch, kept, groups, why) in rows {
        let (run, found) = train(batch, kept, groups);
        let error = run.unwrap_err();
        assert!(error.contains(why), "no {why:?} in {error}");
        assert_eq!(found, (0.0, 0.25, 0), "{why}");
    }
    assert_eq!(train(2, 2, 1), (Ok(3), (3.0, 0.5, 3)));
}

#[test]
fn metrics_that_are_not_finite_are_resumed_from() {
    let folder = tempfile::tempdir().unwrap();
    let train = |steps: u64| {
        let (model, optimizer) = (model(), nothing());
        Trainer::new(&model, &optimizer)
            .steps(steps)
            .evaluate(Every::Steps(2), |_| Ok(f64::INFINITY))
            .early_stop(EarlyStop::new("val_loss", MetricMode::Min).patience(9))
            .checkpoints(Every::Steps(1), Checkpoints::new(folder.path()))
            .resume(true)
            .run(&vec![0.0; 4], |&x| Ok(Metrics::from([("loss", x), ("size", f64::INFINITY)])))
            .unwrap()
    };
    train(3);
    let outcome = train(4);
    assert_eq!((outcome.best, outcome.step), (Some((f64::INFINITY, 2)), 4));
    assert_eq!(outcome.metrics.get("epoch_size"), Some(f64::INFINITY));
    assert_eq!(outcome.metrics.get("val_loss"), Some(f64::INFINITY));
}
