//! The request of the command line, and its execution: each workload in its own process.

use crate::{compiled, limits, measure, profiled, quick, report, sweep, workloads};
use pullback::{Device, backend, catch, default_device, set_default_device};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

const USAGE: &str = "usage: pullback-bench [workload …] [--device cuda] [--jit] [--json] [--quick] [--profile] \
                     [--limits] [--threads N] [--list] [--scaling]\n       pullback-bench sweep [function …] [--python EXE] [--jit]";

/// The request.
#[derive(Debug, Default, PartialEq)]
pub struct Request {
    /// The workloads; all if there are none.
    pub names: Vec<String>,
    /// As JSON lines.
    pub json: bool,
    /// The device; if none is given, that of `PULLBACK_DEVICE`, or the CPU.
    pub device: Option<Device>,
    /// Steps are compiled.
    pub jit: bool,
    /// Workloads of GPUs run in a small size, a few times.
    pub quick: bool,
    /// The kernels of a step are timed after each measurement.
    pub profile: bool,
    /// Steps are compiled, and rows say what share of the machine's limits they reach.
    pub limits: bool,
    /// Only name the workloads.
    pub list: bool,
    /// Only print how much faster two threads are than one at present.
    pub scaling: bool,
    /// Only print the usage.
    pub help: bool,
    /// How many threads compute.
    pub threads: usize,
    /// Run in this process.
    pub inner: bool,
    /// Only compute one gradient: what `startup` times.
    pub first_gradient: bool,
}

/// Arguments before those of a request, where this program is a part of another: each workload runs
/// in its own process, which is started with these.
static BEFORE: OnceLock<&'static [&'static str]> = OnceLock::new();

/// Sets the arguments before those of a request.
pub fn runs_after(words: &'static [&'static str]) {
    // The first call counts.
    let _ = BEFORE.set(words);
}

/// A command that runs this program.
///
/// # Errors
/// If the operating system does not know where it is.
pub(crate) fn this_program() -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(BEFORE.get().copied().unwrap_or_default());
    Ok(command)
}

/// Parses and executes the arguments of a command line.
pub fn run_words(words: impl Iterator<Item = String>) -> ExitCode {
    let mut words = words.peekable();
    if words.next_if(|word| word == "sweep").is_some() {
        return sweep::run(words);
    }
    match parse(words, std::env::var("BENCH_THREADS").ok()) {
        Ok(request) => run(&request),
        Err(sentence) => {
            eprintln!("pullback-bench: {sentence}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(words: impl Iterator<Item = String>, threads: Option<String>) -> Result<Request, String> {
    let count = |word: &str| match word.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(format!("the number of threads is `{word}`, which is not a positive number")),
    };
    let mut request =
        Request { threads: threads.as_deref().map_or(Ok(2), count)?, ..Request::default() };
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => request.json = true,
            "--jit" => request.jit = true,
            "--quick" => request.quick = true,
            "--profile" => request.profile = true,
            "--device" => {
                let name = words.next().ok_or("--device needs a name")?;
                request.device = Some(name.parse().map_err(|e: pullback::Error| e.to_string())?);
            }
            "--limits" => request.limits = true,
            "--list" => request.list = true,
            "--threads" => {
                request.threads = count(&words.next().ok_or("--threads needs a number")?)?
            }
            "--scaling" => request.scaling = true,
            "--inner" => request.inner = true,
            "--first-gradient" => request.first_gradient = true,
            "-h" | "--help" => request.help = true,
            flag if flag.starts_with('-') => return Err(format!("there is no flag `{flag}`")),
            name => {
                if workloads::find(name).is_none() {
                    return Err(format!("there is no workload `{name}`; --list names them"));
                }
                request.names.push(name.to_string());
            }
        }
    }
    Ok(request)
}

impl Request {
    /// The device, without opening it: the processes of the workloads do.
    fn device(&self) -> Device {
        let of_environment = || std::env::var("PULLBACK_DEVICE").ok()?.parse().ok();
        self.device.or_else(of_environment).unwrap_or(Device::Cpu)
    }
}

