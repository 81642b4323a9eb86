//! One worker of a group that meets at a [`Board`]: the engines `threads` and `local`.
//!
//! The two differ in what a [`Medium`] says: whether another worker still lives, where messages
//! between two workers wait, and where the board of a sub-group is.

use crate::board::{Board, Wait};
use crate::call_digest::{self, CallDigest, describe};
use crate::subgroups::Subgroups;
use pullback_ir::{
    Collective, CollectiveCall, Communicator, Error, ErrorKind, Fresh, Result, Spec,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What threads and processes do in their own way.
pub(crate) trait Medium: Send + Sync {
    /// The name of the engine.
    fn engine(&self) -> &'static str;

    /// Why a worker will never come, if that is known. `joined`: whether it was there at all.
    fn departure(&self, rank: usize, joined: bool) -> Option<String>;

    /// Stores a message until it is taken.
    fn post(&self, from: usize, to: usize, number: u64, message: Vec<u8>) -> std::io::Result<()>;

    /// Takes a message that was posted.
    fn take(&self, from: usize, to: usize, number: u64) -> std::io::Result<Vec<u8>>;

    /// The board and the medium of a group of some of these workers.
    fn subgroup(&self, id: u64, ranks: &[usize]) -> std::io::Result<(Arc<Board>, Box<dyn Medium>)>;

    /// All workers of the group have joined.
    fn all_joined(&self, rank: usize);
}

/// Ordered by a lock: one call at a time.
struct Progress {
    /// Stages that this worker has published.
    stage: u64,
    /// Collectives of the whole group that it has entered.
    number: u64,
    /// Messages sent to and received from each worker.
    sent: Vec<u64>,
    received: Vec<u64>,
}

/// A worker of a group.
pub(crate) struct Worker {
    id: u64,
    rank: usize,
    board: Arc<Board>,
    medium: Box<dyn Medium>,
    timeout: Duration,
    progress: Mutex<Progress>,
    /// Nanoseconds waited for each worker.
    waited: Vec<AtomicU64>,
    /// The group that this one is a part of: it fails if this one does.
    parent: Option<Arc<Board>>,
    subgroups: Subgroups,
}

/// A call in progress: what errors name.
pub(crate) struct ActiveCall<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) call: &'a CollectiveCall<'a>,
    progress: &'a mut Progress,
    deadline: Option<Instant>,
}

impl Worker {
    /// A worker that joins its group, and waits until all have.
    pub(crate) fn join(
        id: u64,
        rank: usize,
        board: Arc<Board>,
        medium: Box<dyn Medium>,
        timeout: Duration,
        parent: Option<Arc<Board>>,
    ) -> Result<Worker> {
        let size = board.size();
        let worker = Worker {
            id,
            rank,
            board,
            medium,
            timeout,
            progress: Mutex::new(Progress {
                stage: 1,
                number: 0,
                sent: vec![0; size],
                received: vec![0; size],
            }),
            waited: (0..size).map(|_| AtomicU64::new(0)).collect(),
            parent,
            subgroups: Subgroups::default(),
        };
        worker.board.publish(rank, 1);
        let outcome = worker.wait(1, deadline_after(timeout));
        let what = format!("a group of {size} workers");
        match outcome {
            Wait::Done(_) => {}
            Wait::Failed(reason) => return Err(Error::new(ErrorKind::Workers, what, reason)),
            Wait::TimeOut(missing) => {
                let missing = worker.lacking(1, missing);
                let message = format!(
                    "{missing} did not join within {} s (PULLBACK_TIMEOUT)",
                    timeout.as_secs_f64()
                );
                return Err(worker.failure(&what, message));
            }
            Wait::Gone(missing, why) => {
                let message = format!("worker {missing} {why} before it joined the group");
                return Err(worker.failure(&what, message));
            }
        }
        worker.medium.all_joined(rank);
        Ok(worker)
    }

    /// Makes the group fail, and returns the error.
    fn failure(&self, op: &str, message: String) -> Error {
        self.board.fail(&message);
        if let Some(parent) = &self.parent {
            parent.fail(&format!("in a sub-group: {message}"));
        }
        // If another worker was first, its reason is everybody's.
        let message = self.board.failed().unwrap_or(message);
        Error::new(ErrorKind::Workers, op.to_string(), message)
    }

    /// Waits until all workers have published a stage.
    fn wait(&self, stage: u64, deadline: Option<Instant>) -> Wait {
        let missing = || (0..self.board.size()).find(|&rank| self.board.stage(rank) < stage);
        let outcome = self.board.wait(deadline, missing, |rank| self.departure_of(rank));
        self.count_wait(&outcome);
        outcome
    }

