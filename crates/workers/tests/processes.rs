//! Workers that are processes: what they compute, and what happens when one is killed.
//!
//! This program plays three parts: the tests start it as a launcher, which starts it as workers.

mod naive;

use naive::{check, check_order};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pullback::{Result, Tensor};
use pullback_workers::{WorkerLaunch, finish, init, launch};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PART: &str = "PULLBACK_TEST_PART";
const WORKERS: &str = "PULLBACK_TEST_WORKERS";
const RESTARTS: &str = "PULLBACK_TEST_RESTARTS";
const KILL: &str = "PULLBACK_TEST_KILL";

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// Starts `workers` processes that play a part. (What they print begins with a new line, as the
/// frame of tests leaves its own unfinished.)
fn run(part: &str, workers: usize, set: &[(&str, String)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "as_a_launcher", "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .env(WORKERS, workers.to_string())
        .envs(set.iter().map(|(name, value)| (name, value)))
        .output()
        .unwrap()
}

/// Not a test of its own: see [`run`].
#[test]
fn as_a_launcher() {
    let (Some(workers), Ok(_)) = (number(WORKERS), std::env::var(PART)) else { return };
    if std::env::var_os("PULLBACK_SESSION").is_some() {
        return;
    }
    let exe = std::env::current_exe().unwrap();
    let words = ["--exact", "as_a_worker", "--nocapture", "--test-threads=1"];
    let command = std::iter::once(exe.into()).chain(words.map(Into::into)).collect();
    let restarts = number(RESTARTS).unwrap_or(0);
    let min_workers = if restarts > 0 { 1 } else { workers };
    let request = WorkerLaunch { command, workers, restarts, min_workers };
    std::process::exit(i32::from(launch(&request).unwrap()));
}

/// Starts processes that play a part, as `srun -n 3` does on one machine. They meet in `shared`.
fn srun(part: &str, shared: &Path, set: &[(&str, String)]) -> Vec<Output> {
    let task = |rank: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "as_a_worker", "--nocapture", "--test-threads=1"])
            .env(PART, part)
            .env("PULLBACK_SHARED", shared)
            .env("SLURM_PROCID", rank.to_string())
            .envs([("SLURM_STEP_NUM_TASKS", "3"), ("SLURM_STEP_NUM_NODES", "1")])
            .envs([("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0")])
            .envs(set.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let tasks: Vec<_> = (0..3).map(task).collect();
    tasks.into_iter().map(|task| task.wait_with_output().unwrap()).collect()
}

/// Not a test of its own: see [`run`] and [`srun`].
#[test]
fn as_a_worker() {
    let started = ["PULLBACK_SESSION", "SLURM_PROCID"].map(std::env::var_os);
    if started.iter().all(Option::is_none) || std::env::var_os(PART).is_none() {
        return;
    }
    let outcome = match std::env::var(PART).as_deref() {
        Ok("sums") => sums(),
        Ok("killed") => killed(),
        Ok("messages") => messages(),
        part => panic!("no part {part:?}"),
    };
    finish();
    if let Err(error) = outcome {
        eprintln!("{}", error.to_string().replace('\n', " "));
        std::process::exit(3);
    }
}

fn sums() -> Result<()> {
    let group = init()?;
    // In one stage, and in several.
    [0, 3, 1000, 100_001].iter().try_for_each(|&len| check(group.communicator(), len))?;
    check_order(group.communicator(), 20_000)?;
    let mine: Vec<usize> = (0..group.size()).filter(|r| r % 2 == group.rank() % 2).collect();
    let part = group.subgroup(&mine)?.unwrap();
    let ranks = Tensor::from(vec![group.rank() as f64]).all_gather(&part, 0);
    assert_eq!(ranks.to_vec::<f64>(), mine.iter().map(|&r| r as f64).collect::<Vec<_>>());
    println!("\nworker {} of {} by {}", group.rank(), group.size(), group.engine());
    group.barrier()
}

