//! A device: its context, its stream, launches, copies, and what its kernels report.

use crate::compile::Kernels;
use crate::dnn::Dnn;
use crate::fft::Transforms;
use crate::loops::Operand;
use crate::pool::Pool;
use crate::product::Products;
use crate::queue::Queue;
use crate::solver::Solver;
use pullback_cuda_sys::{DevicePtr, Driver, GetProperty, Ptr, error_text, initialised, version};
use pullback_ir::{DType, Error, ErrorKind, Line, Op, Result, Scalar, Spec};
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A device that was opened.
pub(crate) struct Gpu {
    pub number: u16,
    pub driver: &'static Driver,
    context: Handle,
    pub stream: Handle,
    /// How many multiprocessors it has.
    pub units: usize,
    pub kernels: Kernels,
    pool: Mutex<Pool>,
    /// Pointwise ops that were called, but are not in the stream yet.
    queue: Mutex<Queue>,
    /// The first of them that failed since the last wait.
    failed_later: Mutex<Option<Error>>,
    products: OnceLock<std::result::Result<Products, String>>,
    transforms: OnceLock<std::result::Result<Transforms, String>>,
    solver: OnceLock<std::result::Result<Solver, String>>,
    dnn: OnceLock<std::result::Result<Dnn, String>>,
    faults: Faults,
}

thread_local! {
    /// This thread runs ops that waited: it holds the lock of their queue.
    static RUNS_QUEUE: Cell<bool> = const { Cell::new(false) };
}

/// A handle of a library, valid in every thread.
#[derive(Clone, Copy)]
pub(crate) struct Handle(pub Ptr);

// SAFETY: the driver's handles may be used by any thread in which their context is current.
unsafe impl Send for Handle {}
// SAFETY: as above; the driver locks where it must.
unsafe impl Sync for Handle {}

/// What kernels reject: a word in host memory that they see, and the calls that may write it.
struct Faults {
    /// In pinned host memory.
    host: Handle,
    device: DevicePtr,
    /// The newest calls that may fail.
    calls: Mutex<Vec<FallibleCall>>,
    next: AtomicU32,
}

/// A call whose kernel may reject a value.
struct FallibleCall {
    number: u32,
    op: String,
    operands: Vec<Spec>,
    at: Option<Line>,
}

/// As `Fault` in `kernels/prelude.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Fault {
    call: u32,
    pad: u32,
    bound: i64,
    high: u64,
    low: u64,
}

impl Fault {
    const NONE: Fault = Fault { call: 0, pad: 0, bound: 0, high: u64::MAX, low: u64::MAX };

    /// What was wrong, as the CPU says it.
    fn message(&self) -> String {
        let index = ((self.high << 32) | (self.low & 0xffff_ffff)) as i64;
        let (position, bound) = (self.high >> 32, self.bound);
        format!(
            "index {index} (element {position} of the indices) is out of range for an axis of length {bound}"
        )
    }
}

/// What is known of a device.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Compute capability, as 90 for 9.0.
    pub capability: u32,
    /// How many multiprocessors it has.
    pub units: usize,
    /// Bytes of memory.
    pub memory: usize,
}

pub(crate) fn device_error(what: &'static str, text: String) -> Error {
    Error::new(ErrorKind::Device, what, text)
}

/// What is known of device `number`.
///
/// # Errors
/// A sentence that says what is missing.
pub fn describe(number: u16) -> std::result::Result<Description, String> {
    let driver = initialised()?;
    let count = pullback_cuda_sys::device_count();
    if usize::from(number) >= count {
        return Err(format!("the driver has {count} devices, numbered from 0"));
    }
    let failed = |code: c_int| error_text(driver, code);
    let ok = |code: c_int| if code == 0 { Ok(()) } else { Err(failed(code)) };
    let (mut device, mut memory, mut name) = (0, 0, [0u8; 128]);
    // SAFETY: each call writes as much as the argument has space for.
    unsafe {
        ok((driver.cuDeviceGet)(&mut device, c_int::from(number as i16)))?;
        ok((driver.cuDeviceTotalMem_v2)(&mut memory, device))?;
        ok((driver.cuDeviceGetName)(name.as_mut_ptr().cast(), 128, device))?;
    }
    let attribute = |which: c_int| {
        let mut value = 0;
        // SAFETY: writes one integer.
        ok(unsafe { (driver.cuDeviceGetAttribute)(&mut value, which, device) })?;
        Ok::<u32, String>(value as u32)
    };
    let name = CStr::from_bytes_until_nul(&name).map_or("?".into(), CStr::to_string_lossy);
    Ok(Description {
        name: name.into_owned(),
        capability: attribute(75)? * 10 + attribute(76)?,
        units: attribute(16)? as usize,
        memory,
    })
}

