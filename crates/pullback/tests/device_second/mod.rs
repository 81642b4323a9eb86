//! A second device, for tests: `cuda:0`, whose memory and thread are its own and whose kernels are
//! the CPU's. Workers that exchange memory of devices need one each: [`number`] gives `cuda:1` too.
//!
//! Its memory is behind handles, in a map that only its thread has, so nothing else can read it.
//! What it is told goes into a queue and has usually not run when the call returns; [`Pause`] holds
//! the queue, so that a test can say so. It counts what it is told to do. Fresh memory is full of a
//! pattern, not of zeros. Asynchronous copies run as late as they may, so that memory which is
//! written or used too early shows. Collectives do the same on a stream of their own
//! (`exchange.rs`).

#![allow(dead_code)]

mod copies;
pub mod exchange;
mod machine;

use copies::{Copy, OnHost, Trips};
use exchange::{Landing, on_host};
use machine::Machine;
use pullback::backend::{
    Bases, DeviceBackend, DeviceFlight, DeviceOperand, DeviceProgram, HostCopy, MemoryHandle,
    OpCall, PoolStats, Step, Write, attach,
};
use pullback::{DType, Device, Error, ErrorKind, Op, Result, Spec};
use pullback_cpu::Prepared;
use pullback_ir::pass::plan::Planned;
use pullback_ir::pass::{HostLink, Limits, Target};
use pullback_ir::{Layout, Line, Numerics};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Nothing here takes as long: what does, hangs.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The device, attached at the first call.
pub fn second() -> Device {
    number(0)
}

/// One of two such devices, attached at the first call.
pub fn number(n: u16) -> Device {
    handle_of(n);
    Device::Cuda(n)
}

/// What the device has been told so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub allocations: u64,
    pub uploads: u64,
    pub downloads: u64,
    pub waits: u64,
    /// Asynchronous copies that were started, to the host and back.
    pub offloads: u64,
    pub restores: u64,
    /// Ops that were put into the queue, and programs.
    pub ops: u64,
    pub programs: u64,
    /// Ops and programs that have run.
    pub done: u64,
    /// Collectives that it has made itself, and how many of them ended before they were waited for.
    pub collectives: u64,
    pub hidden: u64,
}

/// What the device has been told so far.
pub fn counts() -> Counts {
    counts_of(0)
}

/// What one of the devices has been told so far.
pub fn counts_of(n: u16) -> Counts {
    let of = |counter: &AtomicU64| counter.load(SeqCst);
    let c = &handle_of(n).counters;
    Counts {
        collectives: of(&c.collectives),
        hidden: of(&c.hidden),
        allocations: of(&c.allocations),
        uploads: of(&c.uploads),
        downloads: of(&c.downloads),
        waits: of(&c.waits),
        offloads: of(&c.offloads),
        restores: of(&c.restores),
        ops: of(&c.ops),
        programs: of(&c.programs),
        done: of(&c.done),
    }
}

/// What `f` has the device do.
pub fn counted<R>(f: impl FnOnce() -> R) -> (R, Counts) {
    counted_on(0, f)
}

/// What `f` has one of the devices do.
pub fn counted_on<R>(n: u16, f: impl FnOnce() -> R) -> (R, Counts) {
    let before = counts_of(n);
    let made = f();
    let now = counts_of(n);
    let since = Counts {
        collectives: now.collectives - before.collectives,
        hidden: now.hidden - before.hidden,
        allocations: now.allocations - before.allocations,
        uploads: now.uploads - before.uploads,
        downloads: now.downloads - before.downloads,
        waits: now.waits - before.waits,
        offloads: now.offloads - before.offloads,
        restores: now.restores - before.restores,
        ops: now.ops - before.ops,
        programs: now.programs - before.programs,
        done: now.done - before.done,
    };
    (made, since)
}

