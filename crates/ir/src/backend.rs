//! What a device other than the host must be able to do, and the vocabulary that all backends
//! share: how results are written, the kernel calls of a prepared program, what a pool of memory
//! counts.
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
//! result of the copy waits for it. What such a stream may still use is not given back, or used
//! again only afterwards. The engine does not see them. If it is to choose between
//! several compute streams one day, the stream will be a field of [`OpCall`] and [`Bases`] and be
//! stored with each memory, next to its handle.

use crate::pass::plan::Planned;
use crate::pass::{HostLink, Target};
use crate::{Error, ErrorKind, Layout, Line, Op, Result, Spec};
use std::any::Any;
use std::sync::Arc;

/// How results are written to existing memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Over the targets, which are dense and may be operands: pointwise ops, and updates
    /// ([`Fused::updates`](crate::Fused::updates)), which take their targets first.
    Over,
    /// Added to the target, which is dense: matrix products.
    Add,
    /// Over a part of memory with any layout that does not overlap itself: copies.
    Part,
}

/// One kernel call of a prepared program.
#[derive(Clone, Debug)]
pub struct Step {
    /// The equation that it belongs to; moves at the end come after all of them.
    pub equation: usize,
    /// The kernel.
    pub kernel: String,
    /// The specs of its operands and results.
    pub operands: [Vec<Spec>; 2],
    /// The line of the user's program.
    pub at: Option<Line>,
}

/// What a call of a kernel took on a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelTime {
    /// The op or the kernel.
    pub kernel: String,
    /// Its operands and results.
    pub operands: String,
    /// Between begin and end on the device.
    pub milliseconds: f64,
    /// Bytes of operands and results, each once.
    pub bytes: usize,
    /// Floating-point operations of a matrix product; zero for others.
    pub operations: usize,
    /// The line of the user's program.
    pub at: Option<Line>,
}

/// A kernel call of a program on a device, and what it was compiled to: equal calls are one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelCode {
    /// The op or the kernel, as in [`KernelTime`].
    pub kernel: String,
    /// Its operands and results, as in [`KernelTime`].
    pub operands: String,
    /// The equations that call it, in order; the copies at the end come after all of them. Those of
    /// programs inside a loop or a conditional are counted by the equation that contains them.
    pub equations: Vec<usize>,
    /// Bytes of operands and results, each once.
    pub bytes: usize,
    /// Floating-point operations of a matrix product; zero for others.
    pub operations: usize,
    /// The generated source of a fused region, without what all kernels share.
    pub text: Option<Arc<str>>,
    /// What the device's compiler made of it, where that is known.
    pub usage: Option<KernelUsage>,
    /// Milliseconds of a call, the mean of a profile, where one was joined.
    pub milliseconds: Option<f64>,
    /// The line of the user's program.
    pub at: Option<Line>,
}

/// What a thread of a compiled kernel takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelUsage {
    /// Registers, of 4 bytes.
    pub registers: usize,
    /// Bytes that did not fit into registers and are stored to memory and loaded again.
    pub spilled: usize,
    /// Bytes of its stack, those included: local arrays of functions.
    pub stack: usize,
    /// Bytes of shared memory of a block.
    pub shared: usize,
}

/// Statistics of a device's pool of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Requested bytes of the buffers that exist now.
    pub live_bytes: u64,
    /// Largest value of `live_bytes` since the start, or since the last reset.
    pub peak_bytes: u64,
    /// Bytes cached for reuse, in whole blocks; 0 on a device that caches none.
    pub cached_bytes: u64,
    /// Number of buffers allocated.
    pub allocations: u64,
    /// How many of those reused cached blocks.
    pub reused: u64,
    /// Bytes of pinned memory of the host, kept for copies from and to the device.
    pub pinned_bytes: u64,
}

/// Names memory of a device. Only the device knows what it means.
pub type MemoryHandle = u64;

/// Bytes of a device that were copied to the host, or are on the way there. What is in it is known
/// to the device alone: it may be memory that the device reads and writes by itself.
pub struct HostCopy {
    content: Box<dyn Any + Send + Sync>,
    bytes: usize,
}

