//! Layers: the numbers of PyTorch's, and what every module can do.

mod build;
mod dtypes;
mod errors;
mod init;
mod lines;
mod modules;
mod pytorch;
mod random;
mod summary;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The global generator with this seed, to oneself as long as the guard lives: tests share it, and
/// draw from it wherever they make a layer.
fn seeded(seed: u64) -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    let guard = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    pullback::manual_seed(seed);
    guard
}