/// The switches of the ops and programs that `f` has the device run.
pub fn numerics_of<R>(f: impl FnOnce() -> R) -> HashSet<Numerics> {
    let seen = &handle().counters.numerics;
    seen.lock().unwrap().clear();
    f();
    std::mem::take(&mut seen.lock().unwrap())
}

/// The device does nothing of what it is told while this lives.
pub struct Pause(#[allow(unused)] Sender<()>);

pub fn pause() -> Pause {
    pause_of(0)
}

pub fn pause_of(n: u16) -> Pause {
    let (resume, wait) = channel();
    handle_of(n).tell(Work::Pause(wait));
    Pause(resume)
}

/// Runs `f` while the device has no kernels that write over their operands or add to memory.
pub fn only_fresh<R>(f: impl FnOnce() -> R) -> R {
    let flag = &handle().counters.only_fresh;
    flag.store(true, SeqCst);
    let made = f();
    flag.store(false, SeqCst);
    made
}

/// Runs `f` while the device has memory for so many bytes more.
pub fn limited<R>(bytes: u64, f: impl FnOnce() -> R) -> R {
    let c = &handle().counters;
    handle().flush();
    c.limit.store(c.live.load(SeqCst) + bytes, SeqCst);
    let made = f();
    c.limit.store(u64::MAX, SeqCst);
    made
}

/// Runs `f` while the kernels of programs take memory as they run, and so many requests for it are
/// met; `planned`: whether passes know that they do.
pub fn scratch<R>(met: u64, planned: bool, f: impl FnOnce() -> R) -> R {
    let c = &handle().counters;
    c.scratch_planned.store(planned, SeqCst);
    c.scratch_met.store(met, SeqCst);
    let made = f();
    c.scratch_met.store(u64::MAX, SeqCst);
    c.scratch_planned.store(false, SeqCst);
    made
}

/// Runs `f` while passes are told that images are convolved with the channels last, that a region
/// may store a value twice, and that norms are to be written out.
pub fn channels_last<R>(f: impl FnOnce() -> R) -> R {
    let c = &handle().counters;
    c.channels_last.store(true, SeqCst);
    let made = f();
    c.channels_last.store(false, SeqCst);
    made
}

/// Runs `f` while programs may keep values on the host.
pub fn with_host<R>(link: HostLink, f: impl FnOnce() -> R) -> R {
    let set = |link| *handle().counters.link.lock().unwrap() = link;
    set(Some(link));
    let made = f();
    set(None);
    made
}

/// Runs `f` while a run of a program may have so many bytes of the host.
pub fn host_limited<R>(bytes: u64, f: impl FnOnce() -> R) -> R {
    let limit = &handle().counters.host_limit;
    limit.store(bytes, SeqCst);
    let made = f();
    limit.store(u64::MAX, SeqCst);
    made
}

/// Tests of a process that count, all others with them, run one at a time.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[derive(Default)]
struct Counters {
    allocations: AtomicU64,
    uploads: AtomicU64,
    downloads: AtomicU64,
    waits: AtomicU64,
    offloads: AtomicU64,
    restores: AtomicU64,
    ops: AtomicU64,
    programs: AtomicU64,
    done: AtomicU64,
    collectives: AtomicU64,
    hidden: AtomicU64,
    live: AtomicU64,
    peak: AtomicU64,
    /// The switches that ops and programs were called with, since somebody asked.
    numerics: Mutex<HashSet<Numerics>>,
    /// The most that `live` may be.
    limit: AtomicU64,
    /// How many more requests for scratch are met; the largest number: kernels make none.
    scratch_met: AtomicU64,
    scratch_planned: AtomicBool,
    /// How values of programs can wait on the host, the most bytes of it that a run may have, and
    /// the most that one had.
    link: Mutex<Option<HostLink>>,
    host_limit: AtomicU64,
    host_peak: AtomicU64,
    channels_last: AtomicBool,
    /// It has no kernels that write over their operands or add to memory.
    only_fresh: AtomicBool,
}

/// What the threads of the engine know of the device: no memory.
#[derive(Clone)]
struct Queue {
    number: u16,
    work: Sender<Work>,
    counters: Arc<Counters>,
    next: Arc<AtomicU64>,
    /// For the streams of collectives alone.
    machine: Arc<Mutex<Machine>>,
}

fn handle() -> &'static Queue {
    handle_of(0)
}

