//! Checkpointed functions inside compiled programs: the values of plain ones, and less memory,
//! which the program's plan says.

use pullback::{
    DType, Key, Tensor, checkpoint, checkpoint_sequential, grad, jit, manual_seed, next_key,
    no_grad, scan, value_and_grad, vmap,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

static GENERATOR: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

fn normal(seed: u64, shape: &[usize]) -> Tensor {
    Key::new(seed).normal(shape, DType::F32, 0.0, 0.3)
}

/// A block whose inside is larger than what goes in and out.
fn block(up: &Tensor, down: &Tensor) -> impl Fn(&Tensor) -> Tensor + Clone + Send + Sync + 'static {
    let (up, down) = (up.clone(), down.clone());
    move |x: &Tensor| x + x.matmul(&up).tanh().matmul(&down)
}

/// The bytes that a compiled function works in.
fn arena<F: Fn(&Tensor) -> Tensor>(f: &pullback::Jit<Tensor, Tensor, F>) -> usize {
    f.explain().specialisations[0].peak
}

fn near(a: &Tensor, b: &Tensor) {
    let (a, b) = (a.to_f64_vec(), b.to_f64_vec());
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + b.abs())), "{a:?} {b:?}");
}

#[test]
fn a_chain_needs_less_memory_and_gives_the_same() {
    let weights: Vec<(Tensor, Tensor)> =
        (0..16).map(|i| (normal(2 * i, &[16, 256]), normal(2 * i + 1, &[256, 16]))).collect();
    let layers: Vec<_> = weights.iter().map(|(up, down)| block(up, down)).collect();
    let x = normal(99, &[64, 16]);
    let plain = |x: &Tensor| layers.iter().fold(x.clone(), |x, f| f(&x)).square().sum();
    let split = |x: &Tensor| checkpoint_sequential(&layers, None, x).square().sum();
    let (plain, split) = (jit(grad(plain)), jit(grad(split)));
    near(&plain.of(&x), &split.of(&x));
    let (whole, part) = (arena(&plain), arena(&split));
    assert!(2 * part < whole, "{part} bytes against {whole}");
}

#[test]
fn a_training_step_with_dropout_and_state() {
    let _alone = alone();
    let w = normal(1, &[32, 32]).requires_grad();
    let seen = Tensor::zeros([32]);
    let x = normal(2, &[16, 32]);
    let f = {
        let (w, seen) = (w.clone(), seen.clone());
        move |x: &Tensor| {
            no_grad(|| seen.add_(x.detach().mean_over(0)));
            (x.matmul(&w).tanh().dropout(0.5, Some(&next_key())) * x).exp()
        }
    };
    let run = |checkpointed: bool, compiled: bool| {
        manual_seed(5);
        no_grad(|| seen.zero_());
        let step = |x: &Tensor| {
            w.zero_grad();
            let y = if checkpointed { checkpoint(f.clone(), x) } else { f(x) };
            let loss = y.mean();
            loss.backward()?;
            Ok(loss.detach())
        };
        let compiled_step = jit(step);
        let mut losses = Vec::new();
        for _ in 0..3 {
            let loss = if compiled { compiled_step.call(&x) } else { step(&x) };
            losses.push(loss.unwrap().item::<f32>());
        }
        (losses, w.grad().unwrap(), seen.deep_clone())
    };
    let expected = run(false, false);
    assert!(expected.0[0] != expected.0[1], "each step draws anew");
    for (checkpointed, compiled) in [(true, false), (false, true), (true, true)] {
        let found = run(checkpointed, compiled);
        near(&Tensor::from(found.0), &Tensor::from(expected.0.clone()));
        near(&found.1, &expected.1);
        near(&found.2, &expected.2);
    }
}

#[test]
fn inside_a_scan_only_the_arguments_are_kept() {
    let (up, down) = (normal(1, &[8, 512]), normal(2, &[512, 8]));
    let x = normal(3, &[32, 8]);
    let run = |checkpointed: bool| {
        let (up, down) = (up.clone(), down.clone());
        move |x: &Tensor| {
            let f = block(&up, &down);
            let iteration = |h: &Tensor, _: &Tensor| {
                let next = if checkpointed { checkpoint(f.clone(), h) } else { f(h) };
                (next, ())
            };
            let times = Tensor::zeros([12]);
            scan(iteration, x, &times).0.square().sum()
        }
    };
    let (plain, split) = (jit(value_and_grad(run(false))), jit(value_and_grad(run(true))));
    let ((a, da), (b, db)) = (plain.of(&x), split.of(&x));
    near(&a, &b);
    near(&da, &db);
    let bytes = |s: &pullback::Explanation| s.specialisations[0].peak;
    let (whole, part) = (bytes(&plain.explain()), bytes(&split.explain()));
    assert!(2 * part < whole, "{part} bytes against {whole}");
}

#[test]
fn under_vmap_and_twice_differentiated() {
    let x = Key::new(4).normal([3, 5], DType::F64, 0.0, 1.0);
    let f = |x: &Tensor| (x.sin() * x).exp();
    let plain = |x: &Tensor| f(x).sum();
    let again = |x: &Tensor| checkpoint(f, x).sum();
    let twice = |g: fn(&Tensor) -> Tensor| {
        let first = grad(g);
        move |x: &Tensor| grad(|x: &Tensor| first(x).square().sum())(x)
    };
    let _ = (plain, again);
    let a = jit(vmap(twice(|x| (x.sin() * x).exp().sum()), 0, 0)).of(&x);
    let b =
        jit(vmap(twice(|x| checkpoint(|x: &Tensor| (x.sin() * x).exp(), x).sum()), 0, 0)).of(&x);
    near(&a, &b);
    let outside = jit(grad(|x: &Tensor| vmap(|x: &Tensor| checkpoint(f, x), 0, 0)(x).sum())).of(&x);
    near(&outside, &grad(|x: &Tensor| f(x).sum())(&x));
    let nested =
        |x: &Tensor| checkpoint(move |x: &Tensor| checkpoint(f, &checkpoint(f, x).sin()), x).sum();
    near(&jit(grad(nested)).of(&x), &grad(|x: &Tensor| f(&f(x).sin()).sum())(&x));
}
