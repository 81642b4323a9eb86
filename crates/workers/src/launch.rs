//! Starts the workers of one machine, and looks after them: `pullback launch`.
//!
//! One thread for each stream of output (lines are written whole, with the rank before them), one
//! for each process (which waits for its end), one for signals. They report to the main loop, which
//! alone decides.
//!
//! A worker that fails does not take the others down at once: they learn from its lock, or from
//! what is written here, that it is gone, and say so in their own words. Those that are still there
//! after a grace period are asked to end, then killed; all within ten seconds.

use crate::local::{self, NewSession};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long workers have to report that another one failed.
const REPORT: Duration = Duration::from_secs(5);
/// How long they then have to end when asked to.
const END: Duration = Duration::from_secs(2);
/// How long workers have after a signal of the user, to write a checkpoint.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest piece of a line that is held back until the line is complete.
const LONGEST: u64 = 1 << 20;

/// How many threads kernels use.
const THREADS: &str = "PULLBACK_NUM_THREADS";

/// What to start.
#[derive(Clone, Debug)]
pub struct WorkerLaunch {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// How many workers.
    pub workers: usize,
    /// How often they are started again after one failed.
    pub restarts: usize,
    /// Each time with one less, but with this many at least. As many as `workers`: with all.
    pub min_workers: usize,
}

/// What the threads report.
enum LaunchEvent {
    Ended(usize, ExitStatus),
    Signal(Signal),
}

/// How a run of all workers ended.
struct Ending {
    /// The exit code of the worker that failed first, or zero.
    code: u8,
    /// The user asked for it.
    interrupted: bool,
}

/// Starts workers and waits until all have ended; returns the exit code: that of the first worker
/// that failed, 128 and the signal for one that was killed. It is for programs that do nothing
/// else: signals of the process belong to it from then on.
///
/// # Errors
/// If the command cannot be started, or there is no place for the session.
pub fn launch(request: &WorkerLaunch) -> io::Result<u8> {
    // Before any thread is started, so that all inherit it.
    let caught = caught();
    caught.thread_block().map_err(io::Error::from)?;
    let (events, received) = channel();
    let signals = events.clone();
    thread::spawn(move || {
        while let Ok(signal) = caught.wait() {
            if signals.send(LaunchEvent::Signal(signal)).is_err() {
                break;
            }
        }
    });
    let mut workers = request.workers;
    for attempt in 0.. {
        let ending = run(request, workers, attempt, &events, &received)?;
        if ending.code == 0 || ending.interrupted || attempt == request.restarts {
            return Ok(ending.code);
        }
        workers = workers.saturating_sub(1).max(request.min_workers).min(workers);
        eprintln!(
            "launch: starting {workers} workers again ({} of {} restarts)",
            attempt + 1,
            request.restarts
        );
    }
    unreachable!("the loop ends by itself")
}

/// The signals that are passed on.
fn caught() -> SigSet {
    SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])
}

/// A worker that was started.
struct StartedWorker {
    /// Its process, and those that it has started.
    group: Pid,
    ended: bool,
    output: Vec<JoinHandle<()>>,
}

fn run(
    request: &WorkerLaunch,
    workers: usize,
    attempt: usize,
    events: &Sender<LaunchEvent>,
    received: &Receiver<LaunchEvent>,
) -> io::Result<Ending> {
    let session = NewSession::new()?;
    let mut all = Vec::with_capacity(workers);
    for rank in 0..workers {
        match start(request, &session, rank, workers, attempt, events) {
            Ok(started) => all.push(started),
            Err(error) => {
                send(&all, Signal::SIGKILL);
                return Err(error);
            }
        }
    }
    let ending = look_after(&session, &mut all, received);
    if ending.as_ref().is_ok_and(|ending| ending.code == 0) {
        // By number in the group that they were sent in.
        for (from, to) in session.unread() {
            eprintln!("launch: worker {to} has not received a message of worker {from}");
        }
    }
    for started in all {
        // What a worker has started and left behind would hold its output open.
        let _ = killpg(started.group, Signal::SIGKILL);
        started.output.into_iter().for_each(|thread| drop(thread.join()));
    }
    ending
}

