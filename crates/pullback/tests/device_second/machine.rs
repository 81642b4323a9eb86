//! What the second device is: memory, and what is done with it.

use super::copies::Copy;
use super::{Counters, Seen, TIMEOUT, Work, specs};
use pullback::backend::{MemoryHandle, Write};
use pullback::{DType, Error, Op, Result};
use pullback_cpu::{BoundInput, Buffer, Input, Prepared, WriteTarget};
use pullback_ir::infer::check;
use pullback_ir::{Binary, Layout};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The device itself: all there is of its memory.
pub struct Machine {
    memory: HashMap<MemoryHandle, Buffer>,
    pub copies: Vec<Copy>,
    /// The first thing that failed since somebody waited.
    failed: Option<Error>,
    counters: Arc<Counters>,
}

pub fn locked(machine: &Mutex<Machine>) -> MutexGuard<'_, Machine> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does what the device is told. The machine is not locked while it waits, so that collectives use
/// its memory meanwhile.
pub fn run(machine: &Mutex<Machine>, told: &Receiver<Work>) {
    while let Ok(work) = told.recv() {
        let done = catch_unwind(AssertUnwindSafe(|| match work {
            Work::Pause(resume) => {
                // Goes on when the other end is dropped, or when somebody has forgotten to.
                let _ = resume.recv_timeout(TIMEOUT);
                Ok(())
            }
            Work::Hold(landing) => landing.land(),
            work => locked(machine).work(work),
        }));
        let error = match done {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(_) => Error::argument("device", "a kernel panicked"),
        };
        locked(machine).failed.get_or_insert(error);
    }
}

impl Machine {
    pub fn new(counters: Arc<Counters>) -> Arc<Mutex<Machine>> {
        let (memory, copies) = (HashMap::new(), Vec::new());
        Arc::new(Mutex::new(Machine { memory, copies, failed: None, counters }))
    }

    pub fn work(&mut self, work: Work) -> Result<()> {
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
            Work::Begin(copy) => self.begin(copy)?,
            Work::End(number) => self.end(number)?,
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
            Work::Mark(reached) => {
                let _ = reached.send(());
            }
            Work::Read(x, reply) => {
                let failed = self.failed.take();
                let _ = reply.send(failed.map_or_else(|| self.read(&x), Err));
            }
            Work::Put(to, start, bytes) => self.put(to, start, &bytes)?,
            Work::Pause(_) | Work::Hold(_) => unreachable!("waited for above"),
        }
        Ok(())
    }

    /// The elements of an operand, one after the other.
    pub fn read(&self, x: &Seen) -> Result<Vec<u8>> {
        let made = pullback_cpu::run(check(&Op::Copy, &[&x.spec])?, &[self.input(x)?])?;
        Ok(made[0].buffer.slice(0, x.spec.bytes()).expect("dense").to_vec())
    }

    /// Writes bytes from a place on.
    pub fn put(&mut self, to: MemoryHandle, start: usize, bytes: &[u8]) -> Result<()> {
        let old = self.get(to)?;
        let fill = |content: &mut [u8]| {
            content.copy_from_slice(old.slice(0, old.len()).expect("all of it"));
            content[start..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        let new = Buffer::filled(DType::U8, old.len(), fill)?;
        self.memory.insert(to, new);
        Ok(())
    }

    pub fn get(&self, name: MemoryHandle) -> Result<&Buffer> {
        let gone = || Error::argument("device", format!("there is no memory {name}"));
        self.memory.get(&name).ok_or_else(gone)
    }

    fn take(&mut self, name: MemoryHandle) -> Result<Buffer> {
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
        arena: MemoryHandle,
        inputs: &[(MemoryHandle, usize)],
        outputs: &[MemoryHandle],
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
        let mut open: HashMap<MemoryHandle, &mut Buffer> =
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
