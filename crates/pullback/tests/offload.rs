//! Saved values that wait on disk.

#[path = "offload/faults.rs"]
mod faults;
#[path = "packing/shared.rs"]
mod shared;

use pullback::{
    Backward, DType, Key, Offload, Pack, Packed, Result, SavedValue, Tensor, checkpoint, grad, jit,
    memory_stats, reset_peak, with_packing,
};
use shared::{Dir, bits, blocks, exclusive, from_disk_alone, leaf, packed, plain, sample};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A small network with the usual kinds of saved values: factors, transposes, broadcasts, masks,
/// indices, sums.
fn network(a: &[Tensor]) -> Tensor {
    let [x, w, b, picks] = a else { panic!("four arguments") };
    let h = (x.matmul(w) + b).relu();
    let h = &h * h.sigmoid() + h.gt(0.5).select(&h, &(&h * 0.1));
    let h = h.t().matmul(&h).softmax(-1).log1p();
    let h = h.index_select(0, picks);
    let h = h.dropout(0.3, Some(&Key::new(3))) + h.narrow(0, 0, 4).square().sum();
    (h.exp() / h.abs().sum_keep([0]).sqrt()).mean()
}

fn arguments(dtype: DType) -> Vec<Tensor> {
    vec![
        sample(&[6, 8], dtype),
        sample(&[8, 5], dtype) * 0.3,
        sample(&[5], dtype),
        Tensor::from_vec(vec![4i64, 0, 3, 3, 1], [5]),
    ]
}

#[test]
fn gradients_from_disk_are_the_same_bits() {
    let _lock = exclusive();
    for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
        let inputs = arguments(dtype);
        let expected = plain(&network, &inputs);
        let dir = Dir::new();
        for (name, offload) in [
            ("all", from_disk_alone(dir.offload())),
            ("ahead", dir.offload().buffer_bytes(1000).prefetch(3)),
            ("large", dir.offload()),
        ] {
            let packer = Arc::new(offload.clone());
            assert_eq!(packed(&network, &inputs, Some(packer)), expected, "{dtype} {name}");
            let stats = offload.stats();
            assert!(stats.peak_held_bytes <= if name == "ahead" { 1000 } else { 1 << 20 });
            assert_eq!((stats.files, stats.held_bytes), (0, 0), "{dtype} {name}");
            if name == "all" {
                assert!(stats.read_on_demand > 10 && stats.written_at_once > 10, "{stats:?}");
                assert!(stats.shared > 0, "{stats:?}");
            }
        }
        dir.must_be_empty();
    }
}

#[test]
fn every_dtype_and_layout_comes_back() {
    let _lock = exclusive();
    let dir = Dir::new();
    /// Unpacks at once what a packer made, and compares.
    struct Compare(Offload, AtomicUsize);
    impl Pack for Compare {
        fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
            let x = value.tensor().deep_clone();
            let Some(packed) = self.0.pack(value)? else { return Ok(None) };
            self.0.flush()?;
            assert_eq!(packed.bytes(), 0, "it is on disk alone");
            let back = packed.unpack()?;
            assert_eq!(back.spec(), x.spec());
            assert_eq!(bits(&back), bits(&x));
            self.1.fetch_add(1, Ordering::Relaxed);
            Ok(Some(packed))
        }
    }
    let compare = Arc::new(Compare(from_disk_alone(dir.offload()), AtomicUsize::new(0)));
    let w = Tensor::from([[0.5f64, 2.0, -1.0], [3.0, 0.25, 1.0]]).requires_grad();
    with_packing(compare.clone(), || {
        let x = sample(&[4, 6], DType::F64);
        let views = [
            x.narrow(0, 0, 2).narrow(1, 1, 3),
            x.narrow(0, 0, 2).narrow(1, 0, 3).flip([1]),
            x.t().narrow(0, 2, 2).narrow(1, 0, 3),
            x.narrow(0, 3, 1).narrow(1, 0, 1).expand([2, 3]),
            x.narrow(0, 0, 1).narrow(1, 3, 3).expand([2, 3]),
            Tensor::zeros_with([2, 3], DType::F64),
        ];
        let mut sum = views.iter().fold(w.sum(), |sum, v| sum + (&w * v).sum());
        sum += w.gt(0.7).select(&w, &(&w * 2.0)).sum();
        sum += w.index_select(1, &Tensor::from_vec(vec![2i64, 0], [2])).sum();
        sum += w.cast(DType::BF16).square().sum().cast(DType::F64);
        sum += w.cast(DType::F16).square().sum().cast(DType::F64);
        // A scalar and nothing at all.
        sum += (&w * 1.0).sum().square();
        let none = w.narrow(0, 0, 0);
        sum + (&none * &none).sum()
    })
    .backward()
    .unwrap();
    assert!(compare.1.load(Ordering::Relaxed) >= 11, "{}", compare.1.load(Ordering::Relaxed));
    drop(compare);
    dir.must_be_empty();
}

