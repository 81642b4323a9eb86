//! Which engine this process belongs to.

use crate::{group, local, timeout};
use pullback::Group;
use pullback_ir::{Error, ErrorKind, Result};
use std::env;
use std::sync::{Arc, Mutex, PoisonError};

/// The group of this process, once it has joined.
static JOINED: Mutex<Option<Group>> = Mutex::new(None);

/// Who started this process, as its environment tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starter {
    Launch,
    Mpirun,
    Slurm,
    Nobody,
}

/// What variables say. mpirun of Open MPI and of MPICH's family set their own; slurm's are set by
/// `srun` for each task (those of the job alone mean a batch script, which is one process).
fn starter(variable: impl Fn(&str) -> Option<String>) -> Starter {
    let several = |name: &str| {
        variable(name).and_then(|text| text.trim().parse::<usize>().ok()).is_some_and(|n| n > 1)
    };
    if variable(local::SESSION).is_some() {
        Starter::Launch
    } else if ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"].into_iter().any(several) {
        Starter::Mpirun
    } else if variable("SLURM_PROCID").is_some() && several("SLURM_STEP_NUM_TASKS") {
        Starter::Slurm
    } else {
        Starter::Nobody
    }
}

/// The group of this process: the workers that `pullback launch`, mpirun or slurm started, or this
/// one alone. Later calls return the same group.
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
    match starter(|name| env::var(name).ok()) {
        Starter::Launch => init_with("local"),
        Starter::Mpirun | Starter::Slurm => init_with("mpi"),
        Starter::Nobody => once(|| Ok(Group::alone())),
    }
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
                "the engine `local` needs workers that `pullback launch` has started".to_string(),
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
            "`nccl` is no engine of its own: workers of `local` and `mpi` use it for tensors of \
             GPUs by themselves, where it is found"
                .to_string(),
        )),
        other => Err(refused(format!(
            "there is no engine `{other}`; there are `local`, `mpi` and, in tests, `threads`"
        ))),
    }
}

/// Leaves the group, at the end of a program. It is called by itself when the main thread ends, if
/// that was the one that called [`init`]; a program that joins its group on another thread calls it
/// before it exits, as MPI reports workers that just exit. Nothing may follow on any group.
///
/// ```
/// pullback_workers::init()?;
/// pullback_workers::finish();
/// # Ok::<(), pullback::Error>(())
/// ```
pub fn finish() {
    #[cfg(feature = "mpi")]
    crate::mpi::finish();
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
    Ok(group)
}

#[cfg(feature = "mpi")]
fn mpi() -> Result<Group> {
    Ok(group(crate::mpi::world(timeout()?)?))
}

#[cfg(not(feature = "mpi"))]
fn mpi() -> Result<Group> {
    let started = match starter(|name| env::var(name).ok()) {
        Starter::Mpirun => "mpirun started several workers, but this",
        Starter::Slurm => "slurm started several workers, but this",
        Starter::Launch | Starter::Nobody => "this",
    };
    let message = format!("{started} program was built without the engine `mpi`");
    Err(refused(message).hint(
        "build it with the feature `mpi` (it needs libopenmpi-dev and libclang-dev, or their like), \
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
        assert_eq!(of(&[]), Starter::Nobody);
        assert_eq!(of(&[("PULLBACK_SESSION", "/dev/shm/x")]), Starter::Launch);
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "4")]), Starter::Mpirun);
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "1")]), Starter::Nobody);
        assert_eq!(of(&[("PMI_SIZE", "2"), ("PMI_RANK", "1")]), Starter::Mpirun);
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "8")]), Starter::Slurm);
        // A batch script of a job of eight tasks is one process.
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), Starter::Nobody);
    }
}
