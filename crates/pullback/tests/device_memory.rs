//! Memory, copies and faults of a GPU: `PULLBACK_DEVICE=cuda:0` names it. Without one there is
//! nothing to do here; `second_device` has the same on a device of its own.

use pullback::{
    CudaKernel, CustomOp, DType, Derivative, Device, ErrorKind, Offload, Result, Spec, Tensor,
    catch, custom_op, default_device, jit, linalg, memory_stats_of, reset_peak_of, synchronize,
    trim_memory, update,
};
use std::sync::Mutex;

/// The GPU, one test at a time; `None` on the CPU.
fn gpu() -> Option<(Device, std::sync::MutexGuard<'static, ()>)> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let device = default_device();
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    (device != Device::Cpu).then_some((device, turn))
}

#[test]
fn a_thousand_failures_leave_everything_as_it_was() {
    let Some((device, _turn)) = gpu() else { return };
    let x = Tensor::arange(0, 1000).cast(DType::F32);
    synchronize(device).unwrap();
    trim_memory();
    let before = memory_stats_of(device).unwrap();
    for _ in 0..1000 {
        let line = line!() + 1;
        let error = catch(|| Tensor::from(1.0f32).expand([1 << 24, 1 << 16]).exp()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("device_memory.rs:{line}:")), "{text}");
        assert!(text.starts_with("exp: ") && text.contains("holds"), "{text}");
    }
    synchronize(device).unwrap();
    let after = memory_stats_of(device).unwrap();
    assert_eq!(after.live_bytes, before.live_bytes);
    assert_eq!((&x + 1.0).sum().item::<f32>(), 500_500.0);
}

#[test]
fn large_copies_keep_their_bytes() {
    let Some((device, _turn)) = gpu() else { return };
    // Around the sizes at which copies are cut, and not multiples of anything.
    for len in [1usize, (1 << 20) - 1, 1 << 20, (2 << 20) + 3, (23 << 20) + 7] {
        let values: Vec<i32> = (0..len as i32).map(|i| i.wrapping_mul(2_654_435)).collect();
        let there = Tensor::from_vec(&values, [len]);
        assert_eq!(there.device(), device);
        assert_eq!(there.to_vec::<i32>(), values, "{len}");
        let copy = there.cpu_later();
        there.zero_();
        assert_eq!(copy.wait().to_vec::<i32>(), values, "{len}, later");
    }
    assert!(memory_stats_of(device).unwrap().pinned_bytes > 0);
}

/// Blocks `x + tanh(x·w)`: the gradients of their weights.
fn gradients(blocks: usize, run: &dyn Fn(&dyn Fn() -> Tensor) -> Tensor) -> Vec<Tensor> {
    let key = pullback::Key::new(3);
    let weight = |i: usize| key.fold_in(i as u64).normal([512, 512], DType::F32, 0.0, 0.02);
    let weights: Vec<Tensor> = (0..blocks).map(|i| weight(i).requires_grad()).collect();
    let x = key.normal([8192, 512], DType::F32, 0.0, 1.0);
    let chain = || weights.iter().fold(x.clone(), |x, w| x.matmul(w).tanh() + &x).square().mean();
    run(&chain).backward().unwrap();
    weights.iter().map(|w| w.grad().unwrap()).collect()
}

#[test]
fn values_wait_on_the_host() {
    let Some((device, _turn)) = gpu() else { return };
    let peak = |run: &dyn Fn(&dyn Fn() -> Tensor) -> Tensor| {
        synchronize(device).unwrap();
        reset_peak_of(device).unwrap();
        let before = memory_stats_of(device).unwrap().live_bytes;
        let found = gradients(24, run);
        synchronize(device).unwrap();
        (found, memory_stats_of(device).unwrap().peak_bytes - before)
    };
    let (wanted, whole) = peak(&|f| f());
    let offload = Offload::to_host().prefetch(3);
    // Several times: pinned buffers and blocks of the device are used again while copies run.
    for _ in 0..4 {
        let (found, least) = peak(&|f| offload.run(f));
        for (a, b) in wanted.iter().zip(&found) {
            assert_eq!(a.to_vec::<f32>(), b.to_vec::<f32>());
        }
        assert!(least < whole / 2, "{least} of {whole} bytes");
    }
    let stats = offload.stats();
    assert!(stats.prefetch_hits > stats.read_on_demand, "{stats:?}");
}

#[test]
fn faults_of_two_threads_are_two_errors() {
    let Some((device, _turn)) = gpu() else { return };
    synchronize(device).unwrap();
    let table = Tensor::zeros([4, 2]);
    let wrong = |value: i64| drop(table.index_select(0, &Tensor::from(vec![value])));
    std::thread::scope(|s| {
        s.spawn(|| wrong(7)).join().unwrap();
        s.spawn(|| wrong(9)).join().unwrap();
    });
    let mut said: Vec<String> =
        (0..2).map(|_| synchronize(device).unwrap_err().to_string()).collect();
    said.sort();
    assert!(said[0].contains("index 7") && said[1].contains("index 9"), "{said:?}");
    synchronize(device).unwrap();
    assert_eq!((&table + 1.0).sum().item::<f32>(), 8.0);
}

#[test]
fn parameters_stay_as_they_were_after_a_fault() {
    let Some((device, _turn)) = gpu() else { return };
    synchronize(device).unwrap();
    let (x, g) = (Tensor::ones([64]), Tensor::ones([64]));
    let rate = Tensor::from(0.5f32);
    let step = || update::sgd_(&Default::default(), &rate, &x, &g, None);
    step();
    assert_eq!(x.sum().item::<f32>(), 32.0);
    drop(Tensor::zeros([4]).index_select(0, &Tensor::from(vec![5i64])));
    step();
    assert!(synchronize(device).is_err());
    assert_eq!(x.sum().item::<f32>(), 32.0);
    step();
    assert_eq!(x.sum().item::<f32>(), 0.0);
}

