//! A device: its context, its stream, launches, and what its driver says.

use crate::compile::KernelCache;
use crate::describe::describe;
use crate::dnn::Dnn;
use crate::dry_run::{in_dry_run, paused, placeholder};
use crate::faults::Faults;
use crate::fft::Transforms;
use crate::graph::{GraphMemory, captures_into};
use crate::link::host_link;
use crate::loops::StridedOperand;
use crate::pinned::Pinned;
use crate::pool::MemoryPool;
use crate::product::Products;
use crate::profile::Profile;
use crate::queue::LaunchQueue;
use crate::solver::Solver;
use crate::transfer::Streams;
use crate::update::OptimizerKind;
use pullback_cuda_sys::{DevicePtr, Driver, Ptr, error_text, initialised};
use pullback_ir::pass::HostLink;
use pullback_ir::{DType, Error, ErrorKind, Fused, Line, Op, Result, Scalar, Spec};
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The code of the driver.
pub(crate) const OUT_OF_MEMORY: c_int = 2;

/// Whether a code of the driver says that a kernel has crashed, and the context with it.
pub(crate) fn is_lost(code: c_int) -> bool {
    matches!(code, 214 | 700 | 702 | 709 | 710 | 714..=719)
}

/// A device that was opened.
pub(crate) struct Gpu {
    pub number: u16,
    pub driver: &'static Driver,
    context: LibraryHandle,
    pub stream: LibraryHandle,
    /// Bytes of shared memory that a block may ask for.
    pub shared: usize,
    pub kernels: KernelCache,
    pool: Mutex<MemoryPool>,
    /// Pointwise ops that were called, but are not in the stream yet.
    queue: Mutex<LaunchQueue>,
    pub pinned: Arc<Pinned>,
    pub streams: OnceLock<Streams>,
    products: OnceLock<std::result::Result<Products, String>>,
    transforms: OnceLock<std::result::Result<Transforms, String>>,
    solver: OnceLock<std::result::Result<Solver, String>>,
    dnn: OnceLock<std::result::Result<Dnn, String>>,
    link: OnceLock<HostLink>,
    faults: Faults,
    pub profile: Profile,
    pub graph_memory: Mutex<GraphMemory>,
}

thread_local! {
    /// This thread runs ops that waited: it holds the lock of their queue.
    static RUNS_QUEUE: Cell<bool> = const { Cell::new(false) };
}

/// A handle of a library, valid in every thread.
#[derive(Clone, Copy)]
pub(crate) struct LibraryHandle(pub Ptr);

// SAFETY: the driver's handles may be used by any thread in which their context is current.
unsafe impl Send for LibraryHandle {}
// SAFETY: as above; the driver locks where it must.
unsafe impl Sync for LibraryHandle {}

pub(crate) fn device_error(what: &'static str, text: String) -> Error {
    Error::new(ErrorKind::Device, what, text)
}

impl Gpu {
    /// Opens a device.
    pub fn open(number: u16) -> std::result::Result<Gpu, String> {
        let (driver, found) = (initialised()?, describe(number)?);
        let ok = |code: c_int| if code == 0 { Ok(()) } else { Err(error_text(driver, code)) };
        let (mut device, mut context, mut stream) = (0, null_mut(), null_mut());
        let mut shared = 0;
        // SAFETY: each call writes one handle, or one integer.
        unsafe {
            ok((driver.cuDeviceGet)(&mut device, c_int::from(number as i16)))?;
            ok((driver.cuDeviceGetAttribute)(&mut shared, 97, device))?;
            ok((driver.cuDevicePrimaryCtxRetain)(&mut context, device))?;
            ok((driver.cuCtxSetCurrent)(context))?;
            // Not ordered with the legacy stream of other libraries.
            ok((driver.cuStreamCreate)(&mut stream, 1))?;
        }
        let faults = Faults::new(driver)?;
        let kernels = KernelCache::new(found.capability);
        Ok(Gpu::of(number, driver, [context, stream], shared as usize, kernels, faults))
    }

