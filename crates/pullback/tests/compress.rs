//! Saved values that are compressed.

#[path = "compress/bounds.rs"]
mod bounds;
#[path = "packing/shared.rs"]
mod shared;

use pullback::{
    Backward, Compress, DType, Key, Pack, Packed, Result, SavedValue, Tensor, autocast, catch,
    checkpoint, detect_overflow, grad, jit, jvp, memory_stats, stack, vmap, with_packing,
};
use shared::{Dir, bits, blocks, exclusive, from_disk_alone, leaf, packed, plain, sample};
use std::fs;
use std::sync::{Arc, Mutex};

#[test]
fn packers_inside_other_transforms() {
    let _lock = exclusive();
    let dir = Dir::new();
    let f = |x: &Tensor| ((x * 0.7).relu() * x.sin().exp()).sum();
    let x = sample(&[40], DType::F64);
    let v = sample(&[40], DType::F64).cos();
    let twice = |f: &dyn Fn(&Tensor) -> Tensor| {
        let (_, forward) = jvp(|x: &Tensor| grad(f)(x), &x, &v);
        let batched = vmap(|x: &Tensor| grad(f)(x), 0, 0)(&stack(&[&x, &v], 0));
        (bits(&forward), bits(&batched))
    };
    let expected = twice(&f);
    for packer in [
        Arc::new(from_disk_alone(dir.offload())) as Arc<dyn Pack>,
        Arc::new(dir.offload()),
        Arc::new(Compress::new().masks().integers()),
        Arc::new(Compress::new().masks().then(dir.offload())),
        Arc::new(Compress::new().then(Arc::new(dir.offload()) as Arc<dyn Pack>)),
    ] {
        assert!(twice(&|x| with_packing(packer.clone(), || f(x))) == expected);
        assert!(with_packing(packer, || twice(&f)) == expected);
    }
    dir.must_be_empty();
}

#[test]
fn what_packing_computes_is_neither_cast_nor_looked_at() {
    let _lock = exclusive();
    let x = sample(&[16, 16], DType::F32).requires_grad();
    // The packer tries f16, which overflows; that is no overflow of the formula.
    let packer = Arc::new(Compress::new().half(DType::F16));
    let ((), source) = detect_overflow(|| {
        with_packing(packer, || (&x * 1e6).sin().sum()).backward().unwrap();
    });
    assert!(source.is_none(), "{source:?}");
    let f = |v: &[Tensor]| autocast(DType::BF16, || v[0].matmul(&v[1]).relu().exp().mean());
    let inputs = [sample(&[16, 16], DType::F32), sample(&[16, 16], DType::F32)];
    let masks = Arc::new(Compress::new().masks().integers());
    assert_eq!(packed(&f, &inputs, Some(masks)), plain(&f, &inputs));
}

/// A packer between a formula and another packer: notes the bytes of each value, before and after,
/// and compares what comes back.
struct Scale {
    of: Compress,
    seen: Mutex<Vec<(String, usize, usize)>>,
    compare: fn(&Tensor, &Tensor),
}

impl Scale {
    fn new(of: Compress, compare: fn(&Tensor, &Tensor)) -> Arc<Scale> {
        Arc::new(Scale { of, seen: Mutex::default(), compare })
    }

    /// What was taken: the op, its bytes and its bytes after.
    fn taken(&self) -> Vec<(String, usize, usize)> {
        self.seen.lock().unwrap().clone()
    }
}

impl Pack for Scale {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        let x = value.tensor().deep_clone();
        let Some(packed) = self.of.pack(value)? else { return Ok(None) };
        let back = packed.unpack()?;
        assert_eq!(back.spec(), x.spec());
        (self.compare)(&x, &back);
        let seen = (value.name().to_string(), x.spec().bytes(), packed.bytes());
        self.seen.lock().unwrap().push(seen);
        Ok(Some(packed))
    }
}

fn anything(_: &Tensor, _: &Tensor) {}

fn exactly(x: &Tensor, back: &Tensor) {
    assert_eq!(bits(x), bits(back));
}

