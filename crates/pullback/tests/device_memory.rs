//! Memory, copies and faults of a GPU: `PULLBACK_DEVICE=cuda:0` names it. Without one there is
//! nothing to do here; `second_device` has the same on a device of its own.

use pullback::{
    DType, Device, ErrorKind, Offload, Tensor, catch, default_device, memory_stats_of,
    reset_peak_of, synchronize, trim_memory, update,
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