fn messages() -> Result<()> {
    let group = init()?;
    let (rank, size) = (group.rank(), group.size());
    let x = Tensor::full([200_000], rank as f64);
    x.send(&group, (rank + 1) % size);
    let from = (rank + size - 1) % size;
    let got = Tensor::recv(&group, from, [200_000], pullback::DType::F64);
    assert_eq!(got.to_vec::<f64>(), vec![from as f64; 200_000]);
    println!("\nreceived from {from}");
    group.barrier()
}

/// Collectives for ever, until one of the workers kills itself, at any moment.
fn killed() -> Result<()> {
    let rank = number("PULLBACK_RANK").or_else(|| number("SLURM_PROCID")).unwrap();
    if number("PULLBACK_RESTART") > Some(0) {
        return sums();
    }
    if rank == 1 {
        let time = Duration::from_micros(number(KILL).unwrap() as u64);
        std::thread::spawn(move || {
            std::thread::sleep(time);
            kill(Pid::this(), Signal::SIGKILL)
        });
    }
    let group = init()?;
    let x =
        Tensor::full([if number(KILL).unwrap().is_multiple_of(2) { 10 } else { 400_000 }], 1.0f32);
    loop {
        pullback::catch(|| x.all_reduce(&group))?;
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn processes_compute_sums_in_groups_and_sub_groups() {
    for size in [1, 2, 3, 5] {
        let output = run("sums", size, &[]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{out}{err}");
        for rank in 0..size {
            let line = format!("[{rank}] worker {rank} of {size} by local\n");
            assert!(out.contains(&line), "{out}");
        }
    }
}

#[test]
fn processes_send_messages() {
    let output = run("messages", 3, &[]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(["[0] received from 2", "[1] received from 0"].iter().all(|line| out.contains(line)));
}

#[test]
fn tasks_of_slurm_on_one_machine_are_workers() {
    let shared = tempfile::tempdir().unwrap();
    for (rank, output) in srun("sums", shared.path(), &[]).iter().enumerate() {
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{out}{err}");
        assert!(out.contains(&format!("worker {rank} of 3 by local\n")), "{out}");
    }
    assert_eq!(shared.path().read_dir().unwrap().count(), 0, "the last one cleans up");
}

/// There is no launcher that sees it: the others do, by its lock.
#[test]
fn a_task_of_slurm_that_is_killed_is_reported_by_all_others() {
    let shared = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let outputs = srun("killed", shared.path(), &[(KILL, "200000".to_string())]);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    for rank in [0, 2] {
        let err = text(&outputs[rank].stderr);
        assert_eq!(outputs[rank].status.code(), Some(3), "{err}");
        assert!(err.contains("worker 1 has exited; its last collective was all_reduce"), "{err}");
    }
    assert_eq!(shared.path().read_dir().unwrap().count(), 0, "the last one cleans up");
}

/// The launcher ends workers that have not reported five seconds after another one failed, so a
/// report says that they noticed in time.
#[test]
fn a_worker_killed_at_random_is_reported_by_all_others() {
    let mut moment = std::process::id() as u64;
    for _ in 0..20 {
        // From before it has joined to some hundred collectives later.
        moment =
            moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let micros = moment >> 33 & 0xffff;
        let output = run("killed", 3, &[(KILL, micros.to_string())]);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(137), "{err}");
        for rank in [0, 2] {
            let prefix = format!("[{rank}] ");
            let report = err.lines().find(|line| line.starts_with(&prefix)).unwrap_or_default();
            assert!(report.contains("worker 1 was killed by SIGKILL"), "after {micros} µs: {err}");
            let after =
                ["its last collective was all_reduce of f32[", "before its first collective"];
            let joined = !report.contains("before it joined the group");
            assert!(!joined || after.iter().any(|text| report.contains(text)), "{report}");
        }
        assert!(err.contains("launch: worker 1 was killed by SIGKILL"), "{err}");
    }
}

#[test]
fn a_group_is_started_again_with_fewer_workers() {
    let set = [(KILL, "5000".to_string()), (RESTARTS, "2".to_string())];
    let output = run("killed", 3, &set);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(err.contains("launch: starting 2 workers again (1 of 2 restarts)"), "{err}");
    assert!(out.contains("[1] worker 1 of 2 by local"), "{out}");
}
