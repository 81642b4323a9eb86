//! Loss scaling: against PyTorch's scaler (recorded by `data/scaler.py`), for every optimiser,
//! compiled and not, saved and restored, refused; and the op that overflowed, by name.

use pullback::{DType, Result, Tensor, Tree, autocast, jit, no_grad, random_state};
use pullback_nn::optim::{self, Optimizer, Sgd, UpdateRule, clip_grad_norm_, named};
use pullback_nn::precision::{GradScaler, GradScalerOptions};
use pullback_nn::state::{Checkpoint, Checkpoints};
use pullback_nn::{BatchNorm, Dropout, Layer, Linear, Module};
use serde_json::{Value, json};

fn wave(shape: &[usize], a: f64, b: f64, by: f32) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| (a * i as f64 + b).sin() as f32 * by).collect();
    Tensor::from_vec(values, shape)
}

/// The network that `data/scaler.py` trains.
#[derive(Tree)]
struct Net {
    w: Tensor,
    b: Tensor,
    v: Tensor,
}

impl Net {
    fn new() -> Net {
        let leaf = |shape: &[usize], a, b, by| wave(shape, a, b, by).deep_clone().requires_grad();
        Net {
            w: leaf(&[4, 3], 1.7, 0.2, 0.8),
            b: leaf(&[4], 0.7, 0.4, 0.1),
            v: leaf(&[2, 4], 2.1, 0.6, 0.8),
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.w, Some(&self.b)).relu().linear(&self.v, None)
    }

    fn values(&self) -> Vec<f64> {
        self.parameters().iter().flat_map(Tensor::to_f64_vec).collect()
    }
}

fn targets() -> Tensor {
    wave(&[5, 2], 0.9, 0.4, 1.0)
}

/// The inputs of a step, with an infinity in some.
fn inputs(wrong: bool) -> Tensor {
    let x = wave(&[5, 3], 2.3, 0.1, 1.0).deep_clone();
    if wrong {
        x.at((1, 1)).fill_(f64::INFINITY);
    }
    x
}

const WRONG: [usize; 4] = [0, 4, 5, 13];
const AT: [usize; 4] = [0, 3, 8, 23];

fn optimizer(name: &str, net: &Net) -> Box<dyn Optimizer> {
    let options = match name {
        "sgd" => json!({ "lr": 0.1, "momentum": 0.9 }),
        _ => json!({ "lr": 0.05 }),
    };
    named(name, vec![(net.parameters(), options)]).unwrap()
}

fn replay(case: &str, recorded: &Value, compiled: bool) {
    let low = case.starts_with("autocast");
    let name = case.split('/').nth(1).unwrap();
    let clip = case.ends_with("clipped");
    let net = Net::new();
    let opt = optimizer(name, &net);
    let (initial, interval) = if low { (2f64.powi(24), 6) } else { (1024.0, 3) };
    let scaler = GradScaler::new(GradScalerOptions {
        init_scale: initial,
        growth_interval: interval,
        ..GradScalerOptions::default()
    })
    .unwrap();
    let y = targets();
    let step = |x: &Tensor| -> Result<Tensor> {
        opt.zero_grad();
        let out = match low {
            true => autocast(DType::F16, || net.forward(x)).cast(DType::F32),
            false => net.forward(x),
        };
        let loss = (out - &y).square().mean();
        scaler.scale(&loss).backward()?;
        if clip {
            scaler.unscale(&opt)?;
            clip_grad_norm_(&net.parameters(), 0.1)?;
        }
        scaler.step(&opt)?;
        scaler.update()?;
        Ok(loss)
    };
    let program = jit(step);
    let mut at = 0;
    for (t, scale) in recorded["scales"].as_array().unwrap().iter().enumerate() {
        let x = inputs(!low && WRONG.contains(&t));
        match compiled {
            true => program.call(&x).unwrap(),
            false => step(&x).unwrap(),
        };
        assert_eq!(
            scaler.current().unwrap(),
            scale.as_f64().unwrap(),
            "{case}: scale after step {t}"
        );
        if AT.contains(&t) {
            let wanted = recorded["parameters"][at].as_array().unwrap();
            at += 1;
            // f32 sums in another order; in f16 a product that rounds to the other neighbour.
            let within = if low { 4e-3 } else { 2e-6 };
            for (a, b) in net.values().iter().zip(wanted) {
                let b = b.as_f64().unwrap();
                assert!((a - b).abs() <= within, "{case}: step {t}: {a} is not {b}");
            }
        }
    }
    if compiled {
        assert_eq!(program.explain().specialisations.len(), 1, "{}", program.explain());
    }
    if let Some(steps) = recorded["steps"].as_i64() {
        let state = opt.named_state();
        let (_, count) = state.iter().find(|(name, _)| name == "0.0.step").unwrap();
        assert_eq!(count.item::<i64>(), steps, "{case}");
        assert_eq!(scaler.skipped().unwrap() as i64, 24 - steps, "{case}");
    }
}

