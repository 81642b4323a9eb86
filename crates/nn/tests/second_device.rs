//! A training on a device that is not the host: the losses of the CPU bit by bit, and nothing moves
//! but the batches.

#[path = "../../pullback/tests/device_second/mod.rs"]
mod device_second;

use device_second::{Counts, alone, counted, limited, scratch, second};
use pullback::{
    DType, Device, ErrorKind, Result, Tensor, autocast, catch, jit, no_grad, trim_memory,
    with_default_device,
};
use pullback_nn::models::Mlp;
use pullback_nn::optim::{Adam, Optimizer, Sgd, UpdateRule};
use pullback_nn::precision::{GradScaler, GradScalerOptions};
use pullback_nn::{Layer, Linear, Module};

const STEPS: usize = 8;

fn batch(step: usize) -> (Tensor, Tensor) {
    let number = |i: usize| ((i * 37 + step * 101) % 199) as f32 / 99.5 - 1.0;
    let x: Vec<f32> = (0..16 * 6).map(number).collect();
    let y: Vec<f32> = (0..16 * 2).map(|i| number(i * 3)).collect();
    (Tensor::from_vec(x, [16, 6]), Tensor::from_vec(y, [16, 2]))
}

/// The losses, the parameters, and what the device counted in each step.
fn train(on: Device, compiled: bool) -> (Vec<Tensor>, Vec<Tensor>, Vec<Counts>) {
    pullback::manual_seed(3);
    let net = with_default_device(on, || Mlp::new(&[6, 8, 2]));
    let parameters = net.parameters();
    let optimizer = Adam { lr: 0.01, ..Adam::default() }.over(net.parameters()).unwrap();
    assert!(parameters.iter().all(|p| p.device() == on));
    let step = |(x, y): &(Tensor, Tensor)| -> Result<Tensor> {
        optimizer.zero_grad();
        let loss = (net.forward(x) - y).square().mean();
        loss.backward()?;
        optimizer.step()?;
        Ok(loss.detach())
    };
    let jitted = jit(step);
    let (mut losses, mut per_step) = (Vec::new(), Vec::new());
    for i in 0..STEPS {
        let (x, y) = batch(i);
        let (loss, counts) = counted(|| {
            let batch = (x.to(on), y.to(on));
            if compiled { jitted.call(&batch) } else { step(&batch) }.unwrap()
        });
        losses.push(loss);
        per_step.push(counts);
    }
    (losses, parameters, per_step)
}

fn bits(all: &[Tensor]) -> Vec<Vec<u64>> {
    all.iter().map(|x| x.to_f64_vec().into_iter().map(f64::to_bits).collect()).collect()
}

#[test]
fn a_training_has_the_losses_of_the_cpu_and_waits_for_nothing() {
    let _alone = alone();
    for compiled in [false, true] {
        let (wanted, parameters, _) = train(Device::Cpu, compiled);
        let (losses, there, per_step) = train(second(), compiled);
        // What is made once (state, a compiled program) may move in the first steps.
        for counts in &per_step[2..] {
            assert_eq!((counts.downloads, counts.waits), (0, 0), "{counts:?}");
            assert_eq!(counts.uploads, 2, "the batch alone: {counts:?}");
            assert!(if compiled { counts.programs == 1 } else { counts.ops > 10 }, "{counts:?}");
        }
        assert_eq!(per_step[0].downloads, 0);
        assert!(there.iter().all(|p| p.device() == second()));
        assert_eq!(bits(&losses), bits(&wanted), "compiled: {compiled}");
        assert_eq!(bits(&there), bits(&parameters), "compiled: {compiled}");
        let losses: Vec<f32> = losses.iter().map(Tensor::item).collect();
        assert!(losses[STEPS - 1] < losses[0], "{losses:?}");
    }
}

/// The losses, the parameters and the state of the scaler after steps with f16.
fn train_scaled(on: Device, compiled: bool) -> [Vec<Tensor>; 3] {
    pullback::manual_seed(5);
    let net = with_default_device(on, || Mlp::new(&[6, 8, 2]));
    let parameters = net.parameters();
    let optimizer = Sgd { lr: 0.05, ..Sgd::default() }.over(net.parameters()).unwrap();
    let scaler = GradScaler::new(GradScalerOptions::default()).unwrap().to_device(on);
    let step = |(x, y): &(Tensor, Tensor)| -> Result<Tensor> {
        optimizer.zero_grad();
        let loss = autocast(DType::F16, || (net.forward(x) - y).square().mean());
        scaler.scale(&loss).backward()?;
        scaler.step(&optimizer)?;
        scaler.update()?;
        Ok(loss.detach())
    };
    let jitted = jit(step);
    let losses = (0..STEPS).map(|i| {
        // The first batch is too large for f16: its step is skipped.
        let large = if i == 0 { 200.0 } else { 1.0 };
        let (x, y) = batch(i);
        let batch = ((x * large).to(on), (y * large).to(on));
        if compiled { jitted.call(&batch) } else { step(&batch) }.unwrap()
    });
    let losses = losses.collect();
    assert_eq!(scaler.skipped().unwrap(), 1);
    let state: Vec<Tensor> = scaler.named_state().into_iter().map(|(_, x)| x).collect();
    [losses, parameters, state]
}

