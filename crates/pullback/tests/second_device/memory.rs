//! Memory of a device: who holds it when there is none left, and values that wait on the host.

use super::device_second::{alone, counted, limited, second};
use super::{bits, sample};
use pullback::{
    Backward, Device, ErrorKind, MemoryBudget, Offload, Tensor, catch, jit, memory_report,
    memory_stats_of, reset_peak_of, synchronize, trim_memory,
};
use std::sync::Arc;

#[test]
fn an_error_names_what_was_asked_and_the_lines_that_hold() {
    let _alone = alone();
    let x = sample(&[64, 64], 1).to(second());
    let held = line!() + 1;
    let rows: Vec<Tensor> = (0..3).map(|_| x.tanh()).collect();
    let (asked, error) = limited(1000, || (line!(), catch(|| x.matmul(&x)).unwrap_err()));
    assert_eq!(error.kind(), ErrorKind::Memory);
    let text = error.to_string();
    assert!(text.starts_with("dot: cannot allocate 16384 bytes on cuda:0"), "{text}");
    assert!(text.contains("48.0 KiB  tanh ×3"), "{text}");
    assert!(text.contains(&format!("second_device/memory.rs:{held}:")), "{text}");
    assert!(text.contains(&format!("second_device/memory.rs:{asked}:")), "{text}");
    drop(rows);
    // And everything goes on.
    let host = sample(&[64, 64], 1);
    assert_eq!(bits(&x.matmul(&x)), bits(&host.matmul(&host)));
}

#[test]
fn a_thousand_failures_leave_everything_as_it_was() {
    let _alone = alone();
    let x = sample(&[64, 64], 1).to(second());
    // Working memory that is idle is given back at the first failure.
    trim_memory();
    synchronize(second()).unwrap();
    let before = memory_stats_of(second()).unwrap();
    limited(10_000, || {
        for _ in 0..1000 {
            assert_eq!(catch(|| &x + 1.0).unwrap_err().kind(), ErrorKind::Memory);
        }
    });
    synchronize(second()).unwrap();
    let mut after = memory_stats_of(second()).unwrap();
    // The literal is there before there is no memory for the sum.
    (after.allocations, after.peak_bytes) = (before.allocations, before.peak_bytes);
    assert_eq!(after, before);
    assert_eq!(bits(&(&x + 1.0)), bits(&(sample(&[64, 64], 1) + 1.0)));
}

#[test]
fn working_memory_of_programs_is_given_back_first() {
    let _alone = alone();
    let (w, v) = (sample(&[64, 512], 1).to(second()), sample(&[512, 64], 2).to(second()));
    let f = jit(move |x: &Tensor| x.matmul(&w).tanh().matmul(&v).sum());
    let x = sample(&[64, 64], 3).to(second());
    let first = f.call(&x).unwrap();
    // There is an arena of 128 KiB at least, and memory for half of it beside.
    let y = limited(64 << 10, || sample(&[128, 128], 4).to(second()) + 0.0);
    assert_eq!(bits(&y), bits(&sample(&[128, 128], 4)));
    assert_eq!(bits(&f.call(&x).unwrap()), bits(&first));
}

#[test]
fn a_budget_counts_the_memory_of_the_device_that_the_step_runs_on() {
    let _alone = alone();
    let chain = |x: &Tensor| (0..32).fold(x.clone(), |x, _| x.sin().exp());
    let run = |budget: Option<&MemoryBudget>| {
        let x = sample(&[1000], 1).to(second()).requires_grad();
        let host = sample(&[4000], 2).requires_grad();
        let both = || (chain(&x).sum(), chain(&host).sum());
        let (loss, beside) = match budget {
            Some(budget) => budget.run(both),
            None => both(),
        };
        loss.backward().unwrap();
        beside.backward().unwrap();
        (bits(&x.grad().unwrap()), bits(&host.grad().unwrap()))
    };
    let wanted = run(None);
    // 32 values of 4000 bytes are saved on the device; those of the host are of 16000.
    let budget = MemoryBudget::new(16 * 4000);
    assert_eq!(run(Some(&budget)), wanted);
    let used = budget.used();
    assert!(used.kept <= 16 * 4000 && used.dropped > 0, "{used:?}");
    assert!((30 * 4000..=40 * 4000).contains(&used.without), "of the device alone: {used:?}");
    assert!(used.measured < 40 * 4000, "of the device alone: {used:?}");
    // Compiled: what is planned and measured is the device's.
    let x = sample(&[1000], 1).to(second());
    let step = |x: &Tensor| chain(x).sum();
    let tight = jit(pullback::grad(step)).memory_budget(24 * 4000);
    for _ in 0..2 {
        assert_eq!(bits(&tight.call(&x).unwrap()), wanted.0);
    }
    let said = tight.explain();
    let measured = said.specialisations[0].measured.unwrap();
    assert!((4000..=24 * 4000).contains(&measured), "{measured} of {}", 24 * 4000);
    let refused = jit(pullback::grad(step)).memory_budget(1000).call(&x).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Memory, "{refused}");
}