/// A line for each device, and for each library: the file that was opened, or what is missing.
pub fn report() -> Vec<String> {
    let mut lines = Vec::new();
    if let Err(why) = initialised() {
        return vec![format!("no GPU: {why}")];
    }
    for n in 0..pullback_cuda_sys::device_count().min(64) as u16 {
        lines.push(match describe(n) {
            Ok(d) => format!(
                "cuda:{n}: {}, compute capability {}.{}, {} multiprocessors, {:.1} GiB",
                d.name,
                d.capability / 10,
                d.capability % 10,
                d.units,
                d.memory as f64 / (1u64 << 30) as f64,
            ),
            Err(why) => format!("cuda:{n}: {why}"),
        });
    }
    let of_driver = pullback_cuda_sys::driver_version().unwrap_or(0);
    let found = |name: &str, file: std::result::Result<&str, &str>| match file {
        Ok(file) => format!("{name}: {file}"),
        Err(why) => format!("{name}: {why}"),
    };
    let of_cuda = format!("driver, for CUDA {}.{}", of_driver / 1000, of_driver % 1000 / 10);
    lines.push(found(&of_cuda, pullback_cuda_sys::driver().map(|l| l.path.as_str())));
    lines.push(found("NVRTC", pullback_cuda_sys::nvrtc().map(|l| l.path.as_str())));
    lines.push(found("cuBLASLt", pullback_cuda_sys::cublas_lt().map(|l| l.path.as_str())));
    let versioned = |name: &str, of: std::result::Result<(GetProperty, &str), &str>| match of {
        Ok((get, file)) => format!("{name} {}: {file}", version(get)),
        Err(why) => format!("{name} (not needed, its ops run on the CPU): {why}"),
    };
    let fft = pullback_cuda_sys::cufft().map(|l| (l.cufftGetProperty, l.path.as_str()));
    let solver = pullback_cuda_sys::cusolver().map(|l| (l.cusolverGetProperty, l.path.as_str()));
    let blas = pullback_cuda_sys::cublas().map(|l| (l.cublasGetProperty, l.path.as_str()));
    lines.push(versioned("cuFFT", fft));
    lines.push(versioned("cuSOLVER", solver));
    lines.push(versioned("cuBLAS", blas));
    lines.push(match pullback_cuda_sys::cudnn() {
        Ok(library) => {
            let version = pullback_cuda_sys::cudnn_version(library).map(|part| part.to_string());
            found(&format!("cuDNN {}", version.join(".")), Ok(library.path.as_str()))
        }
        Err(why) => format!("cuDNN (optional): {why}"),
    });
    lines
}

impl Gpu {
    /// Opens a device.
    pub fn open(number: u16) -> std::result::Result<Gpu, String> {
        let (driver, found) = (initialised()?, describe(number)?);
        let ok = |code: c_int| if code == 0 { Ok(()) } else { Err(error_text(driver, code)) };
        let (mut device, mut context, mut stream) = (0, null_mut(), null_mut());
        let (mut host, mut seen) = (null_mut(), 0);
        // SAFETY: each call writes one handle or address; the host memory is as long as a fault.
        unsafe {
            ok((driver.cuDeviceGet)(&mut device, c_int::from(number as i16)))?;
            ok((driver.cuDevicePrimaryCtxRetain)(&mut context, device))?;
            ok((driver.cuCtxSetCurrent)(context))?;
            // Not ordered with the legacy stream of other libraries.
            ok((driver.cuStreamCreate)(&mut stream, 1))?;
            // Portable, and mapped into the memory of the device.
            ok((driver.cuMemHostAlloc)(&mut host, size_of::<Fault>(), 3))?;
            host.cast::<Fault>().write(Fault::NONE);
            ok((driver.cuMemHostGetDevicePointer_v2)(&mut seen, host, 0))?;
        }
        Ok(Gpu {
            number,
            driver,
            context: Handle(context),
            stream: Handle(stream),
            units: found.units,
            kernels: Kernels::new(found.capability),
            pool: Mutex::new(Pool::default()),
            queue: Mutex::default(),
            failed_later: Mutex::default(),
            products: OnceLock::new(),
            transforms: OnceLock::new(),
            solver: OnceLock::new(),
            dnn: OnceLock::new(),
            faults: Faults {
                host: Handle(host),
                device: seen,
                calls: Mutex::new(Vec::new()),
                next: AtomicU32::new(1),
            },
        })
    }

