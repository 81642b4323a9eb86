//! A byte budget on the tape: the same gradients, less memory, and a sentence where it cannot be.

use pullback::{
    Backward, DType, ErrorKind, Key, MemoryBudget, Tensor, autocast, catch, checkpoint,
    checkpoint_sequential, custom_vjp, grad, jit, jvp, manual_seed, memory_budget, memory_stats,
    next_key, no_grad, reset_peak, scan,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[path = "budget_eager/account.rs"]
mod account;
#[path = "budget_eager/overwrite.rs"]
mod overwrite;
#[path = "budget_eager/packing.rs"]
mod packing;

/// The pool's counters are the process's: tests are serialised.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

fn exclusive() -> MutexGuard<'static, ()> {
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bits(x: &Tensor) -> Vec<u64> {
    x.to_f64_vec().iter().map(|v| v.to_bits()).collect()
}

/// The gradients of leaves, which are forgotten.
fn taken(leaves: &[&Tensor]) -> Vec<Option<Vec<u64>>> {
    let grads = leaves.iter().map(|x| x.grad().map(|g| bits(&g))).collect();
    leaves.iter().for_each(|x| x.zero_grad());
    grads
}

/// Bytes above what was there, at most, while `f` runs.
fn peak<R>(f: impl FnOnce() -> R) -> (R, usize) {
    let before = memory_stats().live_bytes;
    reset_peak();
    let result = f();
    (result, (memory_stats().peak_bytes - before) as usize)
}

const BLOCK: usize = 64 * 64 * 4;

/// Each block keeps what goes in and the exponential: two values a block.
fn chain(x: &Tensor, blocks: usize) -> Tensor {
    (0..blocks).fold(x.clone(), |x, _| x.sin().exp() * 0.3).sum()
}

#[test]
fn a_chain_of_64_blocks_within_its_budget() {
    let _lock = exclusive();
    let x = Key::new(1).normal([64, 64], DType::F32, 0.0, 1.0).requires_grad();
    let ((), plain) = peak(|| chain(&x, 64).backward().unwrap());
    let expected = taken(&[&x]);
    assert!(plain > 126 * BLOCK, "{plain}");
    let mut last = 0.0;
    // The extra work for 127 values: about none of it where all fit, one pass where the root of
    // them does, and not much more below.
    for (values, most) in
        [(128, 0.0), (64, 0.2), (32, 0.6), (24, 0.75), (16, 0.9), (12, 1.0), (6, 2.5)]
    {
        let budget = MemoryBudget::new(values * BLOCK);
        let ((), measured) = peak(|| {
            let loss = budget.run(|| chain(&x, 64));
            loss.backward().unwrap();
        });
        assert_eq!(taken(&[&x]), expected, "{values} values");
        let used = budget.used();
        assert!(used.kept <= values * BLOCK, "{used}");
        assert!(used.without >= 126 * BLOCK && used.without <= 128 * BLOCK, "{used}");
        // Beside it: the value and the gradient that the rule works on, what it makes of them, and
        // scalars.
        assert!(measured <= values * BLOCK + 4 * BLOCK, "{measured} with {values} values\n{used}");
        assert!(used.measured <= measured && used.measured >= used.kept, "{measured} {used}");
        assert!(used.extra() <= most, "{values} values\n{used}");
        assert!(used.extra() >= last, "a smaller budget costs more");
        last = used.extra();
    }
}

#[test]
fn memory_grows_as_the_root_for_a_bounded_amount_of_work() {
    let _lock = exclusive();
    let x = Key::new(2).normal([64, 64], DType::F32, 0.0, 1.0).requires_grad();
    for blocks in [16usize, 64, 256, 1024] {
        let root = (2.0 * (2.0 * blocks as f64).sqrt()) as usize;
        let budget = MemoryBudget::new(root * BLOCK);
        let ((), measured) = peak(|| budget.run(|| chain(&x, blocks)).backward().unwrap());
        x.zero_grad();
        let used = budget.used();
        assert!(measured <= (root + 4) * BLOCK, "{blocks} blocks: {measured}\n{used}");
        // N log N, and much less.
        assert!(used.extra() <= 1.0, "{blocks} blocks\n{used}");
    }
}

#[test]
fn at_least_as_good_as_even_segments_at_equal_memory() {
    let _lock = exclusive();
    let x = Key::new(2).normal([64, 64], DType::F32, 0.0, 1.0).requires_grad();
    let layers = vec![|x: &Tensor| x.sin().exp() * 0.3; 64];
    for segments in [4, 8, 16] {
        let ((), even) = peak(|| {
            checkpoint_sequential(&layers, Some(segments), &x).sum().backward().unwrap();
        });
        x.zero_grad();
        let budget = MemoryBudget::new(even - 4 * BLOCK);
        let ((), measured) = peak(|| budget.run(|| chain(&x, 64)).backward().unwrap());
        x.zero_grad();
        // All segments but the last run twice.
        let twice = 1.0 - 1.0 / segments as f64;
        assert!(measured <= even && budget.used().extra() <= twice, "{even}\n{}", budget.used());
    }
}

#[test]
fn a_training_loop_in_one_scope() {
    let _lock = exclusive();
    let train = |budget: Option<&MemoryBudget>| {
        let w = Key::new(7).normal([16, 16], DType::F64, 0.0, 0.3).requires_grad();
        let steps = || {
            for step in 0..20 {
                let x = Key::new(step).normal([16, 16], DType::F64, 0.0, 1.0);
                let y = (0..12).fold(x, |x, _| x.matmul(&w).tanh().dropout(0.2, Some(&next_key())));
                let loss = y.square().mean();
                loss.backward().unwrap();
                // The loss is still there, and with it the note of how it was made.
                no_grad(|| w.sub_(w.grad().unwrap() * 0.1));
                w.zero_grad();
            }
        };
        manual_seed(11);
        match budget {
            Some(budget) => budget.run(steps),
            None => steps(),
        }
        bits(&w)
    };
    let expected = train(None);
    for values in [40, 10, 5] {
        let budget = MemoryBudget::new(values * 16 * 16 * 8);
        assert_eq!(train(Some(&budget)), expected);
        let used = budget.used();
        assert!(used.dropped > 0 || values == 40, "{used}");
        assert!(used.kept <= values * 16 * 16 * 8, "{used}");
    }
}

#[test]
fn nothing_stays_behind() {
    let _lock = exclusive();
    let x = Key::new(3).normal([64, 64], DType::F32, 0.0, 1.0).requires_grad();
    let start = memory_stats().live_bytes;
    let budget = MemoryBudget::new(8 * BLOCK);
    let loss = budget.run(|| chain(&x, 64));
    let open = memory_stats().live_bytes - start;
    assert!(open as usize <= 8 * BLOCK + 64 * 64, "{open}");
    Backward::of(&loss).retain_graph().run().unwrap();
    let first = taken(&[&x]);
    let retained = memory_stats().live_bytes - start;
    assert!(retained as usize <= 8 * BLOCK + 64 * 64, "{retained}");
    loss.backward().unwrap();
    assert_eq!(taken(&[&x]), first);
    drop(loss);
    // Dropped without a backward pass, and one that is used twice.
    drop(budget.run(|| chain(&x, 64)));
    drop(budget);
    assert_eq!(memory_stats().live_bytes, start);
}

/// A random program: reuse, views, in-place writes, dropout, products.
struct Net {
    seed: u64,
    x: Tensor,
    w: Tensor,
}

impl Net {
    fn new(seed: u64) -> Net {
        let normal = |k, shape: [usize; 2]| Key::new(k).normal(shape, DType::F64, 0.0, 0.5);
        let (x, w) = (normal(seed * 2 + 1, [4, 8]), normal(seed * 2 + 2, [8, 8]));
        Net { seed, x: x.requires_grad(), w: w.requires_grad() }
    }

    /// `state` is memory from before the scope, which is written.
    fn loss(&self, state: &Tensor) -> Tensor {
        let mut random = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = |n: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % n
        };
        let mut values = vec![self.x.clone()];
        for step in 0..40 {
            // Mostly the latest, sometimes one from long ago.
            let pick = if draw(4) == 0 { draw(values.len()) } else { values.len() - 1 };
            let (a, b) = (values[pick].clone(), values[draw(values.len())].clone());
            values.push(match draw(10) {
                0 => a.tanh() * b.sigmoid(),
                1 => a.matmul(&self.w).sin(),
                2 => a.t().exp().sigmoid().t() * &b,
                3 => pullback::cat(&[&a.at(0..2).cos(), &b.at(2..4).sin()], 0),
                4 => a.dropout(0.3, Some(&Key::new(step))) + b.sin(),
                5 => {
                    // What `z` is made of is overwritten; `z` is not.
                    let t = a.sin();
                    let z = (&t + &b).tanh();
                    t.mul_(0.5);
                    z * t
                }
                6 => {
                    let t = &a + &b;
                    t.at(1..3).mul_(a.at(0..2));
                    t.tanh()
                }
                7 => {
                    let z = &a + state;
                    no_grad(|| state.add_(0.25));
                    z.sin().tanh()
                }
                8 => a.softmax(1) + b.reshape([8, 4]).sort(1, false).0.reshape([4, 8]).tanh(),
                _ => (&a - a.mean_keep([1])).square().sigmoid() * b.cos(),
            });
        }
        values.iter().skip(20).fold(Tensor::from(0.0), |sum, v| sum + v.sin().sum())
    }
}

