use super::*;
use std::sync::Mutex;

/// The statistics are global, so tests that compare them exactly are serialised. Other tests of the
/// crate allocate too, so these compare only size classes that no other test uses.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn classes_are_tight_and_in_order() {
    let mut last = (0, 0);
    for bytes in (1..5000).chain([65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 12_345_678, 1 << 40])
    {
        let (class, size) = class_of(bytes);
        assert!(size >= bytes && size.is_multiple_of(64), "{bytes}");
        assert!(size <= 64 * bytes.div_ceil(64).max(1) || (size - bytes) * 8 <= size, "{bytes}");
        assert!(class >= last.0 && size >= last.1);
        assert_eq!(size_of_class(class), size);
        assert_eq!(class < SMALL_CLASSES, bytes <= 65536);
        last = (class, size);
    }
    assert!(class_of(isize::MAX as usize / 4).0 < CLASSES);
}

#[test]
fn blocks_are_aligned_and_reused() {
    let _turn = TURN.lock();
    for bytes in [1, 63, 64, 1000, 65_000, 65_537, 1_000_003, 5_000_001] {
        let mut a = Buffer::alloc(bytes).expect("memory");
        assert_eq!(a.as_ptr() as usize % ALIGN, 0);
        // SAFETY: the block has that many bytes.
        unsafe { a.as_mut_ptr().write_bytes(7, bytes) };
        // SAFETY: just written.
        assert!(unsafe { a.bytes() }.iter().all(|&b| b == 7));
        let address = a.as_ptr();
        drop(a);
        let b = Buffer::alloc(bytes).expect("memory");
        if bytes <= 65536 {
            assert_eq!(b.as_ptr(), address);
        }
    }
    assert!(
        Buffer::alloc(0).is_ok_and(|b| b.is_empty() && (b.as_ptr() as usize).is_multiple_of(ALIGN))
    );
    assert!(Buffer::alloc(usize::MAX).is_err());
    assert!(Buffer::alloc(1 << 60).is_err());
}

#[test]
fn statistics_follow() {
    let _turn = TURN.lock();
    // Larger than anything that other tests allocate at the same time, so inequalities hold that
    // leave room for as much. (A sum is exact only while no other thread changes it: what one
    // allocated and another frees just then may be missing.)
    const BIG: usize = 300 << 20;
    let before = stats();
    let a = Buffer::alloc(BIG).expect("memory");
    let b = Buffer::alloc(BIG).expect("memory");
    let during = stats();
    assert!(during.live_bytes + (BIG as u64) > before.live_bytes + 2 * BIG as u64);
    assert!(during.peak_bytes > BIG as u64);
    assert!(during.allocations >= before.allocations + 2);
    drop((a, b));
    let after = stats();
    assert!(after.live_bytes < BIG as u64 && after.cached_bytes >= 2 * BIG as u64);
    let a = Buffer::alloc(BIG).expect("memory");
    assert!(stats().reused > after.reused);
    drop(a);
    reset_peak();
    assert!(stats().peak_bytes < BIG as u64);
    // A measurement counts what is allocated and freed in it, and leaves the peak unchanged, or
    // higher.
    let (_, big) = rise(|| drop(Buffer::alloc(2 * BIG)));
    assert!(big.is_some_and(|rise| rise > BIG as u64 && rise < 3 * BIG as u64));
    assert!(stats().peak_bytes > BIG as u64);
    reset_peak();
    drop(Buffer::alloc(BIG).expect("memory"));
    let (_, small) = rise(|| ());
    assert!(small.is_some_and(|rise| rise < BIG as u64) && stats().peak_bytes > BIG as u64 / 2);
    trim();
    assert!(stats().cached_bytes < BIG as u64);
}

#[test]
fn freed_on_another_thread() {
    let (send, receive) = std::sync::mpsc::sync_channel::<Buffer>(64);
    std::thread::scope(|s| {
        s.spawn(move || {
            for i in 0..20_000 {
                let mut b = Buffer::alloc(1 + i % 3000).expect("memory");
                // SAFETY: at least one byte.
                unsafe { b.as_mut_ptr().write(1) };
                if send.send(b).is_err() {
                    break;
                }
            }
        });
        s.spawn(move || receive.iter().for_each(drop));
        for seed in 0..3 {
            s.spawn(move || {
                let mut held = Vec::new();
                for i in 0..5000usize {
                    let bytes = (i * 7919 + seed * 104_729) % 100_000;
                    held.push(Buffer::alloc(bytes).expect("memory"));
                    if i % 3 == 0 {
                        held.swap_remove(i % held.len());
                    }
                    if held.len() > 100 {
                        held.clear();
                    }
                }
            });
        }
    });
}

/// `cargo test --profile bench --workspace --test kernels alloc_latency -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn alloc_latency() {
    for bytes in [4, 1000, 60_000, 100_000, 16 << 20] {
        let rounds = 1_000_000;
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(Buffer::alloc(std::hint::black_box(bytes)).expect("memory"));
        }
        println!("{bytes} bytes: {:?} an alloc and free", start.elapsed() / rounds);
    }
}