#[test]
fn masks_change_no_bit_of_a_gradient() {
    let _lock = exclusive();
    for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
        let inputs = [sample(&[40, 30], dtype), sample(&[30, 20], dtype)];
        let f = |v: &[Tensor]| {
            let h = v[0].matmul(&v[1]).relu();
            let h = h.dropout(0.4, Some(&Key::new(5))).leaky_relu(0.1);
            let h = h.gt(0.2).select(&h, &(&h * 3.0)).alpha_dropout(0.2, Some(&Key::new(6)));
            (h.relu() * 0.5).sum()
        };
        let scale = Scale::new(Compress::new().masks(), anything);
        assert_eq!(packed(&f, &inputs, Some(scale.clone())), plain(&f, &inputs), "{dtype}");
        let taken = scale.taken();
        let count = |name: &str| taken.iter().filter(|t| t.0 == name).count();
        assert!(count("relu") == 2 && count("mul") >= 2 && count("select") >= 2, "{taken:?}");
        for (name, before, after) in taken {
            assert_eq!(after, 800 / 8, "{name}: {before}");
        }
    }
}

#[test]
fn masks_of_relu_at_the_kink_and_beyond() {
    let _lock = exclusive();
    let special = [0.0, -0.0, 1e-310, -1e-310, f64::INFINITY, f64::NEG_INFINITY, 5.0, -5.0];
    for dtype in [DType::F64, DType::F32] {
        let of = |values: &[f64]| {
            let all: Vec<f64> = values.iter().copied().cycle().take(160).collect();
            Tensor::from_vec(all, [160]).cast(dtype)
        };
        let f = |v: &[Tensor]| ((&v[0] * 1.0).relu() * &v[1].detach()).sum();
        let weights = sample(&[160], dtype);
        let clean = [of(&special), weights.clone()];
        let nan = [of(&[f64::NAN, 1.0, -1.0, 0.0]), weights];
        // Not a number is neither: such a value is left as it is.
        for (inputs, relus) in [(clean, 1), (nan, 0)] {
            let given = inputs;
            let scale = Scale::new(Compress::new().masks(), anything);
            let run = |packer: Option<Arc<dyn Pack>>| {
                let g = |x: &[Tensor]| f(&[x[0].clone(), given[1].clone()]);
                packed(&g, &given[..1], packer)
            };
            assert_eq!(run(Some(scale.clone())), run(None), "{dtype}");
            let taken = scale.taken();
            assert_eq!(taken.iter().filter(|t| t.0 == "relu").count(), relus, "{taken:?}");
            // The same where the pass is recorded, and the slope is a formula.
            let second = |packer: Arc<dyn Pack>| {
                let x = leaf(&given[0]);
                let y = with_packing(packer, || {
                    (f(&[x.clone(), given[1].clone()]), (&x * &x).relu().sum())
                });
                Backward::of(&(y.0 + y.1)).create_graph().run().unwrap();
                let g = x.grad().unwrap();
                x.zero_grad();
                (&g * &g).sum().backward().unwrap();
                (bits(&g), bits(&x.grad().unwrap()))
            };
            let none = Arc::new(Compress::new());
            assert_eq!(second(Arc::new(Compress::new().masks())), second(none));
        }
    }
}

#[test]
fn two_numbers_of_any_kind_are_bits() {
    let _lock = exclusive();
    let w = sample(&[77, 9], DType::F64).requires_grad();
    let scale = Scale::new(Compress::new().masks().integers(), exactly);
    with_packing(scale.clone(), || {
        let even = Tensor::arange(0, 77 * 9).reshape([77, 9]).remainder(2);
        let two = |a: f64, b: f64| {
            even.eq(0).select(Tensor::from(a).expand([77, 9]), Tensor::from(b).expand([77, 9]))
        };
        let mut sum = w.sum();
        for (a, b) in [(0.0, -0.0), (1e300, f64::NAN), (f64::INFINITY, 2.0), (0.3, 0.3)] {
            sum += (&w * two(a, b)).sum();
        }
        // Three numbers are not two.
        let three = Tensor::arange(0, 77 * 9).reshape([77, 9]).remainder(3).cast(DType::F64);
        sum + (&w * three).sum()
    })
    .backward()
    .unwrap();
    let taken = scale.taken();
    let products: Vec<_> = taken.iter().filter(|t| t.0 == "mul").collect();
    assert_eq!(products.len(), 4, "{taken:?}");
    assert!(products.iter().all(|t| t.1 == 693 * 8 && t.2 == 87), "{taken:?}");

    // Indices: 1 byte, 4 bytes, and what needs all 8.
    let table = sample(&[300], DType::F64).requires_grad();
    let scale = Scale::new(Compress::new().integers(), exactly);
    with_packing(scale.clone(), || {
        let small: Vec<i64> = (0..200).map(|i| i * 7 % 256).collect();
        let large: Vec<i64> = (0..200).map(|i| i * 7 % 300).collect();
        let y = table.index_select(0, &Tensor::from_vec(small, [200])).sum();
        y + table.index_select(0, &Tensor::from_vec(large, [200])).sum()
    })
    .backward()
    .unwrap();
    let sizes: Vec<_> = scale.taken().iter().map(|t| (t.1, t.2)).collect();
    assert_eq!(sizes, [(1600, 200), (1600, 800)]);
}

