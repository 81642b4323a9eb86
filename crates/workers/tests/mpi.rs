//! The engine `mpi`, under mpirun: what workers compute, and what happens when one fails.
//!
//! This program plays two parts: the tests start it by mpirun as workers, which write what went
//! wrong to files.

mod naive;

use naive::{Worker, check, check_order, here, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pullback::{Error, Group, Result, Tensor};
use pullback_ir::{Collective, CollectiveCall, Combination, DType, Spec};
use pullback_workers::{finish, init};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant, SystemTime};

const PART: &str = "PULLBACK_TEST_PART";
const OUT: &str = "PULLBACK_TEST_OUT";
const SUM: Collective = Collective::AllReduce(Combination::Sum);

fn worker_command(program: &str, before: &[&str]) -> Command {
    let mut command = Command::new(program);
    let exe = std::env::current_exe().unwrap();
    command.args(before).args((program == "mpirun").then_some(&exe));
    command.args(["--exact", "as_a_worker", "--nocapture", "--test-threads=1"]);
    command
}

/// Workers that play a part, by mpirun.
fn mpirun(workers: usize, part: &str, folder: &Path) -> Output {
    let mut command = worker_command("mpirun", &["-n", &workers.to_string()]);
    command.env(PART, part).env(OUT, folder).env("PULLBACK_TIMEOUT", "2").output().unwrap()
}

