//! Reports on the memory of training steps, by part of the model.

use pullback::{
    DType, Key, MemoryBytes, MemoryPhase, MemoryReport, Result, Tensor, Tree, autocast,
    manual_seed, memory_stats, random_state,
};
use pullback_nn::models::{Gpt, GptConfig};
use pullback_nn::optim::{Adam, AdamW, Optimizer, Sgd, UpdateRule};
use pullback_nn::{
    Checkpointed, Dropout, Layer, Linear, Module, Relu, Sequential, Tanh, memory_report,
    module_scope, predict_memory,
};
use serde_json::Value;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The pool counts for the whole process, so tests are serialised.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

fn exclusive() -> MutexGuard<'static, ()> {
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn batch(shape: [usize; 2]) -> Tensor {
    Key::new(5).normal(shape, DType::F32, 0.0, 1.0)
}

/// A step of training.
fn step(model: &impl Layer, optimizer: &impl Optimizer, x: &Tensor) -> Result<Tensor> {
    optimizer.zero_grad();
    let loss = model.forward(x).square().sum();
    loss.backward()?;
    optimizer.step()?;
    Ok(loss)
}

fn part(report: &MemoryReport, path: &str) -> MemoryBytes {
    let found = report.by_part.iter().find(|part| part.path == path);
    found.unwrap_or_else(|| panic!("no part {path} in {report}")).bytes
}

#[test]
fn an_mlp_with_adam_by_hand() {
    let _lock = exclusive();
    let model = Sequential::new().then(Linear::new(16, 32)).then(Tanh).then(Linear::new(32, 4));
    let adam = Adam::default().over(model.parameters()).unwrap();
    let x = batch([8, 16]);
    let values = || model.parameters().iter().flat_map(Tensor::to_vec::<f32>).collect::<Vec<_>>();
    let before = values();
    let predicted = predict_memory(&model, &adam, || step(&model, &adam, &x)).unwrap();
    assert_eq!(values(), before);
    assert!(
        adam.named_state().iter().all(|(name, x)| !name.ends_with("step") || x.item::<i64>() == 0)
    );
    let (_, measured) = memory_report(&model, &adam, || step(&model, &adam, &x)).unwrap();
    assert_ne!(values(), before);

    let (first, second) = ((16 * 32 + 32) * 4, (32 * 4 + 4) * 4);
    for report in [&predicted, &measured] {
        assert_eq!(report.most.parameters, first + second, "{report}");
        assert_eq!(report.timeline.last().unwrap().alive.gradients, first + second, "{report}");
        // The gradient of a weight of a linear layer comes transposed, and is copied at the end of
        // the pass.
        assert_eq!(report.most.gradients, first + second + 16 * 32 * 4, "{report}");
        // Two moments; in addition a count for each of four parameters, and one rate.
        assert_eq!(report.most.optimizer_state, 2 * (first + second) + 4 * 8 + 8, "{report}");
        assert_eq!(report.most.inputs, 8 * 16 * 4, "{report}");
        // What tanh gives is kept by itself and by the second layer, whose output is kept by the
        // square.
        assert_eq!(report.most.activations, (8 * 32 + 8 * 4) * 4, "{report}");

        let bytes = part(report, "0");
        assert_eq!((bytes.parameters, bytes.gradients), (first, first + 16 * 32 * 4));
        assert_eq!((bytes.optimizer_state, bytes.activations), (2 * first + 2 * 8, 0));
        let bytes = part(report, "1");
        assert_eq!((bytes.parameters, bytes.activations), (0, 8 * 32 * 4));
        let bytes = part(report, "2");
        assert_eq!((bytes.parameters, bytes.gradients), (second, second));
        assert_eq!((bytes.optimizer_state, bytes.activations), (2 * second + 2 * 8, 8 * 4 * 4));
        assert_eq!(part(report, "(optimizer)").optimizer_state, 8);
        let phases: Vec<MemoryPhase> = report.timeline.iter().map(|moment| moment.phase).collect();
        for phase in [MemoryPhase::Forward, MemoryPhase::Backward, MemoryPhase::Step] {
            assert!(phases.contains(&phase), "{phase:?} in {report}");
        }
        // A step of Adam is written over what it reads.
        let steps = report.timeline.iter().filter(|m| m.phase == MemoryPhase::Step);
        assert!(steps.clone().any(|m| m.op.contains("adam")), "{report}");
        assert!(steps.map(|m| m.alive.temporaries).max().unwrap() < 1024, "{report}");
    }
    assert_eq!(predicted.most.activations, measured.most.activations);
    assert_eq!(predicted.peak(), measured.peak(), "{predicted}\n{measured}");
}

