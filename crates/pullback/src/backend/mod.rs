//! Where memory is and where ops run. This folder is the only place that names a backend (tested).
//!
//! Everything else of the crate goes through it: memory is allocated, uploaded and downloaded here,
//! ops run here (to fresh memory: `compute`; over what is there, added to it or into a part of it:
//! `write`), and programs are prepared here (`Executable`). The host is an arm of a match, not a
//! trait object: making the lists that a trait object takes costs more than an op on a few numbers.
//! Other devices are attached ([`attach()`]), and ops get into their queues in `enqueue.rs`.

pub(crate) mod attach;
mod code;
pub(crate) mod copies;
mod enqueue;
mod executable;
pub(crate) mod holders;
mod profile;
mod stats;

pub use attach::attach;
pub(crate) use attach::{
    DeviceBlock, find, planned_kernels, target, target_within_budget, why_missing,
};
pub(crate) use code::INLINE;
pub use copies::CpuCopy;
pub(crate) use enqueue::{Flight, start};
pub(crate) use executable::{Bound, Executable};
pub(crate) use holders::Asked;
pub use profile::{DeviceProfile, profile_device};
pub(crate) use pullback_cpu::buffer::{reserve_arena, rise};
pub use pullback_cpu::buffer::{reset_peak, set_cache_limit, stats};
pub(crate) use pullback_cpu::latch::{Latch, LatchGuard};
pub(crate) use pullback_cpu::par::for_each;
pub use pullback_cpu::par::{set_threads, threads, with_threads};
pub(crate) use pullback_cpu::pooled::{Pooled, WeakPooled};
pub(crate) use pullback_cpu::rw_lock::{ReadGuard, ReadWriteLock, WriteGuard};
pub use pullback_cpu::{HostElement, NativeCode, instruction_set};
pub(crate) use pullback_cpu::{elements, elements_mut};
pub use pullback_cuda::CudaKernel;
pub use pullback_ir::{
    Bases, DeviceBackend, DeviceFlight, DeviceOperand, DeviceProgram, HostCopy, KernelCode,
    KernelTime, KernelUsage, MemoryHandle, OpCall, PoolStats, Step, Write,
};
pub(crate) use stats::{DevicePeaks, live_by_device, live_bytes_of, rise_on};
pub use stats::{
    device_report, memory_stats_of, memory_stats_of as statistics, reset_peak_of, synchronize, trim,
};

use crate::rule::Tensors;
use crate::storage::Storage;
use crate::{Device, Error, Op, Result, Spec, Tensor, custom, lock, mode};
use lock::Claim;
use pullback_cpu::{Buffer, Buffers, FewFloats, Input, WriteTarget};
use pullback_ir::infer::Checked;
use pullback_ir::{DType, ErrorKind, Fresh, Layout, Line, Structure, View};
use smallvec::SmallVec;

/// The memory of a storage.
pub(crate) enum Memory {
    Host(Buffer),
    /// Boxed, so that memory is as long as a buffer: every op on the CPU moves one.
    Attached(Box<DeviceBlock>),
}

impl From<DeviceBlock> for Memory {
    fn from(block: DeviceBlock) -> Memory {
        Memory::Attached(Box::new(block))
    }
}

impl From<Buffer> for Memory {
    fn from(buffer: Buffer) -> Memory {
        Memory::Host(buffer)
    }
}

impl Memory {
    /// No memory.
    pub fn empty() -> Memory {
        Memory::Host(Buffer::empty())
    }

    pub fn bytes(&self) -> usize {
        match self {
            Memory::Host(buffer) => buffer.len(),
            Memory::Attached(block) => block.bytes,
        }
    }

    pub fn device(&self) -> Device {
        match self {
            Memory::Host(_) => Device::Cpu,
            Memory::Attached(block) => block.on.device,
        }
    }

    /// Memory of a device that holds these values.
    pub fn upload<T: HostElement>(values: &[T], device: Device, by: Asked) -> Result<Memory> {
        match device {
            Device::Cpu => Ok(Memory::Host(Buffer::from_slice(values)?)),
            device => upload(pullback_cpu::bytes_of(values), device, by),
        }
    }