/// Executes the request.
pub fn run(request: &Request) -> ExitCode {
    pullback::set_threads(request.threads);
    if request.jit || request.limits {
        compiled::switch_on();
    }
    if request.limits {
        limits::switch_on();
    }
    if request.quick {
        quick::switch_on();
    }
    if request.profile {
        profiled::switch_on();
    }
    if request.limits && request.device() != Device::Cpu {
        eprintln!("pullback-bench: --limits are those of the CPU");
        return ExitCode::from(2);
    }
    if request.help {
        println!("{USAGE}");
    } else if request.first_gradient {
        workloads::startup::first_gradient();
    } else if request.scaling {
        println!("{}", measure::scaling());
    } else if request.list {
        report::list(request.device());
    } else if request.inner {
        if let Err(error) = catch(|| set_default_device(request.device())) {
            eprintln!("pullback-bench: {error}");
            return ExitCode::from(2);
        }
        for name in &request.names {
            here(name, request);
        }
    } else {
        return in_processes(request);
    }
    ExitCode::SUCCESS
}

/// Runs one workload in this process and prints its rows.
fn here(name: &str, request: &Request) {
    let Some(workload) = workloads::find(name) else { return };
    let base = measure::resident_mib("VmRSS");
    let rows = (workload.run)();
    let host = measure::resident_mib("VmHWM");
    let rows = if request.limits { limits::shares(rows) } else { rows };
    for mut row in rows {
        // As the peers do: what tensors took on a GPU, or the whole process on the CPU.
        row = match backend::statistics(default_device()) {
            Ok(stats) if default_device() != Device::Cpu => {
                let peak = stats.peak_bytes as f64 / (1 << 20) as f64;
                row.with("peak_mib", measure::rounded(peak, 1)).with("host_mib", host)
            }
            _ => row.with("peak_mib", host),
        };
        row = row.with("base_mib", base).with("threads", request.threads as f64);
        if request.quick {
            row = row.with("quick", 1.0);
        }
        report::row(name, &row, request.json);
    }
}

/// Runs each workload in a process of its own.
fn in_processes(request: &Request) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    if request.limits && !request.json {
        report::limits(request.threads);
    }
    if !request.json {
        report::header();
    }
    let device = request.device();
    let chosen: Vec<_> = match request.names.is_empty() {
        true if request.limits => {
            limits::WORKLOADS.iter().filter_map(|n| workloads::find(n)).collect()
        }
        true => workloads::of(device).collect(),
        false => workloads::every().filter(|w| request.names.iter().any(|n| n == w.name)).collect(),
    };
    for workload in chosen {
        let status = this_program().and_then(|mut command| {
            command.args(["--inner", workload.name, "--threads", &request.threads.to_string()]);
            command.args(["--device", &device.to_string()]);
            command.args(request.jit.then_some("--jit"));
            command.args(request.quick.then_some("--quick"));
            command.args(request.profile.then_some("--profile"));
            command.args(request.limits.then_some("--limits"));
            command.args(request.json.then_some("--json")).status()
        });
        let error = match status {
            Ok(status) if status.success() => continue,
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        report::failure(workload.name, &error, request.json);
        code = ExitCode::FAILURE;
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(line.split_whitespace().map(String::from), None)
    }

    #[test]
    fn arguments_are_understood() {
        let request = parsed("matmul --threads 4 gpt --json").unwrap();
        assert_eq!(
            (request.names, request.threads, request.json),
            (vec!["matmul".into(), "gpt".into()], 4, true)
        );
        assert_eq!(parsed("").unwrap().threads, 2);
        assert!(parsed("--limits").unwrap().limits);
        let request = parsed("--device cuda:1 --quick --profile gpt2_124m_bf16").unwrap();
        assert_eq!(
            (request.device, request.quick, request.profile),
            (Some(Device::Cuda(1)), true, true)
        );
    }

    #[test]
    fn what_is_not_understood_is_said() {
        assert!(parsed("--fast").unwrap_err().contains("no flag `--fast`"));
        assert!(parsed("frobnicate").unwrap_err().contains("no workload `frobnicate`"));
        assert!(parsed("--threads").unwrap_err().contains("needs a number"));
        assert!(parsed("--threads none").unwrap_err().contains("`none`"));
        assert!(parsed("--device gpu").unwrap_err().contains("`gpu` is not a device"));
    }
}
