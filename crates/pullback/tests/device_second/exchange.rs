//! Collectives that the second devices make themselves, each on a stream of its own: a thread.
//!
//! A collective begins when the queue of its device has reached its start ([`Work::Mark`]) and all
//! workers have agreed on it. It then runs beside the queue, which waits for it where it is told to
//! ([`Work::Hold`]). Unless [`at_once`] says otherwise it runs only then, as late as it may: memory
//! that is written or used too early shows. The wires between devices are a group of the host
//! engine, so sums are its tree.

use super::machine::{Machine, locked};
use super::{Counters, Queue, Ready, Seen, TIMEOUT, Trips, Work, answer};
use pullback::backend::{Bases, DeviceFlight, MemoryHandle};
use pullback::{Device, Error, ErrorKind, Op, Result, Spec};
use pullback_cpu::{Buffer, Input};
use pullback_ir::infer::check;
use pullback_ir::pass::plan::Base;
use pullback_ir::{CollectiveCall, CollectiveOp, Communicator, DeviceJoin, Layout, Started, Var};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

/// A number that others wait for.
type Counter = (Mutex<u64>, Condvar);

/// Collectives run as soon as they can.
static AT_ONCE: AtomicBool = AtomicBool::new(false);
/// Why the devices cannot exchange memory, in the test that says so.
static UNABLE: Mutex<Option<(u16, &str)>> = Mutex::new(None);

/// Runs `f` while collectives run as soon as they can.
pub fn at_once<R>(f: impl FnOnce() -> R) -> R {
    AT_ONCE.store(true, SeqCst);
    let made = f();
    AT_ONCE.store(false, SeqCst);
    made
}

/// Runs `f` while one of the devices cannot exchange memory.
pub fn unable<R>(number: u16, why: &'static str, f: impl FnOnce() -> R) -> R {
    *UNABLE.lock().unwrap() = Some((number, why));
    let made = f();
    *UNABLE.lock().unwrap() = None;
    made
}

/// The devices of a group, as one of them sees them.
pub struct Link {
    stream: Mutex<(u64, Sender<Job>)>,
    /// The number of the last collective that is waited for.
    wanted: Arc<Counter>,
}

struct Job {
    number: u64,
    of: Arc<CollectiveOp>,
    operand: Spec,
    from: Option<Seen>,
    to: Seen,
    ready: Receiver<()>,
    landing: Arc<Landing>,
}

/// Where a collective ends.
#[derive(Default)]
pub struct Landing {
    state: Mutex<Landed>,
    changed: Condvar,
}

#[derive(Default)]
struct Landed {
    /// The number of the collective, and how to say that it is waited for.
    wanted: Option<(u64, Arc<Counter>)>,
    asked: bool,
    outcome: Option<Result<()>>,
}

impl Landing {
    /// Waits for the collective.
    pub fn land(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.asked = true;
        if let Some((number, wanted)) = &state.wanted {
            let mut last = wanted.0.lock().unwrap();
            *last = (*last).max(*number);
            wanted.1.notify_all();
        }
        let (state, time) = self
            .changed
            .wait_timeout_while(state, TIMEOUT, |state| state.outcome.is_none())
            .unwrap();
        assert!(!time.timed_out(), "a collective hangs");
        state.outcome.clone().expect("waited for it")
    }
}

/// As a library of collectives would be joined.
struct Joining<'a>(&'a Queue);

impl DeviceJoin for Joining<'_> {
    type Engine = Link;

    fn name(&self) -> &'static str {
        "wires"
    }

    fn offer(&self, _: usize) -> std::result::Result<Vec<u8>, String> {
        match *UNABLE.lock().unwrap() {
            Some((number, why)) if number == self.0.number => Err(why.to_string()),
            _ => Ok(vec![self.0.number as u8]),
        }
    }

    fn join(
        &self,
        group: &Arc<dyn Communicator>,
        offers: &[Vec<u8>],
    ) -> std::result::Result<Link, String> {
        for (rank, offer) in offers.iter().enumerate() {
            if let Some(other) = offers[..rank].iter().position(|before| before == offer) {
                return Err(format!("workers {other} and {rank} are on one device"));
            }
        }
        let all: Vec<usize> = (0..group.size()).collect();
        let wires = group.subgroup(&all).map_err(|e| e.to_string())?.expect("one of them");
        let (jobs, received) = channel();
        let wanted = Arc::<(Mutex<u64>, Condvar)>::default();
        let stream = Stream {
            machine: self.0.machine.clone(),
            counters: self.0.counters.clone(),
            group: group.clone(),
            wanted: wanted.clone(),
            wires,
        };
        std::thread::spawn(move || received.into_iter().for_each(|job| stream.run(job)));
        Ok(Link { stream: Mutex::new((0, jobs)), wanted })
    }
}