/// Waits for the end of all, and brings it about if one failed or the user asks for it.
fn look_after(
    session: &NewSession,
    all: &mut [StartedWorker],
    received: &Receiver<LaunchEvent>,
) -> io::Result<Ending> {
    let mut ending = Ending { code: 0, interrupted: false };
    // What is sent to those that remain, and when.
    let mut next: Option<(Instant, Signal)> = None;
    while all.iter().any(|started| !started.ended) {
        let event = match next {
            None => received.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some((when, _)) => {
                received.recv_timeout(when.saturating_duration_since(Instant::now()))
            }
        };
        match (event, next) {
            (Ok(LaunchEvent::Ended(rank, status)), _) => {
                all[rank].ended = true;
                let how = how_it_ended(status);
                session.exited(rank, &how)?;
                if let Some(code) = failure(status)
                    && ending.code == 0
                {
                    eprintln!("launch: worker {rank} {how}");
                    ending.code = code;
                    next = next.or(Some((Instant::now() + REPORT, Signal::SIGTERM)));
                }
            }
            (Ok(LaunchEvent::Signal(signal)), _) => {
                ending.interrupted = true;
                send(all, signal);
                next = Some((Instant::now() + PATIENCE, Signal::SIGKILL));
            }
            (Err(_), Some((_, signal))) => {
                send(all, signal);
                next = Some((Instant::now() + END, Signal::SIGKILL));
            }
            (Err(_), None) => return Err(io::Error::other("no thread waits for the workers")),
        }
    }
    Ok(ending)
}

fn failure(status: ExitStatus) -> Option<u8> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(code as u8),
        (None, signal) => Some(128 + signal.unwrap_or(0) as u8),
    }
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "has ended".to_string(),
        (Some(code), _) => format!("failed with exit code {code}"),
        (None, Some(signal)) => match Signal::try_from(signal) {
            Ok(name) => format!("was killed by {name}"),
            Err(_) => format!("was killed by signal {signal}"),
        },
        (None, None) => "has exited".to_string(),
    }
}

/// Sends a signal to those that have not ended, and to what they have started.
fn send(all: &[StartedWorker], signal: Signal) {
    for started in all.iter().filter(|started| !started.ended) {
        // It may have ended by now, which is what was wanted.
        let _ = killpg(started.group, signal);
    }
}

fn start(
    request: &WorkerLaunch,
    session: &NewSession,
    rank: usize,
    workers: usize,
    attempt: usize,
    events: &Sender<LaunchEvent>,
) -> io::Result<StartedWorker> {
    let (program, arguments) = request.command.split_first().expect("a command");
    let mut command = Command::new(program);
    // Together they use the cores of the machine once.
    if std::env::var_os(THREADS).is_none() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        command.env(THREADS, (cores / workers).max(1).to_string());
    }
    // A command inherits the mask. (A signal that comes just now ends this process, which the
    // workers notice.)
    let caught = caught();
    caught.thread_unblock().map_err(io::Error::from)?;
    let child = command
        .args(arguments)
        .env(local::SESSION, &session.folder)
        .env(local::RANK, rank.to_string())
        .env(local::WORKERS, workers.to_string())
        .env("PULLBACK_RESTART", attempt.to_string())
        // A terminal sends Ctrl-C to its group of processes: to this one, which passes it on once.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    caught.thread_block().map_err(io::Error::from)?;
    let mut child = child.map_err(|error| {
        let name = program.to_string_lossy();
        io::Error::new(error.kind(), format!("`{name}` cannot be started: {error}"))
    })?;
    let prefix = format!("[{rank:>width$}] ", width = (workers - 1).to_string().len());
    let mut output = vec![];
    if let Some(stream) = child.stdout.take() {
        let prefix = prefix.clone();
        output.push(thread::spawn(move || merge(stream, &prefix, || io::stdout().lock())));
    }
    if let Some(stream) = child.stderr.take() {
        output.push(thread::spawn(move || merge(stream, &prefix, || io::stderr().lock())));
    }
    let group = Pid::from_raw(child.id() as i32);
    let events = events.clone();
    thread::spawn(move || {
        let status = child.wait().unwrap_or_else(|_| ExitStatus::from_raw(9));
        // The main loop may have given up.
        let _ = events.send(LaunchEvent::Ended(rank, status));
    });
    Ok(StartedWorker { group, ended: false, output })
}

/// Copies lines, each with a prefix, in one write.
fn merge<W: Write>(stream: impl Read, prefix: &str, out: impl Fn() -> W) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend_from_slice(prefix.as_bytes());
        match stream.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        let mut out = out();
        // Nobody reads any more: the worker need not fail because of that.
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}
