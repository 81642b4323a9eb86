//! Reports on memory: against numbers that follow from shapes, and prediction against measurement.

#[path = "memory_report/packed.rs"]
mod packed;

use pullback::{
    DType, Key, MemoryKind, MemoryPhase, MemoryReport, MemoryReporter, Offload, Result, Tensor,
    checkpoint, checkpoint_sequential, grad, jit, memory_part, memory_report, memory_stats,
    no_grad, predict_memory, random_state, trace, vmap,
};
use std::sync::{Mutex, PoisonError};

/// The pool counts for the whole process, so tests are serialised.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

fn exclusive() -> std::sync::MutexGuard<'static, ()> {
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn normal(seed: u64, shape: [usize; 2]) -> Tensor {
    Key::new(seed).normal(shape, DType::F32, 0.0, 0.3)
}

struct Net {
    x: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
}

impl Net {
    fn new() -> Net {
        Net {
            x: normal(1, [8, 16]),
            w1: normal(2, [16, 32]).requires_grad(),
            b1: normal(3, [1, 32]).reshape([32]).deep_clone().requires_grad(),
            w2: normal(4, [32, 4]).requires_grad(),
        }
    }

    /// The line of the first statement of the step.
    const STEP: u32 = line!() + 3;

    fn step(&self) -> Result<Tensor> {
        let z = self.x.matmul(&self.w1) + &self.b1;
        let h = z.tanh();
        let y = h.matmul(&self.w2);
        let loss = y.square().sum();
        loss.backward()?;
        Ok(loss)
    }

    fn clear(&self) {
        [&self.w1, &self.b1, &self.w2].iter().for_each(|w| w.zero_grad());
    }
}

const PARAMETERS: u64 = (16 * 32 + 32 + 32 * 4) * 4;

fn line(report: &MemoryReport, op: &str) -> (u32, u64, usize) {
    let found = report.activations_by_line.iter().find(|line| line.op == op);
    let found = found.unwrap_or_else(|| panic!("no {op} in {report}"));
    let at = found.at.unwrap();
    assert!(at.file().contains("tests/memory_report"), "{at}");
    (at.line(), found.bytes, found.count)
}

#[test]
fn an_mlp_by_hand() {
    let _lock = exclusive();
    let net = Net::new();
    let predicted = predict_memory(|| net.step()).unwrap();
    let (_, measured) = memory_report(|| net.step()).unwrap();
    for report in [&predicted, &measured] {
        assert_eq!(report.most.parameters, PARAMETERS, "{report}");
        assert_eq!(report.most.gradients, PARAMETERS, "{report}");
        assert_eq!(report.most.inputs, 8 * 16 * 4, "{report}");
        assert_eq!(report.most.optimizer_state, 0, "{report}");
        // The tape keeps what tanh gives, for itself and for the second product, and the product,
        // for the square.
        assert_eq!(report.most.activations, (8 * 32 + 8 * 4) * 4, "{report}");
        assert_eq!(line(report, "tanh"), (Net::STEP + 1, 8 * 32 * 4, 1));
        assert_eq!(line(report, "dot"), (Net::STEP + 2, 8 * 4 * 4, 1));
        assert_eq!(report.activations_by_line.len(), 2, "{report}");
        let sum: u64 = report.activations_by_line.iter().map(|line| line.bytes).sum();
        assert_eq!(sum, report.most.activations);
        // `z` is held by the step until its end, and nothing needs it.
        let held = report.peak_by_line.iter().any(|line| {
            line.kind == MemoryKind::Temporaries && line.op == "add" && line.bytes == 8 * 32 * 4
        });
        assert!(held, "{report}");
        assert_eq!(report.peak().phase, MemoryPhase::Backward);
        let last = report.timeline.last().unwrap();
        assert_eq!((last.op, last.alive.activations, last.alive.temporaries), ("end", 0, 4));
        let highest = report.timeline.iter().map(|m| m.alive.total()).max().unwrap();
        assert_eq!(report.peak().alive.total(), highest);
    }
    // Shapes say all there is to say: not a byte of difference at any op.
    assert_eq!(predicted.most, measured.most, "{predicted}\n{measured}");
    assert_eq!(predicted.peak(), measured.peak());
    assert!(predicted.predicted && predicted.pool.is_none());
    let pool = measured.pool.unwrap();
    // The pool saw what the step made, and what kernels took beside it.
    let before = measured.timeline[0].alive.total();
    let made = measured.peak().alive.total() - before;
    assert!(pool.peak - pool.before >= made, "{pool:?} {made}");
    assert!(pool.peak - pool.before < made + (1 << 20), "{pool:?} {made}");
}