    /// Memory of a device, for so many bytes of this dtype, which `fill` writes on the host,
    /// starting from zeros.
    pub fn filled(
        dtype: DType,
        bytes: usize,
        device: Device,
        by: Asked,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Memory> {
        Memory::Host(Buffer::filled(dtype, bytes, fill)?).moved(device, by)
    }

    /// Memory of the host as that of a device.
    fn moved(self, device: Device, by: Asked) -> Result<Memory> {
        match (self, device) {
            (Memory::Host(buffer), Device::Cpu) => Ok(Memory::Host(buffer)),
            (memory, device) => {
                upload(memory.host()?.slice(0, memory.bytes()).ok_or_else(too_short)?, device, by)
            }
        }
    }

    /// Copies that were started on a copy stream come before what is queued from now on.
    ///
    /// # Errors
    /// If the device does not take it.
    #[inline]
    pub fn wait_for_copies(&self) -> Result<()> {
        match self {
            Memory::Host(_) => Ok(()),
            Memory::Attached(block) => block.wait_for_copies(),
        }
    }

    /// A copy of some of its bytes, on the host. Waits for the device.
    fn download(&self, dtype: DType, start: usize, bytes: usize) -> Result<Buffer> {
        match self {
            Memory::Host(buffer) => Buffer::filled(dtype, bytes, |to| {
                to.copy_from_slice(buffer.slice(start, bytes).ok_or_else(too_short)?);
                Ok(())
            }),
            Memory::Attached(block) => {
                if start.checked_add(bytes).is_none_or(|end| end > block.bytes) {
                    return Err(too_short());
                }
                let copy = |to: &mut [u8]| block.on.backend.download(block.handle, start, to);
                Buffer::filled(dtype, bytes, copy)
            }
        }
    }

    fn host(&self) -> Result<&Buffer> {
        match self {
            Memory::Host(buffer) => Ok(buffer),
            Memory::Attached(block) => Err(elsewhere(Device::Cpu, block.on.device)),
        }
    }

    fn host_mut(&mut self) -> Result<&mut Buffer> {
        match self {
            Memory::Host(buffer) => Ok(buffer),
            Memory::Attached(block) => Err(elsewhere(Device::Cpu, block.on.device)),
        }
    }

    /// Its block, if it is memory of that device.
    fn block(&self, device: Device) -> Result<&DeviceBlock> {
        match self {
            Memory::Attached(block) if block.on.device == device => Ok(block),
            Memory::Attached(block) => Err(elsewhere(device, block.on.device)),
            Memory::Host(_) => Err(elsewhere(device, Device::Cpu)),
        }
    }
}

fn upload(bytes: &[u8], device: Device, by: Asked) -> Result<Memory> {
    let block = DeviceBlock::alloc(find(device)?, bytes.len(), by)?;
    block.on.backend.upload(bytes, block.handle)?;
    Ok(block.into())
}

#[cold]
fn elsewhere(wanted: Device, device: Device) -> Error {
    Error::new(ErrorKind::Device, "run", format!("an operand is on {device}, not on {wanted}"))
}

#[cold]
fn too_short() -> Error {
    Error::argument("memory", "the memory is shorter than the tensor")
}

/// The elements of a dense tensor, on the host. Waits for its device.
pub(crate) fn to_vec<T: HostElement>(x: &Tensor) -> Result<Vec<T>> {
    let (offset, size) = (x.0.layout.offset, x.dtype().size());
    match &*x.0.storage.read() {
        Memory::Host(buffer) => buffer.to_vec(x.dtype(), offset, x.len()),
        memory => {
            memory.download(x.dtype(), offset * size, x.len() * size)?.to_vec(x.dtype(), 0, x.len())
        }
    }
    .ok_or_else(too_short)
}

/// Runs `f` on the bytes of a dense tensor: on its memory, or a copy of it on the host, for which
/// it waits.
pub(crate) fn with_bytes<R>(x: &Tensor, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
    let (start, bytes) = (x.0.layout.offset * x.dtype().size(), x.spec().bytes());
    match &*x.0.storage.read() {
        Memory::Host(buffer) => buffer.slice(start, bytes).map(f),
        memory => memory.download(x.dtype(), start, bytes)?.slice(0, bytes).map(f),
    }
    .ok_or_else(too_short)
}

/// Host memory for a result of this spec, all of which an engine writes.
pub(crate) fn fresh_host(
    op: &'static str,
    spec: &Spec,
    fill: impl FnOnce(&mut Fresh<'_>) -> Result<()>,
) -> Result<Memory> {
    Buffer::fresh(op, spec.dtype, spec.bytes(), fill).map(Memory::Host)
}

/// The host memory of a tensor, if there is no other reference and it is just that of the tensor.
pub(crate) fn into_host(x: Tensor) -> std::result::Result<Buffer, Tensor> {
    let alone = x.is_sole_owner() && x.0.layout.is_dense() && x.0.layout.offset == 0;
    let taken = match &mut *x.0.storage.write() {
        Memory::Host(buffer) if alone && buffer.len() == x.spec().bytes() => Some(buffer.take()),
        Memory::Host(_) | Memory::Attached(_) => None,
    };
    taken.ok_or(x)
}

/// A dense tensor over host memory, moved to the device of the spec.
pub(crate) fn from_host(spec: Spec, memory: Memory, by: Asked) -> Result<Tensor> {
    let memory = memory.moved(spec.device, by)?;
    Ok(Tensor::dense(spec, memory))
}

/// Runs `f` on the bytes of a dense tensor, if they are on the host.
pub(crate) fn with_host_bytes<R>(x: &Tensor, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let (start, bytes) = (x.0.layout.offset * x.dtype().size(), x.spec().bytes());
    x.0.storage.read().host().ok()?.slice(start, bytes).map(f)
}

/// A tensor that represents a variable of a program has no memory to run on.
fn check_memory(op: &Op, inputs: &[&Tensor]) -> Result<()> {
    match inputs.iter().find_map(|x| x.0.storage.as_traced()) {
        Some(traced) => Err(traced.escaped(op.name())),
        None => Ok(()),
    }
}

/// Computes the results in fresh memory, and nothing else.
pub(crate) fn compute(call: &Checked, inputs: &[&Tensor], at: Line) -> Result<Tensors> {
    let op = call.op();
    check_memory(op, inputs)?;
    if let Some(y) = FewFloats::of(call).and_then(|few| run_few(&few, inputs)) {
        return Ok(Tensors::One(y));
    }
    if let Op::View(view) = op {
        return run_view(call, view, inputs[0], at);
    }
    if let Op::To(device) = op {
        return run_to(call, *device, inputs[0], at);
    }
    match op.structure() {
        // Its kernel is kept.
        Some(Structure::Region(_)) if call.device() == Device::Cpu => run(call, inputs, at),
        // Run as programs of one equation: what they hold is prepared first.
        Some(Structure::Region(_) | Structure::DotRegion(_) | Structure::Flow(_)) => {
            run_program(call.clone(), inputs)
        }
        Some(Structure::Custom(_)) => match custom::body(op) {
            Some(body) => Ok(custom::run_body(body, inputs)),
            None => run(call, inputs, at),
        },
        None => run(call, inputs, at),
    }
}

fn run(call: &Checked, inputs: &[&Tensor], at: Line) -> Result<Tensors> {
    match call.device() {
        Device::Cpu => {
            let mut buffers = Buffers::new();
            let compute = |inputs: &[Input]| pullback_cpu::compute(call, inputs, &mut buffers);
            lock::read_for(call, inputs, |memory| on_host(inputs, memory, compute))?;
            let splat = pullback_cpu::is_splat(call.op());
            // Nearly always one result, which needs no list.
            if let ([spec], 1) = (call.results(), buffers.len()) {
                return Ok(Tensors::One(on_cpu(spec, buffers.swap_remove(0), splat)));
            }
            let tensor = |(spec, buffer)| on_cpu(spec, buffer, splat);
            Ok(call.results().iter().zip(buffers).map(tensor).collect())
        }
        device => enqueue::run(call, inputs, device, at),
    }
}

/// An op on a few numbers, without lists; `None`, with nothing done, where it takes more.
fn run_few(few: &FewFloats, inputs: &[&Tensor]) -> Option<Tensor> {
    let compute = |inputs: &[Input]| Ok(few.compute(inputs));
    let buffer = lock::read_briefly(inputs, |memory| on_host(inputs, memory, compute)).ok()??;
    Some(on_cpu(few.spec(), buffer, false))
}

/// Runs `f` on operands in host memory, the common numbers of them without lists.
fn on_host<R>(
    inputs: &[&Tensor],
    memory: &[&Memory],
    f: impl FnOnce(&[Input]) -> Result<R>,
) -> Result<R> {
    match (inputs, memory) {
        ([], _) => f(&[]),
        ([a], [x]) => f(&[input(a, x)?]),
        ([a, b], [x, y]) => f(&[input(a, x)?, input(b, y)?]),
        _ => {
            let all = inputs.iter().zip(memory).map(|(x, memory)| input(x, memory));
            f(&all.collect::<Result<SmallVec<[Input; 4]>>>()?)
        }
    }
}

fn input<'a>(x: &'a Tensor, memory: &'a Memory) -> Result<Input<'a>> {
    Ok(Input { buffer: memory.host()?, layout: &x.0.layout, spec: x.spec() })
}

/// A result in host memory.
fn on_cpu(spec: &Spec, buffer: Buffer, splat: bool) -> Tensor {
    let storage = Storage::with(buffer.len(), Device::Cpu, || Memory::Host(buffer));
    match splat {
        false => Tensor::filling(spec, storage),
        true => Tensor::new(spec.clone(), Layout::splat(spec.shape.clone()), storage),
    }
}

/// Runs an op that holds programs, as a program of one equation.
fn run_program(call: Checked, inputs: &[&Tensor]) -> Result<Tensors> {
    let specs = call.results().to_vec();
    let made = lock::read(inputs, |memory| Executable::run_once(call, inputs, memory))?;
    let tensor = |(spec, memory)| Tensor::dense(spec, memory);
    Ok(specs.into_iter().zip(made).map(tensor).collect())
}

/// A view is arithmetic on the layout, except a reshape of elements that are not evenly spaced.
fn run_view(call: &Checked, view: &View, x: &Tensor, at: Line) -> Result<Tensors> {
    let spec = call.results()[0].clone();
    if let Some(layout) = x.0.layout.view(view) {
        let parent = Some(Box::new((x.clone(), view.clone())));
        return Ok(Tensors::One(Tensor::with_parent(spec, layout, x.0.storage.clone(), parent)));
    }
    let (layout, copy) = (Layout::dense(spec.shape.clone()), copy(x, at)?);
    Ok(Tensors::One(Tensor::new(spec, layout, copy.0.storage.clone())))
}

/// A dense copy on the same device.
pub(crate) fn copy(x: &Tensor, at: Line) -> Result<Tensor> {
    Ok(run(&Checked::copy(&[x.spec()]), &[x], at)?.into_first())
}

/// Moves a value to another device, through the host.
fn run_to(call: &Checked, device: Device, x: &Tensor, at: Line) -> Result<Tensors> {
    let spec = call.results()[0].clone();
    if device == x.device() {
        return Ok(Tensors::One(copy(x, at)?));
    }
    // Made dense on its own device, so that only its elements are moved.
    let dense = if x.0.layout.is_dense() { x.clone() } else { copy(x, at)? };
    let (start, bytes) = (dense.0.layout.offset * spec.dtype.size(), spec.bytes());
    let by = Asked::by("to", mode::user_line(at));
    let memory = match &*dense.0.storage.read() {
        Memory::Host(buffer) => {
            upload(buffer.slice(start, bytes).ok_or_else(too_short)?, device, by)?
        }
        memory => Memory::Host(memory.download(spec.dtype, start, bytes)?).moved(device, by)?,
    };
    Ok(Tensors::One(Tensor::dense(spec, memory)))
}

/// Writes the results of an op to the memory of the targets, as [`Write`] says, and calls `done`
/// while it is locked. An operand that is a target, memory and layout, is what the target holds
/// before; no other operand may be in memory of a target. `None`, and nothing done, where there is
/// no kernel that does both at once: callers then compute first and copy the result
/// ([`Write::Part`], which every device has).
///
/// # Errors
/// If the operands or the targets are not as they must be.
pub(crate) fn write<R>(
    call: &Checked,
    how: Write,
    targets: &[&Tensor],
    inputs: &[&Tensor],
    at: Option<Line>,
    done: impl FnOnce() -> R,
) -> Result<Option<R>> {
    // Of one device too: a spec has it.
    if !call.results().iter().eq(targets.iter().map(|t| t.spec())) {
        return Err(does_not_fit(call, targets));
    }
    let target_of = |x: &Tensor| {
        let same = |t: &&Tensor| x.shares_memory(t) && x.0.layout == t.0.layout;
        targets.iter().position(same)
    };
    let sources: SmallVec<[Option<usize>; 6]> = inputs.iter().map(|x| target_of(x)).collect();
    let mut claims: SmallVec<[Claim; 8]> = targets.iter().map(|t| Claim::write(t)).collect();
    let others = inputs.iter().zip(&sources).filter(|(_, at)| at.is_none());
    claims.extend(others.map(|(x, _)| Claim::read(x)));
    lock::hold::<8, _>(&claims, |bound| {
        let (to, from) = bound.split_at_mut(targets.len());
        let run = match call.device() {
            Device::Cpu => write_host(call, how, (targets, to), (inputs, &sources, from))?,
            device => {
                enqueue::write(call, how, (targets, to), (inputs, &sources, from), device, at)?
            }
        };
        Ok(run.then(done))
    })
}

#[cold]
fn does_not_fit(call: &Checked, targets: &[&Tensor]) -> Error {
    let list = |specs: &mut dyn Iterator<Item = &Spec>| {
        specs.map(Spec::to_string).collect::<Vec<_>>().join(", ")
    };
    let (made, over) =
        (list(&mut call.results().iter()), list(&mut targets.iter().map(|t| t.spec())));
    let message = format!("the result is {made}, which does not fit over {over}");
    Error::new(ErrorKind::InPlace, call.op().name(), message).on(call.operands().iter().copied())
}

fn write_host(
    call: &Checked,
    how: Write,
    (targets, to): (&[&Tensor], &mut [Bound<'_>]),
    (inputs, sources, from): (&[&Tensor], &[Option<usize>], &[Bound<'_>]),
) -> Result<bool> {
    let mut all: SmallVec<[WriteTarget; 4]> = SmallVec::new();
    for (t, bound) in targets.iter().zip(to) {
        let Bound::Write(memory, _) = bound else { continue };
        all.push(WriteTarget { buffer: memory.host_mut()?, layout: &t.0.layout, spec: t.spec() });
    }
    let mut from = from.iter();
    let mut operands: SmallVec<[pullback_cpu::ReadOperand; 6]> = SmallVec::new();
    for (x, of) in inputs.iter().zip(sources) {
        operands.push(match (of, of.is_none().then(|| from.next()).flatten()) {
            (Some(i), _) => pullback_cpu::ReadOperand::Target(*i),
            (None, Some(bound)) => pullback_cpu::ReadOperand::Input(input(x, bound.memory())?),
            (None, None) => {
                return Err(Error::argument(call.op().name(), "an operand has no memory"));
            }
        });
    }
    pullback_cpu::run_into(call, how, &mut all, &operands)
}