#[test]
fn a_repeated_row_is_a_row_and_a_transpose_is_the_matrix() {
    let _lock = exclusive();
    let dir = Dir::new();
    let offload = from_disk_alone(dir.offload());
    let x = sample(&[64, 32], DType::F32).requires_grad();
    let y = offload.run(|| {
        // Saves a row that is seen 64 times.
        let row = sample(&[32], DType::F32).expand([64, 32]);
        let a = &x * row;
        assert_eq!(offload.stats().disk_bytes, 32 * 4);
        // Saves it and its transpose.
        let y = a.t().matmul(&a);
        assert_eq!((offload.stats().disk_bytes, offload.stats().shared), (32 * 4 + 64 * 32 * 4, 1));
        // A column of it is another piece, of its own size.
        let y =
            y.sum() + a.narrow(1, 3, 1).exp().narrow(0, 0, 1).sum() + a.narrow(1, 3, 1).sin().sum();
        let own = 32 * 4 + 64 * 32 * 4 + 2 * 64 * 4;
        assert_eq!((offload.stats().disk_bytes, offload.stats().files), (own, 4));
        y
    });
    y.backward().unwrap();
    assert_eq!(offload.stats().files, 0);
    dir.must_be_empty();
}

#[test]
fn memory_is_bounded_and_lower_than_without() {
    let _lock = exclusive();
    const BLOCK: u64 = 256 * 256 * 4;
    let x = sample(&[256, 256], DType::F32).requires_grad();
    let peak = |f: &dyn Fn()| {
        let before = memory_stats().live_bytes;
        reset_peak();
        f();
        memory_stats().peak_bytes - before
    };
    let whole = peak(&|| {
        blocks(&x, 64).sum().backward().unwrap();
    });
    let expected = bits(&x.grad().unwrap());
    assert!(whole > 128 * BLOCK, "{whole}");
    let dir = Dir::new();
    let offload = dir.offload().min_bytes(1000).buffer_bytes(4 * BLOCK as usize).prefetch(2);
    x.zero_grad();
    let less = peak(&|| {
        offload.run(|| blocks(&x, 64)).sum().backward().unwrap();
    });
    assert_eq!(bits(&x.grad().unwrap()), expected);
    // The buffer, and what one op and its derivative work on.
    assert!(less <= 12 * BLOCK, "{less} against {whole}");
    let stats = offload.stats();
    assert!(stats.peak_held_bytes <= 4 * BLOCK, "{stats:?}");
    // A sine keeps its input (the first one is a parameter), an exponential its output.
    assert!(stats.written_bytes >= 120 * BLOCK && stats.written_bytes <= 127 * BLOCK, "{stats:?}");
    assert!(stats.prefetch_hits > 0, "{stats:?}");
    let hits = stats.prefetch_hits + stats.memory_hits + stats.read_on_demand + stats.still_there;
    assert_eq!(hits, 127, "{stats:?}");
    assert_eq!((stats.files, stats.held_bytes, stats.disk_bytes), (0, 0, 0));

    // While it waits, the memory that is not there is not counted, and what is there is.
    x.zero_grad();
    let before = memory_stats().live_bytes;
    let y = offload.run(|| blocks(&x, 64));
    offload.flush().unwrap();
    let held = memory_stats().live_bytes - before;
    let factors = 64 * 4;
    assert_eq!(held, offload.stats().held_bytes + BLOCK + factors, "the buffer and the result");
    assert_eq!(offload.stats().disk_bytes, 127 * BLOCK);
    drop(y);
    assert_eq!(memory_stats().live_bytes, before);
    dir.must_be_empty();
}

#[test]
fn the_forward_pass_waits_where_the_buffer_is_full() {
    let _lock = exclusive();
    let dir = Dir::new();
    // Room for one value: the second must wait for the first, the third for the second.
    let offload = dir.offload().buffer_bytes(4 << 20).prefetch(1);
    let x = sample(&[1 << 20], DType::F32).requires_grad();
    let y = offload.run(|| blocks(&x, 8));
    let stats = offload.stats();
    assert!(stats.waits > 0 && stats.peak_held_bytes == 4 << 20, "{stats:?}");
    assert_eq!(stats.written_at_once, 0);
    y.sum().backward().unwrap();
    // A value that is larger than the buffer needs no copy.
    let offload = dir.offload().min_bytes(100).buffer_bytes(4 << 10);
    offload.run(|| blocks(&x, 2)).sum().backward().unwrap();
    let stats = offload.stats();
    assert_eq!((stats.written_at_once, stats.peak_held_bytes, stats.waits), (3, 0, 0), "{stats:?}");
    dir.must_be_empty();
}

