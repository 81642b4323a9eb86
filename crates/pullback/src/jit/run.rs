//! A call of a compiled function: bind, run, and do outside what the trace noted.

use super::compile::{Captured, Specialisation, wrong_gradient};
use crate::storage::{Storage, Writer};
use crate::trace::Effect;
use crate::{Result, Tensor, Tree, events, mode};
use pullback_cpu::buffer::rise;
use pullback_cpu::{Bound, Buffer};
use pullback_ir::{Layout, Line, Spec};
use smallvec::SmallVec;
use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

/// How many inputs are bound without a list on the heap: parameters, two moments each and more of a model of some size.
const INLINE: usize = 256;

/// Memory that an input is bound to.
struct Operand<'a> {
    storage: &'a Arc<Storage>,
    /// The byte at which it begins.
    start: usize,
    written: bool,
}

type Operands<'a> = SmallVec<[Operand<'a>; INLINE]>;

impl<Y: Tree> Specialisation<Y> {
    pub fn call(&mut self, arguments: &[Tensor], at: Line) -> Result<Y> {
        if self.budget.is_none() {
            return self.run(arguments, at);
        }
        let (result, rise) = rise(|| self.run(arguments, at));
        if let (Ok(_), Some(rise)) = (&result, rise) {
            self.measured = Some(self.executable.held() + rise as usize);
        }
        result
    }

    fn run(&mut self, arguments: &[Tensor], at: Line) -> Result<Y> {
        let start = Instant::now();
        let gradients: SmallVec<[Option<Tensor>; 8]> = self.current_gradients()?;
        let arguments: SmallVec<[Tensor; 8]> = arguments.iter().map(|x| self.apart(x)).collect();
        if events::is_on(events::LEDGER) {
            self.note_memory(&arguments, at);
        }
        for capture in &self.captures {
            if let Captured::Fixed { written: true, handle, .. } = capture {
                events::writing(handle);
            }
        }
        let operands = operands(&self.captures, &gradients, &arguments);
        bind(&operands, |bound| self.executable.run_into(bound, &mut self.outputs))?;
        let writer = Writer { op: "jit", at };
        for operand in operands.iter().filter(|o| o.written) {
            operand.storage.bump(writer);
        }
        drop(operands);
        drop(gradients);
        let result = self.hand_out();
        self.timing.calls += 1;
        self.timing.running += start.elapsed();
        Ok(result)
    }

    /// Tells a report on memory what the call works on, and where.
    fn note_memory(&self, arguments: &[Tensor], at: Line) {
        let captured = self.captures.iter().filter_map(|captured| match captured {
            Captured::Fixed { handle, .. } => Some(handle),
            Captured::Gradient { .. } => None,
        });
        events::work_starts("jit", arguments.iter().chain(captured), at);
        let plan = self.executable.plan();
        events::arena_taken(plan.arena + plan.all_constants(), at);
    }

    /// What is in `.grad()` of the leaves whose gradient is an input.
    fn current_gradients(&self) -> Result<SmallVec<[Option<Tensor>; 8]>> {
        let mut found = SmallVec::new();
        for capture in &self.captures {
            let Captured::Gradient { leaf, spec, .. } = capture else { continue };
            let grad = leaf.grad().clone();
            match &grad {
                Some(g) if g.spec() != spec => return Err(wrong_gradient(g.spec(), spec)),
                _ => found.push(grad.map(|g| self.apart(&g))),
            }
        }
        Ok(found)
    }

    /// An argument as dense memory that the program does not write to.
    fn apart(&self, x: &Tensor) -> Tensor {
        let written = self.written.contains(&(Arc::as_ptr(&x.0.storage) as usize));
        match written || !x.is_contiguous() {
            true => mode::set_recording(false, || x.plain().deep_clone()),
            false => x.clone(),
        }
    }