impl HostCopy {
    /// A copy of so many bytes.
    pub fn new(content: impl Any + Send + Sync, bytes: usize) -> HostCopy {
        HostCopy { content: Box::new(content), bytes }
    }

    /// Its content, if it is of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.content.downcast_ref()
    }

    /// How many bytes were copied.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What a device can do. See the head of the file for what may be asynchronous.
pub trait DeviceBackend: Send + Sync + 'static {
    /// Memory of so many bytes, with any content.
    ///
    /// # Errors
    /// If it cannot be allocated ([`ErrorKind::Memory`]), also after what the device itself has
    /// cached was given back.
    fn alloc(&self, bytes: usize) -> Result<MemoryHandle>;

    /// Gives memory back, once everything that is in the queue has run.
    fn free(&self, memory: MemoryHandle);

    /// Copies bytes to the start of memory. They may change when this returns, so a backend that
    /// copies later takes them to memory of its own (pinned, for a GPU) first.
    ///
    /// # Errors
    /// If the device does not take them.
    fn upload(&self, from: &[u8], to: MemoryHandle) -> Result<()>;

    /// Waits for everything in the queue, then copies bytes from byte `start` on.
    ///
    /// # Errors
    /// What has failed since the last wait.
    fn download(&self, from: MemoryHandle, start: usize, to: &mut [u8]) -> Result<()>;

    /// Starts to copy bytes to the host, from byte `start` on, behind what is in the queue. Does
    /// not wait, if the device can copy during its other work: the memory may be given back at
    /// once, and [`DeviceBackend::wait_for_copies`] comes before a call that writes to it.
    ///
    /// # Errors
    /// If there is no memory on the host, or the device does not take the copy.
    fn offload(&self, from: MemoryHandle, start: usize, bytes: usize) -> Result<HostCopy> {
        let mut copy = vec![0; bytes];
        self.download(from, start, &mut copy)?;
        Ok(HostCopy::new(copy, bytes))
    }

    /// Starts to copy what was offloaded to the start of memory. Does not wait, if the device can
    /// copy during its other work: [`DeviceBackend::wait_for_copies`] comes before calls that use
    /// the memory.
    ///
    /// # Errors
    /// If the device does not take the copy.
    fn restore(&self, copy: &HostCopy, to: MemoryHandle) -> Result<()> {
        match copy.get::<Vec<u8>>() {
            Some(bytes) => self.upload(bytes, to),
            None => Err(foreign()),
        }
    }

    /// What is put into the queue from now on comes after the copies that were started from and to
    /// this memory. Does not wait.
    ///
    /// # Errors
    /// If the device does not take it.
    fn wait_for_copies(&self, _memory: MemoryHandle) -> Result<()> {
        Ok(())
    }

    /// Waits for a copy that was started, and for nothing else, and gives its bytes.
    ///
    /// # Errors
    /// What has failed since the last wait.
    fn collect(&self, copy: &HostCopy, to: &mut [u8]) -> Result<()> {
        match copy.get::<Vec<u8>>().filter(|bytes| bytes.len() == to.len()) {
            Some(bytes) => to.copy_from_slice(bytes),
            None => return Err(foreign()),
        }
        Ok(())
    }

    /// Runs an op, whose results and operands fit it. `false`, and nothing done, if there is no
    /// kernel that writes its results in this way: the engine then computes fresh results and
    /// copies them. So every device runs all ops to fresh memory, and copies ([`Op::Copy`]) also
    /// into a part of memory ([`Write::Part`]). A custom op runs its code for this device
    /// ([`Kernel::launches`](crate::Kernel::launches)), or on the host with copies and a wait.
    ///
    /// # Errors
    /// If the device does not take the op.
    fn run(&self, call: &OpCall<'_>) -> Result<bool>;

    /// Starts a collective on memory of the device, behind what is in the queue and beside what
    /// follows, on a stream of its own. `None`, and nothing done, if this device or that of another
    /// worker cannot: [`DeviceBackend::run`] then goes through the host. The memory is there until
    /// the flight was waited for or dropped.
    ///
    /// # Errors
    /// If the group is not used any more, or the device does not take the call, which was then not
    /// made. What fails later is the error of [`DeviceFlight::wait`], or of the next wait for the
    /// device.
    fn start(&self, _call: &OpCall<'_>) -> Result<Option<Box<dyn DeviceFlight>>> {
        Ok(None)
    }

    /// Makes a program ready to run.
    ///
    /// # Errors
    /// If it cannot be prepared.
    fn prepare(&self, program: &Arc<Planned>) -> Result<Box<dyn DeviceProgram>>;

    /// Its description for passes.
    fn target(&self) -> Target;

    /// The way between it and memory of the host, measured at the first call and remembered; `None`
    /// if the programs of this device cannot keep values there
    /// ([`Transfer`](crate::Transfer)).
    fn host_link(&self) -> Option<HostLink> {
        None
    }

    /// What its pool of memory holds and has done.
    fn statistics(&self) -> PoolStats;

    /// Makes [`PoolStats::peak_bytes`] the bytes that are in use now.
    fn reset_peak(&self);

    /// Gives cached memory back to the system.
    fn trim(&self);

    /// Times what is called from now on. [`DeviceBackend::end_profile`] has the times.
    ///
    /// # Errors
    /// If the device cannot.
    fn start_profile(&self) -> Result<()> {
        Err(Error::new(ErrorKind::Device, "profile", "this device does not time its kernels"))
    }

    /// Waits for everything in the queue: the times of the calls since
    /// [`DeviceBackend::start_profile`], in order.
    ///
    /// # Errors
    /// If the device has failed.
    fn end_profile(&self) -> Result<Vec<KernelTime>> {
        Ok(Vec::new())
    }

    /// Waits for everything in the queue.
    ///
    /// # Errors
    /// What has failed since the last wait.
    fn synchronize(&self) -> Result<()>;
}