fn handle_of(number: u16) -> &'static Queue {
    static QUEUES: [OnceLock<Queue>; 2] = [const { OnceLock::new() }; 2];
    QUEUES[usize::from(number)].get_or_init(|| {
        let (work, told) = channel();
        let counters = Arc::<Counters>::default();
        counters.limit.store(u64::MAX, SeqCst);
        counters.scratch_met.store(u64::MAX, SeqCst);
        counters.host_limit.store(u64::MAX, SeqCst);
        let machine = Machine::new(counters.clone());
        let queue = Queue { number, work, counters, next: Arc::default(), machine };
        let run = {
            let machine = queue.machine.clone();
            move || machine::run(&machine, &told)
        };
        std::thread::Builder::new().name("second device".into()).spawn(run).expect("a thread");
        attach(Device::Cuda(number), Box::new(queue.clone())).expect("attached once");
        queue
    })
}

impl Queue {
    /// A kernel takes memory while it runs.
    fn take_scratch(&self) -> Result<()> {
        let met = &self.counters.scratch_met;
        let less = |left: u64| (left < u64::MAX).then(|| left.saturating_sub(1));
        match met.fetch_update(SeqCst, SeqCst, less) {
            Ok(0) => {
                let message = format!("cannot allocate scratch on cuda:{}", self.number);
                Err(Error::new(ErrorKind::Memory, "alloc", message))
            }
            _ => Ok(()),
        }
    }

    fn tell(&self, work: Work) {
        self.work.send(work).expect("the thread of the device lives as long as the process");
    }

    /// As a backend does that has several ways to compute.
    fn see_numerics(&self) {
        self.counters.numerics.lock().unwrap().insert(Numerics::now());
    }

    /// Waits until all memory that was given back is.
    fn flush(&self) {
        let (reply, answered) = channel();
        self.tell(Work::Flush(reply));
        let _ = answered.recv_timeout(TIMEOUT);
    }
}

/// What the device is told.
enum Work {
    Alloc(MemoryHandle, usize),
    Free(MemoryHandle),
    Upload(MemoryHandle, Vec<u8>),
    Download(MemoryHandle, usize, usize, Sender<Result<Vec<u8>>>),
    Run(Op, Option<Write>, Vec<Seen>, Vec<Seen>, Option<Line>),
    Program(
        Arc<Mutex<Prepared>>,
        MemoryHandle,
        Vec<(MemoryHandle, usize)>,
        Vec<MemoryHandle>,
        Option<usize>,
    ),
    Wait(Sender<Result<()>>),
    Offload(MemoryHandle, usize, usize, OnHost),
    Restore(OnHost, MemoryHandle),
    Settle(MemoryHandle),
    /// A copy of a program starts, and ends: it is made then.
    Begin(Copy),
    End(u64),
    Collect(OnHost, Sender<Result<Vec<u8>>>),
    Flush(Sender<()>),
    Pause(Receiver<()>),
    /// Says that everything before it has run.
    Mark(Sender<()>),
    /// What follows comes after a collective.
    Hold(Arc<Landing>),
    /// The elements of an operand, one after the other.
    Read(Seen, Sender<Result<Vec<u8>>>),
    /// Writes bytes from a place on.
    Put(MemoryHandle, usize, Vec<u8>),
}

/// Memory seen through a layout.
#[derive(Clone, PartialEq)]
struct Seen {
    memory: MemoryHandle,
    layout: Layout,
    spec: Spec,
}