    /// The outputs as tensors, and the gradients in their places.
    fn hand_out(&mut self) -> Y {
        // What replaces an input comes after all other outputs.
        let program = self.executable.program();
        let made = |(buffer, &v)| Some(tensor(program.spec(v).clone(), buffer));
        let mut made: SmallVec<[Option<Tensor>; 16]> =
            self.outputs.drain(..).zip(&program.outputs).map(made).collect();
        for gradient in &self.gradients {
            let new = match &gradient.effect {
                Effect::Nothing => continue,
                Effect::Clear => None,
                Effect::Other(tensor) => Some(tensor.clone()),
                Effect::Output(k) => made[*k].take(),
                Effect::Write(k) => {
                    // Written after the lock is released.
                    let old = gradient.leaf.grad().clone();
                    if let (Some(old), Some(new)) = (old, &made[*k]) {
                        mode::set_recording(false, || old.copy_(new));
                    }
                    continue;
                }
            };
            new.iter().for_each(|new| events::gradient_of(&gradient.leaf, new));
            // Dropped after the lock is released.
            let old = std::mem::replace(&mut *gradient.leaf.grad(), new);
            drop(old);
        }
        let mut next = made.into_iter().take(self.results);
        self.template.map(&mut |y| next.next().flatten().unwrap_or_else(|| y.clone()))
    }
}

fn tensor(spec: Spec, buffer: Buffer) -> Tensor {
    Tensor::new(spec.clone(), Layout::dense(spec.shape), Arc::new(Storage::new(buffer)))
}

/// The program's inputs: arguments, then captures.
fn operands<'a>(
    captures: &'a [Captured],
    gradients: &'a [Option<Tensor>],
    arguments: &'a [Tensor],
) -> Operands<'a> {
    let place = |x: &'a Tensor, written: bool| Operand {
        storage: &x.0.storage,
        start: x.0.layout.offset * x.dtype().size(),
        written,
    };
    let mut all: Operands = arguments.iter().map(|x| place(x, false)).collect();
    let mut gradients = gradients.iter();
    for capture in captures {
        match capture {
            Captured::Fixed { storage, written, .. } => {
                all.push(Operand { storage, start: 0, written: *written });
            }
            Captured::Gradient { .. } => {
                if let Some(Some(g)) = gradients.next() {
                    all.push(place(g, false));
                }
            }
        }
    }
    all
}

/// Locks all memory, each once and in the order of addresses, and runs `f` on it.
pub(super) fn bind_storages<R>(
    storages: &[(Arc<Storage>, bool)],
    f: impl FnOnce(&mut [Bound<'_>]) -> Result<R>,
) -> Result<R> {
    let operand = |(storage, written)| Operand { storage, start: 0, written };
    let all: Operands = storages.iter().map(|(s, w)| operand((s, *w))).collect();
    bind(&all, f)
}

fn bind<R>(operands: &Operands, f: impl FnOnce(&mut [Bound<'_>]) -> Result<R>) -> Result<R> {
    let address = |o: &Operand| Arc::as_ptr(o.storage) as usize;
    let mut order: SmallVec<[usize; INLINE]> = (0..operands.len()).collect();
    // Of operands in one memory a writer comes first: that memory is then locked for writing.
    order.sort_unstable_by_key(|&i| (address(&operands[i]), !operands[i].written));
    let mut readers: SmallVec<[RwLockReadGuard<'_, Buffer>; INLINE]> = SmallVec::new();
    let mut writers: SmallVec<[RwLockWriteGuard<'_, Buffer>; INLINE]> = SmallVec::new();
    let mut lock_of: SmallVec<[(bool, usize); INLINE]> =
        SmallVec::from_elem((false, 0), operands.len());
    let mut last = None;
    for &i in &order {
        let operand = &operands[i];
        match (last, operand.written) {
            (Some((at, writing)), written) if at == address(operand) => {
                // What is written is nobody else's: the caller gives such operands memory of their own.
                if writing || written {
                    return Err(super::compiler_error("memory that is written is bound twice"));
                }
            }
            (_, true) => writers.push(operand.storage.write()),
            (_, false) => readers.push(operand.storage.read()),
        }
        last = Some((address(operand), operand.written));
        let locks = if operand.written { writers.len() } else { readers.len() };
        lock_of[i] = (operand.written, locks - 1);
    }
    let mut open: SmallVec<[Option<&mut Buffer>; INLINE]> =
        writers.iter_mut().map(|guard| Some(&mut **guard)).collect();
    let mut bound: SmallVec<[Bound<'_>; INLINE]> = SmallVec::new();
    for (operand, &(written, at)) in operands.iter().zip(&lock_of) {
        let memory = match written {
            true => open[at].take().map(|buffer| Bound::Write(buffer, operand.start)),
            false => readers.get(at).map(|buffer| Bound::Read(buffer, operand.start)),
        };
        match memory {
            Some(memory) => bound.push(memory),
            None => unreachable!("each operand has a lock"),
        }
    }
    f(&mut bound)
}
