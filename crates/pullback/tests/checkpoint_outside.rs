//! What a checkpointed function sees of the outside: the second run sees the same, or backward is
//! an error.

use pullback::{Checkpoint, Tensor, checkpoint, jit, manual_seed, next_key, no_grad, random_state};
use std::sync::{Arc, Mutex};
use std::thread;

/// Seeds are the process's.
static SEEDS: Mutex<()> = Mutex::new(());

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from(values).requires_grad()
}

fn grad_of(x: &Tensor) -> Vec<f64> {
    let g = x.grad().unwrap().to_vec();
    x.zero_grad();
    g
}

#[test]
fn a_compiled_function_inside_draws_the_same_numbers_again() {
    let _lock = SEEDS.lock().unwrap();
    let (x, z) = (leaf(&[0.3, 0.4]), Tensor::from([0.0, 0.0]));
    let noise =
        Arc::new(Mutex::new(jit(|z: &Tensor| z + next_key().normal([2], z.dtype(), 0.0, 1.0))));
    manual_seed(1);
    // Compiled before.
    let _ = noise.lock().unwrap().of(&z);
    let f = {
        let (noise, z) = (noise.clone(), z.clone());
        move |x: &Tensor| (x * noise.lock().unwrap().of(&z)).sin().exp()
    };
    manual_seed(2);
    f(&x).sum().backward().unwrap();
    let plain = grad_of(&x);
    manual_seed(2);
    let y = Checkpoint::new().verify(false).call(f, &x).sum();
    let state = random_state().to_vec::<i64>();
    y.backward().unwrap();
    assert_eq!(grad_of(&x), plain);
    assert_eq!(random_state().to_vec::<i64>(), state);
}

#[test]
fn a_compiled_function_inside_writes_its_state_once() {
    let x = leaf(&[0.3, 0.4]);
    let count = Tensor::from(0.0);
    for before in [false, true] {
        no_grad(|| count.mul_(0.0));
        let counted = {
            let count = count.clone();
            jit(move |z: &Tensor| {
                count.add_(1.0);
                z * &count
            })
        };
        if before {
            let _ = counted.of(&Tensor::from(1.0));
        }
        let start = count.item::<f64>();
        let f = move |x: &Tensor| x.sin() * counted.of(&Tensor::from(1.0));
        let f = Arc::new(Mutex::new(f));
        let y = checkpoint(move |x: &Tensor| (f.lock().unwrap())(x).exp(), &x).sum();
        y.backward().unwrap();
        assert_eq!(count.item::<f64>(), start + 1.0);
        let g = grad_of(&x);
        ((x.sin() * (start + 1.0)).exp()).sum().backward().unwrap();
        assert_eq!(g, grad_of(&x));
    }
}

#[test]
fn memory_that_a_compiled_function_inside_reads_may_not_change() {
    let (x, scale) = (leaf(&[0.3, 0.4]), Tensor::from(2.0));
    let scaled = {
        let scale = scale.clone();
        Mutex::new(jit(move |z: &Tensor| z * &scale))
    };
    let _ = scaled.lock().unwrap().of(&Tensor::from(1.0));
    let f = move |x: &Tensor| (x * scaled.lock().unwrap().of(&Tensor::from(1.0))).sin();
    let y = checkpoint(f, &x).sum();
    scale.add_(1.0);
    let error = y.backward().unwrap_err().to_string();
    assert!(error.contains("was overwritten before backward computed it again"), "{error}");
}

#[test]
fn a_number_that_was_read_may_not_change() {
    let (x, scale) = (leaf(&[0.3, 0.4]), Tensor::from(2.0));
    for how in 0..2 {
        let f = {
            let scale = scale.clone();
            move |x: &Tensor| {
                let number: f64 = if how == 0 { scale.item() } else { scale.to_f64_vec()[0] };
                (x * number).sin().exp()
            }
        };
        let y = checkpoint(f.clone(), &x).sum();
        y.backward().unwrap();
        x.zero_grad();
        let y = Checkpoint::new().verify(false).call(f, &x).sum();
        scale.add_(1.0);
        let error = y.backward().unwrap_err().to_string();
        assert!(error.contains("was overwritten before backward computed it again"), "{error}");
        assert!(error.contains("checkpoint_outside.rs"), "{error}");
    }
}

#[test]
fn windows_of_the_same_memory_are_each_put_back() {
    let x = leaf(&[0.3, 0.4]);
    let both = Tensor::from([0.0, 0.0]);
    let windows = [both.select_at(0, 0).detach(), both.select_at(0, 1).detach()];
    let f = {
        let windows = windows.clone();
        move |x: &Tensor| {
            for w in &windows {
                w.add_(1.0);
            }
            (x * &windows[0] + x * &windows[1]).sin().exp()
        }
    };
    checkpoint(f, &x).sum().backward().unwrap();
    assert_eq!(both.to_vec::<f64>(), [1.0, 1.0]);
    let g = grad_of(&x);
    (&x * 1.0 + &x * 1.0).sin().exp().sum().backward().unwrap();
    assert_eq!(g, grad_of(&x));
}

#[test]
fn a_function_that_reads_and_writes_its_statistics_may_be_called_twice() {
    let x = leaf(&[0.3, 0.4]);
    let mean = Tensor::from(0.5);
    let f = {
        let mean = mean.clone();
        move |x: &Tensor| {
            no_grad(|| {
                mean.mul_(0.9);
                mean.add_(x.detach().mean() * 0.1);
            });
            (x - &mean).sin() * x
        }
    };
    f(&f(&x)).sum().backward().unwrap();
    let (plain, after) = (grad_of(&x), mean.item::<f64>());
    no_grad(|| mean.copy_(Tensor::from(0.5)));
    let once = checkpoint(f.clone(), &x);
    let y = checkpoint(f, &once).sum();
    y.backward().unwrap();
    assert_eq!(grad_of(&x), plain);
    assert_eq!(mean.item::<f64>(), after);
}

#[test]
fn threads_that_write_the_same_memory_lose_nothing_in_silence() {
    const EACH: usize = 100;
    let count = Tensor::from(0.0);
    let run = |count: Tensor| {
        move || {
            let x = leaf(&[0.3, 0.4]);
            let mut lost = 0;
            for _ in 0..EACH {
                let count = count.clone();
                let f = move |x: &Tensor| {
                    count.add_(1.0);
                    x.sin().exp()
                };
                let y = checkpoint(f, &x).sum();
                if let Err(error) = y.backward() {
                    assert!(error.to_string().contains("by another thread"), "{error}");
                    lost += 1;
                }
            }
            lost
        }
    };
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(run(count.clone()))).collect();
    let lost: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
    let counted = count.item::<f64>() as usize;
    // Every error is a write that is lost, or more; no write is lost without one.
    assert!(counted == 4 * EACH || lost > 0, "{counted} of {} with {lost} errors", 4 * EACH);
}
