//! The two rates that bound every step.

use pullback::backend::threads;
use pullback_cpu::{multiply_add_rate, stream};
use std::time::Instant;

/// Bytes that a thread copies: more than a cache holds.
const BYTES: usize = 96 << 20;
const RUNS: usize = 5;

/// What the machine does at most, with as many threads as kernels use.
pub struct Rates {
    /// Multiply-adds of f32 in registers, 10⁹ operations a second.
    pub gflops: f64,
    /// A copy of large memory, read and written, 10⁹ bytes a second.
    pub gb_per_s: f64,
}

/// Measures them.
pub fn rates() -> Rates {
    Rates { gflops: multiply_add_rate() / 1e9, gb_per_s: copy_rate(threads()) / 1e9 }
}

/// Bytes a second, read and written, of a copy by several threads.
fn copy_rate(threads: usize) -> f64 {
    let arrays = || -> Vec<Vec<u64>> { (0..threads).map(|_| vec![1; BYTES / 8]).collect() };
    let (from, mut to) = (arrays(), arrays());
    let times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            std::thread::scope(|scope| {
                for (from, to) in from.iter().zip(&mut to) {
                    scope.spawn(move || stream(from, to));
                }
            });
            start.elapsed().as_secs_f64()
        })
        .collect();
    (2 * BYTES * threads) as f64 / times.into_iter().fold(f64::INFINITY, f64::min)
}