#[test]
fn random_programs_have_the_same_gradients_at_any_budget() {
    let _lock = exclusive();
    let (mut dropped, mut refused) = (0, 0);
    for seed in 0..24 {
        let net = Net::new(seed);
        let leaves = [&net.x, &net.w];
        let state = || Tensor::zeros([4, 8]).cast(DType::F64).deep_clone();
        net.loss(&state()).backward().unwrap();
        let expected = taken(&leaves);
        let all = {
            let budget = MemoryBudget::new(usize::MAX / 4);
            let state = state();
            budget.run(|| net.loss(&state)).backward().unwrap();
            assert_eq!(taken(&leaves), expected, "seed {seed}");
            assert_eq!(budget.used().dropped, 0);
            budget.used().without
        };
        for share in [80, 60, 40, 25, 15, 8, 4] {
            let (budget, state) = (MemoryBudget::new(all * share / 100), state());
            // Inside the scope, or after it.
            let run = || match share % 2 == 0 {
                true => budget.run(|| net.loss(&state)).backward(),
                false => budget.run(|| net.loss(&state).backward()),
            };
            match catch(run) {
                Ok(done) => {
                    done.unwrap();
                    assert_eq!(taken(&leaves), expected, "seed {seed}, {share} % of {all}");
                    dropped += budget.used().dropped;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
                    assert_eq!(taken(&leaves), [None, None], "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(dropped > 1000, "{dropped} dropped");
    assert!(refused < 70, "{refused} of 168 refused");
}

#[test]
fn second_derivatives() {
    let _lock = exclusive();
    let x = Tensor::from([0.3, 0.5, 0.7, 0.9].repeat(8)).requires_grad();
    let y = |x: &Tensor| (0..12).fold(x.clone(), |x, _| x.sin().exp() * 0.4).sum();
    let twice = |y: &Tensor| {
        let dx = Backward::of(y).create_graph().wrt(&[&x]).unwrap().remove(0);
        let d2 = Backward::of(&dx.square().sum()).wrt(&[&x]).unwrap().remove(0);
        (bits(&dx), bits(&d2))
    };
    let expected = twice(&y(&x));
    for values in [64, 16, 8, 5] {
        let budget = MemoryBudget::new(values * 32 * 8);
        assert_eq!(twice(&budget.run(|| y(&x))), expected);
        // The backward pass saves values too.
        let inside = MemoryBudget::new(values * 32 * 8);
        assert_eq!(inside.run(|| twice(&y(&x))), expected);
        assert!(
            values > 16
                || (budget.used().dropped > 0 && inside.used().dropped > budget.used().dropped)
        );
        let inner = |x: &Tensor| memory_budget(values * 32 * 8, || y(x));
        assert_eq!(bits(&grad(inner)(&x.detach())), expected.0);
    }
}

#[test]
fn forward_mode_inside() {
    let _lock = exclusive();
    let x = Tensor::from([0.3, 0.5, 0.7, 0.9].repeat(8));
    let y = |x: &Tensor| (0..12).fold(x.clone(), |x, _| x.sin().exp() * 0.4).sum();
    let along = |f: &dyn Fn(&Tensor) -> Tensor| {
        let (_, over) = jvp(|x: &Tensor| grad(f)(x), &x, &Tensor::ones([32]).cast(DType::F64));
        (bits(&jvp(f, &x, &Tensor::ones([32]).cast(DType::F64)).1), bits(&over))
    };
    let small = |x: &Tensor| memory_budget(6 * 32 * 8, || y(x));
    assert_eq!(along(&small), along(&y));
}

#[test]
fn an_impossible_budget_names_the_least_and_the_lines() {
    let _lock = exclusive();
    let x = Tensor::from([0.5; 1000]).requires_grad();
    let budget = MemoryBudget::new(40_000);
    let (mut loss, mut at) = (None, 0);
    let error = catch(|| {
        budget.run(|| {
            let mut y = x.clone();
            for i in 0..10 {
                at = i;
                y = y.sin() * Tensor::from(vec![f64::from(i); 1000]); // from nowhere
                loss = Some(y.sum());
            }
        });
    })
    .unwrap_err();
    let text = error.to_string();
    // Five such values are 40000 bytes, and then there is none to work with.
    assert_eq!((error.kind(), at), (ErrorKind::Memory, 5), "{text}");
    assert!(text.contains("a budget of 40000 bytes is not enough"), "{text}");
    assert!(text.contains("`sin`") && text.contains("at least 48000 bytes so far"), "{text}");
    assert!(text.contains("40000 bytes that cannot be computed again, used by mul at"), "{text}");
    assert!(text.contains("budget_eager.rs"), "{text}");
    // What was computed before stands.
    loss.unwrap().backward().unwrap();
    let found = taken(&[&x]);
    (0..5)
        .fold(x.clone(), |y, i| y.sin() * Tensor::from(vec![f64::from(i); 1000]))
        .sum()
        .backward()
        .unwrap();
    assert_eq!(taken(&[&x]), found);
    // A single value that does not fit.
    let error = catch(|| memory_budget(7999, || (&x * 2.0).sin())).unwrap_err().to_string();
    assert!(error.contains("at least 8000 bytes"), "{error}");
}

#[test]
fn a_long_chain_is_a_loop() {
    let _lock = exclusive();
    let x = Tensor::from([0.5; 32]).requires_grad();
    let long = || (0..20_000).fold(x.clone(), |x, _| x.sin() + 0.5).sum();
    long().backward().unwrap();
    let expected = taken(&[&x]);
    let budget = MemoryBudget::new(300 * 256);
    budget.run(long).backward().unwrap();
    assert_eq!(taken(&[&x]), expected);
    assert!(budget.used().kept <= 300 * 256 && budget.used().extra() < 2.0, "{}", budget.used());
    // Nothing on the way is saved: the first value that is asked for makes all of it again, in one
    // go.
    let steep = || {
        let far = (0..15_000).fold(x.clone(), |x, _| x + 0.001);
        (0..5).fold(far, |x, _| x.sin()).sum()
    };
    steep().backward().unwrap();
    let expected = taken(&[&x]);
    let budget = MemoryBudget::new(256);
    budget.run(steep).backward().unwrap();
    assert_eq!(taken(&[&x]), expected);
    assert!(budget.used().again > 20_000, "{}", budget.used());
    drop(MemoryBudget::new(300 * 256).run(long));
}

#[test]
fn beside_checkpoints_autocast_hooks_and_threads() {
    let _lock = exclusive();
    let x = Key::new(4).normal([8, 8], DType::F32, 0.0, 1.0).requires_grad();
    let w = Key::new(5).normal([8, 8], DType::F32, 0.0, 0.5).requires_grad();
    let block = |x: &Tensor, w: &Tensor| (x.matmul(w).tanh() + x).sin();
    let plain = || (0..16).fold(x.clone(), |x, _| block(&x, &w)).sum();
    plain().backward().unwrap();
    let expected = taken(&[&x, &w]);
    let small = || MemoryBudget::new(6 * 256);

    let checkpointed = || {
        (0..8).fold(x.clone(), |x, _| {
            let w = w.clone();
            checkpoint(move |x: &Tensor| block(&block(x, &w), &w), &x)
        })
    };
    let budget = small();
    budget.run(|| checkpointed().sum()).backward().unwrap();
    assert_eq!(taken(&[&x, &w]), expected);
    assert!(
        budget.used().dropped > 0,
        "arguments of checkpoints are saved values: {}",
        budget.used()
    );

    let (budget, inner) = (small(), w.clone());
    let again = budget.clone();
    let y = checkpoint(
        move |x: &Tensor| again.run(|| (0..16).fold(x.clone(), |x, _| block(&x, &inner))),
        &x,
    );
    y.sum().backward().unwrap();
    assert_eq!(taken(&[&x, &w]), expected);
    assert_eq!(budget.used().without, 0, "the checkpoint decides");

    let low = || autocast(DType::BF16, plain);
    low().backward().unwrap();
    let lowered = taken(&[&x, &w]);
    small().run(low).backward().unwrap();
    assert_eq!(taken(&[&x, &w]), lowered);

    // Hooks fire once, and the pass may be on another thread.
    let count = Arc::new(AtomicUsize::new(0));
    let budget = small();
    let loss = budget.run(|| {
        let hooked = |x: Tensor| {
            let count = count.clone();
            let _ = x.register_hook(move |g: &Tensor| {
                count.fetch_add(1, Ordering::Relaxed);
                Some(g.clone())
            });
            x
        };
        (0..16).fold(x.clone(), |x, _| hooked(block(&x, &w))).sum()
    });
    std::thread::spawn(move || loss.backward().unwrap()).join().unwrap();
    assert_eq!(taken(&[&x, &w]), expected);
    assert!(budget.used().again > 0);
    assert_eq!(count.load(Ordering::Relaxed), 16);
}

#[test]
fn loops_and_custom_functions_inside() {
    let _lock = exclusive();
    let x = Key::new(6).normal([6, 16], DType::F64, 0.0, 1.0).requires_grad();
    let w = Key::new(7).normal([16], DType::F64, 0.0, 1.0).requires_grad();
    let softplus = custom_vjp(
        "softplus",
        |x: &Tensor| (x.exp().log1p(), x.clone()),
        |x: &Tensor, dy: &Tensor| dy * x.sigmoid(),
    );
    let run = || {
        let step = |state: &Tensor, x: &Tensor| {
            let state = (state * x).tanh();
            (state.clone(), state.sin())
        };
        let turns = |x: Tensor, _: i32| softplus.call(&scan(step, &w, &x.sin()).1);
        (0..8).fold(x.clone(), turns).sum()
    };
    run().backward().unwrap();
    let expected = taken(&[&x, &w]);
    for values in [64, 16, 8, 6] {
        let budget = MemoryBudget::new(values * 6 * 16 * 8);
        budget.run(run).backward().unwrap();
        assert_eq!(taken(&[&x, &w]), expected, "{values} values");
        assert!(values > 16 || budget.used().dropped > 0, "{}", budget.used());
    }
}

#[test]
fn a_traced_function_is_refused() {
    let _lock = exclusive();
    let f = jit(|x: &Tensor| memory_budget(100, || x.sin()));
    let error = f.call(&Tensor::from([1.0, 2.0])).unwrap_err().to_string();
    assert!(error.contains("Jit::memory_budget") && error.contains("budget_eager.rs"), "{error}");
}