#[test]
fn what_is_saved_is_what_comes_back_after_a_write_in_place() {
    let _lock = exclusive();
    let dir = Dir::new();
    for offload in [dir.offload(), from_disk_alone(dir.offload())] {
        let x = sample(&[100], DType::F64).requires_grad();
        let y = offload.run(|| {
            let h = &x * 1.0;
            let y = h.sin();
            h.add_(1.0);
            y + h.cos()
        });
        y.sum().backward().unwrap();
        let expected: Vec<f64> =
            x.to_vec::<f64>().iter().map(|x| x.cos() - (x * 1.0 + 1.0).sin()).collect();
        let found = x.grad().unwrap().to_vec::<f64>();
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-15), "{found:?}");
    }
    // Without, it is the classic error.
    let x = sample(&[100], DType::F64).requires_grad();
    let h = &x * 1.0;
    let y = h.sin();
    h.add_(1.0);
    assert!(y.sum().backward().unwrap_err().to_string().contains("overwritten"));
    dir.must_be_empty();
}

/// A gradient that is a saved value itself is added to in place; the saved value must not be found
/// there again.
#[test]
fn a_gradient_never_shares_memory_with_a_saved_value() {
    let _lock = exclusive();
    let n = 5000;
    let (a, c) = (sample(&[n], DType::F64), Key::new(9).normal([n], DType::F64, 0.0, 1.0));
    let f = |v: &[Tensor]| {
        let [a, c] = v else { panic!("two arguments") };
        let b = c * 2.0;
        let early = b.sin();
        let between = a * c;
        // The gradient of `a` is `b` itself, as it comes back.
        let late = a * &b;
        drop(b);
        late.sum() + between.sum() + early.sum()
    };
    let expected = plain(&f, &[a.clone(), c.clone()]);
    let dir = Dir::new();
    for offload in
        [dir.offload(), from_disk_alone(dir.offload()), dir.offload().buffer_bytes(90_000)]
    {
        assert!(packed(&f, &[a.clone(), c.clone()], Some(Arc::new(offload))) == expected);
    }
    dir.must_be_empty();
    // The same for what a checkpoint finds still there.
    let again = {
        let (a, c) = (leaf(&a), leaf(&c));
        let inner = |v: &Vec<Tensor>| {
            let b = &v[1] * 2.0;
            let early = b.sin();
            let between = &v[0] * &v[1];
            let late = &v[0] * &b;
            late.sum() + between.sum() + early.sum()
        };
        checkpoint(inner, &vec![a.clone(), c.clone()]).backward().unwrap();
        vec![bits(&a.grad().unwrap()), bits(&c.grad().unwrap())]
    };
    assert!(again == expected);
}

#[test]
fn graphs_that_stay_are_gone_through_again() {
    let _lock = exclusive();
    let dir = Dir::new();
    let offload = dir.offload().buffer_bytes(2000).prefetch(2);
    let x = sample(&[100], DType::F64).requires_grad();
    let y = offload.run(|| blocks(&x, 6).sum());
    for _ in 0..3 {
        Backward::of(&y).retain_graph().run().unwrap();
    }
    let thrice = x.grad().unwrap().to_vec::<f64>();
    assert!(offload.stats().disk_bytes > 0, "a graph that stays keeps its files");
    x.zero_grad();
    y.backward().unwrap();
    assert_eq!(offload.stats().files, 0, "a graph that was passed has none");
    let once = x.grad().unwrap().to_vec::<f64>();
    assert!(thrice.iter().zip(&once).all(|(a, b)| (a - 3.0 * b).abs() <= 1e-15 * b.abs() * 4.0));
    assert!(y.backward().unwrap_err().to_string().contains("freed"));
    dir.must_be_empty();
}

#[test]
fn second_derivatives_are_the_same_bits() {
    let _lock = exclusive();
    let dir = Dir::new();
    let x = sample(&[40], DType::F64);
    let f = |x: &Tensor| ((x * 0.7).relu() * x.sin().exp()).sum();
    let second =
        |f: &dyn Fn(&Tensor) -> Tensor| bits(&grad(|x: &Tensor| grad(f)(x).square().sum())(&x));
    let expected = second(&f);
    for offload in [dir.offload(), from_disk_alone(dir.offload())] {
        assert_eq!(second(&|x| offload.run(|| f(x))), expected);
        assert_eq!(offload.run(|| second(&f)), expected);
        let leaf = leaf(&x);
        let y = offload.run(|| f(&leaf));
        Backward::of(&y).create_graph().run().unwrap();
        let g = leaf.grad().unwrap();
        leaf.zero_grad();
        g.square().sum().backward().unwrap();
        assert_eq!(bits(&leaf.grad().unwrap()), expected);
    }
    dir.must_be_empty();
}