    /// A device that is none, for tests of what stops before it.
    #[cfg(test)]
    pub fn fake(capability: u32) -> Gpu {
        let driver: &Driver = Box::leak(Box::new(Driver::fake()));
        let kernels = KernelCache::new(capability);
        Gpu::of(0, driver, [null_mut(); 2], 100 << 10, kernels, Faults::fake())
    }

    fn of(
        number: u16,
        driver: &'static Driver,
        [context, stream]: [Ptr; 2],
        shared: usize,
        kernels: KernelCache,
        faults: Faults,
    ) -> Gpu {
        Gpu {
            number,
            driver,
            context: LibraryHandle(context),
            stream: LibraryHandle(stream),
            shared,
            kernels,
            pool: Mutex::new(MemoryPool::default()),
            queue: Mutex::default(),
            pinned: Arc::new(Pinned::new(driver)),
            streams: OnceLock::new(),
            products: OnceLock::new(),
            transforms: OnceLock::new(),
            solver: OnceLock::new(),
            dnn: OnceLock::new(),
            link: OnceLock::new(),
            faults,
            profile: Profile::default(),
            graph_memory: Mutex::default(),
        }
    }

    /// Before anything that uses the stream: runs the ops that wait, and makes the context current
    /// in this thread.
    #[inline]
    pub fn enter(&self) {
        if in_dry_run() {
            return;
        }
        if !RUNS_QUEUE.get() && captures_into().is_none() {
            self.run_waiting(&mut self.queue());
        }
        self.make_current();
    }