#[derive(Tree)]
struct Block {
    up: Linear,
    dropout: Dropout,
    down: Linear,
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Tensor {
        let scope = module_scope(self);
        let h = self.up.forward(x).sin();
        scope.output(x + self.down.forward(&self.dropout.forward(&h)))
    }
}

fn block() -> Block {
    Block { up: Linear::new(32, 64), dropout: Dropout::new(0.25), down: Linear::new(64, 32) }
}

#[derive(Tree)]
struct Stack<B> {
    blocks: Vec<B>,
    head: Linear,
}

impl<B: Layer> Layer for Stack<B> {
    fn forward(&self, x: &Tensor) -> Tensor {
        let _scope = module_scope(self);
        self.head.forward(&self.blocks.forward(x).relu())
    }
}

/// Names of parts of a report that have activations.
fn active(report: &MemoryReport) -> Vec<&str> {
    let active = report.by_part.iter().filter(|part| part.bytes.activations > 0);
    active.map(|part| part.path.as_str()).collect()
}

#[test]
fn parts_of_a_model_of_ones_own() {
    let _lock = exclusive();
    let model = Stack { blocks: vec![block(), block()], head: Linear::new(32, 4) };
    let sgd = Sgd { lr: 0.1, momentum: 0.9, ..Sgd::default() };
    let sgd = sgd.over(model.parameters()).unwrap();
    let x = batch([16, 32]);
    let predicted = predict_memory(&model, &sgd, || step(&model, &sgd, &x)).unwrap();
    let (_, measured) = memory_report(&model, &sgd, || step(&model, &sgd, &x)).unwrap();
    for report in [&predicted, &measured] {
        for i in 0..2 {
            // The sine keeps what goes into it: the output of the first layer.
            let up = part(report, &format!("blocks.{i}.up"));
            assert_eq!(up.activations, 16 * 64 * 4, "{report}");
            assert_eq!(up.parameters, (32 * 64 + 64) * 4);
            assert!(up.gradients >= up.parameters);
            assert!(part(report, &format!("blocks.{i}.dropout")).activations >= 16 * 64 * 4);
        }
        // The second block's input is the sum that the first block made itself.
        assert_eq!(part(report, "blocks.0").activations, 16 * 32 * 4, "{report}");
        // Relu in the model's own code.
        assert!(part(report, "(model)").activations >= 16 * 32 * 4, "{report}");
        assert_eq!(part(report, "head").activations, 16 * 4 * 4, "{report}");
    }
    assert_eq!(active(&predicted), active(&measured));
    let (a, b) = (predicted.peak().alive.total(), measured.peak().alive.total());
    assert!(a.abs_diff(b) * 50 <= b, "within 2%: predicted {a}, measured {b}");
}

