//! What goes wrong on disk is an error that says so, and leaves neither files, memory nor threads
//! behind.

use crate::shared::{Dir, bits, blocks, exclusive, from_disk_alone, packed, plain, sample};
use crate::{arguments, network};
use pullback::{DType, Offload, catch, memory_stats};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn overwrite(path: &Path, f: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    fs::write(path, f(fs::read(path).unwrap())).unwrap();
}

#[test]
fn a_file_removed_cut_or_changed_is_an_error_that_names_it() {
    let _lock = exclusive();
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
            assert!(error.contains(says) && error.contains("shared.rs"), "{error}");
            assert!(x.grad().is_none(), "no gradient changes");
            drop(y);
            dir.must_be_empty();
        }
    }
}

#[test]
fn a_bound_on_the_disk_is_an_error_that_leaves_the_tape_usable() {
    let _lock = exclusive();
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
    assert!(error.contains("wanted by `sin`") && error.contains("faults.rs"), "{error}");
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
    let _lock = exclusive();
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
            // With space in the buffer, the failure may come after the last op.
            Ok(()) => offload.flush().unwrap_err(),
            Err(error) => error,
        };
        let text = error.to_string();
        assert!(text.contains("could not be written to") && text.contains("os error 2"), "{text}");
        assert!(text.contains("inner") && text.contains("shared.rs"), "{text}");
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
    let _lock = exclusive();
    let dir = Dir::new();
    let x = sample(&[100], DType::F64).requires_grad();
    // A thread takes its name when it first runs, and is listed a moment longer than it can be
    // joined.
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
    let _lock = exclusive();
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
    let _lock = exclusive();
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
fn files_carry_the_process_and_leave_others_alone() {
    let _lock = exclusive();
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