#[test]
fn scales_and_weights_are_those_of_pytorch() {
    let path = format!("{}/data/scaler.json", env!("CARGO_MANIFEST_DIR"));
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let all = all.as_object().unwrap();
    assert_eq!(all.len(), 9);
    for (case, recorded) in all {
        replay(case, recorded, false);
        replay(case, recorded, true);
    }
}

#[test]
fn a_skipped_step_leaves_every_optimiser_as_it_was() {
    for name in optim::names() {
        for compiled in [false, true] {
            let x = wave(&[3, 3], 1.3, 0.4, 1.0).deep_clone().requires_grad();
            let opt = named(name, vec![(vec![x.clone()], json!({}))]).unwrap();
            let scaler = GradScaler::new(GradScalerOptions::default()).unwrap();
            let step = jit(|factor: &Tensor| {
                opt.zero_grad();
                let loss = (x.square() * factor).sum();
                scaler.scale(&loss).backward()?;
                scaler.step(&opt)?;
                scaler.update()?;
                Ok(loss)
            });
            let run = |factor: f32| match compiled {
                true => step.call(&Tensor::from(factor)).unwrap(),
                false => step.eager(&Tensor::from(factor)),
            };
            let state = || -> Vec<Vec<u64>> {
                let all = opt.named_state().into_iter().map(|(_, x)| x).chain([x.detach()]);
                all.map(|x| x.to_f64_vec().into_iter().map(f64::to_bits).collect()).collect()
            };
            run(1.0);
            let before = state();
            run(f32::INFINITY);
            run(f32::NAN);
            assert_eq!(state(), before, "{name}, compiled: {compiled}");
            run(1.0);
            assert_ne!(state(), before, "{name}, compiled: {compiled}");
            assert_eq!((scaler.current().unwrap(), scaler.skipped().unwrap()), (16384.0, 2));
        }
    }
}

fn line() -> (Tensor, impl Optimizer, GradScaler) {
    let x = Tensor::from([1.0f32, 2.0]).requires_grad();
    let opt = Sgd { lr: 0.5, ..Sgd::default() }.over([x.clone()]).unwrap();
    (x, opt, GradScaler::new(GradScalerOptions::default()).unwrap())
}

#[test]
fn what_is_done_in_the_wrong_order_is_refused() {
    let (x, opt, scaler) = line();
    scaler.scale(&x.sum()).backward().unwrap();
    scaler.unscale(&opt).unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>(), [1.0, 1.0]);
    let error = scaler.unscale(&opt).unwrap_err().to_string();
    assert!(error.contains("the gradients were unscaled already in this step"), "{error}");
    assert_eq!(x.grad().unwrap().to_vec::<f32>(), [1.0, 1.0]);
    let (_, other, _) = line();
    let error = scaler.step(&other).unwrap_err().to_string();
    assert!(error.contains("it was used with another optimiser before"), "{error}");
    scaler.step(&opt).unwrap();
    assert_eq!(x.to_vec::<f32>(), [0.5, 1.5]);
    let error = scaler.step(&opt).unwrap_err().to_string();
    assert!(error.contains("has stepped already"), "{error}");
    let error = scaler.unscale(&opt).unwrap_err().to_string();
    assert!(error.contains("unscaled after the step"), "{error}");
    assert_eq!(x.to_vec::<f32>(), [0.5, 1.5]);
    scaler.update().unwrap();
    // Without a step there is nothing to learn from.
    for _ in 0..5000 {
        scaler.update().unwrap();
    }
    assert_eq!(scaler.current().unwrap(), 65536.0);
}