#[test]
fn checkpointed_blocks_keep_less() {
    let _lock = exclusive();
    let x = batch([64, 32]);
    let plain = Stack { blocks: (0..6).map(|_| block()).collect(), head: Linear::new(32, 4) };
    let split = Stack {
        blocks: (0..6).map(|_| Checkpointed::new(block())).collect(),
        head: Linear::new(32, 4),
    };
    let none: Vec<Box<dyn Optimizer>> = Vec::new();
    let p1 = predict_memory(&plain, &none, || step(&plain, &none, &x)).unwrap();
    let p2 = predict_memory(&split, &none, || step(&split, &none, &x)).unwrap();
    let (_, m1) = memory_report(&plain, &none, || step(&plain, &none, &x)).unwrap();
    let (_, m2) = memory_report(&split, &none, || step(&split, &none, &x)).unwrap();
    for (plain, split) in [(&p1, &p2), (&m1, &m2)] {
        assert!(split.most.activations * 2 < plain.most.activations, "{plain}\n{split}");
        assert!(split.peak().alive.total() < plain.peak().alive.total(), "{plain}\n{split}");
    }
    for (predicted, measured) in [(&p1, &m1), (&p2, &m2)] {
        let (a, b) = (predicted.peak().alive.total(), measured.peak().alive.total());
        assert!(a.abs_diff(b) * 10 <= b, "within 10%: predicted {a}, measured {b}");
    }
    // What is computed again belongs to the block that computed it first.
    assert!(active(&m2).iter().any(|path| path.ends_with(".up")), "{m2}");
}

#[test]
fn a_transformer_with_dropout_is_predicted() {
    let _lock = exclusive();
    manual_seed(3);
    let config =
        GptConfig { vocabulary: 20, length: 16, width: 32, heads: 4, layers: 2, dropout: 0.1 };
    let model = Gpt::new(&config);
    let adam = AdamW::default().over(model.parameters()).unwrap();
    let tokens = Tensor::zeros([4, 16]).cast(DType::I64).deep_clone();
    let step = || {
        adam.zero_grad();
        let loss =
            autocast(DType::BF16, || model.forward(&tokens)).cast(DType::F32).square().mean();
        loss.backward()?;
        adam.step()?;
        Ok(loss)
    };
    let (state, live) = (random_state().to_vec::<i64>(), memory_stats().live_bytes);
    let predicted = predict_memory(&model, &adam, step).unwrap();
    assert_eq!(random_state().to_vec::<i64>(), state);
    assert!(memory_stats().live_bytes <= live, "nothing stays behind");
    assert!(model.parameters().iter().all(|w| w.grad().is_none()));
    let (_, measured) = memory_report(&model, &adam, step).unwrap();
    let (a, b) = (predicted.peak().alive.total(), measured.peak().alive.total());
    assert!(a.abs_diff(b) * 20 <= b, "within 5%: predicted {a}, measured {b}");
    let (a, b) = (predicted.most.activations, measured.most.activations);
    assert!(a.abs_diff(b) * 50 <= b, "within 2%: predicted {a}, measured {b}");
    assert_eq!(predicted.most.optimizer_state, measured.most.optimizer_state);
    for report in [&predicted, &measured] {
        let all: u64 = report.by_part.iter().map(|part| part.bytes.activations).sum();
        assert_eq!(all, report.most.activations, "{report}");
        // What blocks compute is theirs: the model itself adds embeddings and multiplies by them.
        let own = part(report, "(model)").activations;
        assert!(own * 8 < all, "{report}");
        assert!(part(report, "blocks.1.self_attn").activations > own, "{report}");
    }
}

