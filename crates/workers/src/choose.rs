//! Which engine this process belongs to.

use crate::{group, local, slurm, timeout};
use pullback::Group;
use pullback_ir::{Error, ErrorKind, Result};
use std::cell::RefCell;
use std::env;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The group of this process, once it has joined.
static JOINED: Mutex<Option<Group>> = Mutex::new(None);

/// Who started this process, as its environment tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starter {
    Launch,
    Mpirun,
    Slurm,
    Direct,
}

/// By name: the engine that is used instead of the one that the environment calls for.
const ENGINE: &str = "PULLBACK_ENGINE";

/// What variables say, and how many workers there are if they are several. mpirun of Open MPI and
/// of MPICH's family set their own; slurm's are set by `srun` for each task (those of the job alone
/// mean a batch script, which is one process). `srun --mpi=pmi2` sets those of MPICH's mpirun too.
fn starter(variable: impl Fn(&str) -> Option<String>) -> (Starter, usize) {
    let several = |name: &str| {
        let count = variable(name).and_then(|text| text.trim().parse::<usize>().ok());
        count.filter(|&n| n > 1)
    };
    let mpirun = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"];
    let task = slurm::task(&variable).map(|task| task.tasks).filter(|&tasks| tasks > 1);
    let by_srun = |name: &&str| *name == "PMI_SIZE" && task.is_some() && several(name) == task;
    if variable(local::SESSION).is_some() {
        (Starter::Launch, several(local::WORKERS).unwrap_or(1))
    } else if let Some(count) = mpirun.into_iter().filter(|name| !by_srun(name)).find_map(several) {
        (Starter::Mpirun, count)
    } else if let Some(count) = task {
        (Starter::Slurm, count)
    } else {
        (Starter::Direct, 1)
    }
}

/// The group of this process: the workers that `pullback launch`, mpirun or slurm started, or this
/// one alone. Later calls return the same group.
///
/// Tasks of slurm that are all on one machine share its memory (the engine `local`); others, and
/// workers of mpirun, need the engine `mpi`. The variable `PULLBACK_ENGINE` names another one.
///
/// The workers of a machine divide its cores: that sets the number of threads
/// ([`pullback::set_threads`]) where neither the user nor `PULLBACK_NUM_THREADS` has.
///
/// ```
/// let group = pullback_workers::init()?;
/// assert!(group.rank() < group.size());
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the other workers do not come, or this program was built without the engine that is needed.
pub fn init() -> Result<Group> {
    let variable = |name: &str| env::var(name).ok();
    if let Some(engine) = variable(ENGINE).filter(|name| !name.is_empty()) {
        return init_with(&engine);
    }
    match starter(variable).0 {
        Starter::Launch => init_with("local"),
        Starter::Slurm if on_one_machine(&variable) => init_with("local"),
        Starter::Mpirun | Starter::Slurm => init_with("mpi"),
        Starter::Direct => once(|| Ok(Group::alone())),
    }
}

/// Whether all tasks of slurm are.
fn on_one_machine(variable: &impl Fn(&str) -> Option<String>) -> bool {
    slurm::task(variable).is_some_and(|task| task.machines == Some(1))
}

/// The group of this process over an engine by name: `local` or `mpi`.
///
/// ```
/// let error = pullback_workers::init_with("pigeons").unwrap_err();
/// assert!(error.to_string().contains("there is no engine `pigeons`"));
/// ```
///
/// # Errors
/// If there is no such engine, this process was not started by it, or as [`init`].
pub fn init_with(engine: &str) -> Result<Group> {
    match engine {
        "local" => once(|| match local::from_environment(timeout()?)? {
            Some(worker) => Ok(group(Arc::new(worker))),
            None => Err(refused(
                "the engine `local` needs workers that `pullback launch` has started, or slurm on \
                 one machine"
                    .to_string(),
            )
            .hint("pullback launch -n 4 -- COMMAND")),
        }),
        "mpi" => once(mpi),
        "threads" => Err(refused(
            "the engine `threads` is for functions of one process: call \
             `pullback_workers::threads`"
                .to_string(),
        )),
        "nccl" => Err(refused(
            "`nccl` cannot be chosen: the engines `local` and `mpi` use it for tensors of GPUs, \
             where it is installed"
                .to_string(),
        )),
        other => Err(refused(format!(
            "there is no engine `{other}`; there are `local`, `mpi` and, in tests, `threads`"
        ))),
    }
}

/// Leaves the group, at the end of a program. It is called by itself when the main thread ends, if
/// that was the one that called [`init`]; a program that joins its group on another thread calls it
/// before it exits, as MPI reports workers that just exit, and tasks of slurm leave an empty folder
/// in shared memory. Nothing may follow on any group.
///
/// ```
/// pullback_workers::init()?;
/// pullback_workers::finish();
/// # Ok::<(), pullback::Error>(())
/// ```
pub fn finish() {
    #[cfg(feature = "mpi")]
    crate::mpi::finish();
    local::leave();
}

