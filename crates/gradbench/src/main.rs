//! Pullback as a tool of [GradBench](https://github.com/gradbench/gradbench): it reads messages
//! from standard input, a JSON object a line, and answers each with a line on standard output.
//!
//! `protocol.rs` answers messages, `job.rs` runs and times a function, `evals/` has one file for
//! each problem, written as a user of Pullback would write it.
#![forbid(unsafe_code)]

mod evals;
mod job;
mod protocol;

use clap::Parser;
use std::io::{BufRead, BufWriter, Error, ErrorKind, Write};
use std::process::ExitCode;

/// Pullback as a tool of GradBench: answers the messages on standard input, a JSON object a line.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Use all cores; otherwise one.
    #[arg(long)]
    multithreaded: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.multithreaded {
        pullback::set_threads(1);
    }
    protocol::quiet();
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut output = BufWriter::new(output);
    for (number, line) in input.split(b'\n').enumerate() {
        let line = match line {
            Ok(line) => line,
            Err(error) => return stop(format!("standard input cannot be read: {error}")),
        };
        let Some(answer) = protocol::answer(&line, number + 1) else { continue };
        let written = serde_json::to_writer(&mut output, &answer).map_err(Error::from);
        match written.and_then(|()| writeln!(output)).and_then(|()| output.flush()) {
            Ok(()) => {}
            // The reader has closed the pipe.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Err(error) => return stop(format!("standard output cannot be written: {error}")),
        }
    }
    ExitCode::SUCCESS
}

fn stop(message: String) -> ExitCode {
    eprintln!("pullback-gradbench: {message}");
    ExitCode::FAILURE
}