/// A kernel that ends the context.
struct Crash(CudaKernel);

impl CustomOp for Crash {
    fn name(&self) -> &'static str {
        "crash"
    }
    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(vec![inputs[0].clone()])
    }
    fn cuda(&self) -> Option<&CudaKernel> {
        Some(&self.0)
    }
    fn derivative(&self) -> Derivative {
        Derivative::Refused("it does not return")
    }
}

const CRASHES: &str = "PULLBACK_TEST_CRASHES";

/// Not a test by itself: what the process of the next one does.
#[test]
fn a_process_that_crashes() {
    let Some((device, _turn)) = gpu().filter(|_| std::env::var_os(CRASHES).is_some()) else {
        return;
    };
    let text = "extern \"C\" __global__ void crash(const T0* x, R0* y, long long n) { __trap(); }";
    // SAFETY: it touches no memory.
    let crash = custom_op(Crash(unsafe { CudaKernel::elementwise("crash", text, 1, 1) }));
    let (x, w) = (Tensor::ones([1000]).cast(DType::F32), Tensor::ones([64, 64]).cast(DType::F32));
    let compiled = jit(|x: &Tensor| (x * 2.0).sum());
    for _ in 0..3 {
        assert_eq!(compiled.of(&x).item::<f32>(), 2000.0);
    }
    assert_eq!(w.matmul(&w).sum().item::<f32>(), 64.0 * 64.0 * 64.0);
    let y = crash.one(&[&x]);
    type Use<'a> = (&'a str, &'a dyn Fn() -> Result<()>);
    let read: Use<'_> = ("reading the result", &|| catch(|| drop(y.to_vec::<f32>())));
    let large = vec![1f32; 1 << 20];
    let uses: [Use<'_>; 8] = [
        ("an elementwise op", &|| catch(|| drop((&x + 1.0).to_vec::<f32>()))),
        ("a sum", &|| catch(|| drop(x.sum().to_vec::<f32>()))),
        ("a product", &|| catch(|| drop(w.matmul(&w).to_vec::<f32>()))),
        ("a factorisation", &|| catch(|| drop(linalg::cholesky(&w, false).to_vec::<f32>()))),
        ("a compiled function", &|| catch(|| drop(compiled.of(&x).to_vec::<f32>()))),
        ("an upload", &|| catch(|| drop(Tensor::from_vec(&large, [1 << 20]).to_vec::<f32>()))),
        ("much memory", &|| catch(|| drop(Tensor::zeros([1 << 28]).sum().to_vec::<f32>()))),
        ("waiting", &|| synchronize(device)),
    ];
    // Again and again, in any order.
    let often = std::iter::once(&read).chain(&uses).chain(uses.iter().rev()).chain([&read]);
    for (what, call) in often {
        let said = call().expect_err(what).to_string();
        assert!(said.contains("the context of cuda:0 is lost"), "{what}: {said}");
        assert!(said.contains("The process must be started again"), "{what}: {said}");
    }
}

#[test]
fn a_crash_is_a_sentence_in_every_call_that_follows() {
    let Some((_, _turn)) = gpu() else { return };
    let ended = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_crashes", "--nocapture"])
        .env(CRASHES, "1")
        .output()
        .unwrap();
    let said = [ended.stdout, ended.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(ended.status.success(), "{}\n{}", ended.status, said.join("\n"));
    // This process is as it was.
    assert_eq!(Tensor::ones([8]).sum().item::<f32>(), 8.0);
}

/// What a thread computes of its seed, bit by bit: products, elementwise ops, reductions, softmax,
/// indexing, in two dtypes, eager and compiled, each read.
fn computed(seed: u64) -> Vec<u32> {
    let key = pullback::Key::new(seed);
    let mut all = Vec::new();
    let mut read = |x: &Tensor| {
        all.extend(x.cast(DType::F32).to_vec::<f32>().into_iter().map(f32::to_bits));
    };
    let compiled = jit(|(x, w): &(Tensor, Tensor)| (x.matmul(w).tanh() + x).softmax(1).sum_over(0));
    for round in 0..12 {
        let dtype = if round % 2 == 0 { DType::F32 } else { DType::BF16 };
        let normal = |n: u64, shape: [usize; 2]| {
            key.fold_in(4 * round + n).normal(shape, DType::F32, 0.0, 1.0).cast(dtype)
        };
        let (x, w) = (normal(0, [193, 128]), normal(1, [128, 128]));
        let y = x.matmul(&w);
        read(&y);
        let z = ((&y * 0.5 + 1.0).tanh() - &x) * &y;
        read(&z.sum_over(0));
        read(&z.sum());
        read(&z.softmax(1));
        let rows = Tensor::arange(0, 193).to(x.device());
        read(&z.index_select(0, &rows));
        read(&compiled.of(&(x, w)));
    }
    all
}

#[test]
fn two_threads_have_the_bits_of_one() {
    let Some((_, _turn)) = gpu() else { return };
    let wanted = [1, 2].map(computed);
    for _ in 0..3 {
        std::thread::scope(|s| {
            let both = [1, 2].map(|seed| s.spawn(move || computed(seed)));
            for (thread, wanted) in both.into_iter().zip(&wanted) {
                assert!(thread.join().unwrap() == *wanted, "bits differ");
            }
        });
    }
}
