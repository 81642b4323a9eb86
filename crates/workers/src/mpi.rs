//! The engine `mpi`: any MPI, through the crate `mpi`.
//!
//! A communicator of MPI stays on the thread that made it, so each group has a thread of its own;
//! calls go there and wait for the answer. All communication is non-blocking and tested in a loop,
//! which also looks at the clock and for *notices*: messages by which a worker says that it cannot
//! go on. So a worker that does not come is an error and not a hang. (A worker that dies is
//! noticed by mpirun or slurm, which end the others.)
//!
//! Sums are made here and not by MPI, whose order of adding depends on its version and on the
//! network: a chunk is scattered (`MPI_Ialltoall`), each worker adds its share in the order of
//! ranks, and the shares are gathered (`MPI_Iallgather`). A ring moves as many bytes.

use crate::combine::combine;
use crate::ticket::{self, Ticket};
use mpi::Threading;
use mpi::collective::{CommunicatorCollectives, Root};
use mpi::point_to_point::{Destination, Source};
use mpi::request::{Request, Scope, StaticScope, scope};
use mpi::topology::{Communicator as _, Group as _, SimpleCommunicator};
use pullback_ir::{
    Collective, CollectiveCall, Combination, Communicator, DType, Error, ErrorKind, Line, Result,
    Spec,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of an operand that move in one round.
const CHUNK: usize = 4 << 20;
/// An operand of at most so many bytes is reduced as a whole by every worker.
const DIRECT: usize = 16 << 10;
/// Shares are multiples of so many bytes.
const LINE: usize = 64;
/// Tags of messages.
const TICKET: i32 = 1;
const DATA: i32 = 2;
const NOTICE: i32 = 3;
/// How long a loop of tests keeps its core, and how long it then sleeps at most.
const YIELD: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(500);
/// How often it looks for notices.
const LOOK: Duration = Duration::from_millis(5);
/// How long the end of MPI may take.
const END: Duration = Duration::from_secs(10);

type Answer = std::result::Result<Vec<u8>, String>;

/// A call for the thread of a group.
struct Job {
    collective: Collective,
    operand: Spec,
    line: Line,
    input: Vec<u8>,
    output: usize,
    answer: Sender<Answer>,
}

enum Order {
    Run(Job),
    /// Tell all others.
    Fail(String),
    /// The group is not used any more.
    End(Sender<()>),
}

/// A worker of a group, for callers of any thread.
struct Mpi {
    id: u64,
    rank: usize,
    /// The ranks of the group in the world.
    ranks: Vec<usize>,
    timeout: Duration,
    orders: Mutex<Sender<Order>>,
    failed: Mutex<Option<String>>,
    subgroups: Mutex<HashMap<Vec<usize>, u64>>,
}

fn held<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Taken around each call of an MPI that wants one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// The way to the thread that started MPI, and will end it.
static WORLD: Mutex<Option<Sender<Order>>> = Mutex::new(None);

/// What a thread of a group says when it is ready: its rank and the size, or what went wrong.
type Ready = std::result::Result<(usize, usize), String>;

/// The group of all workers that mpirun or slurm started.
pub(crate) fn world(timeout: Duration) -> Result<Arc<dyn Communicator>> {
    let (ready, started) = channel();
    let (orders, received) = channel();
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
            serve(universe.world(), 0, timeout, one_at_a_time, &ready, &received);
            // Dropping the universe ends MPI, once all other groups are idle.
            drop(universe);
        })
        .map_err(|error| failure("workers", format!("no thread for MPI: {error}")))?;
    let worker = Mpi::new(0, None, timeout, &started, orders.clone())?;
    *held(&WORLD) = Some(orders);
    end_with_main();
    Ok(Arc::new(worker))
}

fn failure(op: &'static str, message: String) -> Error {
    Error::new(ErrorKind::Workers, op, message)
}

/// Ends MPI, as programs must before they exit. The main thread does it by itself if it was the one
/// that called [`crate::init`].
pub(crate) fn finish() {
    let Some(orders) = held(&WORLD).take() else { return };
    let (ended, wait) = channel();
    if orders.send(Order::End(ended)).is_ok() {
        // A group that failed does not end; mpirun or slurm will tell.
        let _ = wait.recv_timeout(END);
    }
}

/// Calls [`finish`] when the main thread ends, if this is it.
fn end_with_main() {
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            finish();
        }
    }
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    if thread::current().name() == Some("main") {
        LAST.with_borrow_mut(|last| *last = Some(Last));
    }
}

