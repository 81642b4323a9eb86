//! Backends from outside of the crate: their interface, and the list of attached devices.
//!
//! # Streams
//!
//! Work is ordered on the stream of the memory that it reads and writes, and a device has one such
//! stream: what the calls allocate, copy, compute and free happens in the order of the calls, so
//! memory is reused only after earlier work on it. The calls return when the work is in the queue.
//! Only [`DeviceBackend::download`] and [`DeviceBackend::synchronize`] wait. What fails in between
//! is the error of the next of these two, with the op and the line of the user's program that it
//! came with.
//!
//! A backend may use further streams (for copies from and to the host, for collectives) if it
//! orders them itself, by events: a copy waits for what has written its source, and what reads the
//! result of the copy waits for it. The engine does not see them. If it is to choose between several
//! compute streams one day, the stream will be a field of [`Call`] and [`Bases`] and be stored with
//! each memory, next to its handle; both structs are `non_exhaustive`, so that backends go on to
//! compile.

use crate::{Device, Error, Op, Result, Spec, device};
use pullback_ir::pass::Target;
use pullback_ir::pass::plan::Planned;
use pullback_ir::{Layout, Line};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use pullback_ir::{PoolStats, Step, Write};

/// Names memory of a device. Only the device knows what it means.
pub type Handle = u64;

/// What a device can do. See the head of the file for what may be asynchronous.
pub trait DeviceBackend: Send + Sync + 'static {
    /// Memory of so many bytes, with any content.
    ///
    /// # Errors
    /// If it cannot be allocated.
    fn alloc(&self, bytes: usize) -> Result<Handle>;

    /// Gives memory back, once everything that is in the queue has run.
    fn free(&self, memory: Handle);

    /// Copies bytes to the start of memory. They may change when this returns, so a backend that
    /// copies later takes them to memory of its own (pinned, for a GPU) first.
    ///
    /// # Errors
    /// If the device does not take them.
    fn upload(&self, from: &[u8], to: Handle) -> Result<()>;

    /// Waits for everything in the queue, then copies bytes from byte `start` on.
    ///
    /// # Errors
    /// What has failed since the last wait.
    fn download(&self, from: Handle, start: usize, to: &mut [u8]) -> Result<()>;

    /// Runs an op, whose results and operands fit it. `false`, and nothing done, if there is no
    /// kernel that writes its results in this way: the engine then computes fresh results and
    /// copies them. So every device runs all ops to fresh memory, and copies ([`Op::Copy`]) also
    /// into a part of memory ([`Write::Part`]).
    ///
    /// # Errors
    /// If the device does not take the op.
    fn run(&self, call: &Call<'_>) -> Result<bool>;

    /// Makes a program ready to run.
    ///
    /// # Errors
    /// If it cannot be prepared.
    fn prepare(&self, program: &Arc<Planned>) -> Result<Box<dyn DeviceProgram>>;

    /// Its description for passes.
    fn target(&self) -> Target;

    /// What its pool of memory holds and has done.
    fn statistics(&self) -> PoolStats;

    /// Gives cached memory back to the system.
    fn trim(&self);

    /// Waits for everything in the queue.
    ///
    /// # Errors
    /// What has failed since the last wait.
    fn synchronize(&self) -> Result<()>;
}

/// A program that a device has made ready to run.
pub trait DeviceProgram: Send + Sync {
    /// Its kernel calls, in order.
    fn steps(&self) -> &[Step];

    /// Runs it, or a single step of it, on memory that fits its plan.
    ///
    /// # Errors
    /// If the device does not take it.
    fn run(&mut self, memory: &Bases<'_>, step: Option<usize>) -> Result<()>;
}

/// One op, with the memory of its operands and results.
#[non_exhaustive]
pub struct Call<'a> {
    /// The op.
    pub op: &'a Op,
    /// How the results are written; `None`: to fresh memory.
    pub write: Option<Write>,
    /// The results.
    pub outputs: &'a [DeviceOperand<'a>],
    /// The operands. One that is written over has the memory and the layout of the result.
    pub inputs: &'a [DeviceOperand<'a>],
    /// The line of the user's program.
    pub at: Option<Line>,
}