fn seen(operands: &[DeviceOperand<'_>]) -> Vec<Seen> {
    let seen = |x: &DeviceOperand<'_>| Seen {
        memory: x.memory,
        layout: x.layout.clone(),
        spec: x.spec.clone(),
    };
    operands.iter().map(seen).collect()
}

fn specs(operands: &[Seen]) -> Vec<&Spec> {
    operands.iter().map(|x| &x.spec).collect()
}

fn answer<T>(reply: &Receiver<Result<T>>) -> Result<T> {
    let silent = |_| Err(Error::argument("device", "the second device does not answer"));
    reply.recv_timeout(TIMEOUT).unwrap_or_else(silent)
}

impl DeviceBackend for Queue {
    fn alloc(&self, bytes: usize) -> Result<MemoryHandle> {
        if bytes > 1 << 40 {
            let message = format!("cannot allocate {bytes} bytes on cuda:{}", self.number);
            return Err(Error::new(ErrorKind::Memory, "alloc", message));
        }
        let c = &self.counters;
        if c.live.load(SeqCst).saturating_add(bytes as u64) > c.limit.load(SeqCst) {
            let live = c.live.load(SeqCst);
            let on = self.number;
            let message = format!("cannot allocate {bytes} bytes on cuda:{on}: {live} are in use");
            return Err(Error::new(ErrorKind::Memory, "alloc", message));
        }
        c.allocations.fetch_add(1, SeqCst);
        let live = c.live.fetch_add(bytes as u64, SeqCst) + bytes as u64;
        c.peak.fetch_max(live, SeqCst);
        let name = self.next.fetch_add(1, SeqCst) + 1;
        self.tell(Work::Alloc(name, bytes));
        Ok(name)
    }

    fn free(&self, memory: MemoryHandle) {
        self.tell(Work::Free(memory));
    }

    fn upload(&self, from: &[u8], to: MemoryHandle) -> Result<()> {
        self.counters.uploads.fetch_add(1, SeqCst);
        self.tell(Work::Upload(to, from.to_vec()));
        Ok(())
    }

    fn download(&self, from: MemoryHandle, start: usize, to: &mut [u8]) -> Result<()> {
        self.counters.downloads.fetch_add(1, SeqCst);
        let (reply, answered) = channel();
        self.tell(Work::Download(from, start, to.len(), reply));
        to.copy_from_slice(&answer(&answered)?);
        Ok(())
    }

    fn offload(&self, from: MemoryHandle, start: usize, bytes: usize) -> Result<HostCopy> {
        self.counters.offloads.fetch_add(1, SeqCst);
        let copy = OnHost::default();
        self.tell(Work::Offload(from, start, bytes, copy.clone()));
        Ok(HostCopy::new(copy, bytes))
    }

    fn restore(&self, copy: &HostCopy, to: MemoryHandle) -> Result<()> {
        self.counters.restores.fetch_add(1, SeqCst);
        self.tell(Work::Restore(copy.get::<OnHost>().expect("a copy of its own").clone(), to));
        Ok(())
    }

    fn wait_for_copies(&self, memory: MemoryHandle) -> Result<()> {
        self.tell(Work::Settle(memory));
        Ok(())
    }

    fn collect(&self, copy: &HostCopy, to: &mut [u8]) -> Result<()> {
        let (reply, answered) = channel();
        self.tell(Work::Collect(copy.get::<OnHost>().expect("its own").clone(), reply));
        to.copy_from_slice(&answer(&answered)?);
        Ok(())
    }

    fn start(&self, call: &OpCall<'_>) -> Result<Option<Box<dyn DeviceFlight>>> {
        let Op::Collective(of) = call.op else { return Ok(None) };
        let (from, to) = (seen(call.inputs), seen(call.outputs));
        let flight = self.launch(of, from.first(), &to[0])?;
        Ok(flight.map(|flight| Box::new(flight) as Box<dyn DeviceFlight>))
    }

