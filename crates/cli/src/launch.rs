//! `pullback launch`: starts the workers of one machine.

use crate::failure::{CliResult, Failure};
use clap::Args;
use std::ffi::OsString;

/// What `pullback launch` takes.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  pullback launch -n 4 -- pullback train            four processes that train one model together
  pullback launch -n 4 --restarts 3 -- ./my-program again from the last checkpoint, if a worker fails
  pullback launch -n 4 --restarts 3 --min-workers 2 -- ./my-program
                                                    each time with one worker less, but with two at least
  PULLBACK_TIMEOUT=30 pullback launch -n 2 -- ./my-program
                                                    a worker that does not come for 30 seconds is an error on all

Each worker finds its number in PULLBACK_RANK, their number in PULLBACK_WORKERS, and in PULLBACK_RESTART how often the group was started before; \
`pullback_workers::init()` reads them. Unless PULLBACK_NUM_THREADS is set, the cores are divided among them. Lines of output begin with the number of the worker. Ctrl-C and SIGTERM are passed on. \
The exit code is that of the worker that failed first (128 and the signal, if it was killed), or 0. \
If a worker fails, the others have five seconds to say so before they are ended.")]
pub struct LaunchArgs {
    /// How many workers
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// How often they are started again after one of them failed
    #[arg(long, value_name = "N", default_value_t = 0)]
    restarts: u32,
    /// Starts them again with one less each time, but with this many at least
    #[arg(long, value_name = "N")]
    min_workers: Option<u32>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Starts the workers and waits for them.
///
/// # Errors
/// With the exit code of the worker that failed first.
#[cfg(unix)]
pub fn run(arguments: &LaunchArgs) -> CliResult {
    let least = arguments.min_workers.unwrap_or(arguments.workers);
    if least == 0 || least > arguments.workers {
        let workers = arguments.workers;
        let message = format!("--min-workers {least} is not between 1 and the {workers} workers");
        return Err(Failure::usage(message));
    }
    let request = pullback_workers::WorkerLaunch {
        command: arguments.command.clone(),
        workers: arguments.workers as usize,
        restarts: arguments.restarts as usize,
        min_workers: least as usize,
    };
    let code = pullback_workers::launch(&request)?;
    match code {
        0 => Ok(()),
        code => Err(Failure { code, message: String::new() }),
    }
}

/// There are no processes to start in this way.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub fn run(_: &LaunchArgs) -> CliResult {
    Err(Failure::failed("`launch` needs a Unix system"))
}
