//! The `pullback` command: trains networks, shows how gradients come about, checks, explains and
//! measures.
//!
//! One file (or folder) for each subcommand; `command.rs` is the list of them. Exit codes: 0 for
//! success, 1 if the command failed, 2 if the command line is invalid, 130 if the user stopped it.
#![forbid(unsafe_code)]

mod bench;
mod bench_overlap;
mod bench_workers;
mod check;
mod command;
mod completions;
mod devices;
mod explain;
mod explore;
mod failure;
mod grad;
mod launch;
mod models;
mod ops;
mod output;
#[cfg(test)]
mod random_text;
mod simulate;
mod simulate_training;
mod train;

use failure::Failure;
use std::io::Write as _;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

fn main() -> ExitCode {
    // A panic is a defect of this program (or of the library's formulas, outside `catch`): it is
    // printed as one message, below.
    panic::set_hook(Box::new(|_| {}));
    let words: Vec<_> = std::env::args_os().collect();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| pullback::catch(|| command::run(words))));
    let outcome = match outcome {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Err(error.into()),
        Err(payload) => {
            Err(Failure::failed(format!("internal error: {}", panic_message(&*payload))))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                // If even this cannot be written, there is still the exit code.
                let _ = writeln!(std::io::stderr(), "pullback: {failure}");
            }
            ExitCode::from(failure.code)
        }
    }
}

/// The message of a panic.
fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("no message").to_string()
}
