//! A call of a compiled function: bind, run, and apply the effects that the trace recorded.

use super::compile::{Captured, Specialisation, wrong_gradient};
use crate::backend::Pooled;
use crate::backend::{INLINE, rise_on};
use crate::lock::{self, Claim};
use crate::record::call::CompiledPrograms;
use crate::storage::LastWrite;
use crate::trace::Effect;
use crate::{Result, Tensor, events, mode};
use pullback_ir::{Line, Stopwatch};
use smallvec::SmallVec;

/// What a call returned, one for each tensor of the function's result: none where the program does
/// not make it, as the result is no variable of the trace.
pub(super) type CallOutputs = SmallVec<[Option<Tensor>; 16]>;

type Claims<'a> = SmallVec<[Claim<'a>; INLINE]>;

impl Specialisation {
    pub fn call(&mut self, arguments: &[Tensor], at: Line) -> Result<CallOutputs> {
        if self.budget.is_none() {
            return self.run(arguments, at);
        }
        let (device, arena) = (self.executable.device(), self.executable.plan().arena);
        let (result, rise) = rise_on(device, arena, || self.run(arguments, at));
        if let (Ok(_), Some(rise)) = (&result, rise) {
            self.measured = Some(self.executable.held() + rise as usize);
        }
        result
    }

    fn run(&mut self, given: &[Tensor], at: Line) -> Result<CallOutputs> {
        let start = Stopwatch::start();
        let gradients: SmallVec<[Option<Tensor>; 8]> = self.current_gradients()?;
        let arguments: SmallVec<[Tensor; 8]> = given.iter().map(|x| self.unaliased(x)).collect();
        if events::is_on(events::LEDGER) {
            self.note_memory(&arguments, at);
        }
        for capture in &self.captures {
            if let Captured::Fixed { written: true, handle, .. } = capture {
                events::writing(handle);
            }
        }
        let programs = CompiledPrograms { traced: &self.traced, run: self.executable.program() };
        events::call_starts(&programs, || self.values(given, &gradients), at);
        let operands = operands(&self.captures, &gradients, &arguments);
        lock::hold::<INLINE, _>(&operands, |bound| {
            // A budget counts what the plan counts, which packed weights are no part of.
            if self.budget.is_none() {
                let captured = self.captures.iter().map(version);
                let unknown = std::iter::repeat_n(None, arguments.len());
                self.executable.unchanged(unknown.chain(captured));
            }
            self.executable.run_into(bound, &mut self.outputs)?;
            let writer = LastWrite { op: "jit", at };
            for operand in operands.iter().filter(|o| o.written) {
                operand.storage.bump(writer);
            }
            Ok(())
        })?;
        drop(operands);
        drop(gradients);
        let result = self.take_outputs();
        self.timing.calls += 1;
        self.timing.running += start.elapsed();
        Ok(result)
    }

    /// The program's inputs as values: arguments, then captures.
    fn values<'a>(
        &'a self,
        arguments: &'a [Tensor],
        gradients: &'a [Option<Tensor>],
    ) -> Vec<Option<&'a Tensor>> {
        let mut gradients = gradients.iter();
        let captured = self.captures.iter().map(|captured| match captured {
            Captured::Fixed { handle, .. } => Some(handle),
            Captured::Gradient { .. } => gradients.next().and_then(Option::as_ref),
        });
        arguments.iter().map(Some).chain(captured).collect()
    }

    /// The results of a call by the numbers of the outputs: what was made, and captures that were
    /// replaced.
    fn results<'a>(&'a self, made: &'a [Option<Tensor>]) -> Vec<(usize, &'a Tensor)> {
        let fresh = made.iter().enumerate().filter_map(|(k, y)| Some((k, y.as_ref()?)));
        let replaced =
            self.executable.program().updates.iter().filter_map(|&(k, input)| {
                match self.captures.get(input.checked_sub(self.specs.len())?)? {
                    Captured::Fixed { handle, .. } => Some((k, handle)),
                    Captured::Gradient { .. } => None,
                }
            });
        fresh.chain(replaced).collect()
    }

    /// Notifies a memory report of the call's operands and arena.
    fn note_memory(&self, arguments: &[Tensor], at: Line) {
        let captured = self.captures.iter().filter_map(|captured| match captured {
            Captured::Fixed { handle, .. } => Some(handle),
            Captured::Gradient { .. } => None,
        });
        events::work_starts("jit", arguments.iter().chain(captured), at);
        let plan = self.executable.plan();
        let device = self.executable.device();
        events::arena_taken(plan.arena + plan.all_constants(), device, at);
    }

    /// What is in `.grad()` of the leaves whose gradient is an input.
    fn current_gradients(&self) -> Result<SmallVec<[Option<Tensor>; 8]>> {
        let mut found = SmallVec::new();
        for capture in &self.captures {
            let Captured::Gradient { leaf, spec, .. } = capture else { continue };
            let grad = leaf.grad().clone();
            match &grad {
                Some(g) if g.spec() != spec => return Err(wrong_gradient(g.spec(), spec)),
                _ => found.push(grad.map(|g| self.unaliased(&g))),
            }
        }
        Ok(found)
    }

    /// An argument as dense memory that the program does not write to.
    fn unaliased(&self, x: &Tensor) -> Tensor {
        let written = self.written.contains(&(Pooled::as_ptr(&x.0.storage) as usize));
        match written || !x.is_contiguous() {
            true => mode::set_recording(false, || x.plain().deep_clone()),
            false => x.clone(),
        }
    }

    /// The outputs as tensors, and the gradients in their slots.
    fn take_outputs(&mut self) -> CallOutputs {
        // What replaces an input comes after all other outputs.
        let program = self.executable.program();
        let made = |(memory, &v)| Some(Tensor::dense(program.spec(v).clone(), memory));
        let mut made: CallOutputs =
            self.outputs.drain(..).zip(&program.outputs).map(made).collect();
        events::call_ran(&self.traced, || self.results(&made));
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
            if let Some(new) = &new {
                events::gradient_of(&gradient.leaf, new);
                events::leaf_complete(&gradient.leaf, new);
            }
            // Dropped after the lock is released.
            let old = std::mem::replace(&mut *gradient.leaf.grad(), new);
            drop(old);
        }
        made.truncate(self.results);
        made
    }
}

/// The version of captured memory that the program does not write. A gradient may be other memory
/// in the next call.
fn version(captured: &Captured) -> Option<u64> {
    match captured {
        Captured::Fixed { storage, written: false, .. } => Some(storage.version()),
        Captured::Fixed { .. } | Captured::Gradient { .. } => None,
    }
}

/// The program's inputs: arguments, then captures.
fn operands<'a>(
    captures: &'a [Captured],
    gradients: &'a [Option<Tensor>],
    arguments: &'a [Tensor],
) -> Claims<'a> {
    let mut all: Claims = arguments.iter().map(Claim::read).collect();
    let mut gradients = gradients.iter();
    for capture in captures {
        match capture {
            Captured::Fixed { storage, written, .. } => {
                all.push(Claim { storage, start: 0, written: *written });
            }
            Captured::Gradient { .. } => {
                if let Some(Some(g)) = gradients.next() {
                    all.push(Claim::read(g));
                }
            }
        }
    }
    all
}
