//! What compiled functions keep: memory that they share, programs up to a limit, and how a program
//! is found.

use pullback::{
    CustomOp, DType, Derivative, Device, HostInput, HostOutput, Key, Result, Spec, Tensor,
    custom_op, default_device, grad, jit, memory_stats, no_grad, reset_peak, trim_memory,
};
use std::sync::Mutex;
use std::time::Instant;

/// Whether new tensors are on the CPU: these tests run on another device too
/// (`second_device_jit.rs`), where the host's memory tells nothing.
fn on_host() -> bool {
    default_device() == Device::Cpu
}

/// The counters of the pool are global: tests that read them take turns.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

fn exclusive() -> std::sync::MutexGuard<'static, ()> {
    EXCLUSIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn sample(shape: &[usize], seed: u64) -> Tensor {
    Key::new(seed).normal(shape, DType::F32, 0.0, 1.0)
}

/// Bytes that are held, used and kept for reuse.
fn held() -> u64 {
    let now = memory_stats();
    now.live_bytes + now.cached_bytes
}

#[test]
fn sixty_four_lengths_hold_one_arena() {
    if !on_host() {
        return;
    }
    let _lock = exclusive();
    let w = sample(&[64, 64], 1);
    // Products cannot be fused away: their results are in the arena until the backward pass.
    let f = |x: &Tensor| (0..8).fold(x.clone(), |x, _| x.matmul(&w).tanh()).square().sum();
    let step = jit(grad(f));
    trim_memory();
    let before = held();
    let mut largest = 0;
    for length in 1..=64 {
        let x = sample(&[16 * length, 64], length as u64);
        let g = step.of(&x);
        if length % 16 == 0 {
            let expected = grad(f)(&x);
            assert!((g - expected).abs().max().item::<f32>() < 1e-3, "length {length}");
        }
    }
    for said in &step.explain().specialisations {
        largest = largest.max(said.peak as u64);
    }
    assert!(largest > 2 << 20, "{largest}");
    trim_memory_of_the_pool_alone(&step, largest, before);
    // What is not used at the moment is returned to the system.
    trim_memory();
    let left = held().saturating_sub(before);
    assert!(left < largest / 4, "{left} bytes are left of {largest}");
    // And the function continues to work.
    let x = sample(&[160, 64], 5);
    let (found, expected) = (step.of(&x), grad(f)(&x));
    assert!((found - expected).abs().max().item::<f32>() < 1e-3);
}

/// What the arenas hold, without what the pool keeps of other buffers: the pool is trimmed first,
/// and one call of the largest length makes the arena again.
fn trim_memory_of_the_pool_alone(
    step: &pullback::Jit<Tensor, Tensor, impl Fn(&Tensor) -> Tensor>,
    largest: u64,
    before: u64,
) {
    trim_memory();
    for length in (1..=64).rev() {
        drop(step.of(&sample(&[16 * length, 64], 1)));
    }
    let now = held() - before;
    // Arguments and results of the calls are kept by the pool too, by size: 64 lengths of 16 rows
    // of 64 numbers, and packed panels.
    let others = 3 * (1..=64u64).map(|length| 16 * length * 64 * 4).sum::<u64>();
    assert!(now < largest + largest / 8 + others, "{now} bytes are held, {largest} are needed");
    assert_eq!(step.explain().specialisations.len(), 64);
}

#[test]
fn an_arena_counts_while_a_call_runs() {
    if !on_host() {
        return;
    }
    let _lock = exclusive();
    let w = sample(&[256, 256], 1);
    let f = jit(|x: &Tensor| (0..4).fold(x.clone(), |x, _| x.matmul(&w).sin()).sum());
    let x = sample(&[256, 256], 2);
    f.of(&x);
    let live = memory_stats().live_bytes;
    reset_peak();
    f.of(&x);
    let peak = f.explain().specialisations[0].peak as u64;
    let rise = memory_stats().peak_bytes - live;
    assert!(peak > 256 * 256 * 4 && rise >= peak, "{rise} of {peak}");
    assert_eq!(memory_stats().live_bytes, live);
}

