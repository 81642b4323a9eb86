//! Saved values that wait on disk, and saved values that are compressed.
//!
//! Tests that compare the pool's counters must not run beside others, so every test takes its turn.

use pullback::{
    Backward, Compress, DType, Key, Offload, Pack, Packed, Result, SavedValue, Tensor, autocast,
    catch, checkpoint, grad, jit, jvp, memory_stats, reset_peak, stack, vmap, watch_overflow,
    with_packing,
};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory of its own, which must be empty in the end.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("packing-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    fn offload(&self) -> Offload {
        Offload::to_disk(&self.0).unwrap().min_bytes(1)
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[track_caller]
    fn must_be_empty(self) {
        assert_eq!(self.files(), Vec::<PathBuf>::new());
        fs::remove_dir(&self.0).unwrap();
    }
}

/// What must be on disk to be had again: no copy stays in memory, nothing is read ahead.
fn from_disk_alone(offload: Offload) -> Offload {
    offload.buffer_bytes(0).prefetch(0)
}

fn sample(shape: &[usize], dtype: DType) -> Tensor {
    Key::new(7).normal(shape, DType::F64, 0.0, 1.0).cast(dtype)
}

fn bits(x: &Tensor) -> Vec<u64> {
    x.to_f64_vec().iter().map(|v| v.to_bits()).collect()
}

fn leaf(x: &Tensor) -> Tensor {
    x.detach().deep_clone().requires_grad()
}

/// The gradients of a function with respect to its arguments, plainly.
fn plain(f: &dyn Fn(&[Tensor]) -> Tensor, inputs: &[Tensor]) -> Vec<Vec<u64>> {
    packed(f, inputs, None)
}

fn packed(
    f: &dyn Fn(&[Tensor]) -> Tensor,
    inputs: &[Tensor],
    packer: Option<Arc<dyn Pack>>,
) -> Vec<Vec<u64>> {
    let fresh = |x: &Tensor| if x.dtype().is_float() { leaf(x) } else { x.clone() };
    let leaves: Vec<Tensor> = inputs.iter().map(fresh).collect();
    let y = match packer {
        Some(packer) => with_packing(packer, || f(&leaves)),
        None => f(&leaves),
    };
    y.backward().unwrap();
    let floats = leaves.iter().filter(|x| x.dtype().is_float());
    floats.map(|x| bits(&x.grad().unwrap())).collect()
}

/// A small network with the usual kinds of saved values: factors, transposes, broadcasts, masks, indices, sums.
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

fn blocks(x: &Tensor, count: usize) -> Tensor {
    (0..count).fold(x.clone(), |x, _| x.sin().exp() * 0.3)
}

