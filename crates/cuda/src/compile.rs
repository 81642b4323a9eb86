//! CUDA C to machine code: once in a process, and once on a machine.
//!
//! Machine code is kept in files (`cache.rs`), by the source, the chip, and the versions of the
//! compiler and the driver, and beside it what its threads take, for reports.

use crate::cache;
use crate::describe::{driver_words, nvrtc_words};
use crate::dry_run::{self, Preparation, in_dry_run};
use crate::gpu::{Gpu, LibraryHandle, device_error};
use crate::text::LoopText;
use pullback_cuda_sys::{Nvrtc, nvrtc};
use pullback_ir::{CudaSource, DType, KernelUsage, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::ffi::{CStr, CString, c_int};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The kernels of a device.
pub(crate) struct KernelCache {
    /// As 90 for compute capability 9.0.
    pub capability: u32,
    functions: RwLock<FxHashMap<KernelKey, LibraryHandle>>,
    /// Those that a dry run is making.
    compiling: Mutex<FxHashSet<KernelKey>>,
}

/// What the text of a kernel follows from.
// Made on the stack at every call: a box would be allocated there.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum KernelKey {
    /// A loop over instructions.
    Loop(LoopText),
    /// A kernel of `kernels/`, for some dtypes and numbers.
    Named(&'static str, SmallVec<[DType; 4]>, SmallVec<[u32; 4]>),
    /// A user's, for these dtypes of operands and results.
    Custom(Arc<CudaSource>, SmallVec<[DType; 4]>, SmallVec<[DType; 4]>),
}

/// What is compiled.
pub(crate) struct KernelSource {
    pub text: String,
    /// The name of the kernel in it.
    pub function: CString,
    /// Whether a product and a sum may be one instruction, rounded once.
    pub fused: bool,
}

impl KernelCache {
    pub fn new(capability: u32) -> KernelCache {
        KernelCache { capability, functions: RwLock::default(), compiling: Mutex::default() }
    }

    /// The kernel of a key, if it was made before.
    pub fn find(&self, key: &KernelKey) -> Option<LibraryHandle> {
        self.functions.read().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    /// The kernel `k` of a source text, which is made at the first call with this key.
    pub fn get(
        &self,
        gpu: &Gpu,
        key: &KernelKey,
        text: impl FnOnce() -> String,
    ) -> Result<LibraryHandle> {
        let of = || KernelSource { text: text(), function: c"k".into(), fused: false };
        self.get_or_make(gpu, key, of)
    }

    /// The kernel of this key, which is made at the first call.
    pub fn get_or_make(
        &self,
        gpu: &Gpu,
        key: &KernelKey,
        of: impl FnOnce() -> KernelSource,
    ) -> Result<LibraryHandle> {
        match self.find(key) {
            Some(kernel) => Ok(kernel),
            None if in_dry_run() => Ok(self.dry_run(gpu, key, of)),
            None => self.make(gpu, key, &of()).map(|(kernel, _)| kernel),
        }
    }

    /// Makes a kernel, unless another thread has begun to: then this one goes on to what is next.
    /// An error is left to the call that needs the kernel.
    #[cold]
    fn dry_run(
        &self,
        gpu: &Gpu,
        key: &KernelKey,
        of: impl FnOnce() -> KernelSource,
    ) -> LibraryHandle {
        let begun = || self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        if begun().insert(key.clone()) {
            // Another thread may have made it just now.
            if self.find(key).is_none() {
                dry_run::count(match self.make(gpu, key, &of()) {
                    Ok((_, true)) => Preparation::KernelRead,
                    Ok((_, false)) => Preparation::Kernel,
                    Err(_) => Preparation::Refused,
                });
            }
            begun().remove(key);
        }
        LibraryHandle(null_mut())
    }

    /// Also whether its machine code was in a file.
    #[cold]
    fn make(&self, gpu: &Gpu, key: &KernelKey, of: &KernelSource) -> Result<(LibraryHandle, bool)> {
        let (image, from_file) = self.image(of)?;
        let kernel = load(gpu, of, &image)?;
        let mut made = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        // Modules live as long as the process, so one that another thread has made meanwhile may
        // stay beside this one.
        Ok((*made.entry(key.clone()).or_insert(kernel), from_file))
    }

    /// Machine code, and whether it was in a file. Needs no device.
    fn image(&self, of: &KernelSource) -> Result<(Vec<u8>, bool)> {
        let rtc = nvrtc().map_err(|why| device_error("compile", why.to_string()))?;
        let whole = whole_key(rtc, &of.text, self.capability, of.fused);
        let folder = cache::folder();
        if let Some(image) = folder.as_ref().and_then(|at| cache::read(at, "cubin", &whole)) {
            return Ok((image, true));
        }
        match make(rtc, &whole, &of.text, self.capability, of.fused) {
            Ok((image, _)) => Ok((image, false)),
            Err(log) => Err(device_error("compile", format!("NVRTC refuses a kernel: {log}"))),
        }
    }

    /// What was made.
    #[cfg(test)]
    pub fn keys(&self) -> Vec<KernelKey> {
        self.functions.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

/// Loads machine code, and finds the kernel in it.
fn load(gpu: &Gpu, of: &KernelSource, image: &[u8]) -> Result<LibraryHandle> {
    gpu.enter();
    let (mut module, mut function) = (null_mut(), null_mut());
    // SAFETY: the image is a whole one, from NVRTC or from a file that holds its length.
    unsafe {
        let mut load = || (gpu.driver.cuModuleLoadData)(&mut module, image.as_ptr().cast());
        let mut code = load();
        // Out of memory, while the pool may hold all of it.
        if code == 2 && gpu.release() {
            code = load();
        }
        gpu.ok("compile", code)?;
        let name = of.function.as_ptr();
        code = (gpu.driver.cuModuleGetFunction)(&mut function, module, name);
        // Not found.
        if code == 500 {
            let name = of.function.to_string_lossy();
            let message = format!("there is no `extern \"C\" __global__ void {name}(…)` in it");
            return Err(device_error("compile", message));
        }
        gpu.ok("compile", code)?;
    }
    Ok(LibraryHandle(function))
}

/// What machine code follows from.
fn whole_key(rtc: &Nvrtc, text: &str, chip: u32, fused: bool) -> String {
    let (compiler, driver) = (nvrtc_words(rtc), driver_words());
    let fused = if fused { " fused" } else { "" };
    format!("sm_{chip} {compiler} {driver}{fused}\n{text}")
}

/// Compiles, and keeps the result on disk.
fn make(
    rtc: &Nvrtc,
    whole: &str,
    text: &str,
    chip: u32,
    fused: bool,
) -> std::result::Result<(Vec<u8>, Option<KernelUsage>), String> {
    let (image, usage) = compile(rtc, text, chip, fused)?;
    if let Some(folder) = cache::folder() {
        cache::write(&folder, "cubin", whole, &image);
        if let Some(of) = usage {
            let numbers = [of.registers, of.spilled, of.stack, of.shared].map(|n| n.to_string());
            cache::write(&folder, "usage", whole, numbers.join(" ").as_bytes());
        }
    }
    Ok((image, usage))
}

/// What a thread of the kernel of a text takes on a chip: kept beside its machine code, or compiled
/// for it. `None` without NVRTC, or if it refuses the text.
pub(crate) fn usage(text: &str, chip: u32) -> Option<KernelUsage> {
    let rtc = nvrtc().ok()?;
    let whole = whole_key(rtc, text, chip, false);
    let kept = cache::folder().and_then(|at| cache::read(&at, "usage", &whole));
    let kept = kept.and_then(|bytes| {
        let text = String::from_utf8(bytes).ok()?;
        let mut numbers = text.split(' ').map_while(|n| n.parse().ok());
        let mut next = || numbers.next();
        Some(KernelUsage { registers: next()?, spilled: next()?, stack: next()?, shared: next()? })
    });
    kept.or_else(|| make(rtc, &whole, text, chip, false).ok()?.1)
}

/// What `ptxas` says of the only kernel of a text.
fn usage_in(log: &str) -> Option<KernelUsage> {
    // The number before some words.
    let before = |words: &str| {
        let (head, _) = log.split_once(words)?;
        head.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok()
    };
    Some(KernelUsage {
        registers: before(" registers")?,
        spilled: before(" bytes spill stores")?,
        stack: before(" bytes stack frame")?,
        shared: before(" bytes smem").unwrap_or(0),
    })
}

/// Machine code, and what its threads take.
pub(crate) fn compile(
    rtc: &Nvrtc,
    source: &str,
    capability: u32,
    fused: bool,
) -> std::result::Result<(Vec<u8>, Option<KernelUsage>), String> {
    let text = CString::new(source).map_err(|error| error.to_string())?;
    let chip = CString::new(format!("--gpu-architecture=sm_{capability}")).unwrap_or_default();
    // Instructions of this library are rounded one by one, as on the CPU.
    let fmad = if fused { c"--fmad=true" } else { c"--fmad=false" };
    let options: [&CStr; 5] =
        [&chip, c"--std=c++17", fmad, c"-default-device", c"--ptxas-options=-v"];
    let options = options.map(CStr::as_ptr);
    let (mut program, mut size) = (null_mut(), 0usize);
    // SAFETY: the strings live until the end; sizes are those that NVRTC gives.
    unsafe {
        let name = c"kernel.cu".as_ptr();
        let made = (rtc.nvrtcCreateProgram)(&mut program, text.as_ptr(), name, 0, null(), null());
        let count = options.len() as c_int;
        let code = match made {
            0 => (rtc.nvrtcCompileProgram)(program, count, options.as_ptr()),
            code => return Err(format!("error {code}")),
        };
        (rtc.nvrtcGetProgramLogSize)(program, &mut size);
        let mut log = vec![0u8; size];
        (rtc.nvrtcGetProgramLog)(program, log.as_mut_ptr().cast());
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_string();
        if code != 0 {
            (rtc.nvrtcDestroyProgram)(&mut program);
            return Err(log);
        }
        (rtc.nvrtcGetCUBINSize)(program, &mut size);
        let mut image = vec![0u8; size];
        let got = (rtc.nvrtcGetCUBIN)(program, image.as_mut_ptr().cast());
        (rtc.nvrtcDestroyProgram)(&mut program);
        if got == 0 {
            Ok((image, usage_in(&log)))
        } else {
            Err(format!("no machine code (error {got})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_takes_is_in_the_log() {
        let log = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
ptxas         .     192 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 192 bytes cumulative stack size, 64 bytes smem";
        let found = KernelUsage { registers: 32, spilled: 8, stack: 192, shared: 64 };
        assert_eq!(usage_in(log), Some(found));
        assert_eq!(usage_in("a warning"), None);
    }
}