#[test]
fn the_peak_names_the_line_of_the_largest_value() {
    let _lock = exclusive();
    let w = normal(1, [1, 64]).requires_grad();
    let step = || {
        let small = w.sin();
        let large = small.expand([500, 64]).exp();
        let loss = large.square().sum();
        loss.backward()
    };
    let large = line!() - 4;
    let predicted = predict_memory(step).unwrap();
    let ((), measured) = memory_report(step).unwrap();
    for report in [&predicted, &measured] {
        let peak = report.peak();
        // Backward of the exponential: its result, the cotangent and their product.
        assert_eq!(peak.at.unwrap().line(), large, "{report}");
        assert!(peak.at.unwrap().file().ends_with("tests/memory_report.rs"));
        assert_eq!(peak.phase, MemoryPhase::Backward);
        let bytes = 500 * 64 * 4;
        assert_eq!(line(report, "exp"), (large, bytes, 1));
        assert!(peak.alive.total() >= 3 * bytes && peak.alive.total() < 4 * bytes, "{report}");
        assert!(report.to_string().contains(&peak.at.unwrap().to_string()));
    }
    assert_eq!(predicted.peak().alive, measured.peak().alive, "{predicted}\n{measured}");
}

#[test]
fn a_step_in_place_takes_no_memory_beside_its_formula() {
    let _lock = exclusive();
    let w = normal(1, [32, 32]).requires_grad();
    let momentum = Tensor::zeros([32, 32]).deep_clone();
    let step = || {
        w.zero_grad();
        w.exp().sum().backward()?;
        no_grad(|| {
            momentum.mul_(0.9).add_(w.grad().unwrap());
            w.sub_(&momentum * 0.1);
        });
        Ok(())
    };
    let named = || {
        MemoryReporter::new().tensor(MemoryKind::Parameters, "layer", &w).tensor(
            MemoryKind::OptimizerState,
            "layer",
            &momentum,
        )
    };
    let values = w.to_vec::<f32>();
    let predicted = named().predict(step).unwrap();
    assert_eq!(w.to_vec::<f32>(), values);
    let ((), measured) = named().measure(step).unwrap();
    assert_ne!(w.to_vec::<f32>(), values);
    for report in [&predicted, &measured] {
        assert_eq!(report.most.optimizer_state, 4096);
        let steps = report.timeline.iter().filter(|m| m.phase == MemoryPhase::Step);
        // The product with the rate, which is no write in place.
        let most = steps.map(|m| m.alive.temporaries).max().unwrap();
        assert!((4096..4096 + 256).contains(&most), "{most} {report}");
    }
    assert_eq!(predicted.most.gradients, measured.most.gradients);
    assert_eq!(predicted.peak().alive.total(), measured.peak().alive.total());
    // Once more, with a gradient that is there from before, and cleared.
    let again = named().predict(step).unwrap();
    assert_eq!((again.most.gradients, again.most.parameters), (4096, 4096), "{again}");
}

#[test]
fn gradients_that_are_there_are_added_to() {
    let _lock = exclusive();
    let net = Net::new();
    net.step().unwrap();
    let predicted = predict_memory(|| net.step()).unwrap();
    let (_, measured) = memory_report(|| net.step()).unwrap();
    assert_eq!(predicted.timeline.last().unwrap().alive.gradients, PARAMETERS, "{predicted}");
    assert_eq!(measured.timeline.last().unwrap().alive.gradients, PARAMETERS, "{measured}");
    // Old ones and new ones, until they are added.
    assert_eq!(predicted.most.gradients, measured.most.gradients);
    assert_eq!(measured.most.gradients, 2 * PARAMETERS);
}

#[test]
fn a_checkpointed_chain_keeps_less() {
    let _lock = exclusive();
    let x = normal(1, [64, 64]).requires_grad();
    let layers = vec![|x: &Tensor| x.sin().exp() * 0.3; 36];
    let plain = || layers.iter().fold(x.clone(), |x, f| f(&x)).sum().backward();
    let split = || checkpoint_sequential(&layers, None, &x).sum().backward();
    x.zero_grad();
    let block = 64 * 64 * 4;
    let plain_predicted = predict_memory(plain).unwrap();
    let split_predicted = predict_memory(split).unwrap();
    let ((), plain) = memory_report(plain).unwrap();
    x.zero_grad();
    let ((), split) = memory_report(split).unwrap();
    for (plain, split) in [(&plain_predicted, &split_predicted), (&plain, &split)] {
        // What goes into the sine and what the exponential gives, but the first is a parameter.
        // And each product the 0.3, one element.
        assert_eq!(plain.most.activations, (2 * 36 - 1) * block + 36 * 4, "{plain}");
        // Five arguments of segments, and one segment of six.
        assert!(split.most.activations < 20 * block, "{split}");
        assert!(split.peak().alive.total() < plain.peak().alive.total() / 3);
    }
    let close = |a: &MemoryReport, b: &MemoryReport| {
        let (a, b) = (a.peak().alive.total(), b.peak().alive.total());
        assert!(a.abs_diff(b) * 20 <= b, "predicted {a}, measured {b}");
    };
    close(&plain_predicted, &plain);
    close(&split_predicted, &split);
}

