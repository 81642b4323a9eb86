//! Asynchronous copies, which the second device makes as late as it may.

use super::machine::Machine;
use super::{Queue, Ready, Seen, Work};
use pullback::backend::{Bases, MemoryHandle};
use pullback::{Error, ErrorKind, Op, Result};
use pullback_ir::pass::plan::Base;
use pullback_ir::{Equation, Transfer, Var};
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

/// Bytes on the host, once they were copied.
pub type OnHost = Arc<Mutex<Option<Vec<u8>>>>;

/// Memory of the host that a program has for the time of a run.
pub type HostMemory = Arc<Mutex<Vec<u8>>>;

/// An asynchronous copy that was not made yet: of so many bytes from a place on, or back.
pub enum Copy {
    Out(MemoryHandle, usize, usize, OnHost),
    Back(OnHost, MemoryHandle),
    /// Of a program, with its number: to a place of its memory of the host, or back.
    Leave(u64, Seen, HostMemory, usize),
    Return(u64, HostMemory, usize, Seen),
}

impl Copy {
    pub fn memory(&self) -> MemoryHandle {
        match self {
            Copy::Out(memory, ..) | Copy::Back(_, memory) => *memory,
            Copy::Leave(_, x, ..) | Copy::Return(.., x) => x.memory,
        }
    }
}

impl Machine {
    /// Makes the copies from and to this memory.
    pub fn copy_of(&mut self, memory: MemoryHandle) -> Result<()> {
        while let Some(i) = self.copies.iter().position(|copy| copy.memory() == memory) {
            self.make(i)?;
        }
        Ok(())
    }

    fn make(&mut self, i: usize) -> Result<()> {
        match self.copies.remove(i) {
            Copy::Out(from, start, len, to) => {
                let bytes = self.get(from)?.slice(start, len).map(<[u8]>::to_vec);
                *to.lock().expect("nobody panics with it") = bytes;
            }
            Copy::Back(from, to) => {
                self.copy_to(&from)?;
                let bytes = from.lock().expect("nobody panics with it").clone();
                self.work(Work::Upload(to, bytes.unwrap_or_default()))?;
            }
            Copy::Leave(_, from, host, at) => {
                let bytes = self.read(&from)?;
                host.lock().expect("nobody panics with it")[at..][..bytes.len()]
                    .copy_from_slice(&bytes);
            }
            Copy::Return(_, host, at, to) => {
                let bytes = to.spec.bytes();
                let content = host.lock().expect("nobody panics with it")[at..][..bytes].to_vec();
                self.put(to.memory, first(&to), &content)?;
            }
        }
        Ok(())
    }

    /// Starts a copy of a program: what it will write may be written from now on.
    pub fn begin(&mut self, copy: Copy) -> Result<()> {
        match &copy {
            Copy::Leave(_, from, host, at) => {
                let mut host = host.lock().expect("nobody panics with it");
                host[*at..][..from.spec.bytes()].fill(0x5A);
            }
            Copy::Return(.., to) => {
                self.put(to.memory, first(to), &vec![0x5A; to.spec.bytes()])?;
            }
            Copy::Out(..) | Copy::Back(..) => {}
        }
        self.copies.push(copy);
        Ok(())
    }

    /// Makes the copy of a program of this number.
    pub fn end(&mut self, number: u64) -> Result<()> {
        let is_it = |copy: &Copy| match copy {
            Copy::Leave(n, ..) | Copy::Return(n, ..) => *n == number,
            Copy::Out(..) | Copy::Back(..) => false,
        };
        match self.copies.iter().position(is_it) {
            Some(i) => self.make(i),
            None => Err(Error::argument("device", "a copy that was not started ends")),
        }
    }

    /// Makes the copy to this place on the host, if it was not made.
    pub fn copy_to(&mut self, host: &OnHost) -> Result<()> {
        let wanted = |copy: &Copy| match copy {
            Copy::Out(memory, _, _, to) if Arc::ptr_eq(to, host) => Some(*memory),
            _ => None,
        };
        match self.copies.iter().find_map(wanted) {
            Some(memory) => self.copy_of(memory),
            None => Ok(()),
        }
    }
}

/// The first byte of what is seen, which is dense.
fn first(x: &Seen) -> usize {
    assert!(x.layout.strides == pullback_ir::dense_strides(&x.spec.shape), "{:?}", x.layout);
    x.layout.offset * x.spec.dtype.size()
}

impl Queue {
    /// Memory of the host for a run of a program.
    fn host_memory(&self, bytes: usize) -> Result<HostMemory> {
        let limit = self.counters.host_limit.load(SeqCst);
        if bytes as u64 > limit {
            let message = format!("the host has no {bytes} bytes of pinned memory");
            return Err(Error::new(ErrorKind::Memory, "pin", message));
        }
        self.counters.host_peak.fetch_max(bytes as u64, SeqCst);
        Ok(Arc::new(Mutex::new(vec![0; bytes])))
    }
}

/// The copies of a run: those that were started, by their results.
#[derive(Default)]
pub struct Trips {
    host: Option<HostMemory>,
    started: HashMap<Var, u64>,
    /// Each is made when it starts.
    at_once: bool,
}

impl Trips {
    /// # Errors
    /// If there is no memory of the host.
    pub(super) fn new(on: &Queue, bytes: usize, at_once: bool) -> Result<Trips> {
        let host = if bytes > 0 { Some(on.host_memory(bytes)?) } else { None };
        Ok(Trips { host, started: HashMap::new(), at_once })
    }

    /// Starts a copy.
    pub(super) fn start(
        &mut self,
        of: &Ready,
        step: Transfer,
        e: &Equation,
        memory: &Bases<'_>,
    ) -> Result<()> {
        let place = |v: Var| match &of.planned.plan().locations[v.index()] {
            at if at.base == Base::Host => at.start,
            at => panic!("{v} is at {at:?}"),
        };
        let seen = |v: Var| of.seen(v, memory).expect("a value is no constant");
        let host = self.host.clone().expect("the plan has memory of the host");
        let number = of.on.next.fetch_add(1, SeqCst);
        let counters = &of.on.counters;
        let copy = match step {
            Transfer::Offload => {
                counters.offloads.fetch_add(1, SeqCst);
                Copy::Leave(number, seen(e.inputs[0]), host, place(e.outputs[0]))
            }
            Transfer::Restore => {
                counters.restores.fetch_add(1, SeqCst);
                Copy::Return(number, host, place(e.inputs[0]), seen(e.outputs[0]))
            }
            Transfer::Offloaded | Transfer::Restored => panic!("no step of the CPU's"),
        };
        self.started.insert(e.outputs[0], number);
        of.on.tell(Work::Begin(copy));
        if self.at_once {
            of.on.tell(Work::End(number));
        }
        Ok(())
    }

    /// Ends the copy that an equation ends, if it does.
    pub(super) fn end(&mut self, of: &Ready, e: &Equation) -> Result<()> {
        if let (Op::Transfer(step), false) = (&e.op, self.at_once)
            && !step.starts()
        {
            let number = self.started.remove(&e.inputs[0]).expect("verified");
            of.on.tell(Work::End(number));
        }
        Ok(())
    }
}
