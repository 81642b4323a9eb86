//! Several processes that train together.

use super::options::Options;
use crate::failure::{CliResult, Failure};
use crate::models::ModelKind;
use crate::output::StandardOutput;
use pullback::{Device, Group, catch, set_default_device};
use pullback_nn::parallel::{gather_texts, gpu_of_worker};
use std::path::PathBuf;

/// The group of this process. With `--workers N` a process that was not started as one of several
/// starts N of itself and waits for them: then there is nothing left to do, and no group.
///
/// # Errors
/// If the number is not that of the workers there are, or the workers failed.
pub fn joined(workers: Option<usize>, out: &mut StandardOutput) -> CliResult<Option<Group>> {
    let group = pullback_workers::init()?;
    match workers {
        Some(0) => return Err(Failure::usage("--workers: there is at least 1 worker, not 0")),
        Some(n) if group.size() == 1 && n > 1 => return launched(n, out).map(|()| None),
        Some(n) if group.size() != n => {
            return Err(Failure::usage(format!(
                "--workers {n}: this is one of {} workers that were started together",
                group.size()
            )));
        }
        _ => {}
    }
    if group.rank() != 0 {
        out.silence();
    }
    Ok(Some(group))
}

/// Starts this command so many times.
#[cfg(unix)]
fn launched(workers: usize, out: &mut StandardOutput) -> CliResult {
    // Standard output is for what the workers print.
    out.silence();
    let program = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("this program cannot be found: {error}")))?;
    let command = std::iter::once(program.into()).chain(std::env::args_os().skip(1)).collect();
    let request =
        pullback_workers::WorkerLaunch { command, workers, restarts: 0, min_workers: workers };
    match pullback_workers::launch(&request)? {
        0 => Ok(()),
        code => Err(Failure { code, message: String::new() }),
    }
}

#[cfg(not(unix))]
fn launched(_: usize, _: &mut StandardOutput) -> CliResult {
    Err(Failure::failed("--workers needs a Unix system, or processes that mpirun starts"))
}

/// Makes the device the default of the process, if it is there. `cuda` without a number is a GPU
/// for each worker.
///
/// # Errors
/// If it is not there.
pub fn set_device(name: Option<&str>, group: &Group) -> CliResult {
    let Some(name) = name else { return Ok(()) };
    let unknown = |_| Failure::usage(format!("there is no device `{name}`"));
    let device: Device = name.parse().map_err(unknown)?;
    let refused = |error: pullback::Error| Failure::usage(error.to_string());
    let device = match name == "cuda" && group.size() > 1 {
        true => gpu_of_worker(group).map_err(refused)?,
        false => device,
    };
    catch(|| set_default_device(device)).map_err(refused)
}

/// Refuses a number of logical workers that cannot be divided, before anything is made.
///
/// # Errors
/// If it is not a power of two, or the number of workers is not a smaller one.
pub fn check_parts(parts: Option<usize>, group: &Group) -> CliResult {
    match parts {
        Some(n) if !n.is_power_of_two() || !group.size().is_power_of_two() || group.size() > n => {
            Err(Failure::usage(format!(
                "--logical-workers {n}: it must be a power of two, and the number of workers ({}) \
                 a smaller one or the same",
                group.size()
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses what cannot be spread over workers, before anything is made.
///
/// # Errors
/// If there is no such stage, or an optimiser or a division of batches does not go with it.
pub fn check_shard(options: &Options, optimizer: &str) -> CliResult {
    /// Their rules look at whole parameters, or at all of them together.
    const WHOLE: [&str; 3] = ["muon", "adafactor", "lbfgs"];
    let wrong = match (options.shard, options.logical_workers) {
        (None, _) => return Ok(()),
        (Some(stage), _) if !matches!(stage, 1..=3) => {
            format!("--shard {stage}: there are the stages 1, 2 and 3")
        }
        (Some(3), _) if options.precision_report.is_some() => {
            "--precision-report: worker 0 makes it with whole parameters, which no worker has with \
             --shard 3"
                .to_string()
        }
        (Some(_), Some(_)) => "--shard and --logical-workers exclude each other".to_string(),
        (Some(_), None) if WHOLE.contains(&optimizer) => {
            format!(
                "--shard: {optimizer} needs whole parameters, and a worker has its part of each"
            )
        }
        (Some(_), None) => return Ok(()),
    };
    Err(Failure::usage(wrong))
}

/// Refuses synchronised batch normalisation where there is none, or where one worker runs the
/// network while the others do not: it would wait for them.
///
/// # Errors
/// If the network or another option does not go with it.
pub fn check_sync_batch_norm(options: &Options, model: ModelKind) -> CliResult {
    let wrong = match model {
        _ if options.sync_batch_norm != Some(true) => return Ok(()),
        ModelKind::Mlp | ModelKind::Gpt | ModelKind::Gpt2 | ModelKind::Lstm => {
            format!("--sync-batch-norm: {} has no batch normalisation", model.name())
        }
        ModelKind::Cnn if options.logical_workers.is_some() => {
            "--sync-batch-norm and --logical-workers exclude each other: each part of a batch is \
             normalised by itself, so that its bits do not depend on the workers"
                .to_string()
        }
        ModelKind::Cnn if options.precision_report.is_some() => {
            "--precision-report: worker 0 makes it alone, and --sync-batch-norm needs all workers"
                .to_string()
        }
        ModelKind::Cnn => return Ok(()),
    };
    Err(Failure::usage(wrong))
}

/// Whether the workers were started again: by `pullback launch --restarts` after one of them
/// failed, or by slurm, which has queued the job again. Of its jobs several may run in one place,
/// so those of slurm go on only where the folder is named.
pub fn are_restarted(named: bool) -> bool {
    let again = |name: &str| {
        let times = std::env::var(name).ok();
        times.and_then(|times| times.trim().parse::<u32>().ok()).is_some_and(|times| times > 0)
    };
    again("PULLBACK_RESTART") || (named && again("SLURM_RESTART_COUNT"))
}

/// A path that worker 0 chooses for all.
///
/// # Errors
/// Of the group.
pub fn chosen_by_first(group: &Group, choose: impl FnOnce() -> PathBuf) -> CliResult<PathBuf> {
    if group.size() == 1 {
        return Ok(choose());
    }
    let own = if group.rank() == 0 { choose() } else { PathBuf::new() };
    let texts = gather_texts(group, &own.to_string_lossy())?;
    Ok(PathBuf::from(&texts[0]))
}