#[test]
fn optimisers_that_share_a_parameter_unscale_it_once() {
    for compiled in [false, true] {
        let (x, first, scaler) = line();
        let second = Sgd { lr: 0.25, ..Sgd::default() }.over([x.clone()]).unwrap();
        let all: Vec<Box<dyn Optimizer>> = vec![Box::new(first), Box::new(second)];
        let step = jit(|_: &()| {
            all.zero_grad();
            scaler.scale(&x.sum()).backward()?;
            scaler.unscale(&all)?;
            let grad = x.grad().unwrap().deep_clone();
            scaler.step(&all)?;
            scaler.update()?;
            Ok(grad)
        });
        let grad = if compiled { step.call(&()).unwrap() } else { step.eager(&()) };
        assert_eq!(grad.to_vec::<f32>(), [1.0, 1.0], "compiled: {compiled}");
        assert_eq!(x.to_vec::<f32>(), [0.25, 1.25], "compiled: {compiled}");
    }
}

#[test]
fn only_steps_with_a_gradient_count() {
    for compiled in [false, true] {
        let (x, opt, _) = line();
        let scaler = GradScaler::new(GradScalerOptions {
            growth_interval: 3,
            ..GradScalerOptions::default()
        })
        .unwrap();
        let empty = jit(|_: &()| {
            opt.zero_grad();
            scaler.step(&opt)?;
            scaler.update()
        });
        let full = |factor: f32| {
            opt.zero_grad();
            scaler.scale(&(x.sum() * factor)).backward().unwrap();
            scaler.step(&opt).unwrap();
            scaler.update().unwrap();
        };
        let empty = || if compiled { empty.call(&()).unwrap() } else { empty.eager(&()) };
        for _ in 0..4 {
            empty();
        }
        full(1.0);
        full(1.0);
        empty();
        assert_eq!(scaler.current().unwrap(), 65536.0, "compiled: {compiled}");
        full(1.0);
        assert_eq!(scaler.current().unwrap(), 131072.0, "compiled: {compiled}");
        // The order is watched there too.
        opt.zero_grad();
        scaler.step(&opt).unwrap();
        assert!(scaler.step(&opt).unwrap_err().to_string().contains("has stepped already"));
        scaler.update().unwrap();
    }
}

#[test]
fn an_update_goes_by_what_was_unscaled() {
    let (x, opt, scaler) = line();
    for (factor, scale, skipped) in [(f32::INFINITY, 32768.0, 1), (1.0, 32768.0, 1)] {
        opt.zero_grad();
        scaler.scale(&(x.sum() * factor)).backward().unwrap();
        scaler.unscale(&opt).unwrap();
        scaler.update().unwrap();
        assert_eq!((scaler.current().unwrap(), scaler.skipped().unwrap()), (scale, skipped));
    }
    // The good one counts, and nothing was stepped.
    let state = scaler.named_state();
    let (_, good) = state.iter().find(|(name, _)| name == "growth_tracker").unwrap();
    assert_eq!(good.item::<i64>(), 1);
    assert_eq!(x.to_vec::<f32>(), [1.0, 2.0]);
}

