//! Metrics by name in a run: a name that nothing measures is reported, with those there are; and
//! what is reported is what was measured.

use pullback::{Result, Tensor, Tree};
use pullback_nn::Module;
use pullback_nn::data::{DataLoader, StreamLoader, from_fn, stream};
use pullback_nn::optim::{Sgd, Stepper, UpdateRule};
use pullback_nn::schedule::{PlateauScheduler, ReduceLrOnPlateau};
use pullback_nn::state::{Checkpoint, Checkpoints, MetricMode};
use pullback_nn::train::{
    Callback, EarlyStop, Every, LoopControl, Metrics, MonitoredPlateau, ProgressBar, TrainState,
    Trainer,
};
use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Tree)]
struct Model {
    weight: Tensor,
}

fn model() -> Model {
    Model { weight: Tensor::from(1.0).requires_grad() }
}

fn over(model: &Model) -> Stepper<Sgd> {
    Sgd { lr: 0.5, ..Sgd::default() }.over(model.parameters()).unwrap()
}

fn evaluated(_: &Model) -> Result<Metrics> {
    Ok(Metrics::from([("loss", 0.1), ("accuracy", 0.9)]))
}

#[test]
fn a_misspelt_metric_of_early_stopping_lists_those_there_are() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let optimizer = over(&model);
    let checkpoints = Checkpoints::new(folder.path());
    let train = |metric: &str| {
        Trainer::new(&model, &optimizer)
            .epochs(4)
            .evaluate(Every::Epochs(2), evaluated)
            .checkpoints(Every::Epochs(100), checkpoints.clone())
            .resume(true)
            .early_stop(EarlyStop::new(metric, MetricMode::Max).patience(9))
            .run(&vec![1.0, 2.0], |&x| Ok(x))
    };
    let text = train("val_acuracy").unwrap_err().to_string();
    assert_eq!(
        text,
        "train: EarlyStop monitors `val_acuracy`, which nothing measures; there are loss, lr, epoch_loss, val_loss, val_accuracy"
    );
    // At the first evaluation, with a checkpoint: once the name is corrected, the run resumes from
    // there.
    assert_eq!(checkpoints.latest().unwrap().unwrap().checkpoint.record.step, 4);
    let outcome = train("val_accuracy").unwrap();
    assert_eq!((outcome.step, outcome.best.map(|b| b.0)), (8, Some(0.9)));
    assert!(outcome.notes.is_empty());
}

#[test]
fn a_misspelt_metric_of_keep_best_and_of_a_schedule_too() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let optimizer = over(&model);
    let trainer = || Trainer::new(&model, &optimizer).epochs(3);
    let checkpoints = Checkpoints::new(folder.path()).keep_best("val_los", MetricMode::Min);
    let run =
        trainer().evaluate(Every::Epochs(1), evaluated).checkpoints(Every::Epochs(1), checkpoints);
    let text = run.run(&vec![1.0], |&x| Ok(x)).unwrap_err().to_string();
    assert!(text.contains("Checkpoints::keep_best monitors `val_los`"), "{text}");
    assert!(text.contains("there are loss, lr, epoch_loss, val_loss, val_accuracy"), "{text}");
    let plateau = PlateauScheduler::new(&optimizer, ReduceLrOnPlateau::default()).unwrap();
    let run = trainer()
        .evaluate(Every::Epochs(1), evaluated)
        .schedule(Every::Steps(1), MonitoredPlateau::new("loss_val", plateau));
    let text = run.run(&vec![1.0], |&x| Ok(x)).unwrap_err().to_string();
    assert!(text.contains("the schedule monitors `loss_val`"), "{text}");
}

#[test]
fn without_evaluation_the_first_epoch_tells() {
    let model = model();
    let optimizer = over(&model);
    let run = |metric: &str, steps: u64| {
        Trainer::new(&model, &optimizer)
            .steps(steps)
            .early_stop(EarlyStop::new(metric, MetricMode::Min).patience(100))
            .run(&vec![1.0, 2.0], |&x| Ok(x))
    };
    for metric in ["loss", "epoch_loss", "lr"] {
        assert_eq!(run(metric, 4).unwrap().step, 4, "{metric}");
    }
    let text = run("val_loss", 4).unwrap_err().to_string();
    assert!(
        text.contains("`val_loss`, which nothing measures; there are loss, lr, epoch_loss"),
        "{text}"
    );
    // The means of an epoch that is not over will be there; of another name, the end of the run
    // says so.
    assert!(run("epoch_loss", 1).unwrap().notes.is_empty());
    assert!(run("los", 1).unwrap().notes[0].contains("monitors `los`"));
}

#[test]
fn an_epochs_mean_may_be_awaited_at_an_evaluation_before_its_end() {
    let model = model();
    let optimizer = over(&model);
    let outcome = Trainer::new(&model, &optimizer)
        .epochs(2)
        .evaluate(Every::Steps(1), evaluated)
        .early_stop(EarlyStop::new("epoch_loss", MetricMode::Min))
        .run(&vec![1.0, 2.0, 3.0], |&x| Ok(x));
    assert_eq!(outcome.unwrap().step, 6);
}