struct Stream {
    machine: Arc<Mutex<Machine>>,
    counters: Arc<Counters>,
    group: Arc<dyn Communicator>,
    wires: Arc<dyn Communicator>,
    wanted: Arc<Counter>,
}

impl Stream {
    fn run(&self, job: Job) {
        let _ = job.ready.recv_timeout(TIMEOUT);
        if !AT_ONCE.load(SeqCst) {
            let last = self.wanted.0.lock().unwrap();
            let early = |last: &mut u64| *last < job.number && !AT_ONCE.load(SeqCst);
            drop(self.wanted.1.wait_timeout_while(last, TIMEOUT, early).unwrap());
        }
        let outcome = self.exchange(&job);
        if let Err(error) = &outcome {
            self.group.fail(error.message());
        }
        let mut state = job.landing.state.lock().unwrap();
        self.counters.collectives.fetch_add(1, SeqCst);
        self.counters.hidden.fetch_add(u64::from(!state.asked), SeqCst);
        state.outcome = Some(outcome);
        job.landing.changed.notify_all();
    }

    fn exchange(&self, job: &Job) -> Result<()> {
        let read = |from: &Seen| locked(&self.machine).read(from);
        let input = job.from.as_ref().map_or(Ok(Vec::new()), read)?;
        let mut output = vec![0; job.to.spec.bytes()];
        let (collective, operand, line) = (&job.of.collective, &job.operand, job.of.line);
        let call = CollectiveCall { collective, operand, sequence: job.number, line };
        self.wires.run(&call, &input, &mut output)?;
        let start = job.to.layout.offset * job.to.spec.dtype.size();
        locked(&self.machine).put(job.to.memory, start, &output)
    }
}

/// A collective between its start and its wait.
pub(super) struct Flight {
    started: Started,
    landing: Arc<Landing>,
    on: Queue,
    waited: bool,
}

impl DeviceFlight for Flight {
    fn wait(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.waited, true) {
            self.started.wait()?;
            self.on.tell(Work::Hold(self.landing.clone()));
        }
        Ok(())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}

impl Queue {
    /// Starts a collective, if all workers' devices can exchange memory.
    pub(super) fn launch(
        &self,
        of: &Arc<CollectiveOp>,
        from: Option<&Seen>,
        to: &Seen,
    ) -> Result<Option<Flight>> {
        let (group, device) = (&of.group, Device::Cuda(self.number));
        let Some(given) = from.filter(|_| !of.collective.is_between_two()) else { return Ok(None) };
        if group.communicator().size() == 1 {
            return Ok(None);
        }
        let (collective, line) = (&of.collective, of.line);
        let marked = CollectiveCall::by_devices(&given.spec);
        let call = CollectiveCall { collective, operand: &marked, sequence: 0, line };
        let Some(link) = group.on_device(&call, device, &Joining(self))? else { return Ok(None) };
        let (reached, ready) = channel();
        self.tell(Work::Mark(reached));
        let landing = Arc::<Landing>::default();
        let (of, from, to) = (of.clone(), Some(given.clone()), to.clone());
        let (told, name) = (landing.clone(), of.collective.name());
        let started = group.start(name, move |workers, sequence| {
            let (collective, line) = (&of.collective, of.line);
            workers.agree(&CollectiveCall { collective, operand: &marked, sequence, line })?;
            let mut stream = link.stream.lock().unwrap();
            stream.0 += 1;
            let number = stream.0;
            told.state.lock().unwrap().wanted = Some((number, link.wanted.clone()));
            let operand = marked.with_device(Device::Cpu);
            let job = Job { number, of: of.clone(), operand, from, to, ready, landing: told };
            let ended = |_| Error::new(ErrorKind::Device, "exchange", "the stream has ended");
            stream.1.send(job).map_err(ended)
        });
        Ok(Some(Flight { started, landing, on: self.clone(), waited: false }))
    }
}