#[test]
fn checkpoints_inside_and_outside() {
    let _lock = exclusive();
    let dir = Dir::new();
    let x = sample(&[100], DType::F64).requires_grad();
    blocks(&x, 8).sum().backward().unwrap();
    let expected = bits(&x.grad().unwrap());
    for offload in [dir.offload(), from_disk_alone(dir.offload())] {
        // Inside: the arguments of the checkpointed functions are what is offloaded.
        x.zero_grad();
        let y = offload
            .run(|| (0..4).fold(x.clone(), |x, _| checkpoint(|x: &Tensor| blocks(x, 2), &x)));
        offload.flush().unwrap();
        assert_eq!(offload.stats().disk_bytes, 3 * 800);
        y.sum().backward().unwrap();
        assert_eq!(bits(&x.grad().unwrap()), expected);
        // Outside: what is offloaded inside a checkpointed function is not computed again.
        x.zero_grad();
        let inner = offload.clone();
        let f = move |x: &Tensor| blocks(&inner.run(|| blocks(x, 4)), 4);
        let y = checkpoint(f, &x);
        y.sum().backward().unwrap();
        assert_eq!(bits(&x.grad().unwrap()), expected);
        drop(y);
        assert_eq!(offload.stats().files, 0);
    }
    dir.must_be_empty();
}

#[test]
fn traced_functions_and_the_host_are_left_alone() {
    let _lock = exclusive();
    let dir = Dir::new();
    let offload = dir.offload();
    let x = sample(&[100], DType::F64);
    let expected = bits(&grad(|x: &Tensor| blocks(x, 3).sum())(&x));
    let inside = offload.clone();
    let step = jit(move |x: &Tensor| inside.run(|| grad(|x: &Tensor| blocks(x, 3).sum())(x)));
    let near = |found: Tensor| {
        let expected = expected.iter().map(|&b| f64::from_bits(b));
        found
            .to_vec::<f64>()
            .iter()
            .zip(expected)
            .for_each(|(a, b)| assert!((a - b).abs() < 1e-14));
    };
    near(step.of(&x));
    near(offload.run(|| jit(|x: &Tensor| grad(|x: &Tensor| blocks(x, 3).sum())(x)).of(&x)));
    assert_eq!(offload.stats().written_bytes, 0);
    drop((offload, step));
    // Values that are in host memory already stay where they are.
    let host = Offload::to_host().min_bytes(1);
    assert_eq!(bits(&grad(|x: &Tensor| host.run(|| blocks(x, 3).sum()))(&x)), expected);
    assert_eq!((host.stats().written_bytes, host.flush().is_ok()), (0, true));
    dir.must_be_empty();
}

/// Every value is on disk alone. Before each is needed, the hook waits for the reader: then all but
/// the first were read ahead, which they are not if the order is wrong or there is none.
#[test]
fn values_are_read_ahead_in_the_order_in_which_backward_wants_them() {
    let _lock = exclusive();
    const BYTES: u64 = 8000;
    let dir = Dir::new();
    let offload = dir.offload().buffer_bytes(0);
    let x = sample(&[1000], DType::F64).requires_grad();
    let mut values = vec![x.clone()];
    offload.run(|| (0..10).for_each(|i| values.push(values[i].sin())));
    assert_eq!((offload.stats().files, offload.stats().held_bytes), (9, 0));
    let offload = offload.buffer_bytes(2 * BYTES as usize).prefetch(2);
    let late = Arc::new(AtomicUsize::new(0));
    // The first value saved is the result of the first sine, wanted by the second.
    for (i, y) in values.iter().enumerate().skip(1).take(9) {
        let (offload, late) = (offload.clone(), late.clone());
        y.register_hook(move |_| {
            // The next two are there, if there are as many.
            let expected = BYTES * (10 - i.saturating_sub(2).max(1) as u64);
            let start = std::time::Instant::now();
            while offload.stats().read_bytes != expected {
                if start.elapsed().as_secs() > 20 {
                    late.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                std::thread::yield_now();
            }
            None
        });
    }
    let y = values.pop().unwrap();
    drop(values);
    y.sum().backward().unwrap();
    let stats = offload.stats();
    assert_eq!(late.load(Ordering::Relaxed), 0, "{stats:?}");
    assert_eq!(
        (stats.read_on_demand, stats.prefetch_hits, stats.memory_hits),
        (1, 8, 0),
        "{stats:?}"
    );
    assert_eq!((stats.read_bytes, stats.still_there), (9 * BYTES, 0), "{stats:?}");
    assert!(stats.peak_held_bytes <= 2 * BYTES, "{stats:?}");
    drop((y, offload));
    dir.must_be_empty();
}