impl Mpi {
    fn new(
        id: u64,
        ranks: Option<Vec<usize>>,
        timeout: Duration,
        started: &Receiver<Ready>,
        orders: Sender<Order>,
    ) -> Result<Mpi> {
        let answer = started.recv().map_err(|_| failure("workers", "MPI failed".to_string()))?;
        let (rank, size) = answer.map_err(|message| failure("workers", message))?;
        Ok(Mpi {
            id,
            rank,
            ranks: ranks.unwrap_or_else(|| (0..size).collect()),
            timeout,
            orders: Mutex::new(orders),
            failed: Mutex::default(),
            subgroups: Mutex::default(),
        })
    }

    fn fail_with(&self, message: String) -> String {
        held(&self.failed).get_or_insert(message).clone()
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
        let error = |message: String| {
            Error::new(ErrorKind::Workers, call.collective.name(), message).at(call.line)
        };
        if let Some(reason) = held(&self.failed).clone() {
            return Err(error(reason));
        }
        if let Err(message) = crate::check_call(call, self.rank, self.size(), input, output) {
            self.fail(&message);
            return Err(error(message));
        }
        let (answer, answered) = channel();
        let job = Job {
            collective: call.collective.clone(),
            operand: call.operand.clone(),
            line: call.line,
            input: input.to_vec(),
            output: output.len(),
            answer,
        };
        let sent = held(&self.orders).send(Order::Run(job));
        let ended = || "MPI has ended".to_string();
        let outcome = sent
            .map_err(|_| ended())
            .and_then(|()| answered.recv().unwrap_or_else(|_| Err(ended())));
        match outcome {
            Ok(bytes) => {
                output.copy_from_slice(&bytes);
                Ok(())
            }
            Err(message) => Err(error(self.fail_with(message))),
        }
    }

    fn subgroup(&self, ranks: &[usize]) -> Result<Option<Arc<dyn Communicator>>> {
        crate::check_ranks(ranks, self.size())?;
        let count = {
            let mut subgroups = held(&self.subgroups);
            let count = subgroups.entry(ranks.to_vec()).or_default();
            *count += 1;
            *count
        };
        if !ranks.contains(&self.rank) {
            return Ok(None);
        }
        let mut hasher = DefaultHasher::new();
        (self.id, ranks, count).hash(&mut hasher);
        let id = hasher.finish();
        let world: Vec<usize> = ranks.iter().map(|&rank| self.ranks[rank]).collect();
        let members: Vec<i32> = world.iter().map(|&rank| rank as i32).collect();
        let (ready, started) = channel();
        let (orders, received) = channel();
        let timeout = self.timeout;
        thread::Builder::new()
            .name("pullback-mpi-part".to_string())
            .spawn(move || {
                let all = SimpleCommunicator::world();
                let group = all.group().include(&members);
                // Tags keep apart groups that are made at the same time.
                let tag = (id % 30_000) as i32 + 10;
                let one_at_a_time = mpi::environment::threading_support() < Threading::Multiple;
                match all.split_by_subgroup_with_tag(&group, tag) {
                    Some(part) => serve(part, id, timeout, one_at_a_time, &ready, &received),
                    None => drop(ready.send(Err("MPI made no group".to_string()))),
                }
            })
            .map_err(|error| failure("subgroup", format!("no thread for MPI: {error}")))?;
        let worker = Mpi::new(id, Some(world), timeout, &started, orders)?;
        Ok(Some(Arc::new(worker)))
    }

    fn fail(&self, reason: &str) {
        let message = self.fail_with(format!("worker {} failed: {reason}", self.rank));
        // If the thread has ended, there is nobody to be told.
        let _ = held(&self.orders).send(Order::Fail(message));
    }
}

/// The thread of a group.
struct Engine {
    id: u64,
    comm: SimpleCommunicator,
    /// Notices go by a communicator of their own.
    notices: SimpleCommunicator,
    rank: usize,
    size: usize,
    timeout: Duration,
    one_at_a_time: bool,
    number: Cell<u64>,
    sent: RefCell<Vec<u64>>,
    received: RefCell<Vec<u64>>,
    /// Who waits for the current call.
    answer: RefCell<Option<Sender<Answer>>>,
    /// What the current call is, for errors.
    doing: RefCell<String>,
    /// Set when the group ends: who waits for that.
    end: RefCell<Option<Sender<()>>>,
}

