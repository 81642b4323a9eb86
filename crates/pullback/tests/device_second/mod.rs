//! A second device, for tests: `cuda:0`, whose memory and thread are its own and whose kernels are
//! the CPU's.
//!
//! Its memory is behind handles, in a map that only its thread has, so nothing else can read it.
//! What it is told goes into a queue and has usually not run when the call returns; [`Pause`] holds
//! the queue, so that a test can say so. It counts what it is told to do. Fresh memory is full of a
//! pattern, not of zeros. Asynchronous copies run as late as they may, so that memory which is
//! written or used too early shows.

#![allow(dead_code)]

mod copies;

use copies::{Copy, OnHost};
use pullback::backend::{
    Bases, Call, DeviceBackend, DeviceOperand, DeviceProgram, Handle, HostCopy, PoolStats, Step,
    Write, attach,
};
use pullback::{DType, Device, Error, ErrorKind, Op, Result, Spec};
use pullback_cpu::{BoundInput, Buffer, Input, Prepared, WriteTarget};
use pullback_ir::infer::check;
use pullback_ir::pass::Target;
use pullback_ir::pass::plan::Planned;
use pullback_ir::{Binary, Layout, Line, Numerics};
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Nothing here takes as long: what does, hangs.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The device, attached at the first call.
pub fn second() -> Device {
    handle();
    Device::Cuda(0)
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
}

