//! Custom functions and what the whole process shares: its memory and its generator. One test at a time.

use pullback::{
    CustomVjp, DType, Tensor, custom_vjp, grad, manual_seed, memory_stats, random_state,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// sin, whose residual is neither argument nor result.
fn sine() -> CustomVjp<Tensor, Tensor, Tensor> {
    custom_vjp("sine", |x: &Tensor| (x.sin(), x.cos()), |c: &Tensor, dy: &Tensor| dy * c)
}

fn near(a: &Tensor, b: &[f64]) {
    let a = a.to_f64_vec();
    assert_eq!(a.len(), b.len());
    for (x, y) in a.iter().zip(b) {
        assert!((x - y).abs() <= 1e-10 * y.abs().max(1.0), "{a:?} is not {b:?}");
    }
}

#[test]
fn residuals_go_with_the_graph() {
    let _alone = alone();
    let held = |f: &CustomVjp<Tensor, Tensor, Tensor>, x: &Tensor| {
        let before = memory_stats().live_bytes;
        let y = f.call(x);
        (y, memory_stats().live_bytes - before)
    };
    const BYTES: u64 = 8 * (1 << 16);
    let x = Tensor::rand([1 << 16]).cast(DType::F64).requires_grad();
    let f = sine();
    drop(held(&f, &x)); // the check
    let before = memory_stats().live_bytes;
    let (y, more) = held(&f, &x);
    assert!((2 * BYTES..3 * BYTES).contains(&more), "{more}");
    // Survives the function's own variables, and goes when backward has passed, though y stays.
    y.sum().backward().unwrap();
    near(&x.grad().unwrap().narrow(0, 0, 1), &[x.to_f64_vec()[0].cos()]);
    x.zero_grad();
    let after = memory_stats().live_bytes - before;
    assert!((BYTES..2 * BYTES).contains(&after), "{after}");
    drop(y);
    assert!(memory_stats().live_bytes - before < BYTES);
}

#[test]
fn random_functions_draw_again_what_they_drew() {
    let _alone = alone();
    manual_seed(5);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    // x³ · noise, with a residual that has a derivative: it is computed again for the second one.
    let f = custom_vjp(
        "noisy",
        move |x: &Tensor| {
            count.fetch_add(1, Ordering::Relaxed);
            let noise = Tensor::rand([3]).cast(x.dtype());
            (x.powi(3) * &noise, x.square() * 3.0 * noise)
        },
        |slope: &Tensor, dy: &Tensor| dy * slope,
    );
    let x = Tensor::from([1.0, 2.0, 3.0]);
    let state = random_state();
    let noise = Tensor::rand([3]).to_f64_vec();
    pullback::set_random_state(&state);
    // The check of the first call does not disturb the generator.
    near(&(f.call(&x) / x.powi(3)), &noise);
    assert!(calls.load(Ordering::Relaxed) > 2);
    let after = random_state().to_vec::<i64>();
    pullback::set_random_state(&state);
    let second = grad(|x: &Tensor| grad(|x: &Tensor| f.call(x).sum())(x).sum())(&x);
    near(&second, &[6.0 * noise[0], 12.0 * noise[1], 18.0 * noise[2]]);
    assert_eq!(random_state().to_vec::<i64>(), after);
}
