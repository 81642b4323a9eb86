//! How a sub-group comes together.
//!
//! MPI makes a communicator of some workers in a call that ends when all of them have made it, or
//! never. So members first exchange messages, and whoever does not come in time is an error.

use super::{ONE_AT_A_TIME, ThreadShared, lock};
use mpi::point_to_point::{Destination, MatchedReceiveVec, Source};
use mpi::request::StaticScope;
use mpi::topology::{Communicator as _, SimpleCommunicator};
use std::thread;
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_micros(200);

/// Waits until all members have called. `members` are their ranks in the world, `ranks` those in
/// the parent, by which the error names who has not come.
pub(super) fn meet(
    world: &SimpleCommunicator,
    members: &[i32],
    ranks: &[usize],
    (id, tag): (u64, i32),
    timeout: Duration,
    parent: &ThreadShared,
    one_at_a_time: bool,
) -> Result<(), String> {
    let one = |f: &mut dyn FnMut() -> bool| {
        let _guard = one_at_a_time.then(|| lock(&ONE_AT_A_TIME));
        f()
    };
    // Nobody may receive it, so it is kept: some bytes for each sub-group that is made.
    let mine: &'static [u8] = Box::leak(id.to_le_bytes().to_vec().into_boxed_slice());
    for &member in members.iter().filter(|&&member| member != world.rank()) {
        one(&mut || {
            let to = world.process_at_rank(member);
            std::mem::forget(to.immediate_send_with_tag(StaticScope, mine, tag));
            true
        });
    }
    let start = Instant::now();
    let mut there: Vec<bool> = members.iter().map(|&member| member == world.rank()).collect();
    loop {
        for (member, there) in members.iter().zip(&mut there).filter(|(_, there)| !**there) {
            *there = one(&mut || {
                let from = world.process_at_rank(*member);
                let came = from.immediate_matched_probe_with_tag(tag);
                // What belongs to another group of the same tag is not counted.
                came.is_some_and(|came| came.matched_receive_vec::<u8>().0 == id.to_le_bytes())
            });
        }
        if there.iter().all(|there| *there) {
            return Ok(());
        }
        if let Some(reason) = parent.failed() {
            return Err(reason);
        }
        if start.elapsed() > timeout {
            let late = ranks.iter().zip(&there).filter(|(_, there)| !**there);
            let late: Vec<String> = late.map(|(rank, _)| format!("worker {rank}")).collect();
            let (late, seconds) = (late.join(", "), timeout.as_secs_f64());
            return Err(format!(
                "{late} did not make the sub-group {ranks:?} within {seconds} s (PULLBACK_TIMEOUT)"
            ));
        }
        thread::sleep(NAP);
    }
}
