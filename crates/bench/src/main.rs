//! `pullback-bench`: the peers' workloads in Pullback, from the same numbers, as the same JSON
//! lines.
//!
//! ```text
//! cargo run --release --workspace --bin pullback-bench -- [workload …] [--device cuda] [--jit] [--json] [--quick] [--profile] [--limits] [--threads N] [--list] [--scaling]
//! ```
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pullback_bench::run_words(std::env::args().skip(1))
}
