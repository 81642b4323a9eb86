//! Custom functions and what the whole process shares: its memory and its generator. One test at a
//! time.

use pullback::{
    CustomVjp, DType, Tensor, catch, custom_vjp, grad, manual_seed, memory_stats, random_state,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Runs `f` while another thread draws, and gives how many vectors it drew and how many of them
/// twice.
fn with_concurrent_draws(f: impl FnOnce()) -> (usize, usize) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let draw = || {
            let (mut seen, mut twice) = (HashSet::new(), 0);
            while !stop.load(Ordering::Relaxed) {
                let bits: Vec<u32> =
                    Tensor::rand([4]).to_vec::<f32>().iter().map(|v| v.to_bits()).collect();
                twice += usize::from(!seen.insert(bits));
            }
            (seen.len(), twice)
        };
        let other = scope.spawn(draw);
        f();
        stop.store(true, Ordering::Relaxed);
        other.join().unwrap()
    })
}

#[test]
fn other_threads_draw_while_a_rule_is_checked() {
    let _alone = alone();
    let (drawn, twice) = with_concurrent_draws(|| {
        for n in 1..60 {
            let f = custom_vjp(
                "masked",
                |x: &Tensor| {
                    let mask = Tensor::rand(x.shape()).cast(x.dtype());
                    (x * &mask, mask)
                },
                |mask: &Tensor, dy: &Tensor| dy * mask,
            );
            if let Err(error) = catch(|| f.call(&Tensor::ones([n]).cast(DType::F64))) {
                panic!("a right rule is refused: {error}");
            }
        }
    });
    assert!(drawn > 0 && twice == 0, "{twice} of {drawn} vectors were drawn twice");
}

#[test]
fn other_threads_draw_between_a_call_and_its_second_derivative() {
    let _alone = alone();
    let f = custom_vjp(
        "noisy_cube",
        |x: &Tensor| {
            let noise = Tensor::rand([2]).cast(x.dtype()) * Tensor::rand([2]).cast(x.dtype());
            (x.powi(3) * &noise, x.square() * 3.0 * noise)
        },
        |slope: &Tensor, dy: &Tensor| dy * slope,
    );
    let x = Tensor::from([1.0, 2.0]);
    let (drawn, twice) = with_concurrent_draws(|| {
        for _ in 0..200 {
            // Slopes 3·n·x² and their slopes 6·n·x, of one and the same n.
            let (slopes, pullback) =
                pullback::vjp(|x: &Tensor| grad(|x: &Tensor| f.call(x).sum())(x), &x);
            let second = pullback(&x.ones_like());
            near(&(second * &x / 2.0), &slopes.to_f64_vec());
        }
    });
    assert!(drawn > 0 && twice == 0, "{twice} of {drawn} vectors were drawn twice");
}

#[test]
fn a_check_that_fails_leaves_the_generator_where_it_was() {
    let _alone = alone();
    let f = custom_vjp(
        "failing",
        |x: &Tensor| (x * Tensor::rand([2]).cast(x.dtype()), ()),
        |_: &(), _: &Tensor| pullback::raise(pullback::Error::argument("failing", "no backward")),
    );
    let before = random_state().to_vec::<i64>();
    catch(|| f.call(&Tensor::from([1.0, 2.0]))).unwrap_err();
    assert_eq!(random_state().to_vec::<i64>(), before);
}