#[test]
fn the_least_used_gives_way_and_comes_back() {
    let _lock = exclusive();
    let f = jit(|x: &Tensor| x.square().sum()).cache_limit(3);
    let call = |length: usize| {
        let found = f.of(&Tensor::from(vec![3.0; length])).item::<f64>();
        assert_eq!(found, 9.0 * length as f64);
    };
    let lengths = || -> Vec<String> {
        let all = f.explain().specialisations;
        all.iter().map(|s| s.arguments[0].replace("@cuda:0", "")).collect()
    };
    [1, 2, 3, 1].into_iter().for_each(call);
    assert_eq!((f.explain().evicted, f.explain().cache_limit), (0, 3));
    call(4);
    // 2 was unused for longest.
    assert_eq!(lengths(), ["f64[1]", "f64[3]", "f64[4]"]);
    call(2);
    assert_eq!(lengths(), ["f64[1]", "f64[4]", "f64[2]"]);
    let said = f.explain();
    assert_eq!(said.evicted, 2);
    assert_eq!(said.specialisations[2].why, "it was evicted: the cache holds 3");
    let text = said.to_string();
    assert!(text.contains("2 programs were evicted: 3 are kept (`cache_limit`)"), "{text}");
    let f = f.cache_limit(0);
    assert_eq!((f.explain().specialisations.len(), f.explain().cache_limit), (1, 1));
}

#[test]
fn an_evicted_step_goes_on_with_its_state() {
    let _lock = exclusive();
    let w = Tensor::from([1.0, -2.0]).requires_grad();
    let count = Tensor::from(0.0);
    let step = jit(|x: &Tensor| {
        let loss = (x.matmul(&w) - 1.0).square().mean();
        loss.backward()?;
        no_grad(|| {
            w.sub_(w.grad().unwrap() * 0.01);
            count.add_(1.0);
        });
        Ok(loss)
    })
    .cache_limit(1);
    let other = Tensor::from([1.0, -2.0]).requires_grad();
    for turn in 0..6usize {
        let x = Key::new(turn as u64).normal([1 + turn % 3, 2], DType::F64, 0.0, 1.0);
        step.call(&x).unwrap();
        (x.matmul(&other) - 1.0).square().mean().backward().unwrap();
        no_grad(|| other.sub_(other.grad().unwrap() * 0.01));
    }
    assert_eq!(count.item::<f64>(), 6.0);
    assert_eq!(step.explain().evicted, 5);
    for (a, b) in w.to_vec::<f64>().into_iter().zip(other.to_vec::<f64>()) {
        assert!((a - b).abs() < 1e-12);
    }
}

#[test]
fn structures_are_told_apart() {
    let _lock = exclusive();
    // Plain values, lengths and keys: what a hash may confuse is compared in full.
    let f = jit(|(x, rate, names): &(Tensor, f64, Vec<String>)| x * *rate + names.len() as f64);
    let x = Tensor::from(1.0);
    for rate in [0.5, 1.5, 0.5, 2.5] {
        for names in [vec![], vec!["a".to_string()], vec!["a".to_string(), "b".to_string()]] {
            let wanted = rate + names.len() as f64;
            assert_eq!(f.of(&(x.clone(), rate, names)).item::<f64>(), wanted);
        }
    }
    assert_eq!(f.explain().specialisations.len(), 9);
    let why = &f.explain().specialisations[1].why;
    assert_eq!(why, "plain values or the structure of the argument have changed");
}

#[test]
fn a_call_among_thousands_of_programs_is_found_by_hash() {
    let _lock = exclusive();
    let f = jit(|(x, k): &(Tensor, usize)| x + *k as f64).cache_limit(100_000);
    let x = Tensor::from(1.0);
    let call = |k: usize| assert_eq!(f.of(&(x.clone(), k)).item::<f64>(), 1.0 + k as f64);
    let time = |count: usize| {
        (0..5)
            .map(|_| {
                let start = Instant::now();
                (0..200).for_each(|i| call(i * 7 % count));
                start.elapsed()
            })
            .min()
            .unwrap()
    };
    (0..10).for_each(call);
    let few = time(10);
    (10..3000).for_each(call);
    let many = time(3000);
    // One by one it would be hundreds of times as long.
    assert!(many < few * 12, "{few:?} among 10, {many:?} among 3000");
}