#[test]
fn gradients_from_disk_are_the_same_bits() {
    let _turn = turn();
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
    let _turn = turn();
    let dir = Dir::new();
    /// Takes the door with both hands: unpacks at once what a packer made, and compares.
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
    let _turn = turn();
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
    let _turn = turn();
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
    let _turn = turn();
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
    let _turn = turn();
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

/// A gradient that is a saved value itself is added to in place; the saved value must not be found there again.
#[test]
fn a_gradient_never_shares_memory_with_a_saved_value() {
    let _turn = turn();
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
    let _turn = turn();
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
    let _turn = turn();
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

fn overwrite(path: &Path, f: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    fs::write(path, f(fs::read(path).unwrap())).unwrap();
}

#[test]
fn a_file_removed_cut_or_changed_is_an_error_that_names_it() {
    let _turn = turn();
    type Harm = fn(&Path);
    let harms: [(Harm, &str); 5] = [
        (|path| fs::remove_file(path).unwrap(), "was removed"),
        (
            |path| overwrite(path, |b| b[..b.len() - 1].to_vec()),
            "is shorter than the 800 bytes written",
        ),
        (|path| overwrite(path, |_| Vec::new()), "is shorter than the 800 bytes written"),
        (
            |path| {
                overwrite(path, |mut b| {
                    b[401] ^= 4;
                    b
                })
            },
            "does not hold what was written to it",
        ),
        (
            |path| {
                overwrite(path, |mut b| {
                    b.swap(0, 8);
                    b
                })
            },
            "does not hold what was written to it",
        ),
    ];
    for (harm, says) in harms {
        for ahead in [0, 4] {
            let dir = Dir::new();
            let offload = dir.offload().min_bytes(800).buffer_bytes(1000).prefetch(ahead);
            let x = sample(&[100], DType::F64).requires_grad();
            let y = offload.run(|| blocks(&x, 4));
            offload.flush().unwrap();
            dir.files().iter().for_each(|path| harm(path));
            let error = y.sum().backward().unwrap_err().to_string();
            assert!(error.contains("offload: backward of `"), "{error}");
            assert!(error.contains("needs f64[100] saved by `"), "{error}");
            assert!(error.contains(&dir.0.join("pullback-").display().to_string()), "{error}");
            assert!(error.contains(says) && error.contains("packing.rs"), "{error}");
            assert!(x.grad().is_none(), "no gradient changes");
            drop(y);
            dir.must_be_empty();
        }
    }
}

#[test]
fn a_bound_on_the_disk_is_an_error_that_leaves_the_tape_usable() {
    let _turn = turn();
    let dir = Dir::new();
    let offload = dir.offload().max_bytes(4000);
    let x = sample(&[100], DType::F64).requires_grad();
    let mut last = x.clone();
    let mut count = 0;
    let error = catch(|| {
        offload.run(|| {
            for _ in 0..100 {
                last = last.sin();
                count += 1;
            }
        })
    });
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("offload: 800 bytes more would be above the 4000 that may be in"),
        "{error}"
    );
    assert!(error.contains("wanted by `sin`") && error.contains("packing.rs"), "{error}");
    assert_eq!(
        (count, offload.stats().disk_bytes <= 4000),
        (6, true),
        "a parameter and five values"
    );
    last.sum().backward().unwrap();
    let found = bits(&x.grad().unwrap());
    x.zero_grad();
    (0..count).fold(x.clone(), |x, _| x.sin()).sum().backward().unwrap();
    assert_eq!(found, bits(&x.grad().unwrap()));
    // A write in place that fails has changed nothing.
    let (h, offload) = (&x * 0.5, offload.max_bytes(100));
    assert!(catch(|| offload.run(|| h.exp_())).is_err());
    assert_eq!(bits(&h), bits(&(&x * 0.5)));
    x.zero_grad();
    h.sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), [0.5; 100]);
    // What was freed can be used again.
    let offload = offload.max_bytes(4000);
    x.zero_grad();
    offload.run(|| x.sin().sin().sin()).sum().backward().unwrap();
    drop(last);
    dir.must_be_empty();
}

#[test]
fn a_directory_that_is_gone_is_an_error_that_leaves_the_tape_usable() {
    let _turn = turn();
    let dir = Dir::new();
    let x = sample(&[100], DType::F64).requires_grad();
    for bound in [0, 1 << 20] {
        let inner = dir.0.join("inner");
        let offload = Offload::to_disk(&inner).unwrap().min_bytes(1).buffer_bytes(bound);
        let first = offload.run(|| blocks(&x, 1));
        offload.flush().unwrap();
        fs::rename(&inner, dir.0.join("elsewhere")).unwrap();
        let mut second = None;
        let error = match catch(|| offload.run(|| second = Some(blocks(&x, 3)))) {
            // With room in the buffer, the failure may come after the last op.
            Ok(()) => offload.flush().unwrap_err(),
            Err(error) => error,
        };
        let text = error.to_string();
        assert!(text.contains("could not be written to") && text.contains("os error 2"), "{text}");
        assert!(text.contains("inner") && text.contains("packing.rs"), "{text}");
        if let Some(second) = second {
            x.zero_grad();
            second.sum().backward().unwrap();
            let found = bits(&x.grad().unwrap());
            x.zero_grad();
            blocks(&x, 3).sum().backward().unwrap();
            assert_eq!(found, bits(&x.grad().unwrap()), "kept in memory");
        }
        // What is elsewhere is not where it was.
        if bound == 0 {
            assert!(first.sum().backward().unwrap_err().to_string().contains("was removed"));
        }
        // Whatever else waited has failed as well.
        let _ = offload.flush();
        fs::rename(dir.0.join("elsewhere"), &inner).unwrap();
        drop(first);
        // It goes on as soon as it can.
        offload.run(|| blocks(&x, 2)).sum().backward().unwrap();
        drop(offload);
        fs::remove_dir(&inner).unwrap();
    }
    let file = dir.0.join("file");
    fs::write(&file, "x").unwrap();
    let error = Offload::to_disk(&file).unwrap_err().to_string();
    assert!(
        error.starts_with("offload: no file can be written in") && error.contains("file"),
        "{error}"
    );
    fs::remove_file(&file).unwrap();
    dir.must_be_empty();
}

