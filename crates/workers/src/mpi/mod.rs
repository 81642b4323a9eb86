//! The engine `mpi`: any MPI, through the crate `mpi`.
//!
//! A communicator of MPI stays on the thread that made it, so each group has a thread of its own;
//! calls go there and wait for the answer. All communication is non-blocking and tested in a loop,
//! which also looks at the clock and for *notices* (`notices.rs`): messages by which a worker says
//! that it cannot go on. So a worker that does not come is an error and not a hang. (A worker that
//! dies is noticed by mpirun or slurm, which end the others.)
//!
//! Sums are made here and not by MPI, whose order of adding depends on its version and on the
//! network: a chunk is scattered (`MPI_Ialltoall`), each worker adds its share in the order of
//! ranks, and the shares are gathered (`MPI_Iallgather`). A ring moves as many bytes.

mod engine;
mod join;
mod notices;

use crate::subgroups::Subgroups;
use engine::serve;
use join::meet;
use mpi::Threading;
use mpi::topology::{Communicator as _, Group as _, SimpleCommunicator};
use pullback_ir::{
    Collective, CollectiveCall, Communicator, Error, ErrorKind, Fresh, Line, Result, Spec,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The number of the group of all workers.
const WORLD_ID: u64 = u64::MAX;
/// Most bytes that are kept for the next call.
const KEPT: usize = 64 << 20;
/// How long the end of MPI may take.
const END: Duration = Duration::from_secs(10);

type MpiAnswer = std::result::Result<Vec<u8>, String>;

/// A call for the thread of a group.
struct MpiCall {
    collective: Collective,
    operand: Spec,
    line: Line,
    input: Vec<u8>,
    output: usize,
    /// The workers compare the call, and nothing is moved.
    compared_only: bool,
    answer: Sender<MpiAnswer>,
}

enum ThreadCommand {
    Run(MpiCall),
    /// Tell all others.
    Fail(String),
    /// See whether others have failed.
    Look,
    /// The group is not used any more.
    End(Sender<()>),
}

/// What the thread of a group and its callers share.
#[derive(Default)]
struct ThreadShared {
    /// Why the group is not used any more.
    failed: Mutex<Option<String>>,
    /// How long this worker has waited for each.
    waited: Mutex<Vec<Duration>>,
    /// The thread was asked to look for failures, and has not yet.
    looking: AtomicBool,
}

impl ThreadShared {
    /// Makes the group fail, and gives the reason: an earlier one if there is one.
    fn fail(&self, reason: String) -> String {
        lock(&self.failed).get_or_insert(reason).clone()
    }

    fn failed(&self) -> Option<String> {
        lock(&self.failed).clone()
    }
}

/// The way to the thread of a group, and to those of the groups that it is a part of.
struct GroupThread {
    orders: Mutex<Sender<ThreadCommand>>,
    shared: Arc<ThreadShared>,
    parent: Option<Arc<GroupThread>>,
}

impl GroupThread {
    fn new(orders: Sender<ThreadCommand>, parent: Option<Arc<GroupThread>>) -> Arc<GroupThread> {
        Arc::new(GroupThread { orders: Mutex::new(orders), shared: Arc::default(), parent })
    }

    /// Makes the groups that this one is a part of fail.
    fn fail_parents(&self, reason: &str) {
        if let Some(parent) = &self.parent {
            parent.fail(format!("in a sub-group: {reason}"));
        }
    }

    /// Makes the group fail, on all workers.
    fn fail(&self, reason: String) {
        let reason = self.shared.fail(reason);
        // If the thread has ended, there is nobody to be told.
        let _ = lock(&self.orders).send(ThreadCommand::Fail(reason.clone()));
        self.fail_parents(&reason);
    }
}

/// A worker of a group, for callers of any thread.
struct Mpi {
    id: u64,
    rank: usize,
    /// The ranks of the group in the world.
    ranks: Vec<usize>,
    timeout: Duration,
    thread: Arc<GroupThread>,
    subgroups: Subgroups,
    /// Memory in which operands go to the thread of the group, kept from call to call.
    kept: Mutex<Vec<u8>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Taken around each call of an MPI that wants one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// The way to the thread that started MPI, and will end it.
static WORLD: Mutex<Option<Sender<ThreadCommand>>> = Mutex::new(None);

/// A thread waits for ever, so MPI cannot be ended.
static RESTING: AtomicBool = AtomicBool::new(false);

/// What a thread of a group says when it is ready: its rank and the size, or what went wrong.
type MpiStart = std::result::Result<(usize, usize), String>;

/// The group of all workers that mpirun or slurm started.
pub(crate) fn world(timeout: Duration) -> Result<Arc<dyn Communicator>> {
    let (ready, started) = channel();
    let (orders, received) = channel();
    let way = GroupThread::new(orders.clone(), None);
    let shared = way.shared.clone();
    thread::Builder::new()
        .name("pullback-mpi".to_string())
        .spawn(move || {
            let Some((universe, threading)) = mpi::initialize_with_threading(Threading::Multiple)
            else {
                let message = "MPI was started already by another part of this program";
                let _ = ready.send(Err(message.to_string()));
                return;
            };
            if threading < Threading::Serialized {
                let message = "this MPI does not let a thread of its own call it";
                let _ = ready.send(Err(message.to_string()));
                return;
            }
            let one_at_a_time = threading < Threading::Multiple;
            let world = universe.world();
            let ended = serve(world, WORLD_ID, timeout, one_at_a_time, shared, &ready, &received);
            // This ends MPI, once all other groups are idle.
            drop(universe);
            ended.map(|ended| ended.send(()));
        })
        .map_err(|error| failure("workers", format!("no thread for MPI: {error}")))?;
    let answer = started.recv().map_err(|_| failure("workers", "MPI failed".to_string()))?;
    let (rank, size) = answer.map_err(|message| failure("workers", message))?;
    let worker = Mpi::new(WORLD_ID, rank, (0..size).collect(), timeout, way);
    *lock(&WORLD) = Some(orders);
    Ok(Arc::new(worker))
}

fn failure(op: &'static str, message: String) -> Error {
    Error::new(ErrorKind::Workers, op, message)
}

/// Whether this is Open MPI, which can be asked before it is started.
pub(crate) fn is_open_mpi() -> bool {
    mpi::environment::library_version().is_ok_and(|version| version.starts_with("Open MPI"))
}

/// Ends MPI, as programs must before they exit.
pub(crate) fn finish() {
    let Some(orders) = lock(&WORLD).take() else { return };
    if RESTING.load(Ordering::Relaxed) {
        return;
    }
    let (ended, wait) = channel();
    if orders.send(ThreadCommand::End(ended)).is_ok() {
        // Another worker may not come to the end: mpirun or slurm will tell.
        let _ = wait.recv_timeout(END);
    }
}

impl Mpi {
    fn new(
        id: u64,
        rank: usize,
        ranks: Vec<usize>,
        timeout: Duration,
        way: Arc<GroupThread>,
    ) -> Mpi {
        Mpi {
            id,
            rank,
            ranks,
            timeout,
            thread: way,
            subgroups: Subgroups::default(),
            kept: Mutex::default(),
        }
    }

    /// Makes a call on the thread of the group, and gives its result: `output` bytes. Without an
    /// operand the workers compare the call alone.
    fn ask(
        &self,
        call: &CollectiveCall<'_>,
        input: Option<&[u8]>,
        output: usize,
    ) -> Result<Vec<u8>> {
        let error = |message: String| {
            Error::new(ErrorKind::Workers, call.collective.name(), message).at(call.line)
        };
        if let Some(reason) = self.thread.shared.failed() {
            return Err(error(reason));
        }
        let (answer, answered) = channel();
        let mut memory = std::mem::take(&mut *lock(&self.kept));
        memory.clear();
        memory.extend_from_slice(input.unwrap_or_default());
        let job = MpiCall {
            collective: call.collective.clone(),
            operand: call.operand.clone(),
            line: call.line,
            compared_only: input.is_none(),
            input: memory,
            output,
            answer,
        };
        let sent = lock(&self.thread.orders).send(ThreadCommand::Run(job));
        let ended = || "MPI has ended".to_string();
        let outcome = sent
            .map_err(|_| ended())
            .and_then(|()| answered.recv().unwrap_or_else(|_| Err(ended())));
        outcome.map_err(|message| {
            let reason = self.thread.shared.fail(message);
            self.thread.fail_parents(&reason);
            error(reason)
        })
    }

    /// Takes memory back that [`Mpi::ask`] has given.
    fn keep(&self, memory: Vec<u8>) {
        if memory.capacity() <= KEPT {
            *lock(&self.kept) = memory;
        }
    }

    fn checked(&self, call: &CollectiveCall<'_>, input: &[u8], output: usize) -> Result<()> {
        crate::check_call(call, self.rank, self.size(), input, output).map_err(|message| {
            self.fail(&message);
            Error::new(ErrorKind::Workers, call.collective.name(), message).at(call.line)
        })
    }
}

impl Communicator for Mpi {
    fn id(&self) -> u64 {
        self.id
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.ranks.len()
    }

    fn engine(&self) -> &'static str {
        "mpi"
    }

    fn run(&self, call: &CollectiveCall<'_>, input: &[u8], output: &mut [u8]) -> Result<()> {
        self.run_fresh(call, input, &mut Fresh::over(output))
    }

    fn run_fresh(
        &self,
        call: &CollectiveCall<'_>,
        input: &[u8],
        output: &mut Fresh<'_>,
    ) -> Result<()> {
        self.checked(call, input, output.len())?;
        let result = self.ask(call, Some(input), output.len())?;
        output.write(0, &result);
        self.keep(result);
        Ok(())
    }

    fn run_in_place(&self, call: &CollectiveCall<'_>, memory: &mut [u8]) -> Result<()> {
        self.checked(call, memory, memory.len())?;
        let result = self.ask(call, Some(memory), memory.len())?;
        memory.copy_from_slice(&result);
        self.keep(result);
        Ok(())
    }

    fn agree(&self, call: &CollectiveCall<'_>) -> Result<()> {
        self.ask(call, None, 0).map(drop)
    }

    /// What is known by now: MPI is asked on the thread of the group, so what it finds is the
    /// answer of a later call. Whoever waits calls this again and again.
    fn broken(&self) -> Option<String> {
        let shared = &self.thread.shared;
        let failed = shared.failed();
        if failed.is_none() && !shared.looking.swap(true, Ordering::Relaxed) {
            // If the thread has ended, so has MPI, and there is nobody to fail.
            let _ = lock(&self.thread.orders).send(ThreadCommand::Look);
        }
        failed
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn subgroup(&self, ranks: &[usize]) -> Result<Option<Arc<dyn Communicator>>> {
        crate::check_ranks(ranks, self.size())?;
        let id = self.subgroups.next(self.id, ranks);
        if !ranks.contains(&self.rank) {
            return Ok(None);
        }
        let world: Vec<usize> = ranks.iter().map(|&rank| self.ranks[rank]).collect();
        let members: Vec<i32> = world.iter().map(|&rank| rank as i32).collect();
        let (ready, started) = channel();
        let (orders, received) = channel();
        let way = GroupThread::new(orders, Some(self.thread.clone()));
        let (shared, parent) = (way.shared.clone(), self.thread.shared.clone());
        let (timeout, called) = (self.timeout, ranks.to_vec());
        thread::Builder::new()
            .name("pullback-mpi-part".to_string())
            .spawn(move || {
                let all = SimpleCommunicator::world();
                // Tags keep apart groups that are made at the same time.
                let tag = (id % 30_000) as i32 + 10;
                let one_at_a_time = mpi::environment::threading_support() < Threading::Multiple;
                let met = meet(&all, &members, &called, (id, tag), timeout, &parent, one_at_a_time);
                if let Err(message) = met {
                    return drop(ready.send(Err(message)));
                }
                match all.split_by_subgroup_with_tag(&all.group().include(&members), tag) {
                    Some(part) => {
                        drop(serve(part, id, timeout, one_at_a_time, shared, &ready, &received))
                    }
                    None => drop(ready.send(Err("MPI made no group".to_string()))),
                }
            })
            .map_err(|error| failure("subgroup", format!("no thread for MPI: {error}")))?;
        // If all have met, MPI makes the group at once.
        let patience = timeout.saturating_mul(2).saturating_add(END);
        let answer = started.recv_timeout(patience).unwrap_or_else(|_| {
            let seconds = patience.as_secs_f64();
            Err(format!("MPI did not make the sub-group {ranks:?} within {seconds} s"))
        });
        match answer {
            Ok((rank, _)) => Ok(Some(Arc::new(Mpi::new(id, rank, world, timeout, way)))),
            Err(message) => {
                self.thread.fail(message.clone());
                Err(failure("subgroup", message))
            }
        }
    }

    fn waited(&self) -> Vec<Duration> {
        lock(&self.thread.shared.waited).clone()
    }

    fn fail(&self, reason: &str) {
        self.thread.fail(format!("worker {} failed: {reason}", self.rank));
    }
}
