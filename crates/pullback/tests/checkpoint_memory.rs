//! The memory that checkpointing saves, by the pool's own exact counters. One test, so that nothing
//! else runs in this process.

use pullback::{
    Backward, DType, Key, Tensor, checkpoint, checkpoint_sequential, memory_stats, reset_peak,
};

/// Bytes above what was there, at most, while `f` runs.
fn peak(f: impl FnOnce()) -> u64 {
    let before = memory_stats().live_bytes;
    reset_peak();
    f();
    memory_stats().peak_bytes - before
}

const BLOCK: u64 = 64 * 64 * 4;

fn layers(count: usize) -> Vec<impl Fn(&Tensor) -> Tensor + Clone + Send + Sync + 'static> {
    // Each keeps what goes in, the sine and the exponential.
    vec![|x: &Tensor| x.sin().exp() * 0.3; count]
}

#[test]
fn memory_grows_as_the_root_of_the_number_of_blocks() {
    let x = Key::new(1).normal([64, 64], DType::F32, 0.0, 1.0).requires_grad();
    let plain = |count: usize| {
        let layers = layers(count);
        peak(|| {
            layers.iter().fold(x.clone(), |x, f| f(&x)).sum().backward().unwrap();
            x.zero_grad();
        })
    };
    let split = |count: usize| {
        let layers = layers(count);
        peak(|| {
            checkpoint_sequential(&layers, None, &x).sum().backward().unwrap();
            x.zero_grad();
        })
    };
    // The values of one block are two or three tensors of this size.
    let whole = plain(64);
    assert!(whole > 128 * BLOCK, "{whole}");
    let parts = [split(16), split(64), split(256)];
    // 8 segments of 8 blocks: 8 values between them, 16 and a few inside the one that is computed
    // again.
    assert!(parts[1] < 32 * BLOCK, "{parts:?} against {whole}");
    for pair in parts.windows(2) {
        let growth = pair[1] as f64 / pair[0] as f64;
        assert!(growth < 2.2, "four times the blocks, {growth} times the memory: {parts:?}");
    }

    // Nothing stays behind: not after a pass, not after a pass over a part, not when the graph is
    // dropped.
    let start = memory_stats().live_bytes;
    let y = checkpoint(|x: &Tensor| x.sin().exp().cos(), &x).sum();
    let open = memory_stats().live_bytes;
    assert!(open - start <= BLOCK + 1024, "the arguments, the sum: {}", open - start);
    Backward::of(&y).retain_graph().run().unwrap();
    x.zero_grad();
    assert!(memory_stats().live_bytes <= open + 64, "what was computed again is gone");
    y.backward().unwrap();
    x.zero_grad();
    drop(y);
    assert_eq!(memory_stats().live_bytes, start);

    // Two levels: the third root.
    let nested = peak(|| {
        let outer: Vec<_> = (0..4)
            .map(|_| {
                let layers = layers(16);
                move |x: &Tensor| checkpoint_sequential(&layers, Some(4), x)
            })
            .collect();
        let y = outer.into_iter().fold(x.clone(), |x, f| checkpoint(f, &x));
        y.sum().backward().unwrap();
        x.zero_grad();
    });
    assert!(nested < parts[1], "{nested} against {}", parts[1]);
}
