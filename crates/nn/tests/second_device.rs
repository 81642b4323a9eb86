//! A training on a device that is not the host: the losses of the CPU bit by bit, and nothing moves
//! but the batches.

#[path = "../../pullback/tests/device_second/mod.rs"]
mod device_second;

use device_second::{Counts, alone, counted, second};
use pullback::{Device, Result, Tensor, jit, with_default_device};
use pullback_nn::models::Mlp;
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::{Layer, Module};

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