/// Live bytes, once threads of earlier tests have ended: what a thread keeps for itself is freed
/// after it has given up the lock.
fn settled_bytes() -> u64 {
    loop {
        let bytes = memory_stats().live_bytes;
        std::thread::sleep(std::time::Duration::from_millis(100));
        if memory_stats().live_bytes == bytes {
            return bytes;
        }
    }
}

#[test]
fn half_precision_has_the_error_it_promises() {
    let _lock = exclusive();
    fn within_bf16(x: &Tensor, back: &Tensor) {
        for (x, y) in x.to_f64_vec().into_iter().zip(back.to_f64_vec()) {
            assert!(
                (x - y).abs() <= x.abs() / 256.0 || x.is_nan() && y.is_nan() || x == y,
                "{x} {y}"
            );
        }
    }
    fn within_f16(x: &Tensor, back: &Tensor) {
        for (x, y) in x.to_f64_vec().into_iter().zip(back.to_f64_vec()) {
            let bound = (x.abs() / 2048.0).max(2f64.powi(-25));
            assert!((x - y).abs() <= bound || x.is_nan() && y.is_nan() || x == y, "{x} {y}");
        }
    }
    let run = |half: DType, x: &Tensor, compare: fn(&Tensor, &Tensor)| {
        let scale = Scale::new(Compress::new().half(half), compare);
        let x = leaf(x);
        // Only the sign is needed.
        with_packing(scale.clone(), || (&x * 1.0).abs().sum()).backward().unwrap();
        scale.taken().len()
    };
    for seed in 0..20 {
        for dtype in [DType::F32, DType::F64] {
            let spread = 10f64.powi(seed as i32 - 10);
            let x = Key::new(seed).normal([500], DType::F64, 0.0, spread).cast(dtype);
            assert_eq!(run(DType::BF16, &x, within_bf16), 1);
            let fits = x.to_f64_vec().iter().all(|v| v.abs() < 65520.0 && v.abs() > 3e-8);
            assert_eq!(run(DType::F16, &x, within_f16), usize::from(fits), "{spread}");
        }
    }
    // Infinities and NaN that were there stay; none appears, and nothing becomes zero.
    let with = |v: f64, dtype| {
        let mut all = vec![1.0; 100];
        all[37] = v;
        Tensor::from_vec(all, [100]).cast(dtype)
    };
    for v in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 65504.0, -0.0] {
        assert_eq!(run(DType::F16, &with(v, DType::F32), within_f16), 1, "{v}");
        assert_eq!(run(DType::BF16, &with(v, DType::F32), within_bf16), 1, "{v}");
    }
    for v in [65520.0, -1e30, 1e-9] {
        assert_eq!(run(DType::F16, &with(v, DType::F32), exactly), 0, "{v}");
    }
    for v in [f64::from(f32::MAX), 1e-43] {
        assert_eq!(run(DType::BF16, &with(v, DType::F32), exactly), 0, "{v}");
    }
    for v in [1e39, 1e-60] {
        assert_eq!(run(DType::BF16, &with(v, DType::F64), exactly), 0, "{v}");
    }
    // Half of the memory, by the pool's own counters, and gradients that are near.
    let x = sample(&[256, 256], DType::F32).requires_grad();
    let before = settled_bytes();
    let y = with_packing(Arc::new(Compress::new().half(DType::BF16)), || blocks(&x, 8));
    // The inputs of seven sines (the first is a parameter), eight exponentials, the result, and the
    // factors.
    assert_eq!(memory_stats().live_bytes - before, (15 * 2 + 4) * 256 * 256 + 8 * 4);
    y.sum().backward().unwrap();
    drop(y);
    let found = x.grad().unwrap().to_vec::<f32>();
    x.zero_grad();
    blocks(&x, 8).sum().backward().unwrap();
    let expected = x.grad().unwrap().to_vec::<f32>();
    let off = found
        .iter()
        .zip(&expected)
        .map(|(a, b)| (a - b).abs() / (b.abs() + 1e-3))
        .fold(0f32, f32::max);
    assert!(off > 0.0 && off < 0.2, "{off}");
    // What is not for it.
    let scale = Scale::new(Compress::new().half(DType::BF16), anything);
    let a = sample(&[10, 10], DType::F64).requires_grad();
    with_packing(scale.clone(), || a.inv().sum()).backward().unwrap();
    assert!(
        scale.taken().iter().all(|t| t.0 == "mul" || t.0 == "dot" || t.0 == "matmul"),
        "{:?}",
        scale.taken()
    );
    let error = catch(|| Compress::new().half(DType::F32)).unwrap_err().to_string();
    assert!(error.contains("bf16 or f16, not in f32") && error.contains("compress.rs"), "{error}");
}