fn serve(
    comm: SimpleCommunicator,
    id: u64,
    timeout: Duration,
    one_at_a_time: bool,
    ready: &Sender<Ready>,
    orders: &Receiver<Order>,
) {
    let (comm, notices) = (comm.duplicate(), comm.duplicate());
    let (rank, size) = (comm.rank() as usize, comm.size() as usize);
    let engine = Engine {
        id,
        comm,
        notices,
        rank,
        size,
        timeout,
        one_at_a_time,
        number: Cell::new(0),
        sent: RefCell::new(vec![0; size]),
        received: RefCell::new(vec![0; size]),
        answer: RefCell::default(),
        doing: RefCell::default(),
        end: RefCell::default(),
    };
    if ready.send(Ok((rank, size))).is_ok() {
        engine.serve(orders, None);
    }
    if let Some(ended) = engine.end.take() {
        let Engine { comm, notices, .. } = engine;
        drop((comm, notices));
        // Whoever waits does so until this thread has ended MPI, which follows.
        thread::spawn(move || {
            while !mpi::environment::is_finalized() {
                thread::sleep(Duration::from_millis(1));
            }
            ended.send(())
        });
    }
}

impl Engine {
    fn one<R>(&self, f: impl FnOnce() -> R) -> R {
        let _guard = self.one_at_a_time.then(|| held(&ONE_AT_A_TIME));
        f()
    }

    /// Carries out orders until the group ends. A message that is on its way is held by the frame
    /// of the call that sent it, which carries out the orders that follow until it has arrived:
    /// `arrived` tells.
    fn serve(&self, orders: &Receiver<Order>, mut arrived: Option<&mut dyn FnMut() -> bool>) {
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
            match orders.recv_timeout(Duration::from_millis(1)) {
                Ok(Order::Run(job)) => self.run(job, orders),
                Ok(Order::Fail(message)) => self.tell_all(&message),
                Ok(Order::End(ended)) => *self.end.borrow_mut() = Some(ended),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn run(&self, job: Job, orders: &Receiver<Order>) {
        let call = CollectiveCall {
            collective: &job.collective,
            operand: &job.operand,
            sequence: 0,
            line: job.line,
        };
        *self.doing.borrow_mut() = format!("{} (at {})", ticket::describe(&call), job.line);
        if let Collective::Send { to } = job.collective {
            return self.send(to, &call, &job, orders);
        }
        *self.answer.borrow_mut() = Some(job.answer.clone());
        let mut output = vec![0; job.output];
        let outcome = match &job.collective {
            Collective::Recv { from, spec } => self.receive(*from, spec, &call, &mut output),
            _ => self.compare(&call).map(|()| self.exchange(&call, &job.input, &mut output)),
        };
        self.answer.take();
        // The caller waits; if it does not, nobody needs the answer.
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
                if let Some(notice) = self.notice() {
                    self.rest(notice);
                }
                if now - start > self.timeout {
                    let message = self.missing();
                    self.tell_all(&message);
                    self.rest(message);
                }
            }
            thread::sleep(NAP.min((now - start) / 10));
        }
    }

    /// A notice of another worker that it cannot go on.
    fn notice(&self) -> Option<String> {
        self.one(|| {
            let any = self.notices.any_process();
            any.immediate_probe_with_tag(NOTICE)?;
            let (bytes, _) = any.receive_vec_with_tag::<u8>(NOTICE);
            Some(String::from_utf8_lossy(&bytes).into_owned())
        })
    }

    /// Tells all others that this worker cannot go on. This happens once, and nobody may be there
    /// to receive it, so the message stays in memory.
    fn tell_all(&self, message: &str) {
        let kept: &'static [u8] = Box::leak(message.as_bytes().to_vec().into_boxed_slice());
        for rank in (0..self.size).filter(|&rank| rank != self.rank) {
            let to = self.notices.process_at_rank(rank as i32);
            let request = self.one(|| to.immediate_send_with_tag(StaticScope, kept, NOTICE));
            std::mem::forget(request);
        }
    }