/// How many threads of offloads there are.
#[cfg(target_os = "linux")]
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name =
        |task: &fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.filter_map(|t| t.ok()).filter(|t| name(t).starts_with("pullback-offloa")).count()
}

#[test]
#[cfg(target_os = "linux")]
fn threads_end_with_the_last_who_needs_them() {
    let _turn = turn();
    let dir = Dir::new();
    let x = sample(&[100], DType::F64).requires_grad();
    // A thread takes its name when it first runs, and is listed a moment longer than it can be joined.
    let become_so_many = |count: usize| {
        let start = std::time::Instant::now();
        while threads() != count {
            assert!(start.elapsed().as_secs() < 20, "{} threads, not {count}", threads());
            std::thread::yield_now();
        }
    };
    become_so_many(0);
    let offload = dir.offload();
    let other = offload.clone();
    let y = offload.run(|| blocks(&x, 3));
    drop(offload);
    drop(other);
    // The graph needs them.
    become_so_many(2);
    y.sum().backward().unwrap();
    drop(y);
    become_so_many(0);
    dir.must_be_empty();
}

#[test]
fn nothing_stays_behind_after_a_panic_or_a_drop_in_any_order() {
    let _turn = turn();
    let dir = Dir::new();
    let before = memory_stats().live_bytes;
    let x = sample(&[10_000], DType::F64).requires_grad();
    let panics = || {
        dir.offload().run(|| {
            let y = blocks(&x, 5);
            assert!(y.shape() == [3], "deliberate");
        });
    };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    std::panic::set_hook(hook);
    assert!(dir.files().is_empty());

    // The graph before the offload, while it is still being written.
    let offload = dir.offload();
    for _ in 0..20 {
        drop(offload.run(|| blocks(&x, 5)));
    }
    assert_eq!((offload.stats().files, offload.stats().held_bytes), (0, 0));
    assert!(dir.files().is_empty());
    drop(offload);
    // The offload before the graph, which still works.
    let offload = dir.offload().buffer_bytes(100_000);
    let y = offload.run(|| blocks(&x, 5));
    drop(offload);
    y.sum().backward().unwrap();
    drop(y);
    // Half of a graph.
    let offload = dir.offload();
    let (a, b) = offload.run(|| {
        let a = x.sin().exp();
        let b = a.cos().exp();
        (a, b)
    });
    drop(a);
    b.sum().backward().unwrap();
    drop((b, offload, x));
    assert_eq!(memory_stats().live_bytes, before);
    dir.must_be_empty();
}

#[test]
fn threads_do_not_disturb_each_other() {
    let _turn = turn();
    let dir = Dir::new();
    let inputs = arguments(DType::F32);
    let expected = plain(&network, &inputs);
    let shared = dir.offload().buffer_bytes(600).prefetch(2);
    std::thread::scope(|scope| {
        for i in 0..4 {
            let (shared, dir, inputs, expected) = (shared.clone(), &dir, &inputs, &expected);
            scope.spawn(move || {
                for _ in 0..20 {
                    // Two share one, two have their own.
                    let offload =
                        if i < 2 { shared.clone() } else { dir.offload().buffer_bytes(500) };
                    let found = packed(&network, inputs, Some(Arc::new(offload)));
                    assert_eq!(&found, expected);
                }
            });
        }
    });
    // Forward here, backward there.
    let x = sample(&[1000], DType::F32).requires_grad();
    let y = shared.run(|| blocks(&x, 8).sum());
    std::thread::spawn(move || y.backward().unwrap()).join().unwrap();
    let found = bits(&x.grad().unwrap());
    x.zero_grad();
    blocks(&x, 8).sum().backward().unwrap();
    assert_eq!(found, bits(&x.grad().unwrap()));
    assert!(shared.stats().peak_held_bytes <= 600);
    assert_eq!(shared.stats().files, 0);
    drop(shared);
    dir.must_be_empty();
}

