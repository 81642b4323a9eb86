//! What workers tell each other when something is wrong, beside the messages of collectives.
//!
//! There are two kinds of notices: *failed*, with the reason, and *time is up*, by which a worker
//! that has waited too long says what it waits in. Whoever is in a collective answers the second
//! with its own; so after a moment all of these know who is missing, which the requests of MPI do
//! not tell. The first of them words the error for all.
//!
//! A notice is sent when a group ends, and nobody may be there to receive it: its memory is kept.

use super::{ONE_AT_A_TIME, lock};
use mpi::point_to_point::{Destination, MatchedReceiveVec, Source};
use mpi::request::StaticScope;
use mpi::topology::{Communicator as _, SimpleCommunicator};
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

/// Tags.
const FAILED: i32 = 3;
const TIME_UP: i32 = 4;
/// How long workers that wait may take to say so.
const GRACE: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(1);
/// How many workers an error lists.
const LISTED: usize = 8;

/// The notices of a group.
pub(super) struct Notices {
    pub(super) comm: SimpleCommunicator,
    pub(super) timeout: Duration,
    pub(super) one_at_a_time: bool,
}

/// What came from another worker.
enum Notice {
    Failed(String),
    TimeUp(usize, String),
}

impl Notices {
    fn one<R>(&self, f: impl FnOnce() -> R) -> R {
        let _guard = self.one_at_a_time.then(|| lock(&ONE_AT_A_TIME));
        f()
    }

    fn rank(&self) -> usize {
        self.comm.rank() as usize
    }

    fn size(&self) -> usize {
        self.comm.size() as usize
    }

    fn next(&self) -> Option<Notice> {
        self.one(|| {
            let came = self.comm.any_process().immediate_matched_probe()?;
            let (bytes, status) = came.matched_receive_vec::<u8>();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Some(match status.tag() {
                TIME_UP => Notice::TimeUp(status.source_rank() as usize, text),
                _ => Notice::Failed(text),
            })
        })
    }

    fn send(&self, tag: i32, text: &str) {
        let kept: &'static [u8] = Box::leak(text.as_bytes().to_vec().into_boxed_slice());
        for rank in (0..self.size()).filter(|&rank| rank != self.rank()) {
            let to = self.comm.process_at_rank(rank as i32);
            let request = self.one(|| to.immediate_send_with_tag(StaticScope, kept, tag));
            std::mem::forget(request);
        }
    }

    /// Tells all others that this worker cannot go on.
    pub(super) fn tell_failure(&self, reason: &str) {
        self.send(FAILED, reason);
    }

    /// Why the group has failed, if another worker says so. `doing` is what this worker waits in,
    /// `last` what all have last entered.
    pub(super) fn look(&self, doing: &str, last: &str) -> Option<String> {
        match self.next()? {
            Notice::Failed(reason) => Some(reason),
            Notice::TimeUp(rank, other) => {
                Some(self.roll_call(BTreeMap::from([(rank, other)]), doing, last))
            }
        }
    }

    /// Why the group has failed, if another worker says so, for a worker that is in no collective.
    /// If it is asked who is there, it is not: those who wait will say so.
    pub(super) fn glance(&self) -> Option<String> {
        Some(match self.next()? {
            Notice::Failed(reason) => reason,
            Notice::TimeUp(rank, doing) => {
                let seconds = self.timeout.as_secs_f64();
                format!(
                    "worker {rank} has waited in {doing} for longer than {seconds} s \
                     (PULLBACK_TIMEOUT)"
                )
            }
        })
    }

    /// This worker has waited too long: why, as all say it.
    pub(super) fn time_up(&self, doing: &str, last: &str) -> String {
        self.roll_call(BTreeMap::new(), doing, last)
    }

    /// Finds out who is there.
    fn roll_call(&self, mut there: BTreeMap<usize, String>, doing: &str, last: &str) -> String {
        there.insert(self.rank(), doing.to_string());
        self.send(TIME_UP, doing);
        let start = Instant::now();
        loop {
            match self.next() {
                Some(Notice::Failed(reason)) => return reason,
                Some(Notice::TimeUp(rank, doing)) => {
                    there.insert(rank, doing);
                    continue;
                }
                None => thread::sleep(NAP),
            }
            let first = there.keys().next() == Some(&self.rank());
            // The others wait for the words of the first.
            let patience = if first { GRACE } else { 2 * GRACE };
            if (first && there.len() == self.size()) || start.elapsed() > patience {
                break;
            }
        }
        let reason = self.reason(&there, last);
        self.tell_failure(&reason);
        reason
    }

    fn reason(&self, there: &BTreeMap<usize, String>, last: &str) -> String {
        let seconds = self.timeout.as_secs_f64();
        let waits = |(rank, doing): (&usize, &String)| format!("worker {rank} waits in {doing}");
        let missing: Vec<usize> =
            (0..self.size()).filter(|rank| !there.contains_key(rank)).collect();
        let Some(first) = missing.first() else {
            let all: Vec<String> = there.iter().take(LISTED).map(waits).collect();
            return format!(
                "the workers wait for each other longer than {seconds} s (PULLBACK_TIMEOUT): {}",
                all.join("; ")
            );
        };
        let named = missing.iter().take(LISTED).map(|rank| format!("worker {rank}"));
        let mut named = named.collect::<Vec<_>>().join(", ");
        if missing.len() > LISTED {
            named += &format!(" and {} more", missing.len() - LISTED);
        }
        let waiting = there.iter().next().map(waits).unwrap_or_default();
        format!(
            "{named} did not come within {seconds} s (PULLBACK_TIMEOUT); of worker {first}: \
             {last}; {waiting}"
        )
    }
}
