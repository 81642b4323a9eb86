//! `pullback bench`: the front of the benchmark program.

use crate::failure::{CliResult, Failure};
use crate::output::{StandardOutput, columns};
use crate::{bench_overlap, bench_workers};
use clap::Args;
use pullback::Device;
use pullback_bench::{Request, workloads, workloads_on};
use pullback_explore::expression::{did_you_mean, near};
use std::path::PathBuf;

/// What `pullback bench` takes.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  pullback bench --list              the workloads, and what each times
  pullback bench mlp_step gpt_step   two of them
  pullback bench --jit lstm_step     with the step compiled
  pullback bench --json > here.jsonl all of them, a JSON object a line
  pullback bench --limits            what share of this machine's arithmetic or bandwidth compiled steps reach
  pullback bench --device cuda       the workloads of GPUs, on the first one
  pullback bench workers             all-reduce of threads and processes, 1 KiB to 256 MiB
  pullback bench workers --plot overlap.png
                                     a GPT's step with and without overlap, against the bandwidth of a network
  pullback bench workers --record step.json
                                     when the buckets of GPT-2 (124M) are ready here, for `pullback simulate`
  pullback bench --scaling           how much faster two threads are than one on this machine, just now

Each workload runs for about two seconds after a warm-up, in a process of its own, so that its peak of memory is its own.
`median ms` is the time of a run; `other cpu` says how many cores other processes used during the run: above 0.1, measure again.")]
pub struct BenchArgs {
    /// The workloads; all of them if none is named
    workloads: Vec<String>,
    /// Compiles the steps
    #[arg(long)]
    jit: bool,
    /// The device: cpu, cuda, cuda:1, … (see `pullback devices`); a GPU has workloads of its own
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Runs the workloads of GPUs in a small size, with their checks
    #[arg(long)]
    quick: bool,
    /// Times the kernels of a step on a GPU, one by one, and prints them; of a compiled step on the
    /// CPU with `--limits`
    #[arg(long)]
    profile: bool,
    /// The rate of multiply-adds and the bandwidth of this machine, and what share of them compiled
    /// steps reach
    #[arg(long)]
    limits: bool,
    /// How many threads compute
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Prints JSON lines
    #[arg(long)]
    json: bool,
    /// Of `workers`: the largest operand, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    largest: usize,
    /// Of `workers`: measures a GPT's step with and without overlap on networks of several
    /// bandwidths, and draws it (.png or .svg)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Of `workers`: records the schedule of a step of GPT-2 (124M) on this machine, for `simulate`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Of `workers --record`: tokens of the batch
    #[arg(long, value_name = "N", default_value_t = 128)]
    tokens: usize,
    /// Names the workloads
    #[arg(long)]
    list: bool,
    /// How much faster two threads are than one, just now
    #[arg(long)]
    scaling: bool,
    #[arg(long, hide = true)]
    inner: bool,
    #[arg(long, hide = true)]
    first_gradient: bool,
}

/// Measures and prints.
///
/// # Errors
/// If there is no such workload, or one fails.
pub fn run(arguments: &BenchArgs, out: &mut StandardOutput) -> CliResult {
    if arguments.workloads == ["workers"] {
        return match (&arguments.plot, &arguments.record) {
            (Some(_), Some(_)) => Err(Failure::usage(
                "--plot and --record cannot be combined: each is a run of its own",
            )),
            (Some(path), None) => bench_overlap::plot(path, arguments.json, out),
            (None, Some(path)) => bench_overlap::record(path, arguments.tokens, out),
            (None, None) => bench_workers::run(arguments.largest, arguments.json, out),
        };
    }
    if arguments.plot.is_some() || arguments.record.is_some() {
        return Err(Failure::usage("--plot and --record are options of `pullback bench workers`"));
    }
    let known: Vec<&str> = workloads().map(|(name, _)| name).collect();
    if let Some(name) = arguments.workloads.iter().find(|name| !known.contains(&name.as_str())) {
        let near = did_you_mean(&near(name, known.iter().copied()));
        return Err(Failure::usage(format!(
            "there is no workload `{name}`{near} (--list names them)"
        )));
    }
    let device = match &arguments.device {
        None => None,
        Some(name) => {
            Some(name.parse().map_err(|_| Failure::usage(format!("there is no device `{name}`")))?)
        }
    };
    if arguments.list {
        let of_device = workloads_on(device.unwrap_or(Device::Cpu));
        let rows: Vec<Vec<String>> =
            of_device.map(|(name, about)| vec![name.into(), about.into()]).collect();
        return Ok(columns(&rows, &[]).iter().try_for_each(|line| out.line(line))?);
    }
    // The workloads print by themselves, and in processes of their own.
    out.flush()?;
    pullback_bench::runs_after(&["bench"]);
    let code = pullback_bench::run(&Request {
        names: arguments.workloads.clone(),
        json: arguments.json,
        device,
        jit: arguments.jit,
        quick: arguments.quick,
        profile: arguments.profile,
        limits: arguments.limits,
        list: false,
        scaling: arguments.scaling,
        help: false,
        threads: usize::from(arguments.threads),
        inner: arguments.inner,
        first_gradient: arguments.first_gradient,
    });
    match code == std::process::ExitCode::SUCCESS {
        true => Ok(()),
        false => Err(Failure::failed("a workload failed: see its line")),
    }
}