#[test]
fn a_scaler_is_on_the_device_of_the_parameters() {
    let _alone = alone();
    for compiled in [false, true] {
        let (wanted, found) =
            (train_scaled(Device::Cpu, compiled), train_scaled(second(), compiled));
        for (wanted, found) in wanted.iter().zip(&found) {
            assert!(found.iter().all(|x| x.device() == second()));
            assert_eq!(bits(found), bits(wanted), "compiled: {compiled}");
        }
    }
}

#[test]
fn a_scaler_elsewhere_is_an_error_that_names_both_devices() {
    let _alone = alone();
    let scaler = GradScaler::new(GradScalerOptions::default()).unwrap();
    let w = Tensor::from([1.0f32, 2.0]).to(second()).requires_grad();
    let refused = catch(|| scaler.scale(&w.sum())).unwrap_err().to_string();
    assert!(refused.contains("the loss is f32[]@cuda:0"), "{refused}");
    assert!(refused.contains("the scaler is on cpu") && refused.contains("to_device"), "{refused}");
    let optimizer = Sgd::default().over([w.clone()]).unwrap();
    w.square().sum().backward().unwrap();
    let refused = scaler.step(&optimizer).unwrap_err().to_string();
    assert!(refused.contains("a gradient is f32[2]@cuda:0"), "{refused}");
}

fn state_of(net: &impl Module, optimizer: &dyn Optimizer) -> Vec<Tensor> {
    let state = optimizer.named_state().into_iter().map(|(_, x)| x);
    net.parameters().into_iter().chain(state).collect()
}

#[test]
fn an_optimiser_moves_with_its_model() {
    let _alone = alone();
    pullback::manual_seed(3);
    let net = with_default_device(Device::Cpu, || Mlp::new(&[6, 8, 2]));
    let adam = Adam { lr: 0.01, ..Adam::default() };
    let (first, rest) = (net.parameters()[..1].to_vec(), net.parameters()[1..].to_vec());
    let optimizer = adam.over(first).unwrap().and(rest, Adam { lr: 0.1, ..adam }).unwrap();
    let step = |net: &Mlp, optimizer: &dyn Optimizer, i: usize, on: Device| {
        let (x, y) = batch(i);
        optimizer.zero_grad();
        (net.forward(&x.to(on)) - y.to(on)).square().mean().backward().unwrap();
        optimizer.step().unwrap();
    };
    (0..3).for_each(|i| step(&net, &optimizer, i, Device::Cpu));
    no_grad(|| optimizer.lrs()[1].fill_(0.05));
    let before = bits(&state_of(&net, &optimizer));
    let moved = net.to_device(second());
    let moving = optimizer.to_device(second(), moved.parameters()).unwrap();
    let there = state_of(&moved, &moving);
    assert!(there.iter().all(|x| x.device() == second()));
    assert_eq!(bits(&there), before);
    (3..6).for_each(|i| step(&moved, &moving, i, second()));
    assert_eq!(bits(&state_of(&net, &optimizer)), before, "what was copied stays");
    (3..6).for_each(|i| step(&net, &optimizer, i, Device::Cpu));
    assert_eq!(bits(&state_of(&moved, &moving)), bits(&state_of(&net, &optimizer)));
    // Parameters that are not those of the moved model are named.
    let refused = |parameters: Vec<Tensor>| {
        optimizer.to_device(second(), parameters).unwrap_err().to_string()
    };
    let said = refused(net.parameters());
    assert!(said.contains("parameter 0 of the moved model is f32[8,6], but must be"), "{said}");
    assert!(said.contains("f32[8,6]@cuda:0"), "{said}");
    assert!(refused(Vec::new()).contains("0 parameters of the moved model, but it has 4"));
    let frozen = moved.parameters().iter().map(Tensor::detach).collect();
    assert!(refused(frozen).contains("not trained"));
}