    fn run(&self, call: &OpCall<'_>) -> Result<bool> {
        if let Op::Collective(_) = call.op {
            return on_host(self, call.op, &seen(call.inputs), &seen(call.outputs)).map(|()| true);
        }
        let at_once = matches!(call.write, Some(Write::Over | Write::Add));
        if at_once && self.counters.only_fresh.load(SeqCst) {
            return Ok(false);
        }
        self.counters.ops.fetch_add(1, SeqCst);
        self.see_numerics();
        let (op, out, x) = (call.op.clone(), seen(call.outputs), seen(call.inputs));
        self.tell(Work::Run(op, call.write, out, x, call.at));
        Ok(true)
    }

    fn prepare(&self, program: &Arc<Planned>) -> Result<Box<dyn DeviceProgram>> {
        let prepared = Prepared::new(program.clone())?;
        let (steps, planned, on) = (prepared.steps(), program.clone(), self.clone());
        let is_aside = |op: &Op| matches!(op, Op::Collective(_) | Op::Transfer(_));
        let by_steps = program.program().equations.iter().any(|e| is_aside(&e.op));
        let prepared = Arc::new(Mutex::new(prepared));
        Ok(Box::new(Ready { steps, planned, by_steps, prepared, on, trips: None }))
    }

    fn target(&self) -> Target {
        let scratch = self.counters.scratch_planned.load(SeqCst);
        // As a GPU has them: sums over rows in regions.
        let regions = Limits { columns: 4, column_row: [8, 8192], ..pullback_cpu::TARGET.regions };
        let images = self.counters.channels_last.load(SeqCst);
        let channels_last: &[DType] = if images { &[DType::F32, DType::F64] } else { &[] };
        let stores_twice = images;
        Target {
            scratch,
            regions,
            // Bits are the CPU's otherwise.
            norms: images,
            channels_last,
            stores_twice,
            ..pullback_cpu::TARGET
        }
    }

    fn host_link(&self) -> Option<HostLink> {
        *self.counters.link.lock().unwrap()
    }

    fn statistics(&self) -> PoolStats {
        let c = &self.counters;
        PoolStats {
            live_bytes: c.live.load(SeqCst),
            peak_bytes: c.peak.load(SeqCst),
            allocations: c.allocations.load(SeqCst),
            pinned_bytes: c.host_peak.load(SeqCst),
            ..PoolStats::default()
        }
    }

    fn reset_peak(&self) {
        self.counters.peak.store(self.counters.live.load(SeqCst), SeqCst);
    }

    fn trim(&self) {
        self.flush();
    }

    fn synchronize(&self) -> Result<()> {
        self.counters.waits.fetch_add(1, SeqCst);
        let (reply, answered) = channel();
        self.tell(Work::Wait(reply));
        answer(&answered)
    }
}

/// A program of the device.
struct Ready {
    steps: Vec<Step>,
    planned: Arc<Planned>,
    /// Whether there are collectives, or copies to the host and back, among its steps.
    by_steps: bool,
    prepared: Arc<Mutex<Prepared>>,
    on: Queue,
    /// The copies of a run step by step.
    trips: Option<Trips>,
}

impl Ready {
    fn tell(&self, memory: &Bases<'_>, step: Option<usize>) {
        let (inputs, outputs) = (memory.inputs.to_vec(), memory.outputs.to_vec());
        let program = self.prepared.clone();
        self.on.tell(Work::Program(program, memory.arena, inputs, outputs, step));
    }
}

impl DeviceProgram for Ready {
    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn run(&mut self, memory: &Bases<'_>, step: Option<usize>) -> Result<()> {
        self.on.counters.programs.fetch_add(1, SeqCst);
        self.on.see_numerics();
        if self.by_steps || self.on.counters.scratch_met.load(SeqCst) < u64::MAX {
            return self.run_by_steps(memory, step);
        }
        self.tell(memory, step);
        Ok(())
    }
}