#[test]
fn options_and_dtypes_that_make_no_sense_are_refused() {
    let usual = GradScalerOptions::default();
    let wrong = [
        (GradScalerOptions { init_scale: 0.0, ..usual }, "`init_scale` must be a number above 0"),
        (GradScalerOptions { init_scale: 1e300, ..usual }, "`init_scale` must be a number above 0"),
        (
            GradScalerOptions { growth_factor: 1.0, ..usual },
            "`growth_factor` must be a number above 1",
        ),
        (
            GradScalerOptions { backoff_factor: 1.0, ..usual },
            "`backoff_factor` must be a number between 0 and 1",
        ),
        (
            GradScalerOptions { backoff_factor: f64::NAN, ..usual },
            "`backoff_factor` must be a number between 0 and 1",
        ),
        (GradScalerOptions { growth_interval: 0, ..usual }, "`growth_interval` must be at least 1"),
    ];
    for (how, sentence) in wrong {
        let error = GradScaler::new(how).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
    let x = Tensor::from([1.0f32]).cast(DType::F16).requires_grad();
    let opt = Sgd::default().over([x.clone()]).unwrap();
    let scaler = GradScaler::new(usual).unwrap();
    x.sum().backward().unwrap();
    let error = scaler.step(&opt).unwrap_err().to_string();
    assert!(
        error.contains("must be f32 or f64 to be unscaled, not f16[1]")
            && error.contains("keep parameters in f32"),
        "{error}"
    );
    let error = pullback::catch(|| scaler.scale(&Tensor::from(1i64))).unwrap_err().to_string();
    assert!(error.contains("scales a loss of a float dtype, not i64[]"), "{error}");
}

#[test]
fn it_does_not_matter_which_parts_are_compiled() {
    for parts in 0..8 {
        let (x, opt, scaler) = line();
        let plain = |on: bool| if on { "compiled" } else { "not" };
        let unscale = jit(|_: &()| scaler.unscale(&opt));
        let step = jit(|_: &()| scaler.step(&opt));
        let update = jit(|_: &()| scaler.update());
        for t in 0..3 {
            opt.zero_grad();
            let factor = if t == 1 { f32::INFINITY } else { 1.0 };
            scaler.scale(&(x.sum() * factor)).backward().unwrap();
            let run =
                |bit: i32, compiled: &dyn Fn() -> Result<()>, plain: &dyn Fn() -> Result<()>| {
                    if parts & bit == 0 { plain() } else { compiled() }.unwrap();
                };
            run(1, &|| unscale.call(&()), &|| scaler.unscale(&opt));
            run(2, &|| step.call(&()), &|| scaler.step(&opt));
            run(4, &|| update.call(&()), &|| scaler.update());
        }
        let what = format!("unscale {}, step {}", plain(parts & 1 > 0), plain(parts & 2 > 0));
        assert_eq!(x.to_vec::<f32>(), [0.0, 1.0], "{what}");
        assert_eq!(scaler.current().unwrap(), 32768.0, "{what}");
    }
}

#[test]
fn the_scale_stays_a_number() {
    let x = Tensor::from([1.0f32]).requires_grad();
    let opt = Sgd { lr: 0.0, ..Sgd::default() }.over([x.clone()]).unwrap();
    let scaler = GradScaler::new(GradScalerOptions {
        init_scale: 2f64.powi(126),
        growth_interval: 1,
        ..GradScalerOptions::default()
    })
    .unwrap();
    let step = |factor: f32| {
        opt.zero_grad();
        scaler.scale(&(x.sum() * 1e-30f32 * factor)).backward().unwrap();
        scaler.step(&opt).unwrap();
        scaler.update().unwrap();
        scaler.current().unwrap()
    };
    assert_eq!(step(1.0), 2f64.powi(127));
    assert_eq!(step(1.0), 2f64.powi(127));
    for _ in 0..400 {
        step(f32::NAN);
    }
    assert_eq!(scaler.current().unwrap(), f64::from(f32::MIN_POSITIVE));
    assert_eq!(step(1.0), 2.0 * f64::from(f32::MIN_POSITIVE));
}

#[test]
fn its_state_is_saved_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let net = Net::new();
    let opt = optimizer("adam", &net);
    let how = GradScalerOptions {
        init_scale: 1024.0,
        growth_interval: 5,
        ..GradScalerOptions::default()
    };
    let step = |net: &Net, opt: &dyn Optimizer, scaler: &GradScaler, t: usize| {
        opt.zero_grad();
        let loss = (net.forward(&inputs(t % 4 == 1)) - targets()).square().mean();
        scaler.scale(&loss).backward().unwrap();
        scaler.step(opt).unwrap();
        scaler.update().unwrap();
        (scaler.current().unwrap(), net.values())
    };
    let scaler = GradScaler::new(how).unwrap();
    (0..7).for_each(|t| drop(step(&net, &*opt, &scaler, t)));
    let checkpoints = Checkpoints::new(folder.path());
    let saved = Checkpoint::of(&net).optimizer(&*opt).tensors("scaler", scaler.named_state());
    checkpoints.save(&saved).unwrap();
    let ahead: Vec<_> = (7..20).map(|t| step(&net, &*opt, &scaler, t)).collect();

    let fresh = Net::new();
    let opt = optimizer("adam", &fresh);
    let scaler = GradScaler::new(how).unwrap();
    let found = checkpoints.latest().unwrap().unwrap().checkpoint;
    found.restore(&fresh, &*opt).unwrap();
    found.restore_tensors("scaler", scaler.named_state()).unwrap();
    let again: Vec<_> = (7..20).map(|t| step(&fresh, &*opt, &scaler, t)).collect();
    assert_eq!(again, ahead);
}

/// A network with buffers and random numbers.
#[derive(Tree)]
struct Noisy {
    first: Linear,
    norm: BatchNorm<1>,
    dropout: Dropout,
    second: Linear,
}

impl Noisy {
    fn new() -> Noisy {
        pullback::manual_seed(3);
        let (norm, dropout) = (BatchNorm::new(16), Dropout::new(0.3));
        Noisy { first: Linear::new(6, 16), norm, dropout, second: Linear::new(16, 2) }
    }