    /// Before anything that uses the stream: runs the ops that wait, and makes the context current
    /// in this thread.
    #[inline]
    pub fn enter(&self) {
        if !RUNS_QUEUE.get() {
            self.run_waiting(&mut self.queue());
        }
        self.make_current();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_waiting(&self, queue: &mut Queue) {
        if !queue.is_empty() {
            self.with_queue(queue, Queue::flush);
        }
    }

    /// Calls `f`, which may use the stream, while the queue is locked. Its error is that of the
    /// next wait.
    fn with_queue(&self, queue: &mut Queue, f: impl FnOnce(&mut Queue, &Gpu) -> Result<()>) {
        RUNS_QUEUE.set(true);
        let done = f(queue, self);
        RUNS_QUEUE.set(false);
        if let Err(error) = done {
            self.failed_later.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    /// Lets a pointwise op wait. `false` if it cannot, and must run now.
    pub fn defer(&self, op: &Op, x: &[Operand], out: &Operand) -> bool {
        let mut taken = false;
        self.with_queue(&mut self.queue(), |queue, gpu| {
            taken = queue.add(gpu, op, x, out)?;
            Ok(())
        });
        taken
    }

    /// Lets a number wait to be written to memory of one element.
    pub fn defer_number(&self, value: Scalar, dtype: DType, at: DevicePtr) {
        self.with_queue(&mut self.queue(), |queue, gpu| queue.number(gpu, value, dtype, at));
    }

    #[inline]
    fn make_current(&self) {
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

    #[cold]
    fn failed(&self, what: &'static str, code: c_int) -> Error {
        let text = format!("cuda:{}: {}", self.number, error_text(self.driver, code));
        device_error(what, text)
    }

    pub fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The library of products, opened at the first call.
    pub fn products(&self) -> Result<&Products> {
        let opened = self.products.get_or_init(|| Products::open(self));
        opened.as_ref().map_err(|why| device_error("dot", why.clone()))
    }

    /// The library of Fourier transforms, opened at the first call, or what is missing.
    pub fn transforms(&self) -> std::result::Result<&Transforms, &str> {
        let opened = self.transforms.get_or_init(Transforms::open);
        opened.as_ref().map_err(String::as_str)
    }

    /// The libraries of factorisations, opened at the first call, or what is missing.
    pub fn solver(&self) -> std::result::Result<&Solver, &str> {
        // The libraries take memory of their own, which the pool may hold.
        let again = || {
            self.pool().trim(self);
            Solver::open(self)
        };
        let opened = self.solver.get_or_init(|| Solver::open(self).or_else(|_| again()));
        opened.as_ref().map_err(String::as_str)
    }

    /// cuDNN, opened at the first call. Without it, kernels of our own run.
    pub fn dnn(&self) -> Option<&Dnn> {
        self.dnn.get_or_init(|| Dnn::open(self)).as_ref().ok()
    }

    pub fn alloc(&self, bytes: usize) -> Result<DevicePtr> {
        if let Some(at) = self.pool().reuse(bytes) {
            return Ok(at);
        }
        // Memory may go back to the driver: not while ops that read it wait.
        let mut queue = self.queue();
        self.run_waiting(&mut queue);
        self.make_current();
        self.pool().alloc(self, bytes)
    }

    pub fn free(&self, memory: DevicePtr) {
        self.queue().free(memory);
        self.pool().free(memory);
    }

    /// Gives cached memory back to the driver.
    pub fn trim(&self) {
        let mut queue = self.queue();
        self.run_waiting(&mut queue);
        self.make_current();
        self.pool().trim(self);
    }

    /// Writes one element.
    pub fn write_number(&self, at: DevicePtr, bits: u64, bytes: usize) -> Result<()> {
        self.make_current();
        let (driver, stream) = (self.driver, self.stream.0);
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
    pub fn scratch(&self, bytes: usize) -> Result<Scratch<'_>> {
        Ok(Scratch { gpu: self, at: self.alloc(bytes)? })
    }

    pub fn upload(&self, from: &[u8], to: DevicePtr) -> Result<()> {
        self.enter();
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the driver copies pageable memory to its own before it returns.
        let code = unsafe {
            let (at, len) = (from.as_ptr().cast::<c_void>(), from.len());
            (self.driver.cuMemcpyHtoDAsync_v2)(to, at, len, self.stream.0)
        };
        self.ok("upload", code)
    }

    pub fn download(&self, from: DevicePtr, to: &mut [u8]) -> Result<()> {
        self.enter();
        if !to.is_empty() {
            // SAFETY: `to` is borrowed until the copy has ended.
            let code = unsafe {
                let (at, len) = (to.as_mut_ptr().cast::<c_void>(), to.len());
                (self.driver.cuMemcpyDtoHAsync_v2)(at, from, len, self.stream.0)
            };
            self.ok("download", code)?;
        }
        self.synchronize()
    }

    pub fn copy(&self, from: DevicePtr, to: DevicePtr, bytes: usize) -> Result<()> {
        self.enter();
        if bytes == 0 || from == to {
            return Ok(());
        }
        // SAFETY: both are memory of the device, as long as the callers say.
        let code = unsafe { (self.driver.cuMemcpyDtoDAsync_v2)(to, from, bytes, self.stream.0) };
        self.ok("copy", code)
    }

    /// Fills memory with a byte.
    pub fn fill(&self, to: DevicePtr, byte: u8, bytes: usize) -> Result<()> {
        self.enter();
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: memory of the device, as long as the callers say.
        self.ok("fill", unsafe { (self.driver.cuMemsetD8Async)(to, byte, bytes, self.stream.0) })
    }

    /// Waits for all work, and returns what a kernel has rejected since the last wait.
    pub fn synchronize(&self) -> Result<()> {
        self.enter();
        // SAFETY: the stream lives as long as the process.
        let code = unsafe { (self.driver.cuStreamSynchronize)(self.stream.0) };
        self.ok("synchronize", code)?;
        let failed = self.failed_later.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)?;
        self.faults.take()
    }

    /// Registers a call whose kernel may reject a value: its number, and where to report.
    pub fn may_fail(&self, op: &str, specs: &[Spec], at: Option<Line>) -> (u64, DevicePtr) {
        let faults = &self.faults;
        let number = faults.next.fetch_add(1, Ordering::Relaxed).max(1);
        let mut calls = faults.calls.lock().unwrap_or_else(PoisonError::into_inner);
        // The newest are enough: an older call has run long ago.
        if calls.len() >= 1 << 16 {
            calls.drain(..1 << 15);
        }
        calls.push(FallibleCall { number, op: op.to_string(), operands: specs.to_vec(), at });
        (u64::from(number), faults.device)
    }

    /// Launches a kernel; parameters are words of eight bytes.
    #[inline]
    pub fn launch(&self, kernel: Handle, grid: usize, block: usize, words: &[u64]) -> Result<()> {
        self.enter();
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
                0,
                self.stream.0,
                null_mut(),
                extra.as_mut_ptr(),
            )
        };
        self.ok("launch", code)
    }
}

impl Faults {
    fn take(&self) -> Result<()> {
        let fault = self.host.0.cast::<Fault>();
        // SAFETY: the memory lives as long as the process; the stream is idle, so nothing writes.
        let found = unsafe { fault.read_volatile() };
        if found.call == 0 {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { fault.write_volatile(Fault::NONE) };
        let message = found.message();
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(call) = calls.iter().find(|call| call.number == found.call) else {
            return Err(Error::new(ErrorKind::Argument, "device", message));
        };
        let error = Error::new(ErrorKind::Argument, call.op.clone(), message).on(&call.operands);
        Err(match call.at {
            Some(at) => error.at(at),
            None => error,
        })
    }
}

/// Memory of a device for one call.
pub(crate) struct Scratch<'a> {
    gpu: &'a Gpu,
    pub at: DevicePtr,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.gpu.free(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::Fault;

    #[test]
    fn a_fault_says_what_the_cpu_says() {
        for index in [-1i64, 7, i64::MIN, i64::MAX] {
            let [high, low] = [index as u64 >> 32, index as u64 & 0xffff_ffff];
            let fault =
                Fault { call: 1, bound: 5, high: (3 << 32) | high, low: (3 << 32) | low, pad: 0 };
            let said = format!(
                "index {index} (element 3 of the indices) is out of range for an axis of length 5"
            );
            assert_eq!(fault.message(), said);
        }
    }
}
