//! Checkpointed layers: the training of plain ones, with dropout and running statistics.

use pullback::{DType, Key, Tensor, catch, jit, manual_seed};
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::{
    BatchNorm1d, Checkpointed, Dropout, Layer, Linear, Module, Relu, Sequential,
    checkpoint_sequential,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The global generator is shared: tests that draw from it run one after the other.
static GENERATOR: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

fn net() -> Sequential {
    manual_seed(1);
    let block = || (Linear::new(16, 16), BatchNorm1d::new(16), Relu, Dropout::new(0.3));
    Sequential::new().then(Linear::new(8, 16)).then(block()).then(block()).then(Linear::new(16, 2))
}

fn wrapped() -> Sequential {
    manual_seed(1);
    let block =
        || Checkpointed::new((Linear::new(16, 16), BatchNorm1d::new(16), Relu, Dropout::new(0.3)));
    Sequential::new().then(Linear::new(8, 16)).then(block()).then(block()).then(Linear::new(16, 2))
}

/// Losses and the state after a few steps.
fn trained(
    net: Sequential,
    forward: impl Fn(&Sequential, &Tensor) -> Tensor,
    compiled: bool,
) -> (Vec<f32>, Vec<(String, Vec<f64>)>) {
    let x = Key::new(3).normal([32, 8], DType::F32, 0.0, 1.0);
    let opt = Adam::default().over(net.parameters()).unwrap();
    manual_seed(9);
    let step = |x: &Tensor| {
        net.zero_grad();
        let loss = forward(&net, x).square().mean();
        loss.backward()?;
        opt.step()?;
        Ok(loss.detach())
    };
    let fast = jit(step);
    let mut losses = Vec::new();
    for _ in 0..4 {
        let loss = if compiled { fast.call(&x) } else { step(&x) };
        losses.push(loss.unwrap().item::<f32>());
    }
    let state = net.named_state().into_iter().map(|(name, x)| (name, x.to_f64_vec())).collect();
    (losses, state)
}

fn near(a: &(Vec<f32>, Vec<(String, Vec<f64>)>), b: &(Vec<f32>, Vec<(String, Vec<f64>)>)) {
    assert!(a.0.iter().zip(&b.0).all(|(a, b)| (a - b).abs() < 1e-5), "{:?} {:?}", a.0, b.0);
    for ((name, x), (other, y)) in a.1.iter().zip(&b.1) {
        assert_eq!(name, other);
        assert!(x.iter().zip(y).all(|(x, y)| (x - y).abs() < 1e-4), "{name}");
    }
}

#[test]
fn training_is_the_same_eagerly_and_compiled() {
    let _alone = alone();
    let plain = trained(net(), |net, x| net.forward(x), false);
    // One step of statistics a step: the count says so.
    let counted = plain.1.iter().find(|(name, _)| name == "1.1.num_batches_tracked").unwrap();
    assert_eq!(counted.1, [4.0]);
    // Eagerly to the bit.
    assert_eq!(trained(wrapped(), |net, x| net.forward(x), false), plain);
    let segments = |net: &Sequential, x: &Tensor| net.forward_in_segments(Some(2), x);
    assert_eq!(trained(net(), segments, false), plain);
    near(&trained(wrapped(), |net, x| net.forward(x), true), &plain);
    near(&trained(net(), segments, true), &plain);
}

#[test]
fn a_list_of_layers_in_segments() {
    let _alone = alone();
    manual_seed(2);
    let layers: Vec<Linear> = (0..7).map(|_| Linear::new(8, 8)).collect();
    let x = Key::new(4).normal([5, 8], DType::F32, 0.0, 1.0);
    let gradients = |y: Tensor| {
        layers.zero_grad();
        y.square().sum().backward().unwrap();
        layers.parameters().iter().map(|w| w.grad().unwrap().to_vec::<f32>()).collect::<Vec<_>>()
    };
    let plain = gradients(layers.forward(&x));
    for segments in [None, Some(1), Some(7)] {
        assert_eq!(gradients(checkpoint_sequential(&layers, segments, &x)), plain);
    }
}

#[test]
fn evaluation_and_summaries_see_the_layer_inside() {
    let _alone = alone();
    let net = wrapped();
    net.eval();
    let x = Tensor::ones([4, 8]);
    let y = net.forward(&x).to_vec::<f32>();
    assert_eq!(net.forward(&x).to_vec::<f32>(), y, "nothing is dropped");
    let plain = self::net();
    let names = |net: &Sequential| net.named_state().into_iter().map(|s| s.0).collect::<Vec<_>>();
    assert_eq!(names(&net), names(&plain));
    assert_eq!(net.summary_of(&x).parameters, plain.summary_of(&x).parameters);
}

#[test]
fn errors_name_the_line_of_the_call() {
    let _alone = alone();
    let wrong = Tensor::ones([4, 5]);
    let at = |error: pullback::Error, line: u32| {
        let place = error.location().unwrap();
        assert_eq!((place.file(), place.line()), (file!(), line), "{error}");
        assert!(error.to_string().starts_with("matmul: "), "{error}");
    };
    let block = Checkpointed::new((Linear::new(8, 16), Relu));
    at(catch(|| block.forward(&wrong)).unwrap_err(), line!());
    let layers = [Linear::new(8, 8), Linear::new(8, 8)];
    at(catch(|| checkpoint_sequential(&layers, Some(2), &wrong)).unwrap_err(), line!());
    let net = net();
    at(catch(|| net.forward_in_segments(Some(2), &wrong)).unwrap_err(), line!());
    let wrapped = Sequential::new().then(Relu).then(block);
    at(catch(|| wrapped.forward(&wrong)).unwrap_err(), line!());
}
