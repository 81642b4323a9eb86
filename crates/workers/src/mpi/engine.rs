//! The thread of a group: it alone calls MPI for it.

use super::notices::Notices;
use super::{
    MpiAnswer, MpiCall, MpiStart, ONE_AT_A_TIME, RESTING, ThreadCommand, ThreadShared, lock,
};
use crate::call_digest::{self, CallDigest};
use crate::combine::combine;
use crate::sizes::{CHUNK, DIRECT, LINE};
use mpi::collective::{CommunicatorCollectives, Root};
use mpi::point_to_point::{Destination, Source};
use mpi::request::{Request, Scope, scope};
use mpi::topology::{Communicator as _, SimpleCommunicator};
use pullback_ir::{Collective, CollectiveCall, Combination, DType, Spec};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Tags of messages.
const TICKET: i32 = 1;
const DATA: i32 = 2;
/// Bytes of a message, whose length MPI counts in 31 bits.
const PIECE: usize = 1 << 30;
/// How long a loop of tests keeps its core, and how long it then sleeps at most.
const YIELD: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(500);
/// How often it looks for notices.
const LOOK: Duration = Duration::from_millis(5);

/// What the thread knows of its group.
struct MpiEngine {
    id: u64,
    comm: SimpleCommunicator,
    /// Notices go by a communicator of their own.
    notices: Notices,
    shared: Arc<ThreadShared>,
    rank: usize,
    size: usize,
    timeout: Duration,
    one_at_a_time: bool,
    number: Cell<u64>,
    sent: RefCell<Vec<u64>>,
    received: RefCell<Vec<u64>>,
    /// Who waits for the current call.
    answer: RefCell<Option<Sender<MpiAnswer>>>,
    /// What the current call is, and what the last one was that all workers entered, for errors.
    doing: RefCell<String>,
    last: RefCell<Option<CallDigest>>,
    /// How long this worker waited for the others to enter the last call.
    wait: Cell<Duration>,
    /// Memory of sums, kept from call to call, as pages are dear when they are new.
    scratch: RefCell<ChunkBuffers>,
    /// Set when the group ends: who waits for that.
    end: RefCell<Option<Sender<()>>>,
}

/// Of a chunk: itself with an end that makes its shares equal, the parts of all workers of this
/// one's share, and their sum.
#[derive(Default)]
struct ChunkBuffers {
    padded: Vec<u8>,
    parts: Vec<u8>,
    sum: Vec<u8>,
}

/// Carries out the calls of a group until nobody is left who makes them, or the program ends:
/// whoever waits for that is returned.
pub(super) fn serve(
    comm: SimpleCommunicator,
    id: u64,
    timeout: Duration,
    one_at_a_time: bool,
    shared: Arc<ThreadShared>,
    ready: &Sender<MpiStart>,
    orders: &Receiver<ThreadCommand>,
) -> Option<Sender<()>> {
    let (comm, notices) = (comm.duplicate(), comm.duplicate());
    let (rank, size) = (comm.rank() as usize, comm.size() as usize);
    lock(&shared.waited).resize(size, Duration::ZERO);
    let engine = MpiEngine {
        id,
        comm,
        notices: Notices { comm: notices, timeout, one_at_a_time },
        shared,
        rank,
        size,
        timeout,
        one_at_a_time,
        number: Cell::new(0),
        sent: RefCell::new(vec![0; size]),
        received: RefCell::new(vec![0; size]),
        answer: RefCell::default(),
        doing: RefCell::default(),
        last: RefCell::default(),
        wait: Cell::default(),
        scratch: RefCell::default(),
        end: RefCell::default(),
    };
    if ready.send(Ok((rank, size))).is_ok() {
        engine.serve(orders, None);
    }
    let ended = engine.end.take();
    // Freeing communicators takes all workers at once; the end of MPI frees them too.
    std::mem::forget(engine);
    ended
}

impl MpiEngine {
    fn one<R>(&self, f: impl FnOnce() -> R) -> R {
        let _guard = self.one_at_a_time.then(|| lock(&ONE_AT_A_TIME));
        f()
    }