    fn loss(&self, x: &Tensor, weight: &Tensor) -> Tensor {
        let hidden = self.norm.forward(&self.first.forward(x)).relu();
        // The line that overflows, forward:
        (self.second.forward(&self.dropout.forward(&hidden)) * weight).square().mean()
    }

    fn state(&self) -> Vec<Vec<f64>> {
        let all = self.named_state().into_iter().map(|(_, x)| x.to_f64_vec());
        all.chain([random_state().to_f64_vec()]).collect()
    }
}

#[test]
fn the_culprit_is_named_and_nothing_else_is_changed() {
    let x = wave(&[8, 6], 2.3, 0.1, 1.0);
    for (weight, backward) in [(1e30f32, false), (8.0, true)] {
        // With low precision, a scale of 2²⁴ is too large for gradients: they overflow in the
        // backward pass of the second layer.
        let how = GradScalerOptions { init_scale: 2f64.powi(24), ..GradScalerOptions::default() };
        let weight = Tensor::from(weight);
        let mut finals = Vec::new();
        for form in ["by hand", "run", "compiled"] {
            let net = Noisy::new();
            let opt = optim::Adam::default().over(net.parameters()).unwrap();
            let scaler = GradScaler::new(how).unwrap();
            let loss = |net: &Noisy| Ok(autocast(DType::F16, || net.loss(&x, &weight)));
            let step = || {
                opt.zero_grad();
                let loss = loss(&net)?;
                scaler.scale(&loss).backward()?;
                scaler.step(&opt)?;
                scaler.update()?;
                Ok(loss)
            };
            let program = jit(|_: &()| step());
            let stepped = match form {
                "by hand" => {
                    step().unwrap();
                    None
                }
                "run" => Some(scaler.run(&net, &opt, loss).unwrap()),
                _ => Some(scaler.watched(&net, &opt, || program.call(&())).unwrap()),
            };
            if let Some(stepped) = stepped {
                let overflow = stepped.overflow.unwrap();
                assert_eq!((overflow.scale, overflow.next), (2f64.powi(24), 2f64.powi(23)));
                let source = overflow.source.clone().unwrap();
                assert_eq!(source.backward_of.is_some(), backward, "{form}: {overflow}");
                assert!(source.at.file().ends_with("precision.rs"), "{form}: {overflow}");
                let text = overflow.to_string();
                assert!(text.contains("the step was skipped, and the next has 8388608"), "{text}");
                assert!(text.contains("made an infinity in"), "{text}");
            }
            let grads: Vec<Vec<f64>> =
                net.parameters().iter().map(|x| x.grad().unwrap().to_f64_vec()).collect();
            // NaN is not NaN.
            let grads = format!("{grads:?}");
            finals.push((
                net.state(),
                grads,
                scaler.current().unwrap(),
                opt.named_state()[1].1.item::<i64>(),
            ));
        }
        let (by_hand, run) = (&finals[0], &finals[1]);
        assert_eq!(by_hand, run);
        // Compiled sums may differ by rounding; parameters did not move, and the generator is where
        // it was.
        let compiled = &finals[2];
        assert_eq!((compiled.2, compiled.3), (by_hand.2, by_hand.3));
        assert_eq!(compiled.0.last(), by_hand.0.last());
        for (a, b) in compiled.0.iter().flatten().zip(by_hand.0.iter().flatten()) {
            assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} is not {b}");
        }
    }
}

#[test]
fn an_error_in_a_step_leaves_the_scaler_ready() {
    let (x, opt, scaler) = line();
    #[derive(Tree)]
    struct Line {
        x: Tensor,
    }
    let model = Line { x: x.clone() };
    let failed = scaler.run(&model, &opt, |_| Err(pullback::Error::argument("loss", "on purpose")));
    assert!(failed.unwrap_err().to_string().contains("on purpose"));
    let half = scaler.watched(&model, &opt, || {
        scaler.scale(&x.sum()).backward()?;
        scaler.unscale(&opt)?;
        Err::<(), _>(pullback::Error::argument("loss", "on purpose"))
    });
    assert!(half.is_err());
    let good = scaler.run(&model, &opt, |m| Ok(m.x.sum())).unwrap();
    assert!(good.overflow.is_none());
    assert_eq!(x.to_vec::<f32>(), [0.5, 1.5]);
    assert_eq!(good.value.item::<f32>(), 3.0);
    no_grad(|| x.fill_(0.0));
}