    fn queue(&self) -> MutexGuard<'_, LaunchQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_waiting(&self, queue: &mut LaunchQueue) {
        if !queue.is_empty() {
            self.with_queue(queue, LaunchQueue::flush);
        }
    }

    /// Calls `f`, which may use the stream, while the queue is locked. Its error is that of the
    /// next wait.
    fn with_queue(
        &self,
        queue: &mut LaunchQueue,
        f: impl FnOnce(&mut LaunchQueue, &Gpu) -> Result<()>,
    ) {
        /// Also if `f` panics.
        struct QueueGuard;
        impl Drop for QueueGuard {
            fn drop(&mut self) {
                RUNS_QUEUE.set(false);
            }
        }
        RUNS_QUEUE.set(true);
        let running = QueueGuard;
        let failed = f(queue, self).err();
        if let Some(error) = failed {
            // Updates of parameters that are computed from it change nothing.
            let _ = self.write_number(self.faults.stop, 1, 4);
            self.faults.add(error);
        }
        drop(running);
    }

    /// Lets a pointwise op wait. `false` if it cannot, and must run now.
    pub fn defer(
        &self,
        op: &Op,
        x: &[StridedOperand],
        out: &StridedOperand,
        at: Option<Line>,
    ) -> bool {
        let mut taken = false;
        self.with_queue(&mut self.queue(), |queue, gpu| {
            taken = queue.add(gpu, op, x, out, at)?;
            Ok(())
        });
        taken
    }

    /// Lets a step of an optimiser wait. `false` if it cannot, and must run now.
    pub fn defer_update(
        &self,
        of: Fused,
        x: &[StridedOperand],
        out: &[StridedOperand],
        at: Option<Line>,
    ) -> bool {
        let Some(how) = OptimizerKind::of(of) else { return false };
        let mut taken = false;
        self.with_queue(&mut self.queue(), |queue, gpu| {
            taken = queue.update(gpu, how, [x, out], at)?;
            Ok(())
        });
        taken
    }

    /// Lets a number wait to be written to memory of one element.
    pub fn defer_number(&self, value: Scalar, dtype: DType, at: DevicePtr) {
        self.with_queue(&mut self.queue(), |queue, gpu| queue.number(gpu, value, dtype, at));
    }

    /// Makes the context current in this thread.
    #[inline]
    pub fn make_current(&self) {
        // Each time, in some tens of nanoseconds: another library may have set its own.
        // SAFETY: the context lives as long as the process. A failure shows at the next call.
        unsafe { (self.driver.cuCtxSetCurrent)(self.context.0) };
    }

    /// The error of a call of the driver that failed.
    #[inline]
    pub fn ok(&self, what: &'static str, code: c_int) -> Result<()> {
        match code {
            0 => Ok(()),
            code => Err(self.failed(what, code)),
        }
    }

    /// A context in which a kernel has crashed answers every later call with such a code.
    #[cold]
    pub fn failed(&self, what: &'static str, code: c_int) -> Error {
        let (number, text) = (self.number, error_text(self.driver, code));
        match code {
            OUT_OF_MEMORY => Error::new(ErrorKind::Memory, what, format!("cuda:{number}: {text}")),
            code if is_lost(code) => {
                let message = format!(
                    "the context of cuda:{number} is lost, with all that is in its memory: {text}. \
                     The process must be started again to use the device"
                );
                device_error(what, message)
            }
            _ => device_error(what, format!("cuda:{number}: {text}")),
        }
    }

    /// The error of a library, or that of the driver if the context is lost: libraries have codes
    /// of their own for that.
    #[cold]
    pub fn explained(&self, what: &'static str, error: Error) -> Error {
        // Nothing was launched: the error says that this cannot be captured, or run dry.
        if in_dry_run() || captures_into().is_some() {
            return error;
        }
        self.make_current();
        // SAFETY: the stream lives as long as the process.
        match unsafe { (self.driver.cuStreamSynchronize)(self.stream.0) } {
            code if is_lost(code) => self.failed(what, code),
            _ => error,
        }
    }

    /// Whether a kernel has rejected a value, or an op that waited has failed, and that was not
    /// reported yet.
    pub fn has_fault(&self) -> bool {
        self.faults.any()
    }

    pub fn pool(&self) -> MutexGuard<'_, MemoryPool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The library of products, opened at the first call.
    pub fn products(&self) -> Result<&Products> {
        let again = |_| {
            self.release();
            Products::open(self)
        };
        let opened = self.products.get_or_init(|| Products::open(self).or_else(again));
        opened.as_ref().map_err(|why| device_error("dot", why.clone()))
    }

    /// The library of Fourier transforms, opened at the first call, or what is missing.
    pub fn transforms(&self) -> std::result::Result<&Transforms, &str> {
        self.not_captured()?;
        let opened = self.transforms.get_or_init(Transforms::open);
        opened.as_ref().map_err(String::as_str)
    }

    /// The libraries of factorisations, opened at the first call, or what is missing.
    pub fn solver(&self) -> std::result::Result<&Solver, &str> {
        self.not_captured()?;
        // The libraries take memory of their own, which the pool may hold.
        let again = |_| {
            self.release();
            Solver::open(self)
        };
        let opened = self.solver.get_or_init(|| Solver::open(self).or_else(again));
        opened.as_ref().map_err(String::as_str)
    }

    /// cuDNN, opened at the first call. Without it, kernels of our own run.
    pub fn dnn(&self) -> Option<&Dnn> {
        let again = |_| {
            self.release();
            Dnn::open(self)
        };
        self.dnn.get_or_init(|| Dnn::open(self).or_else(again)).as_ref().ok()
    }

    /// The way to the host, measured at the first call; `None` if that cannot be done now.
    pub fn host_link(&self) -> Option<HostLink> {
        if self.link.get().is_none() {
            let link = host_link(self)?;
            return Some(*self.link.get_or_init(|| link));
        }
        self.link.get().copied()
    }

    pub fn alloc(&self, bytes: usize) -> Result<DevicePtr> {
        if in_dry_run() {
            return Ok(placeholder(bytes));
        }
        if let Some(captured) = self.captured_alloc(bytes) {
            return captured;
        }
        if let Some(at) = self.pool().reuse(bytes) {
            return Ok(at);
        }
        // Memory may go back to the driver: not while ops that read it wait.
        let mut queue = self.queue();
        self.run_waiting(&mut queue);
        self.make_current();
        let made = self.pool().alloc(self, bytes);
        match made {
            Err(error) if error.kind() == ErrorKind::Memory && self.release_graphs() => {
                self.pool().alloc(self, bytes).map_err(|_| error)
            }
            made => made,
        }
    }

    pub fn free(&self, memory: DevicePtr) {
        if in_dry_run() || self.captured_free(memory) {
            return;
        }
        self.queue().free(memory);
        self.pool().free(self, memory);
    }

    /// Gives cached memory back to the driver for what takes memory beside the pool; `false`, and
    /// nothing done, while ops that waited are run, since they may read memory that is free
    /// already.
    pub fn release(&self) -> bool {
        let may = !RUNS_QUEUE.get() && captures_into().is_none();
        if may {
            paused(|| self.trim());
        }
        may
    }

    /// Gives cached memory back to the driver.
    pub fn trim(&self) {
        self.release_graphs();
        let mut queue = self.queue();
        self.run_waiting(&mut queue);
        self.make_current();
        self.pool().trim(self);
        self.pinned.trim();
    }

    /// An error of something that runs beside the queue, for the next wait. Updates of parameters
    /// that have not run yet change nothing: they are told by a stream that waits for no other.
    pub fn fail_later(&self, error: Error, aside: LibraryHandle) {
        self.make_current();
        // SAFETY: the word lives as long as the process. If this fails, so does every later call.
        unsafe {
            (self.driver.cuMemsetD32Async)(self.faults.stop, 1, 1, aside.0);
            (self.driver.cuStreamSynchronize)(aside.0);
        }
        self.faults.add(error);
    }

    /// A stream that is not ordered with any other.
    pub fn new_stream(&self) -> Result<LibraryHandle> {
        let mut stream = null_mut();
        // SAFETY: writes one handle. Not ordered with the legacy stream.
        self.ok("stream", unsafe { (self.driver.cuStreamCreate)(&mut stream, 1) })?;
        Ok(LibraryHandle(stream))
    }

    /// Writes one element.
    pub fn write_number(&self, at: DevicePtr, bits: u64, bytes: usize) -> Result<()> {
        if in_dry_run() {
            return Ok(());
        }
        self.make_current();
        let (driver, stream) = (self.driver, self.stream().0);
        // SAFETY: memory of one element of this many bytes.
        let code = unsafe {
            match bytes {
                1 => (driver.cuMemsetD8Async)(at, bits as u8, 1, stream),
                2 => (driver.cuMemsetD16Async)(at, bits as u16, 1, stream),
                4 => (driver.cuMemsetD32Async)(at, bits as u32, 1, stream),
                // Two words of 4 bytes.
                _ => match (driver.cuMemsetD32Async)(at, bits as u32, 1, stream) {
                    0 => (driver.cuMemsetD32Async)(at + 4, (bits >> 32) as u32, 1, stream),
                    code => code,
                },
            }
        };
        self.ok("fill", code)
    }

    /// Memory that is given back when it is dropped.
    pub fn scratch(&self, bytes: usize) -> Result<DeviceScratch<'_>> {
        Ok(DeviceScratch { gpu: self, at: self.alloc(bytes)? })
    }

    pub fn copy(&self, from: DevicePtr, to: DevicePtr, bytes: usize) -> Result<()> {
        self.enter();
        if bytes == 0 || from == to || in_dry_run() {
            return Ok(());
        }
        // SAFETY: both are memory of the device, as long as the callers say.
        let code = unsafe { (self.driver.cuMemcpyDtoDAsync_v2)(to, from, bytes, self.stream().0) };
        self.ok("copy", code)
    }

    /// Fills memory with a byte.
    pub fn fill(&self, to: DevicePtr, byte: u8, bytes: usize) -> Result<()> {
        self.enter();
        if bytes == 0 || in_dry_run() {
            return Ok(());
        }
        // SAFETY: memory of the device, as long as the callers say.
        self.ok("fill", unsafe { (self.driver.cuMemsetD8Async)(to, byte, bytes, self.stream().0) })
    }

    /// Waits for all work, and returns what a kernel has rejected since the last wait.
    pub fn synchronize(&self) -> Result<()> {
        self.refuse_capture("synchronize")?;
        self.enter();
        // SAFETY: the stream lives as long as the process.
        let code = unsafe { (self.driver.cuStreamSynchronize)(self.stream.0) };
        self.ok("synchronize", code)?;
        self.faults.take(self)
    }

    /// Registers a call whose kernel may reject a value: its number, and where to report.
    pub fn may_fail(&self, op: &str, specs: &[Spec], at: Option<Line>) -> (u64, DevicePtr) {
        if in_dry_run() {
            return (0, self.faults.stop);
        }
        let (number, slot) = self.faults.register(op, specs, at);
        if self.captured_call(number as u32) {
            self.faults.keep(number as u32);
        }
        (number, slot)
    }

    /// Forgets calls of a graph that does not run any more.
    pub fn forget_calls(&self, numbers: &[u32]) {
        self.faults.forget(numbers);
    }

    /// The word that updates read: they change nothing from a rejected value on, until it was
    /// reported.
    pub fn stop_word(&self) -> DevicePtr {
        self.faults.stop
    }

    /// Launches a kernel; parameters are words of eight bytes.
    #[inline]
    pub fn launch(
        &self,
        kernel: LibraryHandle,
        grid: usize,
        block: usize,
        words: &[u64],
    ) -> Result<()> {
        self.launch_with(kernel, grid, block, 0, words)
    }

    /// The same with bytes of shared memory beside those that the kernel declares.
    #[inline]
    pub fn launch_with(
        &self,
        kernel: LibraryHandle,
        grid: usize,
        block: usize,
        shared: usize,
        words: &[u64],
    ) -> Result<()> {
        if in_dry_run() {
            return Ok(());
        }
        self.enter();
        // More than every device has, which must be asked for.
        if shared > 48 << 10 {
            // SAFETY: the kernel lives as long as the process; 8 is the largest dynamic size.
            let code = unsafe { (self.driver.cuFuncSetAttribute)(kernel.0, 8, shared as c_int) };
            self.ok("launch", code)?;
        }
        let mut size = size_of_val(words);
        // A buffer with all parameters, and its size.
        let mut extra: [Ptr; 5] = [
            1 as Ptr,
            words.as_ptr().cast_mut().cast(),
            2 as Ptr,
            (&raw mut size).cast(),
            null_mut(),
        ];
        let Ok(grid) = u32::try_from(grid).and_then(|_| i32::try_from(grid)) else {
            return Err(device_error(
                "launch",
                format!("{grid} blocks are more than a grid takes"),
            ));
        };
        // SAFETY: the kernel was compiled for parameters of this form; the driver copies them.
        let code = unsafe {
            (self.driver.cuLaunchKernel)(
                kernel.0,
                grid as u32,
                1,
                1,
                block as u32,
                1,
                1,
                shared as u32,
                self.stream().0,
                null_mut(),
                extra.as_mut_ptr(),
            )
        };
        self.ok("launch", code)
    }
}

/// Memory of a device for one call.
pub(crate) struct DeviceScratch<'a> {
    gpu: &'a Gpu,
    pub at: DevicePtr,
}

impl Drop for DeviceScratch<'_> {
    fn drop(&mut self) {
        self.gpu.free(self.at);
    }
}