#[cold]
fn foreign() -> Error {
    Error::new(ErrorKind::Device, "restore", "the copy is another device's, or of another length")
}

/// A collective that a device has started. Dropping it waits as [`DeviceFlight::wait`] does.
pub trait DeviceFlight: Send {
    /// What is put into the queue from now on comes after the collective. Waits until all workers
    /// have made the call, and not for the device.
    ///
    /// # Errors
    /// If the workers were asked for different things, one of them is gone, time ran out, or the
    /// device does not take it.
    fn wait(&mut self) -> Result<()>;
}

/// A program that a device has made ready to run.
pub trait DeviceProgram: Send + Sync {
    /// Its kernel calls, in order.
    fn steps(&self) -> &[Step];

    /// What was made when it was prepared, in words: kernels, plans, on how many threads.
    fn made(&self) -> Option<String> {
        None
    }

    /// How it is run, a line each, for reports.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Its kernels with their generated code, for reports. This may call the device's compiler.
    fn kernels(&self) -> Vec<KernelCode> {
        Vec::new()
    }

    /// Runs it, or a single step of it, on memory that fits its plan. What the plan asks for of the
    /// host ([`Plan::host`](crate::pass::plan::Plan::host)) is taken before the first step: if
    /// there is none, nothing has run. What a single step copies has been copied when it
    /// returns, and is kept up to the last step.
    ///
    /// # Errors
    /// If there is no memory of the host, or the device does not take it.
    fn run(&mut self, memory: &Bases<'_>, step: Option<usize>) -> Result<()>;
}

/// One op, with the memory of its operands and results.
pub struct OpCall<'a> {
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
    pub memory: MemoryHandle,
    /// The layout of the elements in it.
    pub layout: &'a Layout,
    /// What they are.
    pub spec: &'a Spec,
}

/// The base addresses of a run of a program. Any of them may differ from those of the run before: a
/// backend that captures a graph of kernels updates it where they do.
pub struct Bases<'a> {
    /// Memory to work in, at least as long as the plan says. It is that of the run before, except
    /// after a longer program, trimming or a run step by step.
    pub arena: MemoryHandle,
    /// The inputs, each with the byte at which it begins.
    pub inputs: &'a [(MemoryHandle, usize)],
    /// The outputs that replace no input: [`Planned::fresh`].
    pub outputs: &'a [MemoryHandle],
}