#[test]
fn nothing_is_changed() {
    let _lock = exclusive();
    let net = Net::new();
    let state = random_state().to_vec::<i64>();
    let version = net.w1.version();
    let step = || {
        let noise = pullback::next_key().normal([8, 16], DType::F32, 0.0, 1.0);
        (&net.x + noise).matmul(&net.w1).sum().backward()?;
        no_grad(|| net.w1.mul_(0.5));
        Ok(())
    };
    let live = memory_stats().live_bytes;
    let report = predict_memory(step).unwrap();
    assert_eq!(memory_stats().live_bytes, live, "nothing stays behind");
    assert!(report.most.gradients > 0);
    assert!(net.w1.grad().is_none());
    assert_eq!((random_state().to_vec::<i64>(), net.w1.version()), (state, version));
    // The values are those without a report.
    let expected = net.w1.to_vec::<f32>();
    memory_report(|| net.step()).unwrap();
    let reported = net.w1.grad().unwrap().to_vec::<f32>();
    net.clear();
    net.step().unwrap();
    assert_eq!(net.w1.grad().unwrap().to_vec::<f32>(), reported);
    assert_eq!(net.w1.to_vec::<f32>(), expected);
    // Neither is the peak that the pool keeps for others.
    let peak = memory_stats().peak_bytes;
    memory_report(|| Ok(net.x.exp())).unwrap();
    assert!(memory_stats().peak_bytes >= peak);
}

#[test]
fn a_prediction_takes_no_memory_for_values() {
    let _lock = exclusive();
    let x = normal(1, [4, 1]).requires_grad();
    let before = memory_stats();
    pullback::reset_peak();
    // 16 GiB a value.
    let report = predict_memory(|| x.expand([4, 1 << 30]).exp().sin().sum().backward()).unwrap();
    assert!(report.most.activations >= 16 << 30);
    assert!(memory_stats().peak_bytes < before.live_bytes + 4096);
}

#[test]
fn what_fails_says_why_and_leaves_nothing_on() {
    let _lock = exclusive();
    let net = Net::new();
    let error = memory_report(|| Ok(net.x.matmul(&net.x))).unwrap_err();
    assert!(error.to_string().starts_with("matmul: "), "{error}");
    let error = predict_memory(|| Ok(net.x.matmul(&net.x))).unwrap_err();
    assert!(error.to_string().starts_with("matmul: "), "{error}");
    let error = predict_memory(|| Ok(net.step()?.item::<f32>())).unwrap_err();
    assert!(error.to_string().contains("is not known: it is being traced"), "{error}");
    assert!(net.w1.grad().is_none());
    let error = memory_report(|| memory_report(|| net.step())).unwrap_err();
    assert!(error.to_string().contains("being made already"), "{error}");
    let inside = |_: &[Tensor]| drop(memory_report(|| net.step()).map_err(|e| pullback::raise(e)));
    let error = trace(
        |x| {
            inside(x);
            Tensor::from(0.0)
        },
        &[],
    )
    .unwrap_err();
    assert!(error.to_string().contains("is being traced here"), "{error}");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        memory_report(|| -> Result<()> { panic!("of the step's own") })
    }));
    assert!(panicked.is_err());
    net.clear();
    let (_, report) = memory_report(|| net.step()).unwrap();
    assert_eq!(report.most.gradients, PARAMETERS);
}

#[test]
fn a_compiled_step_is_one_op_with_its_arena() {
    let _lock = exclusive();
    let net = Net::new();
    let step = jit(|x: &Tensor| {
        net.clear();
        let loss = x.matmul(&net.w1).tanh().sum();
        loss.backward()?;
        Ok(loss)
    });
    step.call(&net.x).unwrap();
    let (_, report) = memory_report(|| step.call(&net.x)).unwrap();
    assert_eq!(report.timeline.iter().filter(|m| m.op == "jit").count(), 1);
    let planned = &step.explain().specialisations[0];
    let outputs = 16 * 32 * 4 + 4;
    assert_eq!(report.most.temporaries as usize, planned.peak - outputs + 4, "{report}");
    assert_eq!(report.most.gradients, 2 * 16 * 32 * 4, "the old one and the new one");
    // Predicted op by op, as it would run in eager code.
    let predicted = predict_memory(|| step.call(&net.x)).unwrap();
    assert_eq!(line(&predicted, "tanh").1, 8 * 32 * 4);
}