/// A step with everything that is state: parameters, moments, learning rates, running statistics.
#[test]
fn a_compiled_step_that_finds_no_memory_changes_nothing() {
    let _alone = alone();
    pullback::manual_seed(7);
    let make = || {
        let net = with_default_device(second(), || {
            (Mlp::new(&[6, 8, 8]), pullback_nn::BatchNorm1d::new(8), Linear::new(8, 2))
        });
        let optimizer = Adam { lr: 0.01, ..Adam::default() }.over(net.parameters()).unwrap();
        (net, optimizer)
    };
    let run = |planned: bool| -> (usize, usize) {
        let (net, optimizer) = make();
        let state = || {
            let buffers = net.named_buffers().into_iter().map(|(_, x)| x);
            buffers.chain(state_of(&net, &optimizer)).collect::<Vec<_>>()
        };
        let jitted = jit(|x: &Tensor| -> Result<Tensor> {
            optimizer.zero_grad();
            let hidden = net.1.forward(&net.0.forward(x));
            let loss = net.2.forward(&hidden).square().mean();
            loss.backward()?;
            optimizer.step()?;
            Ok(loss.detach())
        });
        let x = batch(0).0.to(second());
        let (mut failures, mut changes) = (0, 0);
        loop {
            let before = bits(&state());
            match scratch(failures as u64, planned, || jitted.call(&x)) {
                Ok(_) => {
                    assert_ne!(bits(&state()), before);
                    return (failures, changes);
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Memory, "{error}"),
            }
            changes += usize::from(bits(&state()) != before);
            failures += 1;
        }
    };
    let (failures, changes) = run(true);
    assert!(failures > 10, "every kernel that takes memory failed once: {failures}");
    assert_eq!(changes, 0);
    // What the plan is told is what keeps them.
    assert!(run(false).1 > 0);
}

#[test]
fn a_thousand_steps_without_memory_leave_everything_usable() {
    let _alone = alone();
    let train = |failing: bool| {
        pullback::manual_seed(11);
        let net = with_default_device(second(), || Mlp::new(&[6, 8, 2]));
        let optimizer = Adam { lr: 0.01, ..Adam::default() }.over(net.parameters()).unwrap();
        let step = |x: &Tensor| -> Result<Tensor> {
            optimizer.zero_grad();
            let loss = net.forward(x).square().mean();
            loss.backward()?;
            optimizer.step()?;
            Ok(loss.detach())
        };
        let jitted = jit(step);
        let x = batch(0).0.to(second());
        scratch(u64::MAX, true, || jitted.call(&x)).unwrap();
        if failing {
            // The working memory of programs is what this one takes.
            trim_memory();
            for i in 0..1000 {
                let error = match i % 2 {
                    0 => scratch(i % 7, true, || jitted.call(&x)).unwrap_err(),
                    _ => limited(i % 4, || jitted.call(&x)).unwrap_err(),
                };
                assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
            }
        }
        let losses = [jitted.call(&x).unwrap(), step(&x).unwrap()];
        losses.into_iter().chain(state_of(&net, &optimizer)).collect::<Vec<_>>()
    };
    assert_eq!(bits(&train(true)), bits(&train(false)));
}

#[test]
fn weights_go_straight_to_the_device_and_are_saved_from_it() {
    use pullback_nn::state::{Weights, load_weights, save_weights};
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let [first, again] = ["first", "again"].map(|name| folder.path().join(name));
    pullback::manual_seed(9);
    let sizes: Vec<usize> = vec![128; 17];
    let host = with_default_device(Device::Cpu, || Mlp::new(&sizes));
    save_weights(&host, &first).unwrap();
    let there = with_default_device(second(), || Mlp::new(&sizes));
    let tensors = there.parameters().len() as u64;
    let (loaded, told) = counted(|| Weights::new().load(&there, &first).unwrap());
    // One tensor at a time: the host has the bytes of a layer (64 KiB, and as elements), not of 16.
    // What waits in the queue of the device is counted too, so the least of several loads.
    let rises = (0..10).map(|_| {
        pullback::synchronize(second()).unwrap();
        let live = pullback::memory_stats().live_bytes;
        pullback::reset_peak();
        Weights::new().load(&there, &first).unwrap();
        pullback::memory_stats().peak_bytes - live
    });
    let rise = rises.min().unwrap();
    assert!(rise <= 4 * (64 << 10), "{rise} bytes of the host");
    assert_eq!((loaded.written as u64, told.uploads, told.downloads), (tensors, tensors, 0));
    assert_eq!(bits(&there.parameters()), bits(&host.parameters()));
    assert!(there.parameters().iter().all(|x| x.device() == second()));
    let ((), told) = counted(|| save_weights(&there, &again).unwrap());
    assert_eq!((told.uploads, told.downloads), (0, tensors));
    assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(&again).unwrap());
    // The default device does not matter, and what does not fit changes nothing.
    let fresh = with_default_device(Device::Cpu, || Mlp::new(&sizes));
    with_default_device(second(), || load_weights(&fresh, &again)).unwrap();
    assert_eq!(bits(&fresh.parameters()), bits(&host.parameters()));
    assert!(fresh.parameters().iter().all(|x| x.device() == Device::Cpu));
    let before = bits(&there.parameters());
    std::fs::write(&again, &std::fs::read(&first).unwrap()[..100_000]).unwrap();
    let said = load_weights(&there, &again).unwrap_err().to_string();
    assert!(said.contains("is cut short: it ends at byte 100000 inside tensor"), "{said}");
    assert_eq!(bits(&there.parameters()), before);
    // A device without memory for one of them says so.
    let error = limited(1000, || load_weights(&there, &first)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
    load_weights(&there, &first).unwrap();
    assert_eq!(bits(&there.parameters()), before);
}