#[test]
fn json_is_read_by_others() {
    let _lock = exclusive();
    let model = Sequential::new().then(Linear::new(4, 8)).then(Relu).then(Linear::new(8, 2));
    let sgd = Sgd::default().over(model.parameters()).unwrap();
    let x = batch([3, 4]);
    let (_, report) = memory_report(&model, &sgd, || step(&model, &sgd, &x)).unwrap();
    let json: Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["predicted"], Value::Bool(false));
    assert_eq!(json["most"]["parameters"].as_u64(), Some(report.most.parameters));
    assert_eq!(json["timeline"].as_array().unwrap().len(), report.timeline.len());
    let peak = &json["peak"];
    assert_eq!(peak["total"].as_u64(), Some(report.peak().alive.total()));
    let at = report.peak().at.unwrap();
    assert_eq!(
        (peak["at"]["file"].as_str(), peak["at"]["line"].as_u64()),
        (Some(at.file()), Some(at.line().into()))
    );
    let moment = &json["timeline"][peak["index"].as_u64().unwrap() as usize];
    assert_eq!(moment["alive"], peak["alive"]);
    let lines = json["activations_by_line"].as_array().unwrap();
    let sum: u64 = lines.iter().map(|line| line["bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum, report.most.activations);
    assert_eq!(json["by_part"][0]["path"], "0");
    assert!(json["pool"]["peak"].as_u64() >= json["pool"]["before"].as_u64());
    let predicted = predict_memory(&model, &sgd, || step(&model, &sgd, &x)).unwrap();
    let json: Value = serde_json::from_str(&predicted.to_json()).unwrap();
    assert_eq!((&json["predicted"], &json["pool"]), (&Value::Bool(true), &Value::Null));
    let text = predicted.to_string();
    for word in [
        "predicted from shapes",
        "parameters",
        "optimizer state",
        "peak: ",
        "activations by line",
        "part",
    ] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_step_that_fails_leaves_no_names_behind() {
    let _lock = exclusive();
    let model = Sequential::new().then(Linear::new(4, 8));
    let none: Vec<Box<dyn Optimizer>> = Vec::new();
    let wrong = batch([3, 5]);
    let error = memory_report(&model, &none, || Ok(model.forward(&wrong))).unwrap_err();
    assert!(error.to_string().contains("4 ≠ 5") || error.to_string().contains("5 ≠ 4"), "{error}");
    let error = predict_memory(&model, &none, || Ok(model.forward(&batch([3, 4])).to_vec::<f32>()))
        .unwrap_err();
    assert!(error.to_string().contains("being traced"), "{error}");
    let x = batch([3, 4]);
    let (_, report) = memory_report(&model, &none, || Ok(model.forward(&x))).unwrap();
    assert_eq!(report.by_part[0].path, "0");
}

/// Lines of a report are the user's: where `forward`, `backward` and the step of the optimiser were
/// called, also for layers inside a sequence, measured and predicted.
#[test]
fn lines_are_those_of_the_user_inside_a_sequence() {
    let _lock = exclusive();
    let inner = Sequential::new().then(Linear::new(32, 32)).then(Relu).then(Dropout::new(0.5));
    let model = Sequential::new()
        .then(Linear::new(16, 32))
        .then(Tanh)
        .then(inner)
        .then(Checkpointed::new((Linear::new(32, 32), Tanh)))
        .then(vec![Linear::new(32, 4)]);
    let adam = AdamW::default().over(model.parameters()).unwrap();
    let x = batch([8, 16]);
    let forward = line!() + 3;
    let step = || -> Result<Tensor> {
        adam.zero_grad();
        let y = model.forward(&x);
        y.square().sum().backward()?;
        adam.step()?;
        Ok(y)
    };
    let predicted = predict_memory(&model, &adam, step).unwrap();
    let (_, measured) = memory_report(&model, &adam, step).unwrap();
    for report in [&predicted, &measured] {
        let lines = report.activations_by_line.iter().chain(&report.peak_by_line);
        let lines = lines.map(|line| (line.op, line.at));
        let moments = report.timeline.iter().map(|moment| (moment.op, moment.at));
        for (op, at) in lines.chain(moments).filter_map(|(op, at)| Some((op, at?))) {
            let ours = at.file().ends_with("tests/memory_report.rs");
            assert!(ours && (forward..forward + 3).contains(&at.line()), "{op} at {at}\n{report}");
        }
        let (tanh, square) = ("tanh", "square");
        let of = |op: &str| report.activations_by_line.iter().find(|line| line.op == op);
        assert_eq!(of(tanh).and_then(|line| line.at).map(|at| at.line()), Some(forward));
        assert!(of(square).is_none(), "{report}");
        assert!(!report.to_string().contains("/src/"), "{report}");
    }
}