/// Memory of a device, seen through a layout.
#[derive(Clone, Copy)]
pub struct DeviceOperand<'a> {
    /// The memory.
    pub memory: Handle,
    /// The layout of the elements in it.
    pub layout: &'a Layout,
    /// What they are.
    pub spec: &'a Spec,
}

/// The base addresses of a run of a program. Any of them may differ from those of the run before: a
/// backend that captures a graph of kernels updates it where they do.
#[non_exhaustive]
pub struct Bases<'a> {
    /// Memory to work in, at least as long as the plan says. It is that of the run before, except
    /// after a longer program, [`trim_memory`](crate::trim_memory) or a run step by step.
    pub arena: Handle,
    /// The inputs, each with the byte at which it begins.
    pub inputs: &'a [(Handle, usize)],
    /// The outputs that replace no input: [`Planned::fresh`].
    pub outputs: &'a [Handle],
}

/// An attached device, with the working memory of its programs.
///
/// Programs run one after the other on the stream of the device, so they share one arena, of the
/// size of the largest. Its address changes when it grows, and after `trim`.
pub(crate) struct Attached {
    pub device: Device,
    pub backend: Box<dyn DeviceBackend>,
    arena: Mutex<Option<Block>>,
}

/// How many devices there may be.
const MOST: usize = 64;

/// `cuda:n` at place `n`. Filled once, so that looking one up takes no lock.
static ATTACHED: [OnceLock<Arc<Attached>>; MOST] = [const { OnceLock::new() }; MOST];

fn attached() -> impl Iterator<Item = &'static Arc<Attached>> {
    ATTACHED.iter().filter_map(OnceLock::get)
}

/// The place of a device that is not the host.
fn place(device: Device) -> Option<&'static OnceLock<Arc<Attached>>> {
    match device {
        Device::Cpu => None,
        Device::Cuda(n) => ATTACHED.get(n as usize),
    }
}

/// Registers a device, for the lifetime of the process.
///
/// # Errors
/// If it is registered already, is the host, or has a number of 64 or more.
pub fn attach(device: Device, backend: Box<dyn DeviceBackend>) -> Result<()> {
    let refused = |why: &str| Err(Error::argument("attach", format!("{device} {why}")));
    if device == Device::Cpu {
        return refused("is there already");
    }
    let Some(place) = place(device) else { return refused("is beyond the last number, 63") };
    match place.set(Arc::new(Attached { device, backend, arena: Mutex::new(None) })) {
        Ok(()) => {
            device.register();
            Ok(())
        }
        Err(_) => refused("is there already"),
    }
}

/// Returns cached memory of all devices but the host.
pub(super) fn trim() {
    for on in attached() {
        drop(on.arena.lock().unwrap_or_else(PoisonError::into_inner).take());
        on.backend.trim();
    }
}

/// The backend of a device that is not the host.
pub(crate) fn find(device: Device) -> Result<&'static Arc<Attached>> {
    let found = place(device).and_then(OnceLock::get);
    found.ok_or_else(|| device::missing("device", device))
}

/// Memory of a device, given back when it is dropped.
pub(crate) struct Block {
    pub on: Arc<Attached>,
    pub handle: Handle,
    pub bytes: usize,
}

impl Block {
    pub fn alloc(on: &Arc<Attached>, bytes: usize) -> Result<Block> {
        let handle = on.backend.alloc(bytes)?;
        Ok(Block { on: on.clone(), handle, bytes })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.on.backend.free(self.handle);
    }
}

impl Attached {
    /// Runs `f` on an arena of at least so many bytes.
    pub fn with_arena<R>(
        self: &Arc<Attached>,
        bytes: usize,
        f: impl FnOnce(Handle) -> Result<R>,
    ) -> Result<R> {
        let mut arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        let block = match arena.take() {
            Some(block) if block.bytes >= bytes => block,
            outgrown => {
                drop(outgrown);
                Block::alloc(self, bytes)?
            }
        };
        let handle = block.handle;
        *arena = Some(block);
        f(handle)
    }
}
