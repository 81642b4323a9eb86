//! Ops in the queue of an attached device, and the memory of its programs.

use super::attach::{ARENA, AttachedDevice, DeviceBlock, find};
use super::executable::Bound;
use super::holders::Asked;
use super::{DeviceFlight, DeviceOperand, Memory, MemoryHandle, OpCall, Write};
use crate::rule::Tensors;
use crate::storage::Storage;
use crate::{Device, Error, Op, Result, Spec, Tensor, lock, mode};
use pullback_ir::infer::Checked;
use pullback_ir::pass::plan::Planned;
use pullback_ir::{Equation, ErrorKind, Layout, Line};
use smallvec::SmallVec;
use std::sync::Arc;

/// Enqueues an op that writes fresh memory.
pub(super) fn run(call: &Checked, inputs: &[&Tensor], device: Device, at: Line) -> Result<Tensors> {
    let op = call.op();
    let on = find(device)?;
    let by = Asked::by(op.name(), mode::user_line(at));
    let splat = matches!(op, Op::Literal { .. });
    let mut outs = Tensors::new();
    for spec in call.results() {
        let bytes = if splat { spec.dtype.size() } else { spec.bytes() };
        let shape = spec.shape.clone();
        let layout = if splat { Layout::splat(shape) } else { Layout::dense(shape) };
        let memory = Memory::from(DeviceBlock::alloc(on, bytes, by)?);
        outs.push(Tensor::new(spec.clone(), layout, Storage::new(memory)));
    }
    let taken = lock::read(inputs, |memory| {
        let inputs = operands(inputs, memory, device)?;
        // The results have no other references yet.
        let outputs = outs.iter().map(|y| operand(y, &y.0.storage.read(), device));
        let outputs = outputs.collect::<Result<SmallVec<[DeviceOperand; 4]>>>()?;
        let call = OpCall { op, write: None, outputs: &outputs, inputs: &inputs, at: by.at };
        // The results are fresh, so a run that failed is repeated from the start.
        on.with_memory(by, true, || give(on, &call))
    })?;
    match taken {
        true => Ok(outs),
        false => {
            let message = format!("the backend of {device} does not implement `{}`", op.name());
            let operands = call.operands().iter().copied();
            Err(Error::new(ErrorKind::Device, op.name(), message).on(operands))
        }
    }
}

/// Gives an op to the device. A collective is started and waited for at once.
fn give(on: &AttachedDevice, call: &OpCall<'_>) -> Result<bool> {
    if let Op::Collective(_) = call.op
        && let Some(mut flight) = on.backend.start(call)?
    {
        return flight.wait().map(|()| true);
    }
    on.backend.run(call)
}

/// A collective between its start and its wait. The flight is dropped, and so waited for, before
/// the memory that it uses.
pub(crate) struct Flight {
    flight: Box<dyn DeviceFlight>,
    output: Tensor,
    _input: Tensor,
}

impl Flight {
    /// The result. What is queued from now on comes after it.
    pub fn wait(mut self) -> Result<Tensor> {
        self.flight.wait()?;
        Ok(self.output)
    }
}

/// Starts a collective of a dense tensor that is not written; `None` if its device does not make
/// collectives itself.
pub(crate) fn start(op: &Op, input: &Tensor, spec: &Spec, at: Line) -> Result<Option<Flight>> {
    if input.device() == Device::Cpu {
        return Ok(None);
    }
    let (on, by) = (find(input.device())?, Asked::by(op.name(), at));
    let output = Tensor::dense(spec.clone(), DeviceBlock::alloc(on, spec.bytes(), by)?.into());
    let flight = {
        let from = operand(input, &input.0.storage.read(), input.device())?;
        let to = operand(&output, &output.0.storage.read(), input.device())?;
        let (inputs, outputs, at) = (&[from][..], &[to][..], by.at);
        let call = OpCall { op, write: None, outputs, inputs, at };
        on.with_memory(by, true, || on.backend.start(&call))?
    };
    Ok(flight.map(|flight| Flight { flight, output, _input: input.clone() }))
}

/// Enqueues an op that writes the memory of the targets. `false`, and nothing done, if the device
/// has no kernel for it.
pub(super) fn write(
    call: &Checked,
    how: Write,
    (targets, to): (&[&Tensor], &[Bound<'_>]),
    (inputs, sources, from): (&[&Tensor], &[Option<usize>], &[Bound<'_>]),
    device: Device,
    at: Option<Line>,
) -> Result<bool> {
    let op = call.op();
    let mut from = from.iter();
    let mut x = SmallVec::<[DeviceOperand; 6]>::new();
    for (tensor, of) in inputs.iter().zip(sources) {
        let bound = match of {
            Some(i) => Some(&to[*i]),
            None => from.next(),
        };
        x.extend(bound.map(|b| operand(tensor, b.memory(), device)).transpose()?);
    }
    let y = targets.iter().zip(to).map(|(t, b)| operand(t, b.memory(), device));
    let y = y.collect::<Result<SmallVec<[DeviceOperand; 4]>>>()?;
    // The line of the caller, if none is given.
    let by = Asked::by(op.name(), mode::user_line(at.unwrap_or_else(Line::caller)));
    let call = OpCall { op, write: Some(how), outputs: &y, inputs: &x, at: by.at };
    let on = find(device)?;
    // Not repeated: a part of the targets may have been written.
    on.with_memory(by, false, || on.backend.run(&call))
}

fn operands<'a>(
    tensors: &[&'a Tensor],
    memory: &[&Memory],
    device: Device,
) -> Result<SmallVec<[DeviceOperand<'a>; 4]>> {
    tensors.iter().zip(memory).map(|(x, memory)| operand(x, memory, device)).collect()
}

/// A tensor as an operand of its device, which alone knows what its memory is.
fn operand<'a>(x: &'a Tensor, memory: &Memory, device: Device) -> Result<DeviceOperand<'a>> {
    let memory = memory.block(device)?.handle;
    Ok(DeviceOperand { memory, layout: &x.0.layout, spec: x.spec() })
}

/// The inputs of a program, checked against its plan.
pub(super) fn bound_inputs(
    planned: &Planned,
    inputs: &[Bound<'_>],
    device: Device,
) -> Result<SmallVec<[(MemoryHandle, usize); 16]>> {
    planned.check_count(inputs.len())?;
    let mut all = SmallVec::new();
    for (i, bound) in inputs.iter().enumerate() {
        let (block, start) = (bound.memory().block(device)?, bound.start());
        planned.check_input(i, block.bytes, start, bound.is_written())?;
        all.push((block.handle, start));
    }
    Ok(all)
}

/// Memory for the outputs of a program that replace no input; `makers` has the op and line of each.
pub(super) fn fresh_outputs(
    planned: &Planned,
    makers: &[Asked],
    on: &Arc<AttachedDevice>,
) -> Result<SmallVec<[DeviceBlock; 16]>> {
    let blocks = planned.fresh().iter().zip(makers);
    blocks.map(|(&(_, bytes), &by)| DeviceBlock::alloc(on, bytes, by)).collect()
}

/// The op and line of each output of a program that replaces no input.
pub(super) fn makers(planned: &Planned) -> Vec<Asked> {
    let program = planned.program();
    let maker = |&(k, _): &(usize, usize)| {
        let made = |e: &&Equation| e.outputs.contains(&program.outputs[k]);
        let equation = program.equations.iter().find(made);
        equation.map_or(ARENA, |e| Asked { op: e.op.name(), at: e.at })
    };
    planned.fresh().iter().map(maker).collect()
}
