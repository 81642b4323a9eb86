//! A small GPT at many lengths: what compiled training steps hold, what a new length costs, and
//! that one program for all lengths gives the bits of a program for each.

use pullback::{
    Attention, DType, Device, Jit, Key, Result, Tensor, cross_entropy, default_device, grad, jit,
    memory_stats, no_grad, reset_peak, trim_memory, value_and_grad, vmap,
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whether new tensors are on the CPU: these tests run on another device too
/// (`second_device_jit.rs`), where the host's memory tells nothing.
fn on_host() -> bool {
    default_device() == Device::Cpu
}

/// The counters of the pool are global: tests take turns.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

fn exclusive() -> MutexGuard<'static, ()> {
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

const WIDTH: usize = 64;
const VOCABULARY: usize = 128;
const BATCH: usize = 4;
const LENGTHS: usize = 64;
const LONGEST: usize = 2 * LENGTHS;

/// Embeddings of tokens and places, blocks of attention and a wider layer, and logits.
struct Gpt {
    parameters: Vec<Tensor>,
    blocks: usize,
}

impl Gpt {
    fn new(blocks: usize) -> Gpt {
        // One place more than the longest: a slice that is the whole is another trace.
        let mut shapes = vec![[VOCABULARY, WIDTH], [LONGEST + 1, WIDTH], [WIDTH, VOCABULARY]];
        for _ in 0..blocks {
            let (wide, narrow) = ([WIDTH, 4 * WIDTH], [4 * WIDTH, WIDTH]);
            shapes.extend([[WIDTH, 3 * WIDTH], [WIDTH, WIDTH], wide, narrow]);
        }
        let make = |(seed, shape): (usize, &[usize; 2])| {
            (Key::new(seed as u64).normal(*shape, DType::F32, 0.0, 0.1)).requires_grad()
        };
        Gpt { parameters: shapes.iter().enumerate().map(make).collect(), blocks }
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Tensor {
        let p = &self.parameters;
        let n = x.shape()[1];
        let (one, zero) = (Tensor::full([WIDTH], 1f32), Tensor::full([WIDTH], 0f32));
        let norm = |h: &Tensor| h.layer_norm(&one, &zero, 1e-5);
        let mut h = p[0].index_select(0, &x.reshape([BATCH * n])).reshape([BATCH, n, WIDTH]);
        h += p[1].narrow(0, 0, n);
        for block in p[3..].chunks(4).take(self.blocks) {
            let qkv = norm(&h).matmul(&block[0]).reshape([BATCH, n, 3, 4, WIDTH / 4]);
            let part = |i: isize| qkv.select_at(2, i).transpose(1, 2);
            let mixed = part(0).attention(&part(1), &part(2), Attention::new().causal());
            h += mixed.transpose(1, 2).reshape([BATCH, n, WIDTH]).matmul(&block[1]);
            h = &h + norm(&h).matmul(&block[2]).gelu().matmul(&block[3]);
        }
        let logits = h.matmul(&p[2]).reshape([BATCH * n, VOCABULARY]);
        cross_entropy(&logits, &y.reshape([BATCH * n]))
    }

    fn step(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        self.parameters.iter().for_each(Tensor::zero_grad);
        let loss = self.loss(x, y);
        loss.backward()?;
        no_grad(|| {
            for p in &self.parameters {
                p.sub_(p.grad().expect("a gradient") * 0.01);
            }
        });
        Ok(loss)
    }
}

fn batch(n: usize) -> (Tensor, Tensor) {
    let tokens = |seed: usize| {
        let all = (0..BATCH * n).map(|i| ((i * 37 + seed * 11) % VOCABULARY) as i64);
        Tensor::from(all.collect::<Vec<i64>>()).reshape([BATCH, n])
    };
    (tokens(n), tokens(n + 1))
}

/// Trains at 64 lengths: bytes held at the end, at the peak, and the time of a new length.
fn train(call: impl Fn(&(Tensor, Tensor))) -> (u64, u64, Duration) {
    trim_memory();
    reset_peak();
    let (before, start) = (memory_stats().live_bytes, Instant::now());
    for i in 1..=LENGTHS {
        call(&batch(2 * i));
    }
    let now = memory_stats();
    let held = now.live_bytes + now.cached_bytes - before;
    (held, now.peak_bytes - before, start.elapsed() / LENGTHS as u32)
}

#[test]
fn a_small_gpt_at_64_lengths() {
    let _lock = exclusive();
    let model = Gpt::new(2);
    let (eager, peak, each) = train(|(x, y)| drop(model.step(x, y).unwrap()));
    println!("eager: {eager} bytes held, {peak} at the peak, {each:?} a length");
    for dynamic in [false, true] {
        let model = Gpt::new(2);
        let step = jit(|(x, y): &(Tensor, Tensor)| model.step(x, y));
        let step = if dynamic { step.dynamic(1, LONGEST) } else { step };
        let (held, peak, each) = train(|x| drop(step.call(x).unwrap()));
        let said = step.explain();
        let largest = said.specialisations.iter().map(|s| s.peak as u64).max().unwrap();
        // Gradients and the small tensors of each batch are not part of a plan.
        let gradients = model.parameters.iter().map(|p| p.len() as u64 * 4).sum::<u64>();
        println!(
            "jit, dynamic {dynamic}: {held} held, {peak} at the peak, {each:?} a length, {largest} planned"
        );
        said.dynamic.iter().for_each(|report| println!("{report}"));
        assert_eq!(said.specialisations.len(), LENGTHS);
        let needed = largest + gradients;
        if !on_host() {
            continue;
        }
        assert!(peak <= needed * 13 / 10, "{peak} bytes at the peak, {largest} planned");
        // Scratch of kernels (packed panels of products) is not planned. The pool keeps it by class
        // of size, eight to an octave, however many lengths there are.
        assert!(held <= needed * 3, "{held} bytes are held, {largest} planned for the longest");
        assert!(held < eager / 2, "{held} bytes are held, {eager} eagerly");
        trim_memory();
        let left = memory_stats().cached_bytes;
        assert!(left < largest / 4, "{left} bytes are left after trim_memory");
        if dynamic {
            let [report] = &said.dynamic[..] else { panic!("{said}") };
            assert_eq!((report.lengths, report.alone), (LENGTHS - 1, 1), "{said}");
            assert_eq!(report.filled.len(), LENGTHS - 1);
        }
    }
}

/// How often native code was made for each of the programs.
fn compiled<Y: pullback::JitOutput>(f: &Jit<Tensor, Y, impl Fn(&Tensor) -> Y>) -> Vec<usize>
where
    Y::Value: pullback::Tree,
{
    f.explain().specialisations.iter().map(|s| s.native.0).collect()
}

#[test]
fn native_code_is_not_made_again_for_new_lengths() {
    let _lock = exclusive();
    let w = Key::new(1).normal([32, 32], DType::F32, 0.0, 0.2);
    let f = |x: &Tensor| {
        let h = x.matmul(&w).gelu() * x.softmax(-1) + x.exp();
        let scores = h.matmul(&h.transpose(0, 1)).softmax(-1);
        (scores.matmul(&h).tanh() * 2.0 - x).square().mean_over(1)
    };
    let step = jit(|x: &Tensor| value_and_grad(|x: &Tensor| f(x).sum())(x)).dynamic(0, 512);
    for n in 40..140 {
        step.of(&Key::new(n).normal([n as usize, 32], DType::F32, 0.0, 1.0));
    }
    let made = compiled(&step);
    let (first, later) = made.split_at(50);
    println!("native code: {first:?}, then {later:?}");
    // Code depends on lengths through a few classes alone: short rows, large domains.
    assert_eq!(later.iter().sum::<usize>(), 0, "{later:?}");
    let report = &step.explain().dynamic[0];
    assert!(report.native.0 <= 3 * made[0].max(1), "{report}");
}

#[test]
fn one_program_gives_the_bits_of_a_program_for_each_length() {
    let _lock = exclusive();
    let w = Key::new(1).normal([24, 24], DType::F32, 0.0, 0.2);
    let (one, zero) = (Tensor::full([24], 1f32), Tensor::full([24], 0f32));
    let f = |x: &Tensor| {
        let h = x.matmul(&w).gelu() + x.layer_norm(&one, &zero, 1e-5);
        let scores = (h.matmul(&h.transpose(0, 1)) / 5.0).softmax(-1);
        (scores.matmul(&h).sin() * x).sum()
    };
    let forward = (jit(f), jit(f).dynamic(0, 200));
    let backward = (jit(grad(f)), jit(grad(f)).dynamic(-2, 200));
    for i in 0..60usize {
        let n = 2 + i * 67 % 199;
        let x = Key::new(i as u64).normal([n, 24], DType::F32, 0.0, 1.0);
        let bits = |y: Tensor| y.to_vec::<f32>().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(forward.0.of(&x)), bits(forward.1.of(&x)), "forward, length {n}");
        assert_eq!(bits(backward.0.of(&x)), bits(backward.1.of(&x)), "gradient, length {n}");
    }
    for said in [forward.1.explain(), backward.1.explain()] {
        assert!(said.dynamic[0].lengths >= 58, "{said}");
    }
}

#[test]
fn an_axis_may_count_from_the_end() {
    let _lock = exclusive();
    let f = jit(|(x, y): &(Tensor, Tensor)| x.sum_over(-1) * y.sum_over(-1)).dynamic(-1, 20);
    let g = jit(|(x, y): &(Tensor, Tensor)| x.sum_over(-1) * y.sum()).dynamic((0, -1), 20);
    for n in 2..12 {
        let x = (Tensor::full([3, n], 2.0), Tensor::full([n], 1.0));
        assert_eq!(f.of(&x).to_vec::<f64>(), [2.0 * (n * n) as f64; 3]);
        let x = (Tensor::full([3, n], 2.0), Tensor::full([4], 1.0));
        assert_eq!(g.of(&x).to_vec::<f64>(), [8.0 * n as f64; 3]);
    }
    assert_eq!(f.explain().dynamic[0].lengths, 9, "{}", f.explain());
    assert_eq!(g.explain().dynamic[0].lengths, 9, "{}", g.explain());
    let f = jit(|x: &Tensor| x.sum()).dynamic((0, -2), 10);
    let error = f.call(&Tensor::from([1.0])).unwrap_err().to_string();
    assert!(error.contains("axis -2 of tensor 0 was declared dynamic"), "{error}");
}

/// The least of some times of preparing a step that writes this many scalars in place.
fn preparing(count: usize) -> Duration {
    let params: Vec<Tensor> =
        (0..count).map(|i| Tensor::from(i as f64 * 0.01).requires_grad()).collect();
    let once = || {
        let step = jit(|x: &Tensor| {
            params.iter().for_each(Tensor::zero_grad);
            let terms = params.iter().map(|p| (p * x).sin());
            let loss = terms.fold(x.clone(), |sum, term| sum + term);
            loss.backward()?;
            no_grad(|| params.iter().for_each(|p| drop(p.sub_(p.grad().unwrap() * 0.1))));
            Ok(loss)
        });
        step.compile(&Tensor::from(1.0)).unwrap();
        step.explain().specialisations[0].compile[2]
    };
    (0..3).map(|_| once()).min().unwrap()
}

#[test]
fn preparing_a_step_of_many_scalars_takes_time_in_proportion() {
    let _lock = exclusive();
    let (few, many) = (preparing(400), preparing(3200));
    println!("preparing: {few:?} for 400 scalars, {many:?} for 3200");
    // In proportion 8 times; pair by pair 64 times.
    assert!(many < few * 30, "{few:?} for 400 scalars, {many:?} for 3200");
}

#[test]
fn writes_without_gradients_in_a_body_take_time_in_proportion() {
    let _lock = exclusive();
    let time = |count: usize| {
        let f = |x: &Tensor| {
            let y = x * 1.0;
            for i in 0..count {
                let z = x.gt(0.0).cast(DType::F64);
                no_grad(|| z.add_(i as f64));
            }
            y
        };
        let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
        let once = || {
            let start = Instant::now();
            vmap(f, 0, 0)(&x);
            start.elapsed()
        };
        (0..3).map(|_| once()).min().unwrap()
    };
    let (few, many) = (time(300), time(4800));
    println!("writes: {few:?} for 300, {many:?} for 4800");
    // In proportion 16 times; from the start for each 256 times.
    assert!(many < few * 80, "{few:?} for 300 writes, {many:?} for 4800");
}