#[test]
fn eight_bits_have_the_error_they_promise() {
    let _lock = exclusive();
    fn within(x: &Tensor, back: &Tensor) {
        let (x, back) = (x.to_f64_vec(), back.to_f64_vec());
        for (x, back) in x.chunks(64).zip(back.chunks(64)) {
            let largest = x.iter().fold(0f64, |m, v| m.max(v.abs()));
            let whole = x.iter().any(|v| !v.is_finite());
            for (x, y) in x.iter().zip(back) {
                let bound = if whole { 0.0 } else { largest / 254.0 * (1.0 + 1e-6) };
                assert!(
                    (x - y).abs() <= bound || x.to_bits() == y.to_bits(),
                    "{x} {y} of {largest}"
                );
            }
        }
    }
    let run = |x: &Tensor| {
        let scale = Scale::new(Compress::new().blocks8(), within);
        let x = leaf(x);
        with_packing(scale.clone(), || (&x * 1.0).square().sum()).backward().unwrap();
        scale.taken().first().map(|t| t.2)
    };
    for seed in 0..40u64 {
        let spread = 10f64.powi(seed as i32 * 2 - 40);
        let n = 64 + (seed as usize * 37) % 500;
        let x = Key::new(seed).normal([n], DType::F64, 0.0, spread);
        assert_eq!(run(&x), Some(n + n.div_ceil(64) * 8), "{spread}");
        // Each block by itself: the last elements are tiny relative to the first.
        let falling = &x * Tensor::linspace(0.0, -60.0, n).exp();
        assert!(run(&falling).is_some());
        if spread.abs() < 1e37 && spread > 1e-35 {
            assert_eq!(run(&x.cast(DType::F32)), Some(n + n.div_ceil(64) * 4), "{spread}");
        }
    }
    // What eight bits cannot hold is whole, block by block.
    let n = 640;
    for odd in [f64::NAN, f64::INFINITY, f64::from(f32::MAX), 1e-44] {
        let mut values: Vec<f32> = sample(&[n], DType::F32).to_vec();
        values[64..128].fill(odd as f32);
        assert_eq!(run(&Tensor::from_vec(values, [n])), Some(n + 40 + 256), "{odd}");
    }
    assert_eq!(run(&Tensor::zeros([n])), Some(n + 40));
    assert_eq!(run(&Tensor::full([n], f32::NAN)), None, "no gain");
    // Gradients of a product are off in proportion, and 1/x, whose derivative is not gentle, is
    // left alone.
    let (a, b) = (sample(&[64, 64], DType::F32), sample(&[64, 64], DType::F32) * 0.5);
    let f = |v: &[Tensor]| (v[0].matmul(&(&v[1] * 1.0)).tanh() / (v[1].square() + 1.0)).sum();
    let packer = Scale::new(Compress::new().blocks8(), anything);
    let to_f64 =
        |all: Vec<Vec<u64>>| all.concat().into_iter().map(f64::from_bits).collect::<Vec<_>>();
    let found = to_f64(packed(&f, &[a.clone(), b.clone()], Some(packer.clone())));
    let expected = to_f64(plain(&f, &[a, b]));
    let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off > 0.0 && off < 0.1, "{off}");
    let names: Vec<String> = packer.taken().into_iter().map(|t| t.0).collect();
    assert!(!names.iter().any(|n| n == "div") && names.iter().any(|n| n == "tanh"), "{names:?}");
}

