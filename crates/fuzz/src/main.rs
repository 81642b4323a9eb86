//! `cargo run --release -p pullback-fuzz -- --seed 1 --seconds 600`: searches for wrong numbers.
#![forbid(unsafe_code)]

use clap::Parser;
use pullback_fuzz::explorer::feed_explorer;
use pullback_fuzz::report::{Options, search};
use pullback_fuzz::switches::Switches;
use pullback_fuzz::ways::Way;
use pullback_fuzz::workers;
use std::process::ExitCode;
use std::time::Duration;

/// Runs random programs in many ways and compares what they give.
#[derive(Parser)]
struct FuzzArguments {
    /// The first program; the next has the next number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Stop after this many programs.
    #[arg(long)]
    programs: Option<u64>,
    /// Stop after this many failures.
    #[arg(long, default_value_t = 10)]
    failures: usize,
    /// Only this way, as `jit.grad.vmap`, compared with the plain one.
    #[arg(long)]
    only: Option<Way>,
    /// Print every program, and the pairs that are compared.
    #[arg(long)]
    print: bool,
    /// Leave out what the switches of `switches.rs` name.
    #[arg(long)]
    careful: bool,
    /// Feed the explorer with this many hostile recordings and requests, and do nothing else.
    #[arg(long)]
    explorer: Option<usize>,
    /// Run programs of several workers, which are threads.
    #[arg(long)]
    workers: bool,
    /// Do not shrink what fails.
    #[arg(long)]
    no_shrink: bool,
}

fn main() -> ExitCode {
    let words = FuzzArguments::parse();
    if let Some(count) = words.explorer {
        feed_explorer(count);
        println!("{count} inputs: an answer or a sentence to each");
        return ExitCode::SUCCESS;
    }
    let programs = match (words.programs, words.seconds) {
        (None, None) => 1000,
        (programs, _) => programs.unwrap_or(u64::MAX),
    };
    if words.workers {
        let programs = programs.min(1_000_000);
        let failures = workers::search(words.seed, programs);
        failures.iter().for_each(|failure| println!("{failure}"));
        println!("{programs} programs of several workers, {} failures", failures.len());
        return if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let found = search(&Options {
        seed: words.seed,
        programs,
        time: words.seconds.map(Duration::from_secs),
        failures: words.failures,
        only: words.only,
        print: words.print,
        verbose: true,
        shrink: !words.no_shrink,
        switches: if words.careful { Switches::off() } else { Switches::default() },
        inject: None,
    });
    println!("{}", found.summary());
    if found.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
