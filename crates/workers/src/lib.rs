//! Engines for groups of workers: who moves the bytes of collectives.
//!
//! A group is one of these:
//!
//! * `threads`: threads of one process ([`threads`]), for tests;
//! * `local`: processes of one machine over shared memory, started by `pullback launch` or slurm;
//! * `mpi`: processes of `mpirun` or slurm, on any number of machines (the feature `mpi`).
//!
//! All compute the same sums, in the same order (see `combine.rs`), compare what their workers are
//! asked for, and turn a difference, a missing worker or a time-out into an error on all of them.
#![forbid(unsafe_code)]

mod board;
mod call_digest;
mod choose;
mod combine;
mod delayed;
mod exchange;
#[cfg(unix)]
mod launch;
mod local;
mod measure;
#[cfg(feature = "mpi")]
mod mpi;
mod replay;
pub mod simulate;
mod sizes;
mod slurm;
mod subgroups;
mod threads;
mod worker;

pub use choose::{finish, init, init_with};
pub use delayed::{Network, delayed};
#[cfg(unix)]
pub use launch::{WorkerLaunch, launch};
pub use measure::all_reduce_times;
pub use replay::{engine_times, replay};
pub use threads::{threads, threads_within};

use pullback::Group;
use pullback_ir::{Collective, CollectiveCall, Communicator, Error, Result};
use std::sync::Arc;
use std::time::Duration;

fn group(communicator: Arc<dyn Communicator>) -> Group {
    Group::new(communicator)
}

/// How long a worker waits in one collective if nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The time-out of collectives: `PULLBACK_TIMEOUT`, in seconds, or ten minutes.
pub(crate) fn timeout() -> Result<Duration> {
    let Some(text) = std::env::var_os("PULLBACK_TIMEOUT") else { return Ok(TIMEOUT) };
    let seconds = text.to_str().and_then(|text| text.trim().parse::<f64>().ok());
    let time = seconds.filter(|&s| s > 0.0).and_then(|s| Duration::try_from_secs_f64(s).ok());
    time.ok_or_else(|| {
        let message = format!("PULLBACK_TIMEOUT is {text:?}, but must be a number of seconds");
        Error::argument("workers", message)
    })
}

/// Whether ranks name a sub-group of a group of `size` workers.
fn check_ranks(ranks: &[usize], size: usize) -> Result<()> {
    let ascending = ranks.windows(2).all(|pair| pair[0] < pair[1]);
    if ranks.is_empty() || !ascending || ranks.iter().any(|&rank| rank >= size) {
        return Err(Error::argument(
            "subgroup",
            format!("{ranks:?} are not ascending ranks of a group of {size} workers"),
        ));
    }
    Ok(())
}

/// Whether a call fits its group and its memory.
fn check_call(
    call: &CollectiveCall<'_>,
    rank: usize,
    size: usize,
    input: &[u8],
    output: usize,
) -> std::result::Result<(), String> {
    let operand = call.operand.bytes();
    let (reads, writes) = match call.collective {
        Collective::AllReduce(_) | Collective::Broadcast { .. } | Collective::AllToAll => {
            (operand, operand)
        }
        Collective::AllGather => (operand, operand * size),
        Collective::ReduceScatter => (operand, operand / size),
        Collective::Send { .. } => (operand, 0),
        Collective::Recv { spec, .. } => (0, spec.bytes()),
        Collective::Barrier => (0, 0),
    };
    let peer = match call.collective {
        Collective::Broadcast { root: peer }
        | Collective::Send { to: peer }
        | Collective::Recv { from: peer, .. } => Some(*peer),
        Collective::AllReduce(_)
        | Collective::AllGather
        | Collective::ReduceScatter
        | Collective::AllToAll
        | Collective::Barrier => None,
    };
    let what = call_digest::describe(call);
    if let Some(peer) = peer.filter(|&peer| peer >= size) {
        return Err(format!("{what}: there is no worker {peer} in a group of {size}"));
    }
    let split = matches!(call.collective, Collective::ReduceScatter | Collective::AllToAll);
    if split && call.operand.shape.first().is_none_or(|first| first % size != 0) {
        return Err(format!("{what}: axis 0 cannot be cut into {size} equal parts"));
    }
    // A broadcast reads the operand of its root alone.
    let given = match call.collective {
        Collective::Broadcast { root } if *root != rank => reads,
        _ => input.len(),
    };
    if (given, output) != (reads, writes) {
        return Err(format!(
            "{what}: {given} bytes come in and {output} go out, not {reads} and {writes}"
        ));
    }
    Ok(())
}