    fn departure_of(&self, rank: usize) -> Option<String> {
        self.medium.departure(rank, self.board.stage(rank) > 0)
    }

    fn count_wait(&self, outcome: &Wait) {
        if let Wait::Done(Some((rank, time))) = outcome {
            self.waited[*rank].fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// The workers that have not published a stage, in words; `one` if all have by now.
    fn lacking(&self, stage: u64, one: usize) -> String {
        let mut ranks: Vec<usize> =
            (0..self.board.size()).filter(|&rank| self.board.stage(rank) < stage).collect();
        if ranks.is_empty() {
            ranks.push(one);
        }
        let ranks: Vec<String> = ranks.iter().map(|rank| format!("worker {rank}")).collect();
        ranks.join(", ")
    }

    /// Runs a call with what it needs.
    fn calling<R>(
        &self,
        call: &CollectiveCall<'_>,
        f: impl FnOnce(&mut ActiveCall<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = deadline_after(self.timeout);
        if let Some(reason) = self.board.failed() {
            let op = call.collective.name();
            return Err(Error::new(ErrorKind::Workers, op, reason).at(call.line));
        }
        f(&mut ActiveCall { worker: self, call, progress: &mut progress, deadline })
    }
}

/// A time-out that is longer than clocks count is none.
fn deadline_after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

impl ActiveCall<'_> {
    pub(crate) fn board(&self) -> &Board {
        &self.worker.board
    }

    pub(crate) fn rank(&self) -> usize {
        self.worker.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.worker.board.size()
    }

    fn op(&self) -> &'static str {
        self.call.collective.name()
    }

    /// An error of this call, which all workers get.
    pub(crate) fn error(&self, message: String) -> Error {
        self.worker.failure(self.op(), message).at(self.call.line)
    }

    /// The stage that is written next.
    pub(crate) fn next_stage(&self) -> u64 {
        self.progress.stage + 1
    }

    /// Publishes a stage and waits until all have.
    pub(crate) fn stage(&mut self) -> Result<u64> {
        self.progress.stage += 1;
        let stage = self.progress.stage;
        self.board().publish(self.rank(), stage);
        let outcome = self.worker.wait(stage, self.deadline);
        self.check(outcome, |missing| self.worker.lacking(stage, missing))?;
        Ok(stage)
    }

    /// What a wait ended with, as a result.
    fn check(&self, outcome: Wait, lacking: impl FnOnce(usize) -> String) -> Result<()> {
        let me = format!("worker {} waits in {}", self.rank(), self.digest());
        match outcome {
            Wait::Done(_) => Ok(()),
            Wait::Failed(reason) => {
                Err(Error::new(ErrorKind::Workers, self.op(), reason).at(self.call.line))
            }
            Wait::Gone(rank, why) => {
                let last = self.board().last(rank);
                Err(self.error(format!("worker {rank} {why}; {last}; {me}")))
            }
            Wait::TimeOut(rank) => {
                let (lacking, last) = (lacking(rank), self.board().last(rank));
                let seconds = self.worker.timeout.as_secs_f64();
                Err(self.error(format!(
                    "{lacking} did not come within {seconds} s (PULLBACK_TIMEOUT); \
                     of worker {rank}: {last}; {me}"
                )))
            }
        }
    }

    fn digest(&self) -> CallDigest {
        CallDigest::new(self.worker.id, self.progress.number.saturating_sub(1), self.call)
    }

    /// Enters a collective of the whole group: publishes the first stage with a digest, and
    /// compares all digests.
    pub(crate) fn enter(&mut self) -> Result<u64> {
        let number = self.progress.number;
        let digest = CallDigest::new(self.worker.id, number, self.call);
        self.progress.number += 1;
        self.board().enter(self.rank(), number, &digest);
        let stage = self.stage()?;
        let digest_of = |rank| self.board().digest(rank, number);
        let digests: Vec<CallDigest> = (0..self.size()).map(digest_of).collect();
        CallDigest::compare(&digests).map_err(|message| self.error(message))?;
        Ok(stage)
    }

    /// Leaves a message for another worker, and goes on.
    pub(crate) fn send(&mut self, to: usize, input: &[u8]) -> Result<()> {
        let (me, number) = (self.rank(), self.progress.sent[to]);
        let digest = CallDigest::new(self.worker.id, number, self.call);
        let mut message = Vec::with_capacity(call_digest::BYTES + input.len());
        message.extend_from_slice(&digest.encode());
        message.extend_from_slice(input);
        if let Err(error) = self.worker.medium.post(me, to, number, message) {
            return Err(self.error(format!("worker {me} could not send to worker {to}: {error}")));
        }
        self.progress.sent[to] += 1;
        self.board().count_sent(me, to);
        Ok(())
    }

    /// Waits for a message of another worker.
    pub(crate) fn receive(
        &mut self,
        from: usize,
        spec: &Spec,
        output: &mut Fresh<'_>,
    ) -> Result<()> {
        let (me, number) = (self.rank(), self.progress.received[from]);
        let board = self.board();
        let entered = self.progress.number;
        let there = || board.sent(from, me) > number;
        // A worker that has entered a collective of the whole group waits there for this one, and
        // will not send: its messages came before. (In this order: first that it has entered, then
        // that nothing was sent.)
        let elsewhere = || board.entered(from) > entered && !there();
        let missing = || (!there() && !elsewhere()).then_some(from);
        let outcome = board.wait(self.deadline, missing, |rank| self.worker.departure_of(rank));
        self.worker.count_wait(&outcome);
        let what = describe(self.call);
        if let Wait::Gone(_, why) = &outcome {
            return Err(self.error(format!(
                "worker {from} {why}; {}; worker {me} waits in {what} (at {})",
                board.last(from),
                self.call.line
            )));
        }
        self.check(outcome, |missing| format!("a message of worker {missing}"))?;
        if !there() {
            return Err(self.error(format!(
                "workers were asked for different things: worker {me} for {what} (at {}), worker \
                 {from} for {}",
                self.call.line,
                board.digest(from, entered)
            )));
        }
        let message = match self.worker.medium.take(from, me, number) {
            Ok(message) if message.len() >= call_digest::BYTES => message,
            Ok(_) => return Err(self.error(format!("a message of worker {from} is incomplete"))),
            Err(error) => {
                let message = format!("a message of worker {from} could not be read: {error}");
                return Err(self.error(message));
            }
        };
        self.progress.received[from] += 1;
        let (head, data) = message.split_at(call_digest::BYTES);
        let digest = CallDigest::decode(head.try_into().expect("as many bytes"));
        let expected = CallDigest::of_send(self.worker.id, number, me, spec, self.call.line);
        if data.len() != output.len() || !digest.agrees(&expected) {
            return Err(self.error(format!(
                "workers were asked for different things: worker {me} for {what} (at {}), worker \
                 {from} for {digest}",
                self.call.line
            )));
        }
        output.write(0, data);
        Ok(())
    }
}

impl Communicator for Worker {
    fn id(&self) -> u64 {
        self.id
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.board.size()
    }