#[test]
fn checkpoints_inside_and_outside() {
    let _turn = turn();
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
    let _turn = turn();
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

/// Every value is on disk alone. Before each is needed, the hook waits for the reader: then all but the first were read ahead, which they are
/// not if the order is wrong or there is none.
#[test]
fn values_are_read_ahead_in_the_order_in_which_backward_wants_them() {
    let _turn = turn();
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

#[test]
fn files_carry_the_process_and_leave_others_alone() {
    let _turn = turn();
    let dir = Dir::new();
    let offload = from_disk_alone(dir.offload());
    let x = sample(&[100], DType::F64).requires_grad();
    let first = offload.run(|| x.sin().sin());
    let name = dir.files()[0].file_name().unwrap().to_str().unwrap().to_string();
    let number = name.strip_prefix(&format!("pullback-{}-", std::process::id())).unwrap();
    let number: u64 = number.strip_suffix(".saved").unwrap().parse().unwrap();
    // What an earlier process of the same number left behind.
    let taken: Vec<PathBuf> = (number + 1..number + 6)
        .map(|n| dir.0.join(format!("pullback-{}-{n}.saved", std::process::id())))
        .collect();
    taken.iter().for_each(|path| fs::write(path, "old").unwrap());
    let second = offload.run(|| blocks(&x, 3));
    (first.sum() + second.sum()).backward().unwrap();
    for path in taken {
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        fs::remove_file(path).unwrap();
    }
    drop((first, second));
    dir.must_be_empty();
}

#[test]
fn packers_inside_other_transforms() {
    let _turn = turn();
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
    let _turn = turn();
    let x = sample(&[16, 16], DType::F32).requires_grad();
    // The packer tries f16, which overflows; that is no overflow of the formula.
    let packer = Arc::new(Compress::new().half(DType::F16));
    let ((), culprit) = watch_overflow(|| {
        with_packing(packer, || (&x * 1e6).sin().sum()).backward().unwrap();
    });
    assert!(culprit.is_none(), "{culprit:?}");
    let f = |v: &[Tensor]| autocast(DType::BF16, || v[0].matmul(&v[1]).relu().exp().mean());
    let inputs = [sample(&[16, 16], DType::F32), sample(&[16, 16], DType::F32)];
    let masks = Arc::new(Compress::new().masks().integers());
    assert_eq!(packed(&f, &inputs, Some(masks)), plain(&f, &inputs));
}

/// A packer between a formula and another packer: notes the bytes of each value, before and after, and compares what comes back.
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
    let _turn = turn();
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
    let _turn = turn();
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
    let _turn = turn();
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

#[test]
fn half_precision_has_the_error_it_promises() {
    let _turn = turn();
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
        with_packing(scale.clone(), || (&x * 1.0).sin().sum()).backward().unwrap();
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
    let before = memory_stats().live_bytes;
    let y = with_packing(Arc::new(Compress::new().half(DType::BF16)), || blocks(&x, 8));
    // The inputs of seven sines (the first is a parameter), eight exponentials, the result, and the factors.
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
    assert!(error.contains("bf16 or f16, not in f32") && error.contains("packing.rs"), "{error}");
}

#[test]
fn eight_bits_have_the_error_they_promise() {
    let _turn = turn();
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
        with_packing(scale.clone(), || ((&x * 1.0).sin()).sum()).backward().unwrap();
        scale.taken().first().map(|t| t.2)
    };
    for seed in 0..40u64 {
        let spread = 10f64.powi(seed as i32 * 2 - 40);
        let n = 64 + (seed as usize * 37) % 500;
        let x = Key::new(seed).normal([n], DType::F64, 0.0, spread);
        assert_eq!(run(&x), Some(n + n.div_ceil(64) * 8), "{spread}");
        // Each block by itself: the last elements are tiny beside the first.
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
    // Gradients of a product are off in proportion, and 1/x, whose derivative is not gentle, is left alone.
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
    let _turn = turn();
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
    let _turn = turn();
    let x = sample(&[1000], DType::F64).requires_grad();
    let before = memory_stats().live_bytes;
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
    // Arguments of checkpointed functions stay exact, or the function would be computed at another point.
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

/// `cargo test --release -p pullback --test packing throughput -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn throughput() {
    let _turn = turn();
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
