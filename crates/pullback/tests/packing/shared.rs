//! What tests of packers share. Some compare the counters of the pool, and must not run
//! concurrently with others: every test takes the lock.

use pullback::{DType, Key, Offload, Pack, Tensor, with_packing};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static EXCLUSIVE: Mutex<()> = Mutex::new(());

pub fn exclusive() -> MutexGuard<'static, ()> {
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory of its own, which must be empty in the end.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new() -> Dir {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("packing-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    pub fn offload(&self) -> Offload {
        Offload::to_disk(&self.0).unwrap().min_bytes(1)
    }

    pub fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[track_caller]
    pub fn must_be_empty(self) {
        assert_eq!(self.files(), Vec::<PathBuf>::new());
        fs::remove_dir(&self.0).unwrap();
    }
}

/// What must be on disk to be had again: no copy stays in memory, nothing is read ahead.
pub fn from_disk_alone(offload: Offload) -> Offload {
    offload.buffer_bytes(0).prefetch(0)
}

pub fn sample(shape: &[usize], dtype: DType) -> Tensor {
    Key::new(7).normal(shape, DType::F64, 0.0, 1.0).cast(dtype)
}

pub fn bits(x: &Tensor) -> Vec<u64> {
    x.to_f64_vec().iter().map(|v| v.to_bits()).collect()
}

pub fn leaf(x: &Tensor) -> Tensor {
    x.detach().deep_clone().requires_grad()
}

/// The gradients of a function with respect to its arguments, plainly.
pub fn plain(f: &dyn Fn(&[Tensor]) -> Tensor, inputs: &[Tensor]) -> Vec<Vec<u64>> {
    packed(f, inputs, None)
}

pub fn packed(
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

pub fn blocks(x: &Tensor, count: usize) -> Tensor {
    (0..count).fold(x.clone(), |x, _| x.sin().exp() * 0.3)
}