/// Runs a collective on the host, where a device cannot: operands go there, results come back.
pub(super) fn on_host(queue: &Queue, op: &Op, inputs: &[Seen], outputs: &[Seen]) -> Result<()> {
    let mut memory = Vec::new();
    for x in inputs {
        queue.counters.downloads.fetch_add(1, SeqCst);
        let (reply, answered) = channel();
        queue.tell(Work::Read(x.clone(), reply));
        let bytes = answer(&answered)?;
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(&bytes);
            Ok(())
        };
        memory.push(Buffer::filled(x.spec.dtype, bytes.len(), fill)?);
    }
    let spec = |x: &Seen| x.spec.with_device(Device::Cpu);
    let specs: Vec<Spec> = inputs.iter().map(spec).collect();
    let layouts: Vec<Layout> = specs.iter().map(|s| Layout::dense(s.shape.clone())).collect();
    let all = memory.iter().zip(&layouts).zip(&specs);
    let all: Vec<Input> =
        all.map(|((buffer, layout), spec)| Input { buffer, layout, spec }).collect();
    let made = pullback_cpu::run(check(op, &specs.iter().collect::<Vec<_>>())?, &all)?;
    for (made, to) in made.into_iter().zip(outputs) {
        queue.counters.uploads.fetch_add(1, SeqCst);
        let bytes = made.buffer.slice(0, to.spec.bytes()).expect("dense").to_vec();
        let start = to.layout.offset * to.spec.dtype.size();
        queue.tell(Work::Put(to.memory, start, bytes));
    }
    Ok(())
}

impl Ready {
    /// Runs the steps one by one, as a device does whose queue has no collectives: they are issued
    /// by the thread that runs the program, in its order. Kernels take memory as they go.
    pub(super) fn run_by_steps(&mut self, memory: &Bases<'_>, step: Option<usize>) -> Result<()> {
        let planned = self.planned.clone();
        let program = planned.program();
        // Step by step, what is on the host stays there from one to the next.
        let mut trips = match self.trips.take().filter(|_| step.is_some_and(|step| step > 0)) {
            Some(trips) => trips,
            None => Trips::new(&self.on, planned.plan().host, step.is_some())?,
        };
        let mut done = 0;
        let mut flights: HashMap<Var, Flight> = HashMap::new();
        let steps = step.map_or(0..self.steps.len(), |step| step..step + 1);
        for i in steps {
            let equation = program.equations.get(self.steps[i].equation);
            if equation.is_some_and(|e| e.op.takes_scratch()) {
                self.on.take_scratch()?;
            }
            // What ends a copy is no step of the CPU's.
            let upto = self.steps[i].equation;
            let skipped = program.equations.get(done..upto).unwrap_or_default();
            skipped.iter().try_for_each(|e| trips.end(self, e))?;
            done = upto;
            match equation.map(|e| (e, &e.op)) {
                Some((e, Op::Transfer(step))) => trips.start(self, *step, e, memory)?,
                Some((e, Op::Collective(of))) => {
                    let to = self.seen(e.outputs[0], memory).expect("a result is no constant");
                    let from: Option<Vec<Seen>> =
                        e.inputs.iter().map(|&v| self.seen(v, memory)).collect();
                    let Some(from) = from else {
                        self.tell(memory, Some(i));
                        continue;
                    };
                    match self.on.launch(of, from.first(), &to)? {
                        Some(flight) if of.started && step.is_none() => {
                            drop(flights.insert(e.outputs[0], flight));
                        }
                        Some(mut flight) => flight.wait()?,
                        None => on_host(&self.on, &e.op, &from, &[to])?,
                    }
                }
                Some((e, Op::Wait)) => {
                    if let Some(mut flight) = flights.remove(&e.inputs[0]) {
                        flight.wait()?;
                    }
                }
                _ => self.tell(memory, Some(i)),
            }
        }
        if step.is_some_and(|step| step + 1 < self.steps.len()) {
            self.trips = Some(trips);
        }
        Ok(())
    }

    /// Where a value of the program is; nowhere if it is a constant.
    pub(super) fn seen(&self, v: Var, memory: &Bases<'_>) -> Option<Seen> {
        let (location, spec) =
            (&self.planned.plan().locations[v.index()], self.planned.program().spec(v));
        let (handle, start): (MemoryHandle, usize) = match location.base {
            Base::Arena => (memory.arena, 0),
            Base::Constants | Base::Host => return None,
            Base::Input(i) => memory.inputs[i],
            Base::Output(k) => {
                let at = self.planned.fresh().partition_point(|o| o.0 < k);
                (memory.outputs[at], 0)
            }
        };
        let mut layout = location.layout.clone();
        layout.offset = layout.offset.wrapping_add((start + location.start) / spec.dtype.size());
        Some(Seen { memory: handle, layout, spec: spec.clone() })
    }
}