/// What each of three workers that play a part says went wrong.
fn errors(part: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let said = mpirun(3, part, folder.path());
    let read = |rank: usize| std::fs::read_to_string(folder.path().join(rank.to_string()));
    (0..3).map(|rank| read(rank).unwrap_or_else(|_| panic!("{rank}: {}", text(&said)))).collect()
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// Not a test of its own: see [`mpirun`].
#[test]
fn as_a_worker() {
    let Ok(part) = std::env::var(PART) else { return };
    let group = init().unwrap();
    assert_eq!(group.engine(), "mpi");
    let error = match part.as_str() {
        "sums" => return sums(&group).map(|()| finish()).unwrap(),
        "killed" => return killed(&group),
        "differences" => difference(&group),
        "late" => late(&group),
        "crossed" => crossed(&group),
        "alone in a sub-group" => alone(&group),
        "sub-group" => in_a_part(&group),
        "told while idle" => told_while_idle(&group),
        "agreement" => agreement(&group),
        part => panic!("no part {part}"),
    };
    let folder = std::path::PathBuf::from(std::env::var_os(OUT).unwrap());
    std::fs::write(folder.join(group.rank().to_string()), error.to_string()).unwrap();
    // mpirun ends all when one ends after a failure: the others may still be about to write.
    while (0..group.size()).any(|rank| !folder.join(rank.to_string()).exists()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    finish();
}

fn sums(group: &Group) -> Result<()> {
    let worker = group.communicator();
    // Nothing, a few, more than is reduced at once, several rounds.
    [0, 1, 3, 1000, 20_001].iter().try_for_each(|&len| check(worker, len))?;
    run(worker, SUM, &vec![1.0; 700_000], here(1))?;
    check_order(worker, 20_000)?;
    messages(worker)?;
    parts(group)?;
    gradients(group)?;
    waits(group)?;
    if group.rank() == 0 {
        println!("{} workers computed what one would", group.size());
    }
    Ok(())
}

/// The others wait for worker 1, and know it.
fn waits(group: &Group) -> Result<()> {
    for _ in 0..4 {
        if group.rank() == 1 {
            std::thread::sleep(Duration::from_millis(100));
        }
        group.barrier()?;
    }
    let waited = group.communicator().waited();
    assert_eq!(waited.len(), group.size());
    let wanted = Duration::from_millis(if group.rank() == 1 { 0 } else { 150 });
    assert!(waited[1] >= wanted, "{waited:?}");
    Ok(())
}

#[test]
fn workers_compute_what_one_would() {
    for workers in [2, 3, 4] {
        let folder = tempfile::tempdir().unwrap();
        let output = mpirun(workers, "sums", folder.path());
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(&format!("{workers} workers computed what one would")), "{said}");
    }
}

fn difference(group: &Group) -> Error {
    let line = if group.rank() == group.size() - 1 { 6 } else { 5 };
    let error = run(group.communicator(), SUM, &[1.0; 3], here(line)).unwrap_err();
    let again = run(group.communicator(), Collective::Barrier, &[], here(7)).unwrap_err();
    assert!(again.to_string().contains("workers were asked for different things"), "{again}");
    error
}

#[test]
fn a_difference_is_an_error_of_all() {
    for error in errors("differences") {
        assert!(
            error.contains("worker 0 for all_reduce of f64[3] (#0, at model.rs:5:1)"),
            "{error}"
        );
        assert!(
            error.contains("worker 2 for all_reduce of f64[3] (#0, at model.rs:6:1)"),
            "{error}"
        );
    }
}

/// Worker 1 takes longer than the others wait.
fn late(group: &Group) -> Error {
    run(group.communicator(), SUM, &[1.0; 3], here(5)).unwrap();
    if group.rank() == 1 {
        std::thread::sleep(Duration::from_secs(5));
    }
    run(group.communicator(), Collective::Barrier, &[], here(6)).unwrap_err()
}

#[test]
fn a_worker_that_does_not_come_is_named_by_all() {
    for error in errors("late") {
        assert!(error.contains("worker 1 did not come within 2 s (PULLBACK_TIMEOUT)"), "{error}");
        let last =
            "of worker 1: its last collective was all_reduce of f64[3] (#0, at model.rs:5:1)";
        assert!(error.contains(last), "{error}");
        assert!(error.contains("worker 0 waits in barrier (#1, at model.rs:6:1)"), "{error}");
    }
}

/// Worker 1 waits for a message of worker 0, which waits for worker 1.
fn crossed(group: &Group) -> Error {
    let call = match group.rank() {
        1 => Collective::Recv { from: 0, spec: Spec::cpu(DType::F64, [3]) },
        _ => Collective::Barrier,
    };
    run(group.communicator(), call, &[], here(6)).unwrap_err()
}

#[test]
fn workers_that_wait_for_each_other_are_told_so() {
    for error in errors("crossed") {
        assert!(error.contains("the workers wait for each other longer than 2 s"), "{error}");
        assert!(error.contains("worker 0 waits in barrier (#0, at model.rs:6:1)"), "{error}");
        let one = "worker 1 waits in recv from worker 0 of f64[3] (at model.rs:6:1)";
        assert!(error.contains(one), "{error}");
    }
}

/// Worker 2 does not make the sub-group.
fn alone(group: &Group) -> Error {
    if group.rank() == 0 {
        return group.subgroup(&[0, 2]).unwrap_err();
    }
    run(group.communicator(), Collective::Barrier, &[], here(6)).unwrap_err()
}

#[test]
fn a_sub_group_that_nobody_else_makes_is_an_error_of_all() {
    let all = errors("alone in a sub-group");
    let wanted = "worker 2 did not make the sub-group [0, 2] within 2 s (PULLBACK_TIMEOUT)";
    assert!(all[0].contains(wanted), "{}", all[0]);
    for error in all {
        // The others may be the first to lose patience with worker 0.
        let other = "worker 0 did not come within 2 s (PULLBACK_TIMEOUT)";
        assert!(error.contains(wanted) || error.contains(other), "{error}");
    }
}

/// The sub-group of workers 0 and 1 fails, and worker 2 waits for them.
fn in_a_part(group: &Group) -> Error {
    match group.subgroup(&[0, 1]).unwrap() {
        Some(part) => {
            run(part.communicator(), SUM, &vec![1.0; 2 + part.rank()], here(5)).unwrap_err()
        }
        None => run(group.communicator(), Collective::Barrier, &[], here(6)).unwrap_err(),
    }
}

#[test]
fn a_failure_in_a_sub_group_reaches_the_others() {
    let all = errors("sub-group");
    for error in &all {
        assert!(
            error.contains("worker 0 for all_reduce of f64[2] (#0, at model.rs:5:1)"),
            "{error}"
        );
    }
    assert!(all[2].contains("in a sub-group: "), "{}", all[2]);
}

/// Worker 2 gives up. The others wait for something else (a GPU) meanwhile, and ask.
fn told_while_idle(group: &Group) -> Error {
    let worker = group.communicator();
    run(worker, SUM, &[1.0; 3], here(5)).unwrap();
    assert_eq!((worker.broken(), worker.timeout()), (None, Duration::from_secs(2)));
    if group.rank() == 2 {
        worker.fail("it has no memory");
    }
    let start = Instant::now();
    loop {
        if let Some(reason) = worker.broken() {
            return Error::argument("broken", reason);
        }
        assert!(start.elapsed() < Duration::from_secs(10), "nobody was told");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_failure_reaches_a_worker_that_is_in_no_collective() {
    for error in errors("told while idle") {
        assert!(error.contains("worker 2 failed: it has no memory"), "{error}");
    }
}

/// Calls whose bytes devices move are compared like others, and are numbered with them.
fn agreement(group: &Group) -> Error {
    let worker = group.communicator();
    let sum = |len: usize, line: u32| {
        let spec = CollectiveCall::by_devices(&Spec::cpu(DType::F64, [len]));
        let (collective, line) = (&SUM, here(line));
        worker.agree(&CollectiveCall { collective, operand: &spec, sequence: 0, line })
    };
    sum(1 << 40, 5).unwrap();
    let total = run(worker, SUM, &[1.0; 3], here(6)).unwrap();
    assert_eq!(total, [3.0; 3]);
    sum(3 + group.rank() / 2, 7).unwrap_err()
}

#[test]
fn calls_of_devices_are_compared() {
    for error in errors("agreement") {
        for part in [
            "workers were asked for different things",
            "worker 0 for all_reduce of f64[3] on a device (#2, at model.rs:7:1)",
            "worker 2 for all_reduce of f64[4] on a device (#2, at model.rs:7:1)",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}

/// Collectives for ever, until worker 1 is killed.
fn killed(group: &Group) {
    let x = Tensor::full([1000], 1.0f32);
    for step in 0.. {
        if step == 100 && group.rank() == 1 {
            let path = std::env::var_os(OUT).unwrap();
            std::fs::write(Path::new(&path).join("killed"), "").unwrap();
            kill(Pid::this(), Signal::SIGKILL).unwrap();
        }
        let _ = x.all_reduce(group);
    }
}

/// mpirun notices it, says so and ends the others.
#[test]
fn a_worker_that_is_killed_ends_all_within_ten_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let output = mpirun(3, "killed", folder.path());
    let killed = folder.path().join("killed").metadata().unwrap().modified().unwrap();
    let after = SystemTime::now().duration_since(killed).unwrap();
    let said = text(&output);
    assert!(!output.status.success() && after < Duration::from_secs(10), "{after:?}: {said}");
    assert!(said.contains("signal 9") || said.contains("KILL"), "{said}");
}

/// What `srun` sets on several machines, without a slurm that tells MPI: each task would train
/// alone, or Open MPI would end it.
#[test]
fn tasks_that_mpi_does_not_know_of_are_refused() {
    let exe = std::env::current_exe().unwrap();
    let mut command = worker_command(exe.to_str().unwrap(), &[]);
    command.env(PART, "sums").env("SLURM_PROCID", "0").env("SLURM_STEP_NUM_TASKS", "2");
    command.env("SLURM_STEP_NUM_NODES", "2");
    let start = Instant::now();
    let output = command.output().unwrap();
    let said = text(&output);
    assert!(!output.status.success() && start.elapsed() < Duration::from_secs(30), "{said}");
    assert!(said.contains("slurm started 2 workers, but has not told MPI of them"), "{said}");
    assert!(said.contains("srun --mpi=pmix"), "{said}");
}

/// All send before anyone receives, also what MPI does not buffer.
fn messages(worker: &Worker) -> Result<()> {
    let (rank, size) = (worker.rank(), worker.size());
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    for i in 0..3 {
        let values = vec![rank as f64 + i as f64 / 4.0; 100_000 * i + 1];
        run(worker, Collective::Send { to }, &values, here(1))?;
    }
    run(worker, Collective::Barrier, &[], here(2))?;
    for i in 0..3 {
        let spec = Spec::cpu(DType::F64, [100_000 * i + 1]);
        let got = run(worker, Collective::Recv { from, spec }, &[], here(3))?;
        assert!(got == vec![from as f64 + i as f64 / 4.0; 100_000 * i + 1]);
    }
    Ok(())
}

/// Sub-groups of even and odd ranks at once.
fn parts(group: &Group) -> Result<()> {
    let mine: Vec<usize> = (0..group.size()).filter(|r| r % 2 == group.rank() % 2).collect();
    let part = group.subgroup(&mine)?.expect("a member");
    let ranks = Tensor::from(vec![group.rank() as f64]).all_gather(&part, 0);
    assert_eq!(ranks.to_vec::<f64>(), mine.iter().map(|&r| r as f64).collect::<Vec<_>>());
    check(part.communicator(), 1000)
}

/// The gradient of a mean over all workers' examples is that of one process.
fn gradients(group: &Group) -> Result<()> {
    let n = group.size();
    let x = Tensor::arange(0, 6 * n as i64).cast(DType::F64).reshape([2 * n, 3]) * 0.1;
    let loss = |w: &Tensor, x: &Tensor| x.matmul(w).tanh().square().sum();
    let whole = Tensor::full([3, 2], 0.3).requires_grad();
    loss(&whole, &x).backward()?;
    let w = Tensor::full([3, 2], 0.3).requires_grad();
    loss(&w, &x.narrow(0, 2 * group.rank() as isize, 2)).backward()?;
    let (got, want) = (w.grad().unwrap().all_reduce(group), whole.grad().unwrap());
    let difference = (got - want).abs().max().item::<f64>();
    assert!(difference < 1e-12, "{difference}");
    Ok(())
}