#[test]
fn the_best_of_checkpoints_without_the_metric_is_an_error() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let checkpoints = Checkpoints::new(folder.path()).keep_best("acuracy", MetricMode::Max);
    assert!(checkpoints.best().unwrap().is_none());
    checkpoints
        .save(&Checkpoint::of(&model).at(1, 0).metric("loss", 2.0).metric("accuracy", 0.5))
        .unwrap();
    let text = checkpoints.best().unwrap_err().to_string();
    assert!(text.contains("has `acuracy`; there are accuracy, loss"), "{text}");
    assert!(checkpoints.keep_best("accuracy", MetricMode::Max).best().unwrap().is_some());
}

/// Rates with the step and the epoch of each.
#[derive(Clone, Default)]
struct Rates(Rc<RefCell<Vec<f64>>>);

impl Callback for Rates {
    fn on_step(&mut self, now: &TrainState) -> Result<LoopControl> {
        self.0.borrow_mut().push(now.metrics.get("examples_per_second").unwrap());
        // The time of callbacks is not that of training.
        std::thread::sleep(Duration::from_millis(30));
        Ok(LoopControl::Continue(()))
    }
}

#[test]
fn examples_a_second_are_those_that_were_seen() {
    let model = model();
    let optimizer = over(&model);
    // A batch that is larger than the data, as `--batch` may be: one step of an epoch, of 40
    // examples.
    let rates = Rates::default();
    let loader = DataLoader::new(from_fn(40, |i| Ok(i as i64))).batch_size(1000);
    let nap = |_: &Tensor| {
        std::thread::sleep(Duration::from_millis(40));
        Ok(0.0)
    };
    let evaluate = |_: &Model| {
        std::thread::sleep(Duration::from_millis(200));
        Ok(0.0)
    };
    let trainer = Trainer::new(&model, &optimizer).batch_size(1000).epochs(3);
    let trainer = trainer.evaluate(Every::Epochs(1), evaluate).callback(rates.clone());
    trainer.run(&loader, nap).unwrap();
    // 40 examples in 40 ms or a little more; never the 200 ms of the evaluation.
    for rate in rates.0.borrow().iter() {
        assert!((40.0 / 0.2..=1000.0).contains(rate), "{rate}");
    }
    assert_eq!(rates.0.borrow().len(), 3);
}

#[test]
fn examples_a_second_count_the_time_of_loading_where_an_epoch_has_no_length() {
    let model = model();
    let optimizer = over(&model);
    let rates = Rates::default();
    let slow = |i| {
        std::thread::sleep(Duration::from_millis(2));
        Ok(i)
    };
    let loader = StreamLoader::new(stream(move |_| Ok((0..50i64).map(slow)))).batch_size(10);
    let trainer = Trainer::new(&model, &optimizer).batch_size(10).epochs(1);
    trainer.callback(rates.clone()).run(&loader, |_: &Tensor| Ok(0.0)).unwrap();
    // At most one example in 2 ms, at every step.
    for rate in rates.0.borrow().iter() {
        assert!(*rate <= 500.0, "{rate}");
    }
    assert_eq!(rates.0.borrow().len(), 5);
}

#[test]
fn loaders_know_how_many_items_they_handed_out() {
    for workers in [0, 2] {
        let loader =
            DataLoader::new(from_fn(10, |i| Ok(i as i64))).batch_size(4).num_workers(workers);
        assert_eq!(loader.last_len(), None);
        let counts: Vec<_> = loader.iter().map(|_| loader.last_len().unwrap()).collect();
        assert_eq!(counts, [4, 4, 2]);
        let numbers = || stream(|_| Ok((0..10i64).map(Ok)));
        let loader = StreamLoader::new(numbers()).batch_size(4).num_workers(workers);
        let counts: Vec<_> = loader.iter().map(|_| loader.last_len().unwrap()).collect();
        assert_eq!(counts, [4, 4, 2]);
    }
}

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn lines_say_an_evaluation_once() {
    let model = model();
    let optimizer = over(&model);
    let (paper, mut count) = (Paper::default(), 0.0);
    Trainer::new(&model, &optimizer)
        .steps(8)
        .evaluate(Every::Steps(3), |_| {
            count += 1.0;
            Ok(count)
        })
        .callback(ProgressBar::new().lines_to(2, paper.clone()))
        .run(&vec![0.5; 100], |&x| Ok(x))
        .unwrap();
    let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<&str> = text.lines().map(|line| line.split_once(" s: ").unwrap().1).collect();
    assert_eq!(
        lines,
        [
            "loss 0.5, lr 0.5",
            "loss 0.5, lr 0.5, val_loss 1",
            "loss 0.5, lr 0.5, val_loss 2",
            "loss 0.5, lr 0.5, val_loss 3",
            "finished"
        ]
    );
}