/// Calls [`finish`] when the main thread ends, if this is it.
fn finish_with_main() {
    struct FinishGuard;
    impl Drop for FinishGuard {
        fn drop(&mut self) {
            finish();
        }
    }
    thread_local!(static LAST: RefCell<Option<FinishGuard>> = const { RefCell::new(None) });
    if thread::current().name() == Some("main") {
        LAST.with_borrow_mut(|last| *last = Some(FinishGuard));
    }
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Workers, "workers", message)
}

fn once(join: impl FnOnce() -> Result<Group>) -> Result<Group> {
    let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(group) = &*joined {
        return Ok(group.clone());
    }
    let group = join()?;
    *joined = Some(group.clone());
    finish_with_main();
    if matches!(starter(|name| env::var(name).ok()).0, Starter::Mpirun | Starter::Slurm) {
        slurm::share_cores();
    }
    Ok(group)
}

/// The group of all workers that MPI knows. Where mpirun or slurm has started more than that, MPI
/// does not know them, and each process would train alone.
#[cfg(feature = "mpi")]
fn mpi() -> Result<Group> {
    let variable = |name: &str| env::var(name).ok();
    let (starter, started) = starter(variable);
    // Open MPI ends the process where slurm has not told it of the others.
    let is_known = ["PMIX_RANK", "PMI_RANK"].into_iter().any(|name| variable(name).is_some());
    if starter == Starter::Slurm && !is_known && crate::mpi::is_open_mpi() {
        let message = format!("slurm started {started} workers, but has not told MPI of them");
        return Err(refused(message).hint("start them by `srun --mpi=pmix`, or by mpirun in a job"));
    }
    let group = group(crate::mpi::world(timeout()?)?);
    let (name, hint) = match starter {
        Starter::Direct => return Ok(group),
        Starter::Launch => ("`pullback launch`", "its workers use the engine `local`"),
        Starter::Mpirun => ("mpirun", "start it by the mpirun of the MPI that it was built with"),
        Starter::Slurm => ("slurm", "`srun --mpi=pmix` tells MPI; `srun --mpi=list` lists others"),
    };
    if group.size() == started {
        return Ok(group);
    }
    let message = format!("{name} started {started} workers, but MPI knows of {}", group.size());
    Err(refused(message).hint(hint))
}

#[cfg(not(feature = "mpi"))]
fn mpi() -> Result<Group> {
    let variable = |name: &str| env::var(name).ok();
    let started = match starter(variable).0 {
        Starter::Mpirun => "mpirun started several workers, but this",
        Starter::Slurm if on_one_machine(&variable) => "slurm started several workers, but this",
        Starter::Slurm => "slurm started workers on several machines, but this",
        Starter::Launch | Starter::Direct => "this",
    };
    let message = format!("{started} program was built without the engine `mpi`");
    Err(refused(message).hint(
        "build it with the feature `mpi` (it needs libopenmpi-dev and libclang-dev, or equivalents), \
         or start workers of one machine by `pullback launch -n 4 -- COMMAND`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_who_started_a_worker() {
        let of = |pairs: &[(&str, &str)]| {
            starter(|name| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
            })
        };
        assert_eq!(of(&[]), (Starter::Direct, 1));
        let launched = [("PULLBACK_SESSION", "/dev/shm/x"), ("PULLBACK_WORKERS", "3")];
        assert_eq!(of(&launched), (Starter::Launch, 3));
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "4")]), (Starter::Mpirun, 4));
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "1")]), (Starter::Direct, 1));
        assert_eq!(of(&[("PMI_SIZE", "2"), ("PMI_RANK", "1")]), (Starter::Mpirun, 2));
        let task = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "8")];
        assert_eq!(of(&task), (Starter::Slurm, 8));
        // `srun --mpi=pmi2`, and MPICH's mpirun of another number inside of a task.
        assert_eq!(of(&[task[0], task[1], ("PMI_SIZE", "8")]), (Starter::Slurm, 8));
        assert_eq!(of(&[task[0], task[1], ("PMI_SIZE", "4")]), (Starter::Mpirun, 4));
        // A batch script of a job of eight tasks is one process, and so is a step of one task.
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), (Starter::Direct, 1));
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]).0, Starter::Direct);
        // mpirun inside of a job starts its own; so does `pullback launch`.
        let inside = [task[0], task[1], ("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(of(&inside), (Starter::Mpirun, 4));
        assert_eq!(of(&[task[0], task[1], launched[0], launched[1]]), (Starter::Launch, 3));
    }
}