/// Adds what another compiled function makes of `x`, which runs while the outer one does.
struct Again {
    w: Tensor,
    x: Tensor,
}

impl CustomOp for Again {
    fn name(&self) -> &'static str {
        "again"
    }

    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(inputs.to_vec())
    }

    fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
        let inner =
            jit(|x: &Tensor| (0..3).fold(x.clone(), |x, _| x.matmul(&self.w).tanh()).square());
        let made = inner.call(&self.x)?.to_vec::<f32>();
        let (from, to) = (inputs[0].as_slice::<f32>()?, outputs[0].as_mut_slice::<f32>()?);
        for ((to, from), more) in to.iter_mut().zip(from).zip(made) {
            *to = from + more;
        }
        Ok(())
    }

    fn derivative(&self) -> Derivative {
        Derivative::Refused("it is only called")
    }
}

#[test]
fn calls_inside_calls_and_threads_have_memory_of_their_own() {
    if !on_host() {
        return;
    }
    let _lock = exclusive();
    let w = sample(&[128, 128], 3);
    let layers = |x: &Tensor| (0..3).fold(x.clone(), |x, _| x.matmul(&w).tanh()).square();
    let x = sample(&[128, 128], 4);
    let within = layers(&x);
    let again = custom_op(Again { w: w.clone(), x: x.clone() });
    let outer = |x: &Tensor| {
        let h = x.matmul(&w).sin();
        let y = again.call(&[&h.matmul(&w)]);
        (h * &y[0]).matmul(&w)
    };
    let h = x.matmul(&w).sin();
    let wanted = (&h * (h.matmul(&w) + &within)).matmul(&w);
    let compiled = jit(outer);
    for _ in 0..3 {
        let apart = (compiled.of(&x) - &wanted).abs().max().item::<f32>();
        assert!(apart < 1e-2, "{apart}");
    }
    // Threads, each with a function of its own and many sizes, while memory is returned to the
    // system.
    std::thread::scope(|s| {
        for seed in 0..3 {
            let w = &w;
            s.spawn(move || {
                let f = |x: &Tensor| (0..3).fold(x.clone(), |x, _| x.matmul(w).tanh()).sum_over(1);
                let compiled = jit(f);
                for turn in 0..12 {
                    let x = sample(&[64 * (1 + (turn + seed as usize) % 5), 128], seed);
                    let apart = (compiled.of(&x) - f(&x)).abs().max().item::<f32>();
                    assert!(apart < 1e-2, "{apart}");
                    trim_memory();
                }
            });
        }
    });
}

#[test]
fn threads_evict_each_others_programs_of_one_function_and_get_their_own_results() {
    let _lock = exclusive();
    // The shapes and the number of results tell programs apart.
    let compiled = jit(|x: &Tensor| {
        (0..x.shape()[0]).map(|i| x.select_at(0, i as isize) * i as f64).collect::<Vec<_>>()
    })
    .cache_limit(1);
    std::thread::scope(|s| {
        for thread in 0..3 {
            let compiled = &compiled;
            s.spawn(move || {
                for turn in 0..40 {
                    let rows = 1 + (turn + thread) % 4;
                    let results = compiled.of(&Tensor::full([rows, 2], 3.0));
                    assert_eq!(results.len(), rows);
                    for (i, y) in results.iter().enumerate() {
                        assert_eq!(y.to_vec::<f64>(), [3.0 * i as f64; 2]);
                    }
                }
            });
        }
    });
    let said = compiled.explain();
    assert_eq!((said.specialisations.len(), said.cache_limit), (1, 1));
    assert!(said.evicted > 3, "{said}");
}