#[test]
fn functions_of_functions_are_reported() {
    let _lock = exclusive();
    let (w, x) = (normal(1, [32, 32]), normal(2, [8, 32]));
    let step = || Ok(grad(|w: &Tensor| x.matmul(w).sin().sum())(&w));
    for report in [predict_memory(step).unwrap(), memory_report(step).unwrap().1] {
        assert_eq!(report.most.parameters, 4096, "{report}");
        assert_eq!(report.most.gradients, 4096, "{report}");
        assert_eq!(report.most.inputs, 8 * 32 * 4, "{report}");
        assert_eq!(report.most.activations, 8 * 32 * 4, "{report}");
        assert_eq!(report.timeline.last().unwrap().alive.gradients, 4096, "{report}");
    }
    let each = vmap(|x: &Tensor| grad(|w: &Tensor| x.matmul(w).sin().sum())(&w), 0, 0);
    let predicted = predict_memory(|| Ok(each(&x))).unwrap();
    let (g, measured) = memory_report(|| Ok(each(&x))).unwrap();
    assert_eq!(g.shape(), [8, 32, 32]);
    assert!(measured.timeline.last().unwrap().alive.total() >= 8 * 4096, "{measured}");
    let (a, b) = (predicted.peak().alive.total(), measured.peak().alive.total());
    assert!(a.abs_diff(b) * 10 <= b, "predicted {a}, measured {b}");
}

#[test]
fn parts_are_where_they_were_computed_first() {
    let _lock = exclusive();
    let x = normal(1, [32, 32]).requires_grad();
    let step = || {
        let y = {
            let _part = memory_part("trunk");
            checkpoint(|x: &Tensor| (0..4).fold(x.clone(), |x, _| x.sin().exp()), &x)
        };
        let _part = memory_part("head");
        y.square().sum().backward()
    };
    let block = 32 * 32 * 4;
    for report in [predict_memory(step).unwrap(), memory_report(step).unwrap().1] {
        let part = |path: &str| report.by_part.iter().find(|p| p.path == path).unwrap().bytes;
        // The result, which the step holds, and four exponentials that are computed again in the
        // backward pass: not by the head.
        assert_eq!(part("trunk").activations, 5 * block, "{report}");
        assert_eq!(part("trunk").activations, report.most.activations, "{report}");
        assert_eq!(part("").parameters, block);
    }
}

#[test]
fn the_picture_is_well_formed() {
    let _lock = exclusive();
    let net = Net::new();
    let odd = MemoryReporter::new().tensor(MemoryKind::Parameters, "a<b> & \"c\"\n", &net.w1);
    let (_, report) = odd.measure(|| net.step()).unwrap();
    let svg = report.to_svg();
    let mut open: Vec<String> = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, rest) = tag.split_once('>').expect("a tag ends");
        assert!(!rest.contains('>'), "{rest}");
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap().to_string();
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name)),
            (false, true) => {}
            (false, false) => open.push(name),
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert!(open.is_empty());
    for kind in MemoryKind::ALL.into_iter().filter(|&kind| report.most.of(kind) > 0) {
        assert!(svg.contains(&format!("<title>{}</title>", kind.name())));
    }
    let at = report.peak().at.unwrap();
    assert!(svg.contains(&format!("in the backward pass, {at}")), "{svg}");
    // A step of many ops is drawn in as many columns as can be seen.
    let x = Tensor::from(0.5f32).requires_grad();
    let long = predict_memory(|| (0..5000).fold(x.clone(), |x, _| x.sin()).backward()).unwrap();
    assert!(long.timeline.len() > 10_000 && long.to_svg().len() < 200_000);

    let folder =
        std::env::temp_dir().join(format!("pullback_memory_report_{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, begin) in [("r.txt", "memory of a step"), ("r.json", "{\"pred"), ("r.svg", "<svg ")]
    {
        report.save(folder.join(name)).unwrap();
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(text.starts_with(begin));
    }
    assert!(report.to_json().contains(r#""path":"a<b> & \"c\"\u000a""#), "{}", report.to_json());
    let here = |line: u32| move |at: pullback_ir::Line| (at.file(), at.line()) == (file!(), line);
    let error = report.save(folder.join("r.png")).unwrap_err();
    assert!(error.to_string().contains("r.png ends neither in .txt, .json nor .svg"), "{error}");
    assert!(error.location().is_some_and(here(line!() - 2)), "{error}");
    let error = report.save(folder.join("none/r.svg")).unwrap_err();
    assert!(error.to_string().contains("r.svg could not be written: "), "{error}");
    assert!(error.location().is_some_and(here(line!() - 2)), "{error}");
    // A file is no directory.
    let error = Offload::to_disk(folder.join("r.txt")).unwrap_err();
    assert!(error.to_string().contains("no file can be written in"), "{error}");
    assert!(error.location().is_some_and(here(line!() - 2)), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}