#[test]
fn compressed_values_go_to_disk() {
    let _lock = exclusive();
    let dir = Dir::new();
    let inputs = [sample(&[40, 30], DType::F32), sample(&[30, 20], DType::F32)];
    let f = |v: &[Tensor]| {
        let h = v[0].matmul(&v[1]).relu().dropout(0.4, Some(&Key::new(5)));
        (h.exp() / h.square().sum()).sum()
    };
    let offload = from_disk_alone(dir.offload());
    let packer = Compress::new().masks().then(offload.clone());
    assert_eq!(packed(&f, &inputs, Some(Arc::new(packer.clone()))), plain(&f, &inputs));
    // By itself: two masks of 100 bytes, and what else is saved as it is.
    let leaf = leaf(&inputs[0]);
    let y = with_packing(Arc::new(packer), || f(&[leaf.clone(), inputs[1].clone()]));
    let mut sizes: Vec<u64> = dir.files().iter().map(|p| fs::metadata(p).unwrap().len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes.iter().filter(|&&n| n == 100).count(), 2, "{sizes:?}");
    assert_eq!(sizes.iter().sum::<u64>(), offload.stats().disk_bytes);
    y.backward().unwrap();
    drop(y);
    // Nested the other way round, each takes what is its own: the inner one first.
    let half = Arc::new(Compress::new().masks());
    let y = with_packing(Arc::new(offload.clone()), || {
        with_packing(half, || f(&[leaf.clone(), inputs[1].clone()]))
    });
    assert!(dir.files().iter().all(|p| fs::metadata(p).unwrap().len() != 100));
    drop(y);
    drop(offload);
    dir.must_be_empty();
}

#[test]
fn compressed_values_outlive_a_write_and_are_shared() {
    let _lock = exclusive();
    let x = sample(&[1000], DType::F64).requires_grad();
    let before = settled_bytes();
    let y = with_packing(Arc::new(Compress::new().half(DType::BF16)), || {
        let h = &x * 1.0;
        let y = h.sin() + h.cos();
        h.add_(1.0);
        y
    });
    // The result, one copy for both, and the factor.
    assert_eq!(memory_stats().live_bytes - before, 8000 + 2000 + 8);
    y.sum().backward().unwrap();
    for (x, g) in x.to_vec::<f64>().iter().zip(x.grad().unwrap().to_vec::<f64>()) {
        assert!((g - (x.cos() - x.sin())).abs() < x.abs() / 100.0 + 1e-9, "{x} {g}");
    }
    // Arguments of checkpointed functions stay exact, or the function would be computed at another
    // point.
    let scale = Scale::new(Compress::new().half(DType::BF16).blocks8(), anything);
    x.zero_grad();
    let y = with_packing(scale.clone(), || checkpoint(|x: &Tensor| x.sin(), &(&x * 1.0)));
    y.sum().backward().unwrap();
    assert!(scale.taken().iter().all(|t| t.0 == "sin"), "{:?}", scale.taken());
    assert!(format!("{:?}", Compress::new().masks()).contains("masks: true"));
    // Inside a trace there is nothing to compress.
    let step = jit(|x: &Tensor| grad(|x: &Tensor| blocks(x, 3).sum())(x));
    let plain = step.of(&x.detach()).to_vec::<f64>();
    let step = jit(|x: &Tensor| {
        let f =
            |x: &Tensor| with_packing(Arc::new(Compress::new().blocks8()), || blocks(x, 3).sum());
        grad(f)(x)
    });
    assert_eq!(step.of(&x.detach()).to_vec::<f64>(), plain);
}

/// `cargo test --release --workspace --test compress throughput -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn throughput() {
    let _lock = exclusive();
    let n = 1 << 24;
    let x = sample(&[n], DType::F32).requires_grad();
    let dir = Dir::new();
    let packers: [(&str, Arc<dyn Pack>); 6] = [
        ("nothing", Arc::new(Compress::new())),
        ("masks", Arc::new(Compress::new().masks())),
        ("bf16", Arc::new(Compress::new().half(DType::BF16))),
        ("f16", Arc::new(Compress::new().half(DType::F16))),
        ("blocks8", Arc::new(Compress::new().blocks8())),
        ("disk", Arc::new(dir.offload().min_bytes(1 << 10).buffer_bytes(1 << 28))),
    ];
    for (name, packer) in packers {
        for _ in 0..2 {
            let h = &x + 1.0;
            let start = std::time::Instant::now();
            let y =
                with_packing(packer.clone(), || if name == "masks" { h.relu() } else { h.sin() });
            let forward = start.elapsed();
            drop(h);
            let dy = Tensor::ones([n]);
            let start = std::time::Instant::now();
            y.backward_with(&dy).unwrap();
            println!("{name:>8}: forward {forward:?}, backward {:?}", start.elapsed());
            x.zero_grad();
        }
    }
    dir.must_be_empty();
}