    fn engine(&self) -> &'static str {
        self.medium.engine()
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
        self.calling(call, |calling| crate::exchange::run(calling, input, output))
    }

    fn run_in_place(&self, call: &CollectiveCall<'_>, memory: &mut [u8]) -> Result<()> {
        match call.collective {
            Collective::AllReduce(combination) => self.calling(call, |calling| {
                crate::exchange::all_reduce_in_place(calling, *combination, memory)
            }),
            _ => {
                let operand = memory.to_vec();
                self.run(call, &operand, memory)
            }
        }
    }

    fn agree(&self, call: &CollectiveCall<'_>) -> Result<()> {
        self.calling(call, |calling| calling.enter().map(drop))
    }

    fn broken(&self) -> Option<String> {
        let gone = |rank| Some(format!("worker {rank} {}", self.departure_of(rank)?));
        self.board.failed().or_else(|| (0..self.size()).find_map(gone))
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn subgroup(&self, ranks: &[usize]) -> Result<Option<Arc<dyn Communicator>>> {
        crate::check_ranks(ranks, self.size())?;
        let id = self.subgroups.next(self.id, ranks);
        let Some(rank) = ranks.iter().position(|&rank| rank == self.rank) else { return Ok(None) };
        let (board, medium) = self.medium.subgroup(id, ranks).map_err(|error| {
            let message = format!("worker {} cannot join {ranks:?}: {error}", self.rank);
            self.failure("subgroup", message)
        })?;
        let parent = Some(self.board.clone());
        let worker = Worker::join(id, rank, board, medium, self.timeout, parent)?;
        Ok(Some(Arc::new(worker)))
    }

    fn waited(&self) -> Vec<Duration> {
        let read = |time: &AtomicU64| Duration::from_nanos(time.load(Ordering::Relaxed));
        self.waited.iter().map(read).collect()
    }

    fn fail(&self, reason: &str) {
        self.failure("", format!("worker {} failed: {reason}", self.rank));
    }
}
