//! A disk that is full, as the system says it, and memory by its bytes.

use super::Offload;
use crate::backend::{Asked, Memory};
use crate::{Backward, DType, Device, ErrorKind, Tensor, catch};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Every write to this device fails as on a full disk.
fn full(_: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open("/dev/full")
}

/// The first three files are there, the others find the disk full, once the forward pass is done.
fn nearly_full(path: &Path) -> io::Result<File> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if COUNT.fetch_add(1, Ordering::Relaxed) < 3 {
        return File::create_new(path);
    }
    while !FORWARD_IS_DONE.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    full(path)
}

static FORWARD_IS_DONE: AtomicBool = AtomicBool::new(false);

fn chain(x: &Tensor, count: usize) -> Tensor {
    (0..count).fold(x.clone(), |x, _| x.sin())
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error_and_the_tape_stays_usable() {
    let dir = std::env::temp_dir().join(format!("pullback-full-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let x = Tensor::from_vec((0..1000).map(f64::from).collect::<Vec<_>>(), [1000]).requires_grad();
    chain(&x, 7).sum().backward().unwrap();
    let expected = x.grad().unwrap().to_vec::<f64>();
    x.zero_grad();

    let offload = Offload::with(&dir, nearly_full).unwrap().min_bytes(1).prefetch(0);
    let y = offload.run(|| chain(&x, 7));
    FORWARD_IS_DONE.store(true, Ordering::Relaxed);
    let error = offload.flush().unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Memory);
    for part in ["offload: f64[1000] saved by `sin` at", "No space left on device", "tests.rs"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.contains(&format!("{}", dir.join("pullback-").display())), "{text}");
    // Reported once. Backward through what was saved works, twice, from disk and from memory.
    offload.flush().unwrap();
    let stats = offload.stats();
    assert_eq!((stats.files, stats.failed_writes, stats.disk_bytes), (3, 3, 24_000));
    for _ in 0..2 {
        Backward::of(&y.sum()).retain_graph().run().unwrap();
        assert_eq!(x.grad().unwrap().to_vec::<f64>(), expected);
        x.zero_grad();
    }
    drop(y);
    let stats = offload.stats();
    assert_eq!((stats.files, stats.held_bytes), (0, 0));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);

    // The operation after a failure fails, with what came before intact; no wait for memory hangs.
    let offload = Offload::with(&dir, full).unwrap().min_bytes(1).buffer_bytes(16_000);
    let mut last = x.clone();
    let error = catch(|| {
        offload.run(|| {
            for _ in 0..1000 {
                last = last.sin();
            }
        })
    })
    .unwrap_err();
    assert!(error.to_string().contains("could not be written to"), "{error}");
    assert!(error.location().unwrap().to_string().contains("tests.rs"), "{error}");
    last.sum().backward().unwrap();
    assert!(x.grad().is_some());
    drop(last);
    // With another directory it continues.
    let offload = Offload::to_disk(&dir).unwrap().min_bytes(1);
    x.zero_grad();
    offload.run(|| chain(&x, 7)).sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>(), expected);
    assert_eq!(offload.stats().files, 0);
    std::fs::remove_dir(&dir).unwrap();
}

#[test]
fn memory_by_its_bytes() {
    let filled = |dtype, byte: u8| {
        Memory::filled(dtype, 3, Device::Cpu, Asked { op: "test", at: None }, |bytes| {
            assert_eq!(bytes, [0, 0, 0]);
            bytes[1] = byte;
            Ok(())
        })
    };
    let Memory::Host(buffer) = filled(DType::U8, 7).unwrap() else { panic!("not on the host") };
    assert_eq!(buffer.slice(0, 3), Some(&[0, 7, 0][..]));
    assert_eq!((buffer.slice(1, 3), buffer.slice(usize::MAX, 2)), (None, None));
    assert_eq!(buffer.slice(3, 0), Some(&[][..]));
    assert!(filled(DType::Bool, 1).is_ok() && filled(DType::Bool, 2).is_err());
    assert!(
        Memory::filled(DType::U8, 3, Device::Cpu, Asked { op: "test", at: None }, |_| {
            Err(crate::Error::argument("x", "no"))
        })
        .is_err()
    );
}