#[test]
fn two_threads_use_one_device_at_once() {
    let _alone = alone();
    let (w, v) = (sample(&[64, 128], 1), sample(&[128, 64], 2));
    let run = &|on: Device, seed: usize| {
        let (w, v) = (w.to(on), v.to(on));
        let f = jit(move |x: &Tensor| x.matmul(&w).tanh().matmul(&v).sum());
        let mut made = Vec::new();
        for i in 0..20 {
            let x = sample(&[32, 64], seed + i).to(on).requires_grad();
            let y = f.call(&x).unwrap();
            // Eager work, writes and copies of this thread between programs of both.
            let z = &x.detach() * 2.0;
            let copy = z.cpu_later();
            z.add_(y.detach());
            (x.square().sum() * &y).backward().unwrap();
            made.extend([bits(&y), bits(&z), bits(&copy.wait()), bits(&x.grad().unwrap())]);
        }
        made
    };
    let wanted = [0, 1000].map(|seed| run(Device::Cpu, seed));
    let found = std::thread::scope(|scope| {
        let threads = [0, 1000].map(|seed| scope.spawn(move || run(second(), seed)));
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(found, wanted);
}

/// Blocks `x + tanh(x·w)`, as deep as there are weights.
fn chain(x: &Tensor, weights: &[Tensor]) -> Tensor {
    weights.iter().fold(x.clone(), |x, w| x.matmul(w).tanh() + &x).square().mean()
}

fn gradients(on: Device, run: impl Fn(&dyn Fn() -> Tensor) -> Tensor) -> Vec<Tensor> {
    let weights: Vec<Tensor> =
        (0..12).map(|i| (sample(&[64, 64], i) * 0.1).to(on).requires_grad()).collect();
    let x = sample(&[256, 64], 99).to(on);
    let loss = run(&|| chain(&x, &weights));
    loss.backward().unwrap();
    weights.iter().map(|w| w.grad().unwrap()).collect()
}

#[test]
fn values_wait_on_the_host_and_come_back_in_time() {
    let _alone = alone();
    let peak = |run: &dyn Fn() -> Vec<Tensor>| {
        synchronize(second()).unwrap();
        reset_peak_of(second()).unwrap();
        let before = memory_stats_of(second()).unwrap().live_bytes;
        let made = run();
        (made, memory_stats_of(second()).unwrap().peak_bytes - before)
    };
    let (wanted, whole) = peak(&|| gradients(second(), |f| f()));
    let offload = Offload::to_host().min_bytes(1 << 10).prefetch(2);
    let ((found, least), told) = counted(|| peak(&|| gradients(second(), |f| offload.run(f))));
    for (a, b) in wanted.iter().zip(&found) {
        assert_eq!(bits(a), bits(b));
    }
    let stats = offload.stats();
    // What `dot` and `tanh` save of each block, 64 KiB each.
    assert!(told.offloads >= 23 && told.restores >= 20, "{told:?} {stats:?}");
    assert_eq!(stats.read_bytes, told.restores * (64 << 10), "{stats:?}");
    assert!(stats.prefetch_hits > stats.read_on_demand, "{stats:?}");
    assert!(stats.peak_held_bytes <= 2 * (64 << 10), "{stats:?}");
    assert_eq!((stats.host_bytes, stats.held_bytes), (0, 0), "nothing stays: {stats:?}");
    // The device frees when its queue gets there, so the host's count of it is above the truth.
    let report = |run: &dyn Fn() -> Vec<Tensor>| {
        let ((), report) = memory_report(|| {
            run();
            Ok(())
        })
        .unwrap();
        report.by_device.iter().find(|of| of.device == second()).unwrap().peak
    };
    let kept = report(&|| gradients(second(), |f| f()));
    let away = report(&|| gradients(second(), |f| offload.run(f)));
    assert!(away + 10 * (64 << 10) < kept, "{away} of {kept} bytes ({least} of {whole})");
}

#[test]
fn products_wait_on_the_host_and_what_is_cheap_is_made_of_them_again() {
    let _alone = alone();
    let gradients = |run: &dyn Fn(&dyn Fn() -> Tensor) -> Tensor| {
        let weight = |i| (sample(&[64, 64], i) * 0.1).to(second()).requires_grad();
        let weights: Vec<Tensor> = (0..24).map(weight).collect();
        let x = sample(&[256, 64], 99).to(second());
        let chain = || {
            let block = |x: Tensor, w: &[Tensor]| x.matmul(&w[0]).gelu().matmul(&w[1]) + x;
            weights.chunks(2).fold(x.clone(), block).square().mean()
        };
        run(&chain).backward().unwrap();
        weights.iter().map(|w| bits(&w.grad().unwrap())).collect::<Vec<_>>()
    };
    const ONE: usize = 256 * 64 * 4;
    let wanted = gradients(&|f| f());
    let all = Offload::to_host().min_bytes(1 << 10).prefetch(2);
    let (found, moved) = counted(|| gradients(&|f| all.run(f)));
    assert!(found == wanted);
    let some = Offload::to_host().min_bytes(1 << 10).prefetch(2);
    // A product is 32 operations for a byte.
    let budget = MemoryBudget::new(3 * ONE).or_pack(Arc::new(some.clone())).packing_costs(16.0);
    let (found, told) = counted(|| gradients(&|f| budget.run(f)));
    assert!(found == wanted);
    let used = budget.used();
    assert!(used.kept <= 3 * ONE && used.dropped > 6 && used.packed > 6, "{used}");
    assert!(told.offloads + 8 <= moved.offloads, "{told:?} {moved:?}");
    assert!(told.restores <= told.offloads, "each comes back once: {told:?}");
    // Two that were kept make room, and run again; all others come back.
    assert!(used.extra() < 0.15, "{used}");
    assert_eq!((some.stats().host_bytes, some.stats().held_bytes), (0, 0), "{:?}", some.stats());
}

#[test]
fn values_are_restored_as_they_were_saved() {
    let _alone = alone();
    let run = |on: Device, offload: &Offload| {
        let x = sample(&[32, 32], 1).to(on).requires_grad();
        let (loss, kept) = offload.run(|| {
            let y = &x * 2.0;
            let z = y.exp().sin();
            (z.sum(), y)
        });
        let _ = kept;
        Backward::of(&loss).retain_graph().run().unwrap();
        loss.backward().unwrap();
        x.grad().unwrap()
    };
    let offload = Offload::to_host().min_bytes(1);
    assert_eq!(bits(&run(second(), &offload)), bits(&run(Device::Cpu, &offload)));
    assert!(offload.stats().written_bytes > 0);
    // A write after the value was saved comes after the copy.
    let x = sample(&[32, 32], 1).to(second()).requires_grad();
    let loss = offload.run(|| {
        let y = &x * 2.0;
        let loss = y.sin().sum();
        y.detach().zero_();
        loss
    });
    loss.backward().unwrap();
    let expected = (sample(&[32, 32], 1) * 2.0).cos() * 2.0;
    assert_eq!(bits(&x.grad().unwrap()), bits(&expected));
}

#[test]
fn values_that_the_host_may_not_hold_are_refused() {
    let _alone = alone();
    let x = sample(&[32, 32], 1).to(second()).requires_grad();
    let offload = Offload::to_host().min_bytes(1).max_bytes(5000);
    let error = catch(|| offload.run(|| (&x * 2.0).sin().exp().sum())).unwrap_err().to_string();
    assert!(error.contains("above the 5000 that may be on the host"), "{error}");
}

#[test]
fn a_copy_to_the_host_is_not_waited_for() {
    let _alone = alone();
    let x = sample(&[16, 16], 1).to(second());
    let ((copy, y), told) = counted(|| {
        let y = x.t().exp();
        let copy = y.t().cpu_later();
        y.zero_();
        (copy, y)
    });
    assert_eq!((told.waits, told.downloads, told.offloads), (0, 0, 1), "{told:?}");
    let found = copy.wait();
    assert_eq!((found.device(), bits(&found)), (Device::Cpu, bits(&sample(&[16, 16], 1).exp())));
    assert_eq!(y.sum().item::<f32>(), 0.0);
}

#[test]
fn reports_are_by_device() {
    let _alone = alone();
    let w = sample(&[64, 64], 1).to(second()).requires_grad();
    let ((), report) = memory_report(|| {
        let x = sample(&[32, 64], 2).to(second());
        x.matmul(&w).tanh().sum().backward()
    })
    .unwrap();
    let there = report.by_device.iter().find(|of| of.device == second()).unwrap();
    assert!(there.peak >= 2 * 64 * 64 * 4, "{there:?}");
    assert!(there.pool.unwrap().peak >= there.peak, "{there:?}");
    let tanh = report.activations_by_line.iter().find(|line| line.op == "tanh").unwrap();
    assert_eq!(tanh.device, second());
    assert!(report.to_string().contains("@cuda:0"), "{report}");
    assert!(report.to_json().contains(r#""by_device":[{"device":"cpu""#), "{}", report.to_json());
}
