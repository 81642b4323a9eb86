//! What slurm tells the tasks that `srun` starts.
//!
//! The tasks of a step are workers. On one machine they meet in a folder that all of them can name
//! (`local.rs`), so that nothing else is needed; on several, MPI joins them.

use std::num::NonZero;
use std::thread::available_parallelism;

/// The tasks of a step, as one of them is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlurmTask {
    pub(crate) rank: usize,
    pub(crate) tasks: usize,
    /// How many machines they are on, if that is said.
    pub(crate) machines: Option<usize>,
    /// A name that this step has, and no other one of the machine, also not when slurm has queued
    /// the job again or counts anew.
    pub(crate) step: String,
}

fn number(variable: &impl Fn(&str) -> Option<String>, name: &str) -> Option<usize> {
    variable(name)?.trim().parse().ok()
}

/// The task that this process is. A batch script is none: what slurm says of its job is not about
/// one process.
pub(crate) fn task(variable: &impl Fn(&str) -> Option<String>) -> Option<SlurmTask> {
    let rank = number(variable, "SLURM_PROCID")?;
    let tasks = number(variable, "SLURM_STEP_NUM_TASKS")?;
    let said = |name: &str| variable(name).unwrap_or_default();
    let words =
        ["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_LAUNCHER_PORT"]
            .map(said);
    let step = words.join("-").replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
    Some(SlurmTask { rank, tasks, machines: number(variable, "SLURM_STEP_NUM_NODES"), step })
}

/// How many workers of MPI or slurm are on this machine, if that is said.
fn neighbours(variable: &impl Fn(&str) -> Option<String>) -> Option<usize> {
    let of_mpi = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"];
    if let Some(count) = of_mpi.into_iter().find_map(|name| number(variable, name)) {
        return Some(count);
    }
    task(variable)?;
    let node = number(variable, "SLURM_NODEID")?;
    tasks_of_nodes(&variable("SLURM_STEP_TASKS_PER_NODE")?)?.get(node).copied()
}

/// `2(x3),1` is 2, 2, 2 and 1 tasks.
fn tasks_of_nodes(text: &str) -> Option<Vec<usize>> {
    let mut all = vec![];
    for part in text.trim().split(',') {
        let (tasks, times) = match part.split_once("(x") {
            None => (part, 1),
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok()?),
        };
        all.extend(std::iter::repeat_n(tasks.parse::<usize>().ok()?, times));
    }
    Some(all)
}

/// How many threads a worker of MPI or slurm uses, so that those of a machine use its cores once,
/// as under `pullback launch`; `None` if nothing says so. Where each is bound to cores of its own
/// it has those. `online` is the number of cores of the machine, `allowed` of those that this
/// process may use.
fn share_of_cores(
    variable: &impl Fn(&str) -> Option<String>,
    online: usize,
    allowed: usize,
) -> Option<usize> {
    let workers = neighbours(variable)?.max(1);
    let given = task(variable).and_then(|_| number(variable, "SLURM_CPUS_PER_TASK"));
    let cores = number(variable, "SLURM_CPUS_ON_NODE").unwrap_or(online);
    Some(given.unwrap_or(cores / workers).clamp(1, allowed.max(1)))
}

/// Sets the threads of a worker that MPI or slurm has started, unless its user has.
pub(crate) fn share_cores() {
    let variable = |name: &str| std::env::var(name).ok();
    let allowed = available_parallelism().map_or(1, NonZero::get);
    let by_user = variable("PULLBACK_NUM_THREADS").is_some() || pullback::threads() != allowed;
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let online = online.and_then(|text| cores_in(&text)).unwrap_or(allowed);
    if !by_user && let Some(threads) = share_of_cores(&variable, online, allowed) {
        pullback::set_threads(threads);
    }
}

/// `0-3,8` is five cores.
fn cores_in(text: &str) -> Option<usize> {
    let mut cores = 0;
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        cores += (last + 1).checked_sub(first)?;
    }
    Some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
    }

    #[test]
    fn a_step_has_a_name_of_its_own() {
        let first = of(&[
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_STEP_NUM_NODES", "1"),
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_LAUNCHER_PORT", "40103"),
        ]);
        let wanted =
            SlurmTask { rank: 1, tasks: 4, machines: Some(1), step: "7-0--40103".to_string() };
        assert_eq!(task(&first), Some(wanted));
        let again = |name: &str| match name {
            "SLURM_RESTART_COUNT" => Some("1".to_string()),
            _ => first(name),
        };
        assert_eq!(task(&again).unwrap().step, "7-0-1-40103");
        // Of a batch script.
        assert_eq!(task(&of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")])), None);
    }

    #[test]
    fn workers_of_a_machine_are_counted() {
        let counted = |pairs| neighbours(&of(pairs));
        assert_eq!(counted(&[]), None);
        assert_eq!(counted(&[("OMPI_COMM_WORLD_LOCAL_SIZE", "3")]), Some(3));
        const TASK: (&str, &str) = ("SLURM_PROCID", "4");
        const TASKS: (&str, &str) = ("SLURM_STEP_NUM_TASKS", "7");
        const EACH: (&str, &str) = ("SLURM_STEP_TASKS_PER_NODE", "2(x3),1");
        assert_eq!(counted(&[TASK, TASKS, EACH, ("SLURM_NODEID", "2")]), Some(2));
        assert_eq!(counted(&[TASK, TASKS, EACH, ("SLURM_NODEID", "3")]), Some(1));
        assert_eq!(counted(&[TASK, TASKS, EACH, ("SLURM_NODEID", "4")]), None);
        assert_eq!(tasks_of_nodes("2(x"), None);
    }

    #[test]
    fn workers_of_a_machine_share_its_cores() {
        const FOUR: (&str, &str) = ("OMPI_COMM_WORLD_LOCAL_SIZE", "4");
        assert_eq!(share_of_cores(&of(&[]), 32, 32), None);
        assert_eq!(share_of_cores(&of(&[FOUR]), 32, 32), Some(8));
        // Bound to one core each, to a socket that some share, and on a machine with fewer cores.
        assert_eq!(share_of_cores(&of(&[FOUR]), 32, 1), Some(1));
        assert_eq!(share_of_cores(&of(&[FOUR]), 32, 16), Some(8));
        assert_eq!(share_of_cores(&of(&[FOUR]), 2, 2), Some(1));
        // Slurm has given the job 8 of the cores.
        assert_eq!(share_of_cores(&of(&[FOUR, ("SLURM_CPUS_ON_NODE", "8")]), 32, 8), Some(2));
        let task = of(&[
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_TASKS_PER_NODE", "2"),
            ("SLURM_NODEID", "0"),
            ("SLURM_CPUS_ON_NODE", "8"),
            ("SLURM_CPUS_PER_TASK", "3"),
        ]);
        assert_eq!(share_of_cores(&task, 32, 32), Some(3));
        assert_eq!((cores_in("0-3,8\n"), cores_in("0"), cores_in("x")), (Some(5), Some(1), None));
    }
}
