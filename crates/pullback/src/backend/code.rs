//! The kernels of a prepared program: the host's, or those of an attached device.

use super::attach::{ARENA, AttachedDevice, DeviceBlock, find};
use super::enqueue;
use super::executable::{Bound, BySteps, OnDevice};
use super::{Asked, Memory};
use crate::{Device, Result};
use pullback_cpu::buffer::Arena;
use pullback_cpu::{Buffer, NativeCode, Prepared, Running};
use pullback_ir::pass::plan::Planned;
use pullback_ir::{Bases, DeviceProgram, KernelCode, MemoryHandle, Step};
use smallvec::SmallVec;
use std::sync::Arc;

/// How many inputs are bound without a list on the heap: parameters, two moments each and more of a
/// model of some size.
pub(crate) const INLINE: usize = 256;

/// The kernels of a program over base addresses.
pub(crate) enum Code {
    /// With the list in which its outputs are gathered, kept so that its allocation is reused.
    Host(Box<Prepared>, Vec<Buffer>),
    /// With the op and line of each fresh output.
    Attached(Box<dyn DeviceProgram>, Arc<AttachedDevice>, Vec<Asked>),
}

impl Code {
    pub(super) fn prepare(device: Device, planned: &Arc<Planned>) -> Result<Code> {
        match device {
            Device::Cpu => {
                let prepared = Box::new(Prepared::new(planned.clone())?);
                Ok(Code::Host(prepared, Vec::new()))
            }
            device => {
                let on = find(device)?;
                let program = on.with_memory(ARENA, true, || on.backend.prepare(planned))?;
                Ok(Code::Attached(program, on.clone(), enqueue::makers(planned)))
            }
        }
    }

    pub(super) fn device(&self) -> Device {
        match self {
            Code::Host(..) => Device::Cpu,
            Code::Attached(_, on, _) => on.device,
        }
    }

    pub(super) fn native_code(&self) -> (usize, usize) {
        match self {
            Code::Host(prepared, ..) => prepared.native_code(),
            Code::Attached(..) => (0, 0),
        }
    }

    pub(super) fn listings(&self) -> Vec<NativeCode> {
        match self {
            Code::Host(prepared, ..) => prepared.listings(),
            Code::Attached(..) => Vec::new(),
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        match self {
            Code::Host(..) => Vec::new(),
            Code::Attached(program, ..) => program.notes(),
        }
    }

    pub(super) fn kernels(&self) -> Vec<KernelCode> {
        match self {
            Code::Host(..) => Vec::new(),
            Code::Attached(program, ..) => program.kernels(),
        }
    }

    pub(super) fn steps(&self) -> std::borrow::Cow<'_, [Step]> {
        match self {
            Code::Host(prepared, ..) => prepared.steps().into(),
            Code::Attached(program, ..) => program.steps().into(),
        }
    }

    /// Says which version the memory of each input of the next run has, where that helps: see
    /// [`Prepared::unchanged`].
    pub(super) fn unchanged(&mut self, versions: impl Iterator<Item = Option<u64>>) {
        match self {
            Code::Host(prepared, ..) if prepared.keeps_packed() => prepared.unchanged(versions),
            Code::Host(..) | Code::Attached(..) => {}
        }
    }

    pub(super) fn run(
        &mut self,
        planned: &Planned,
        inputs: &mut [Bound<'_>],
        outputs: &mut Vec<Memory>,
    ) -> Result<()> {
        match self {
            Code::Host(prepared, made) => {
                let mut arena = Arena::take(planned.plan().arena)?;
                let mut inputs = host_inputs(inputs)?;
                prepared.bind(&mut arena, &mut inputs, made)?.run()?;
                outputs.extend(made.drain(..).map(Memory::Host));
                Ok(())
            }
            Code::Attached(program, on, makers) => {
                let inputs = enqueue::bound_inputs(planned, inputs, on.device)?;
                let fresh = enqueue::fresh_outputs(planned, makers, on)?;
                let handles: SmallVec<[MemoryHandle; 16]> =
                    fresh.iter().map(|b| b.handle).collect();
                on.with_arena(planned.plan().arena, |arena| {
                    let bases = Bases { arena, inputs: &inputs, outputs: &handles };
                    // Not repeated: a part of what it replaces may have been written.
                    on.with_memory(ARENA, false, || program.run(&bases, None))
                })?;
                outputs.extend(fresh.into_iter().map(Memory::from));
                Ok(())
            }
        }
    }

    /// Binds a program so that `f` can run it step by step.
    pub(super) fn run_by_steps(
        &mut self,
        planned: &Planned,
        inputs: &mut [Bound<'_>],
        f: &mut dyn FnMut(&mut dyn BySteps) -> Result<()>,
    ) -> Result<()> {
        match self {
            Code::Host(prepared, made) => {
                let mut arena = Arena::take(planned.plan().arena)?;
                let mut inputs = host_inputs(inputs)?;
                let done = f(&mut prepared.bind(&mut arena, &mut inputs, made)?);
                made.clear();
                done
            }
            Code::Attached(program, on, makers) => {
                let inputs = enqueue::bound_inputs(planned, inputs, on.device)?;
                let outputs = enqueue::fresh_outputs(planned, makers, on)?;
                let handles: SmallVec<[MemoryHandle; 16]> =
                    outputs.iter().map(|b| b.handle).collect();
                // Not the shared arena: code that inspects values runs other programs meanwhile.
                let arena = DeviceBlock::alloc(on, planned.plan().arena, ARENA)?;
                let bases = Bases { arena: arena.handle, inputs: &inputs, outputs: &handles };
                f(&mut OnDevice { planned, program: &mut **program, bases, on, next: 0 })
            }
        }
    }
}

fn host_inputs<'a>(
    inputs: &'a mut [Bound<'_>],
) -> Result<SmallVec<[pullback_cpu::BoundInput<'a>; INLINE]>> {
    let mut all = SmallVec::new();
    for bound in inputs {
        all.push(match bound {
            Bound::Read(memory, start) => pullback_cpu::BoundInput::Read(memory.host()?, *start),
            Bound::Write(memory, start) => {
                pullback_cpu::BoundInput::Write(memory.host_mut()?, *start)
            }
        });
    }
    Ok(all)
}

impl BySteps for Running<'_, '_> {
    fn step(&mut self) -> Result<()> {
        Running::step(self)
    }

    fn value(&self, equation: usize, result: usize) -> Result<Option<Memory>> {
        Ok(Running::value(self, equation, result)?.map(|output| output.buffer.into()))
    }
}