/// What the device has been told so far.
pub fn counts() -> Counts {
    let of = |counter: &AtomicU64| counter.load(SeqCst);
    let c = &handle().counters;
    Counts {
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
    let before = counts();
    let made = f();
    let now = counts();
    let since = Counts {
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
    let (resume, wait) = channel();
    handle().tell(Work::Pause(wait));
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
    live: AtomicU64,
    peak: AtomicU64,
    /// The switches that ops and programs were called with, since somebody asked.
    numerics: Mutex<HashSet<Numerics>>,
    /// The most that `live` may be.
    limit: AtomicU64,
    /// It has no kernels that write over their operands or add to memory.
    only_fresh: AtomicBool,
}

/// What the threads of the engine know of the device: no memory.
#[derive(Clone)]
struct Queue {
    work: Sender<Work>,
    counters: Arc<Counters>,
    next: Arc<AtomicU64>,
}

fn handle() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    QUEUE.get_or_init(|| {
        let (work, told) = channel();
        let queue = Queue { work, counters: Arc::default(), next: Arc::default() };
        let counters = queue.counters.clone();
        counters.limit.store(u64::MAX, SeqCst);
        let (memory, copies) = (HashMap::new(), Vec::new());
        let run = move || Machine { memory, copies, failed: None, counters }.run(&told);
        std::thread::Builder::new().name("second device".into()).spawn(run).expect("a thread");
        attach(Device::Cuda(0), Box::new(queue.clone())).expect("attached once");
        queue
    })
}

impl Queue {
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
    Alloc(Handle, usize),
    Free(Handle),
    Upload(Handle, Vec<u8>),
    Download(Handle, usize, usize, Sender<Result<Vec<u8>>>),
    Run(Op, Option<Write>, Vec<Seen>, Vec<Seen>, Option<Line>),
    Program(Arc<Mutex<Prepared>>, Handle, Vec<(Handle, usize)>, Vec<Handle>, Option<usize>),
    Wait(Sender<Result<()>>),
    Offload(Handle, usize, usize, OnHost),
    Restore(OnHost, Handle),
    Settle(Handle),
    Collect(OnHost, Sender<Result<Vec<u8>>>),
    Flush(Sender<()>),
    Pause(Receiver<()>),
}

/// Memory seen through a layout.
#[derive(Clone, PartialEq)]
struct Seen {
    memory: Handle,
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
    fn alloc(&self, bytes: usize) -> Result<Handle> {
        if bytes > 1 << 40 {
            let message = format!("cannot allocate {bytes} bytes on cuda:0");
            return Err(Error::new(ErrorKind::Memory, "alloc", message));
        }
        let c = &self.counters;
        if c.live.load(SeqCst).saturating_add(bytes as u64) > c.limit.load(SeqCst) {
            let live = c.live.load(SeqCst);
            let message = format!("cannot allocate {bytes} bytes on cuda:0: {live} are in use");
            return Err(Error::new(ErrorKind::Memory, "alloc", message));
        }
        c.allocations.fetch_add(1, SeqCst);
        let live = c.live.fetch_add(bytes as u64, SeqCst) + bytes as u64;
        c.peak.fetch_max(live, SeqCst);
        let name = self.next.fetch_add(1, SeqCst) + 1;
        self.tell(Work::Alloc(name, bytes));
        Ok(name)
    }

    fn free(&self, memory: Handle) {
        self.tell(Work::Free(memory));
    }

    fn upload(&self, from: &[u8], to: Handle) -> Result<()> {
        self.counters.uploads.fetch_add(1, SeqCst);
        self.tell(Work::Upload(to, from.to_vec()));
        Ok(())
    }

    fn download(&self, from: Handle, start: usize, to: &mut [u8]) -> Result<()> {
        self.counters.downloads.fetch_add(1, SeqCst);
        let (reply, answered) = channel();
        self.tell(Work::Download(from, start, to.len(), reply));
        to.copy_from_slice(&answer(&answered)?);
        Ok(())
    }

    fn offload(&self, from: Handle, start: usize, bytes: usize) -> Result<HostCopy> {
        self.counters.offloads.fetch_add(1, SeqCst);
        let copy = OnHost::default();
        self.tell(Work::Offload(from, start, bytes, copy.clone()));
        Ok(HostCopy::new(copy, bytes))
    }

    fn restore(&self, copy: &HostCopy, to: Handle) -> Result<()> {
        self.counters.restores.fetch_add(1, SeqCst);
        self.tell(Work::Restore(copy.get::<OnHost>().expect("a copy of its own").clone(), to));
        Ok(())
    }

    fn settle(&self, memory: Handle) -> Result<()> {
        self.tell(Work::Settle(memory));
        Ok(())
    }

    fn collect(&self, copy: &HostCopy, to: &mut [u8]) -> Result<()> {
        let (reply, answered) = channel();
        self.tell(Work::Collect(copy.get::<OnHost>().expect("its own").clone(), reply));
        to.copy_from_slice(&answer(&answered)?);
        Ok(())
    }

    fn run(&self, call: &Call<'_>) -> Result<bool> {
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
        let steps = prepared.steps();
        Ok(Box::new(Ready { steps, prepared: Arc::new(Mutex::new(prepared)), on: self.clone() }))
    }

    fn target(&self) -> Target {
        pullback_cpu::TARGET
    }

    fn statistics(&self) -> PoolStats {
        let c = &self.counters;
        PoolStats {
            live_bytes: c.live.load(SeqCst),
            peak_bytes: c.peak.load(SeqCst),
            allocations: c.allocations.load(SeqCst),
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
    prepared: Arc<Mutex<Prepared>>,
    on: Queue,
}

impl DeviceProgram for Ready {
    fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn run(&mut self, memory: &Bases<'_>, step: Option<usize>) -> Result<()> {
        self.on.counters.programs.fetch_add(1, SeqCst);
        self.on.see_numerics();
        let (inputs, outputs) = (memory.inputs.to_vec(), memory.outputs.to_vec());
        let program = self.prepared.clone();
        self.on.tell(Work::Program(program, memory.arena, inputs, outputs, step));
        Ok(())
    }
}

/// The device itself: all there is of its memory.
struct Machine {
    memory: HashMap<Handle, Buffer>,
    copies: Vec<Copy>,
    /// The first thing that failed since somebody waited.
    failed: Option<Error>,
    counters: Arc<Counters>,
}

impl Machine {
    fn run(mut self, told: &Receiver<Work>) {
        while let Ok(work) = told.recv() {
            let done = catch_unwind(AssertUnwindSafe(|| self.work(work)));
            let error = match done {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error,
                Err(_) => Error::argument("device", "a kernel panicked"),
            };
            self.failed.get_or_insert(error);
        }
    }

    fn work(&mut self, work: Work) -> Result<()> {
        match work {
            Work::Alloc(name, bytes) => {
                let memory = Buffer::filled(DType::U8, bytes, |content| {
                    content.fill(0xA5);
                    Ok(())
                });
                self.memory.insert(name, memory?);
            }
            Work::Free(name) => {
                self.copy_of(name)?;
                let gone = self.memory.remove(&name).map_or(0, |memory| memory.len());
                self.counters.live.fetch_sub(gone as u64, SeqCst);
            }
            Work::Upload(to, bytes) => {
                let fill = |content: &mut [u8]| {
                    content[..bytes.len()].copy_from_slice(&bytes);
                    Ok(())
                };
                let len = self.get(to)?.len();
                self.memory.insert(to, Buffer::filled(DType::U8, len, fill)?);
            }
            Work::Download(from, start, len, reply) => {
                let found = match self.failed.take() {
                    Some(error) => Err(error),
                    None => self.get(from).and_then(|memory| {
                        let bytes = memory.slice(start, len);
                        let short = || Error::argument("device", "a download beyond the end");
                        bytes.map(<[u8]>::to_vec).ok_or_else(short)
                    }),
                };
                let _ = reply.send(found);
            }
            Work::Run(op, write, out, x, at) => {
                let located = |error: Error| match at {
                    Some(at) => error.at(at),
                    None => error,
                };
                self.counters.done.fetch_add(1, SeqCst);
                self.op(&op, write, &out, &x).map_err(located)?;
            }
            Work::Program(program, arena, inputs, outputs, step) => {
                self.counters.done.fetch_add(1, SeqCst);
                let mut program = program.lock().expect("nobody panics with it");
                self.program(&mut program, arena, &inputs, &outputs, step)?;
            }
            Work::Wait(reply) => {
                let _ = reply.send(self.failed.take().map_or(Ok(()), Err));
            }
            Work::Offload(from, start, bytes, copy) => {
                self.copies.push(Copy::Out(from, start, bytes, copy));
            }
            Work::Restore(copy, to) => self.copies.push(Copy::Back(copy, to)),
            Work::Settle(memory) => self.copy_of(memory)?,
            Work::Collect(copy, reply) => {
                let made = self.copy_to(&copy);
                let bytes = copy.lock().expect("nobody panics with it").clone();
                let _ = reply.send(made.map(|()| bytes.unwrap_or_default()));
            }
            Work::Flush(reply) => {
                let _ = reply.send(());
            }
            Work::Pause(resume) => {
                // Goes on when the other end is dropped, or when somebody has forgotten to.
                let _ = resume.recv_timeout(TIMEOUT);
            }
        }
        Ok(())
    }

    fn get(&self, name: Handle) -> Result<&Buffer> {
        let gone = || Error::argument("device", format!("there is no memory {name}"));
        self.memory.get(&name).ok_or_else(gone)
    }

    fn take(&mut self, name: Handle) -> Result<Buffer> {
        let gone = || Error::argument("device", format!("there is no memory {name}"));
        self.memory.remove(&name).ok_or_else(gone)
    }

    fn op(&mut self, op: &Op, write: Option<Write>, out: &[Seen], x: &[Seen]) -> Result<()> {
        let Some(write) = write else {
            let made = pullback_cpu::run(check(op, &specs(x))?, &self.inputs(x)?)?;
            for (made, to) in made.into_iter().zip(out) {
                assert_eq!(made.buffer.len(), self.get(to.memory)?.len(), "{op}");
                self.memory.insert(to.memory, made.buffer);
            }
            return Ok(());
        };
        let mut held = Vec::new();
        for to in out {
            held.push(self.take(to.memory)?);
        }
        let done = self.over(op, write, out, &mut held, x);
        for (to, memory) in out.iter().zip(held) {
            self.memory.insert(to.memory, memory);
        }
        done
    }

    fn inputs<'a>(&'a self, x: &'a [Seen]) -> Result<Vec<Input<'a>>> {
        x.iter().map(|x| self.input(x)).collect()
    }

    fn input<'a>(&'a self, x: &'a Seen) -> Result<Input<'a>> {
        Ok(Input { buffer: self.get(x.memory)?, layout: &x.layout, spec: &x.spec })
    }

    /// Writes results over memory, added to it or into a part of it.
    fn over(
        &self,
        op: &Op,
        write: Write,
        out: &[Seen],
        held: &mut [Buffer],
        x: &[Seen],
    ) -> Result<()> {
        let mut operands = Vec::new();
        for x in x {
            operands.push(match out.iter().position(|to| to == x) {
                Some(i) => pullback_cpu::ReadOperand::Target(i),
                None => pullback_cpu::ReadOperand::Input(self.input(x)?),
            });
        }
        let target = |(to, buffer)| {
            let to: &Seen = to;
            WriteTarget { buffer, layout: &to.layout, spec: &to.spec }
        };
        let mut targets: Vec<WriteTarget> = out.iter().zip(&mut *held).map(target).collect();
        if pullback_cpu::run_into(&check(op, &specs(x))?, write, &mut targets, &operands)? {
            return Ok(());
        }
        drop(targets);
        // No kernel does both at once, so first the one, then the other.
        assert_eq!((op, write), (&Op::Dot, Write::Add));
        let product = pullback_cpu::run(check(op, &specs(x))?, &self.inputs(x)?)?.remove(0);
        let layout = Layout::dense(product.spec.shape.clone());
        let product = Input { buffer: &product.buffer, layout: &layout, spec: &product.spec };
        let to = WriteTarget { buffer: &mut held[0], layout: &out[0].layout, spec: &out[0].spec };
        let sum = [pullback_cpu::ReadOperand::Target(0), pullback_cpu::ReadOperand::Input(product)];
        let add = Op::Binary(Binary::Add);
        let specs = [&out[0].spec, product.spec];
        let add = check(&add, &specs)?;
        pullback_cpu::run_into(&add, Write::Over, &mut [to], &sum).map(|_| ())
    }

    fn program(
        &mut self,
        program: &mut Prepared,
        arena: Handle,
        inputs: &[(Handle, usize)],
        outputs: &[Handle],
        step: Option<usize>,
    ) -> Result<()> {
        let mut written = HashMap::new();
        for (i, &(name, _)) in inputs.iter().enumerate() {
            if program.planned().is_written(i) {
                written.insert(name, self.take(name)?);
            }
        }
        let mut work = self.take(arena)?;
        let mut made = Vec::new();
        for &name in outputs {
            made.push(self.take(name)?);
        }
        let mut open: HashMap<Handle, &mut Buffer> =
            written.iter_mut().map(|(&name, memory)| (name, memory)).collect();
        let mut bound = Vec::new();
        let mut missing = None;
        for &(name, start) in inputs {
            match (open.remove(&name), self.get(name)) {
                (Some(memory), _) => bound.push(BoundInput::Write(memory, start)),
                (None, Ok(memory)) => bound.push(BoundInput::Read(memory, start)),
                (None, Err(error)) => missing = Some(error),
            }
        }
        let done = match missing {
            Some(error) => Err(error),
            None => program.run_over(&mut work, &mut bound, &mut made, step),
        };
        drop(bound);
        drop(open);
        self.memory.extend(written);
        self.memory.insert(arena, work);
        self.memory.extend(outputs.iter().copied().zip(made));
        done
    }
}