    fn rest(&self, message: String) -> ! {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(Err(message));
        }
        loop {
            thread::sleep(Duration::from_secs(60));
        }
    }

    fn missing(&self) -> String {
        format!(
            "not all workers came within {} s (PULLBACK_TIMEOUT); worker {} waits in {}",
            self.timeout.as_secs_f64(),
            self.rank,
            self.doing.borrow()
        )
    }

    fn all_gather_bytes(&self, mine: &[u8]) -> Vec<u8> {
        let mut all = vec![0; mine.len() * self.size];
        scope(|s| {
            let start = || self.comm.immediate_all_gather_into(s, mine, &mut all[..]);
            self.finish(self.one(start));
        });
        all
    }

    fn all_to_all_bytes(&self, mine: &[u8]) -> Vec<u8> {
        let mut all = vec![0; mine.len()];
        scope(|s| {
            let start = || self.comm.immediate_all_to_all_into(s, mine, &mut all[..]);
            self.finish(self.one(start));
        });
        all
    }

    /// Compares what all workers were asked.
    fn compare(&self, call: &CollectiveCall<'_>) -> std::result::Result<(), String> {
        let number = self.number.replace(self.number.get() + 1);
        let all = self.all_gather_bytes(&Ticket::new(self.id, number, call).encode());
        let tickets: Vec<Ticket> = all.as_chunks().0.iter().map(Ticket::decode).collect();
        Ticket::compare(&tickets)
    }

    fn exchange(&self, call: &CollectiveCall<'_>, input: &[u8], output: &mut [u8]) {
        let dtype = call.operand.dtype;
        match call.collective {
            Collective::AllReduce(combination) => {
                self.all_reduce(*combination, dtype, input, output);
            }
            Collective::AllGather => {
                for at in (0..input.len()).step_by(CHUNK) {
                    let chunk = &input[at..input.len().min(at + CHUNK)];
                    let all = self.all_gather_bytes(chunk);
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
                combine(
                    Combination::Sum,
                    dtype,
                    self.size,
                    &mut output[at..at + part],
                    read(all, part),
                );
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

    fn all_reduce(&self, combination: Combination, dtype: DType, input: &[u8], output: &mut [u8]) {
        if input.len() <= DIRECT {
            if !input.is_empty() {
                let all = self.all_gather_bytes(input);
                combine(combination, dtype, self.size, output, read(&all, input.len()));
            }
            return;
        }
        for (chunk, out) in input.chunks(CHUNK).zip(output.chunks_mut(CHUNK)) {
            let share = chunk.len().div_ceil(self.size).next_multiple_of(LINE);
            let mut padded = chunk.to_vec();
            padded.resize(share * self.size, 0);
            let mine = self.all_to_all_bytes(&padded);
            let mut sum = vec![0; share];
            combine(combination, dtype, self.size, &mut sum, read(&mine, share));
            out.copy_from_slice(&self.all_gather_bytes(&sum)[..chunk.len()]);
        }
    }

    /// Part `r` of every operand goes to worker `r`, in rounds: `use_them(at, all, part)` gets
    /// `part` bytes of each worker, from byte `at` of its part on.
    fn parts(&self, input: &[u8], mut use_them: impl FnMut(usize, &[u8], usize)) {
        let whole = input.len() / self.size;
        let step = (CHUNK / self.size).next_multiple_of(LINE);
        for at in (0..whole).step_by(step) {
            let part = step.min(whole - at);
            let mut mine = Vec::with_capacity(part * self.size);
            for rank in 0..self.size {
                mine.extend_from_slice(&input[rank * whole + at..][..part]);
            }
            use_them(at, &self.all_to_all_bytes(&mine), part);
        }
    }

    /// Sends a ticket and the data. The caller goes on at once.
    fn send(&self, to: usize, call: &CollectiveCall<'_>, job: &Job, orders: &Receiver<Order>) {
        let number = self.sent.borrow()[to];
        self.sent.borrow_mut()[to] += 1;
        let head = Ticket::new(self.id, number, call).encode();
        let process = self.comm.process_at_rank(to as i32);
        let _ = job.answer.send(Ok(vec![]));
        scope(|s| {
            let first = self.one(|| process.immediate_send_with_tag(s, &head[..], TICKET));
            let pieces = job.input.chunks(1 << 30);
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
        let mut head = [0; ticket::BYTES];
        scope(|s| {
            let start = || process.immediate_receive_into_with_tag(s, &mut head[..], TICKET);
            self.finish(self.one(start));
        });
        let number = self.received.borrow()[from];
        self.received.borrow_mut()[from] += 1;
        let came = Ticket::decode(&head);
        if !came.agrees(&Ticket::of_send(self.id, number, self.rank, spec, call.line)) {
            let message = format!(
                "workers were asked for different things: worker {} for {} (at {}), worker {from} \
                 for {came}",
                self.rank,
                ticket::describe(call),
                call.line
            );
            self.tell_all(&message);
            return Err(message);
        }
        for piece in output.chunks_mut(1 << 30) {
            scope(|s| {
                let start = || process.immediate_receive_into_with_tag(s, piece, DATA);
                self.finish(self.one(start));
            });
        }
        Ok(())
    }
}

/// Reads blocks of operands that lie one after the other.
fn read(all: &[u8], each: usize) -> impl FnMut(usize, usize, &mut [u8]) + '_ {
    move |rank, at, block| block.copy_from_slice(&all[rank * each + at..][..block.len()])
}
