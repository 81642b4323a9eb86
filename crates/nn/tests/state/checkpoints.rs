//! Checkpoints: what they hold, which are kept, which is found.

use crate::model::{Model, Momentum, values};
use pullback::{Tensor, manual_seed, random_state};
use pullback_nn::Module;
use pullback_nn::optim::{AdamW, Optimizer, UpdateRule};
use pullback_nn::state::{Checkpoint, Checkpoints, MetricMode, SavedCheckpoint};
use serde_json::json;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The random generator is one for the process, so tests that use it take turns.
fn generator_alone() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

fn names(checkpoints: &Checkpoints) -> Vec<String> {
    let list = checkpoints.list().unwrap();
    list.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_string()).collect()
}

/// Checkpoints of earlier versions call the learning rate `rate`; a list of optimisers has its
/// index before it.
#[test]
fn the_state_of_an_optimizer_of_an_earlier_version_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let _alone = generator_alone();
    let model = Model::filled(1.5);
    let of = |model: &Model, lr: f64| -> Vec<Box<dyn Optimizer>> {
        vec![Box::new(AdamW { lr, ..AdamW::default() }.over(model.parameters()).unwrap())]
    };
    let earlier = of(&model, 0.125).named_state().into_iter();
    let earlier = earlier.map(|(name, x)| (name.replace("0.0.lr", "0.0.rate"), x)).collect();
    let checkpoint = Checkpoint::of(&model).tensors("optimizer", earlier);
    let path = Checkpoints::new(folder.path()).save(&checkpoint).unwrap();
    let optimizer = of(&model, 1.0);
    SavedCheckpoint::read(&path).unwrap().restore(&model, &optimizer).unwrap();
    assert_eq!(optimizer.lrs()[0].item::<f64>(), 0.125);
}

#[test]
fn everything_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let _alone = generator_alone();
    let checkpoints = Checkpoints::new(folder.path().join("deep/er"));
    let model = Model::filled(1.5);
    let optimizer = Momentum::new(model.parameters(), 0.125);
    optimizer.buffers[2].fill_(4.0);
    let random = random_state().to_vec::<i64>();
    let average = vec![("a".to_string(), Tensor::from([3.0, 4.0]))];
    let checkpoint = Checkpoint::of(&model)
        .optimizer(&optimizer)
        .tensors("average", average)
        .at(12, 3)
        .metric("loss", 0.1 + 0.2)
        .metric("worst", f64::INFINITY)
        .metric("none", f64::NAN)
        .schedule(json!({"last": 7}))
        .data(json!([1, 2, {"epoch": 1}]))
        .config(json!({"width": 64, "lr": 0.1, "seed": u64::MAX}));
    let path = checkpoints.save(&checkpoint).unwrap();
    assert!(path.ends_with("00001-step-12"));

    let fresh = Model::filled(0.0);
    let other = Momentum::new(fresh.parameters(), 1.0);
    let saved = SavedCheckpoint::read(&path).unwrap();
    saved.restore(&fresh, &other).unwrap();
    assert_eq!(values(&fresh), values(&model));
    assert_eq!(other.lr.item::<f64>(), 0.125);
    assert_eq!(other.buffers[2].to_f64_vec(), optimizer.buffers[2].to_f64_vec());
    assert_eq!(random_state().to_vec::<i64>(), random);
    let average = Tensor::from([0.0, 0.0]);
    saved.restore_tensors("average", vec![("a".to_string(), average.clone())]).unwrap();
    assert_eq!(average.to_vec::<f64>(), [3.0, 4.0]);
    let (record, wanted) = (saved.record, checkpoint.record);
    assert!(record.metrics["none"].is_nan() && record.metrics["worst"] == f64::INFINITY);
    assert_eq!(record.metrics["loss"], 0.1 + 0.2);
    assert_eq!((record.step, record.epoch), (12, 3));
    assert_eq!((record.schedule, record.data), (wanted.schedule, wanted.data));
    assert_eq!(record.config, wanted.config);
}

#[test]
fn the_random_state_is_that_of_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let model = Model::filled(0.0);
    let optimizer = Momentum::new(model.parameters(), 1.0);
    let _alone = generator_alone();
    manual_seed(5);
    let path = checkpoints.save(&Checkpoint::of(&model).optimizer(&optimizer)).unwrap();
    let first = Tensor::rand([4]).to_vec::<f32>();
    assert_ne!(Tensor::rand([4]).to_vec::<f32>(), first);
    SavedCheckpoint::read(&path).unwrap().restore(&model, &optimizer).unwrap();
    assert_eq!(Tensor::rand([4]).to_vec::<f32>(), first);
}

#[test]
fn a_checkpoint_of_something_else_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let model = Model::filled(1.0);
    let optimizer = Momentum::new(model.parameters(), 1.0);
    let path = checkpoints.save(&Checkpoint::of(&model).optimizer(&optimizer)).unwrap();
    let saved = SavedCheckpoint::read(&path).unwrap();
    // The model fits, the optimiser does not: it has fewer parameters, one of another shape.
    let fresh = Model::filled(7.0);
    let before = values(&fresh);
    let mut parameters = fresh.parameters()[..3].to_vec();
    parameters[1] = Tensor::zeros([9]);
    let other = Momentum::new(parameters, 2.0);
    let error = saved.restore(&fresh, &other).unwrap_err().to_string();
    for part in [
        "state.safetensors does not fit the optimizer: 2 unexpected, 1 mismatching",
        "unexpected: `optimizer.0.3.momentum` bf16[3]",
        "`optimizer.0.1.momentum` is f32[4] in the file, f32[9] here",
    ] {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
    assert_eq!(values(&fresh), before);
    assert_eq!(other.lr.item::<f64>(), 2.0);
    let error = saved.restore_model(&vec![Tensor::zeros([1])]).unwrap_err().to_string();
    assert!(error.contains("model.safetensors does not fit the model: 1 missing"), "{error}");
}

#[test]
fn the_last_and_the_best_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints =
        Checkpoints::new(folder.path()).keep_last(2).keep_best("accuracy", MetricMode::Max);
    let model = Model::filled(1.0);
    let accuracies = [0.5, 0.9, f64::NAN, 0.7, 0.6, 0.8];
    for (step, accuracy) in accuracies.into_iter().enumerate() {
        let checkpoint = Checkpoint::of(&model).at(step as u64, 0).metric("accuracy", accuracy);
        checkpoints.save(&checkpoint).unwrap();
    }
    assert_eq!(names(&checkpoints), ["00002-step-1", "00005-step-4", "00006-step-5"]);
    let found = checkpoints.latest().unwrap().unwrap();
    assert_eq!((found.checkpoint.record.step, found.passed_over.len()), (5, 0));
    assert_eq!(checkpoints.best().unwrap().unwrap().checkpoint.record.step, 1);
    // A run that went back is the newest again; equal is as good, and newer.
    checkpoints.save(&Checkpoint::of(&model).at(2, 0).metric("accuracy", 0.9)).unwrap();
    assert_eq!(names(&checkpoints), ["00006-step-5", "00007-step-2"]);
    assert_eq!(checkpoints.latest().unwrap().unwrap().checkpoint.record.step, 2);
    // Nothing else is in the folder.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_folder_without_checkpoints_has_no_latest() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Checkpoints::new(folder.path()).latest().unwrap().is_none());
    let none = Checkpoints::new(folder.path().join("none"));
    assert!(none.latest().unwrap().is_none());
    let error = none.best().unwrap_err().to_string();
    assert!(error.contains("no metric says which checkpoint is best"), "{error}");
}