    /// Carries out orders until the group ends. A message that is on its way is held by the frame
    /// of the call that sent it, which carries out the orders that follow until it has arrived:
    /// `arrived` tells.
    fn serve(
        &self,
        orders: &Receiver<ThreadCommand>,
        mut arrived: Option<&mut dyn FnMut() -> bool>,
    ) {
        loop {
            if arrived.as_mut().is_some_and(|arrived| arrived()) {
                return;
            }
            if self.end.borrow().is_some() {
                match arrived {
                    None => return,
                    Some(_) => thread::sleep(NAP),
                }
                continue;
            }
            let order = match arrived {
                None => orders.recv().map_err(RecvTimeoutError::from),
                Some(_) => orders.recv_timeout(Duration::from_millis(1)),
            };
            match order {
                Ok(ThreadCommand::Run(job)) => self.run(job, orders),
                Ok(ThreadCommand::Fail(reason)) => self.notices.tell_failure(&reason),
                Ok(ThreadCommand::Look) => {
                    self.shared.looking.store(false, Ordering::Relaxed);
                    if let Some(reason) = self.notices.glance() {
                        self.shared.fail(reason);
                    }
                }
                Ok(ThreadCommand::End(ended)) => *self.end.borrow_mut() = Some(ended),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn run(&self, mut job: MpiCall, orders: &Receiver<ThreadCommand>) {
        let call = CollectiveCall {
            collective: &job.collective,
            operand: &job.operand,
            sequence: 0,
            line: job.line,
        };
        if let (Collective::Send { to }, false) = (&job.collective, job.compared_only) {
            return self.send(*to, &call, &job, orders);
        }
        *self.doing.borrow_mut() = match job.collective {
            Collective::Recv { .. } => {
                format!("{} (at {})", call_digest::describe(&call), job.line)
            }
            _ => CallDigest::new(self.id, self.number.get(), &call).to_string(),
        };
        if let Some(reason) = self.failure() {
            // The caller waits; if it does not, nobody needs the answer.
            let _ = job.answer.send(Err(reason));
            return;
        }
        *self.answer.borrow_mut() = Some(job.answer.clone());
        // A sum replaces its operand.
        let (input, mut output) = match &job.collective {
            Collective::AllReduce(_) => (vec![], std::mem::take(&mut job.input)),
            _ => (std::mem::take(&mut job.input), vec![0; job.output]),
        };
        let outcome = match &job.collective {
            _ if job.compared_only => self.compare(&call),
            Collective::Recv { from, spec } => self.receive(*from, spec, &call, &mut output),
            _ => self.compare(&call).map(|()| self.exchange(&call, &input, &mut output)),
        };
        self.answer.take();
        let _ = job.answer.send(outcome.map(|()| output));
    }

    /// Waits for a request. If it does not end in time, or another worker has failed, the caller
    /// gets an error, and this thread rests for ever: MPI still owns the memory of the request.
    fn finish<'a, D: ?Sized, S: Scope<'a>>(&self, mut request: Request<'a, D, S>) {
        let start = Instant::now();
        let mut looked = start;
        loop {
            match self.one(|| request.test()) {
                Ok(_) => return,
                Err(same) => request = same,
            }
            let now = Instant::now();
            if now - start < YIELD {
                thread::yield_now();
                continue;
            }
            if now - looked > LOOK {
                looked = now;
                if let Some(reason) = self.failure() {
                    self.rest(reason);
                }
                if now - start > self.timeout {
                    self.rest(self.notices.time_up(&self.doing.borrow(), &self.last()));
                }
            }
            thread::sleep(NAP.min((now - start) / 10));
        }
    }

    /// Why the group has failed, if another worker or another thread of this one says so.
    fn failure(&self) -> Option<String> {
        if let Some(reason) = self.shared.failed() {
            self.notices.tell_failure(&reason);
            return Some(reason);
        }
        self.notices.look(&self.doing.borrow(), &self.last())
    }

    fn last(&self) -> String {
        match &*self.last.borrow() {
            None => "before its first collective".to_string(),
            Some(digest) => format!("its last collective was {digest}"),
        }
    }

    fn rest(&self, message: String) -> ! {
        RESTING.store(true, Ordering::Relaxed);
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(Err(message));
        }
        loop {
            thread::sleep(Duration::from_secs(60));
        }
    }

    fn all_gather(&self, mine: &[u8], all: &mut [u8]) {
        scope(|s| self.finish(self.one(|| self.comm.immediate_all_gather_into(s, mine, all))));
    }

    fn all_to_all(&self, mine: &[u8], all: &mut [u8]) {
        scope(|s| self.finish(self.one(|| self.comm.immediate_all_to_all_into(s, mine, all))));
    }

    /// Compares what all workers were asked.
    ///
    /// With its digest a worker says how long it waited for the others the last time: who waited
    /// least came last, and the others waited for it.
    fn compare(&self, call: &CollectiveCall<'_>) -> std::result::Result<(), String> {
        let number = self.number.replace(self.number.get() + 1);
        let mut mine = CallDigest::new(self.id, number, call).encode().to_vec();
        mine.extend_from_slice(&(self.wait.get().as_nanos() as u64).to_le_bytes());
        let start = Instant::now();
        let mut all = vec![0; mine.len() * self.size];
        self.all_gather(&mine, &mut all);
        let before = self.wait.replace(start.elapsed());
        let said: &[[u8; call_digest::BYTES + 8]] = all.as_chunks().0;
        let wait =
            |said: &[u8; call_digest::BYTES + 8]| said.last_chunk().map(|n| u64::from_le_bytes(*n));
        if let Some(slowest) = (0..said.len()).min_by_key(|&rank| wait(&said[rank])) {
            lock(&self.shared.waited)[slowest] += before;
        }
        let digest =
            |said: &[u8; call_digest::BYTES + 8]| said.first_chunk().map(CallDigest::decode);
        let digests: Vec<CallDigest> = said.iter().filter_map(digest).collect();
        *self.last.borrow_mut() = digests.get(self.rank).cloned();
        CallDigest::compare(&digests)
    }

    fn exchange(&self, call: &CollectiveCall<'_>, input: &[u8], output: &mut [u8]) {
        let dtype = call.operand.dtype;
        match call.collective {
            Collective::AllReduce(combination) => {
                self.all_reduce(*combination, dtype, output);
            }
            Collective::AllGather => {
                let all = &mut self.scratch.borrow_mut().parts;
                for at in (0..input.len()).step_by(CHUNK) {
                    let chunk = &input[at..input.len().min(at + CHUNK)];
                    all.resize(chunk.len() * self.size, 0);
                    self.all_gather(chunk, all);
                    for (rank, part) in all.chunks(chunk.len()).enumerate() {
                        output[rank * input.len() + at..][..chunk.len()].copy_from_slice(part);
                    }
                }
            }
            Collective::Broadcast { root } => {
                if self.rank == *root {
                    output.copy_from_slice(input);
                }
                let root = self.comm.process_at_rank(*root as i32);
                for chunk in output.chunks_mut(CHUNK) {
                    scope(|s| self.finish(self.one(|| root.immediate_broadcast_into(s, chunk))));
                }
            }
            Collective::ReduceScatter => self.parts(input, |at, all, part| {
                combine(Combination::Sum, dtype, self.size, part, read(all, part), |i, block| {
                    output[at + i..][..block.len()].copy_from_slice(block);
                });
            }),
            Collective::AllToAll => {
                let whole = input.len() / self.size;
                self.parts(input, |at, all, part| {
                    for (rank, bytes) in all.chunks(part).enumerate() {
                        output[rank * whole + at..][..part].copy_from_slice(bytes);
                    }
                });
            }
            Collective::Barrier | Collective::Send { .. } | Collective::Recv { .. } => {}
        }
    }

    /// The sum replaces the operand.
    fn all_reduce(&self, combination: Combination, dtype: DType, memory: &mut [u8]) {
        let ChunkBuffers { padded, parts, sum } = &mut *self.scratch.borrow_mut();
        let len = memory.len();
        if len <= DIRECT {
            if len > 0 {
                parts.resize(len * self.size, 0);
                self.all_gather(memory, parts);
                combine(combination, dtype, self.size, len, read(parts, len), |at, block| {
                    memory[at..][..block.len()].copy_from_slice(block);
                });
            }
            return;
        }
        for chunk in memory.chunks_mut(CHUNK) {
            let share = chunk.len().div_ceil(self.size).next_multiple_of(LINE);
            let whole = share * self.size;
            parts.resize(whole, 0);
            sum.resize(share, 0);
            let even = whole == chunk.len();
            if even {
                self.all_to_all(chunk, parts);
            } else {
                padded.clear();
                padded.extend_from_slice(chunk);
                padded.resize(whole, 0);
                self.all_to_all(padded, parts);
            }
            combine(combination, dtype, self.size, share, read(parts, share), |at, block| {
                sum[at..][..block.len()].copy_from_slice(block);
            });
            if even {
                self.all_gather(sum, chunk);
            } else {
                self.all_gather(sum, padded);
                chunk.copy_from_slice(&padded[..chunk.len()]);
            }
        }
    }

    /// Part `r` of every operand goes to worker `r`, in rounds: `use_them(at, all, part)` gets
    /// `part` bytes of each worker, from byte `at` of its part on.
    fn parts(&self, input: &[u8], mut use_them: impl FnMut(usize, &[u8], usize)) {
        let whole = input.len() / self.size;
        let step = (CHUNK / self.size).next_multiple_of(LINE);
        let ChunkBuffers { padded: mine, parts: all, sum: _ } = &mut *self.scratch.borrow_mut();
        for at in (0..whole).step_by(step) {
            let part = step.min(whole - at);
            mine.clear();
            for rank in 0..self.size {
                mine.extend_from_slice(&input[rank * whole + at..][..part]);
            }
            all.resize(mine.len(), 0);
            self.all_to_all(mine, all);
            use_them(at, all, part);
        }
    }

    /// Sends a digest and the data. The caller goes on at once.
    fn send(
        &self,
        to: usize,
        call: &CollectiveCall<'_>,
        job: &MpiCall,
        orders: &Receiver<ThreadCommand>,
    ) {
        let number = self.sent.borrow()[to];
        self.sent.borrow_mut()[to] += 1;
        let head = CallDigest::new(self.id, number, call).encode();
        let process = self.comm.process_at_rank(to as i32);
        let _ = job.answer.send(Ok(vec![]));
        scope(|s| {
            let first = self.one(|| process.immediate_send_with_tag(s, &head[..], TICKET));
            let pieces = job.input.chunks(PIECE);
            let mut requests = vec![first];
            for piece in pieces {
                requests.push(self.one(|| process.immediate_send_with_tag(s, piece, DATA)));
            }
            let mut arrived = || {
                requests = std::mem::take(&mut requests)
                    .into_iter()
                    .filter_map(|request| self.one(|| request.test()).err())
                    .collect();
                requests.is_empty()
            };
            self.serve(orders, Some(&mut arrived));
            // The group ends, or its callers are gone: the memory is held until it was sent.
            while !arrived() {
                thread::sleep(NAP);
            }
        });
    }

    fn receive(
        &self,
        from: usize,
        spec: &Spec,
        call: &CollectiveCall<'_>,
        output: &mut [u8],
    ) -> std::result::Result<(), String> {
        let process = self.comm.process_at_rank(from as i32);
        let mut head = [0; call_digest::BYTES];
        scope(|s| {
            self.finish(
                self.one(|| process.immediate_receive_into_with_tag(s, &mut head[..], TICKET)),
            );
        });
        let number = self.received.borrow()[from];
        self.received.borrow_mut()[from] += 1;
        let came = CallDigest::decode(&head);
        if !came.agrees(&CallDigest::of_send(self.id, number, self.rank, spec, call.line)) {
            let message = format!(
                "workers were asked for different things: worker {} for {} (at {}), worker {from} \
                 for {came}",
                self.rank,
                call_digest::describe(call),
                call.line
            );
            self.notices.tell_failure(&message);
            return Err(message);
        }
        for piece in output.chunks_mut(PIECE) {
            scope(|s| {
                self.finish(self.one(|| process.immediate_receive_into_with_tag(s, piece, DATA)));
            });
        }
        Ok(())
    }
}

/// Reads blocks of operands that lie one after the other.
fn read(all: &[u8], each: usize) -> impl FnMut(usize, usize, &mut [u8]) + '_ {
    move |rank, at, block| block.copy_from_slice(&all[rank * each + at..][..block.len()])
}
