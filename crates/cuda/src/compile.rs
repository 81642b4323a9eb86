//! CUDA C to machine code: once in a process, and once on a machine.
//!
//! Machine code is kept in files (`cache.rs`), by the source, the chip, and the versions of the
//! compiler and the driver.

use crate::cache;
use crate::describe::{driver_words, nvrtc_words};
use crate::gpu::{Gpu, Handle, device_error};
use crate::rehearsal::{self, What, rehearses};
use crate::text::LoopText;
use pullback_cuda_sys::{Nvrtc, nvrtc};
use pullback_ir::{CudaSource, DType, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::ffi::{CStr, CString, c_int};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The kernels of a device.
pub(crate) struct Kernels {
    /// As 90 for compute capability 9.0.
    pub capability: u32,
    made: RwLock<FxHashMap<Key, Handle>>,
    /// Those that a rehearsal is making.
    begun: Mutex<FxHashSet<Key>>,
}

/// What the text of a kernel follows from.
#[allow(clippy::large_enum_variant)] // made on the stack at every call: a box would be allocated there
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A loop over instructions.
    Loop(LoopText),
    /// A kernel of `kernels/`, for some dtypes and numbers.
    Named(&'static str, SmallVec<[DType; 4]>, SmallVec<[u32; 4]>),
    /// A user's, for these dtypes of operands and results.
    Custom(Arc<CudaSource>, SmallVec<[DType; 4]>, SmallVec<[DType; 4]>),
}

/// What is compiled.
pub(crate) struct Compiled {
    pub text: String,
    /// The name of the kernel in it.
    pub function: CString,
    /// Whether a product and a sum may be one instruction, rounded once.
    pub fused: bool,
}

impl Kernels {
    pub fn new(capability: u32) -> Kernels {
        Kernels { capability, made: RwLock::default(), begun: Mutex::default() }
    }

    /// The kernel of a key, if it was made before.
    pub fn find(&self, key: &Key) -> Option<Handle> {
        self.made.read().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    /// The kernel `k` of a source text, which is made at the first call with this key.
    pub fn get(&self, gpu: &Gpu, key: &Key, text: impl FnOnce() -> String) -> Result<Handle> {
        let of = || Compiled { text: text(), function: c"k".into(), fused: false };
        self.get_or_make(gpu, key, of)
    }

    /// The kernel of this key, which is made at the first call.
    pub fn get_or_make(
        &self,
        gpu: &Gpu,
        key: &Key,
        of: impl FnOnce() -> Compiled,
    ) -> Result<Handle> {
        match self.find(key) {
            Some(kernel) => Ok(kernel),
            None if rehearses() => Ok(self.rehearse(gpu, key, of)),
            None => self.make(gpu, key, &of()).map(|(kernel, _)| kernel),
        }
    }

    /// Makes a kernel, unless another thread has begun to: then this one goes on to what is next.
    /// An error is left to the call that needs the kernel.
    #[cold]
    fn rehearse(&self, gpu: &Gpu, key: &Key, of: impl FnOnce() -> Compiled) -> Handle {
        let begun = || self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if begun().insert(key.clone()) {
            // Another thread may have made it just now.
            if self.find(key).is_none() {
                rehearsal::count(match self.make(gpu, key, &of()) {
                    Ok((_, true)) => What::KernelRead,
                    Ok((_, false)) => What::Kernel,
                    Err(_) => What::Refused,
                });
            }
            begun().remove(key);
        }
        Handle(null_mut())
    }

    /// Also whether its machine code was in a file.
    #[cold]
    fn make(&self, gpu: &Gpu, key: &Key, of: &Compiled) -> Result<(Handle, bool)> {
        let (image, from_file) = self.image(of)?;
        let kernel = load(gpu, of, &image)?;
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        // Modules live as long as the process, so one that another thread has made meanwhile may
        // stay beside this one.
        Ok((*made.entry(key.clone()).or_insert(kernel), from_file))
    }

    /// Machine code, and whether it was in a file. Needs no device.
    fn image(&self, of: &Compiled) -> Result<(Vec<u8>, bool)> {
        let rtc = nvrtc().map_err(|why| device_error("compile", why.to_string()))?;
        let fused = if of.fused { " fused" } else { "" };
        let (chip, compiler, driver) = (self.capability, nvrtc_words(rtc), driver_words());
        let whole = format!("sm_{chip} {compiler} {driver}{fused}\n{}", of.text);
        let folder = cache::folder();
        if let Some(image) = folder.as_ref().and_then(|at| cache::read(at, "cubin", &whole)) {
            return Ok((image, true));
        }
        let image = compile(rtc, &of.text, chip, of.fused)
            .map_err(|log| device_error("compile", format!("NVRTC refuses a kernel: {log}")))?;
        if let Some(folder) = &folder {
            cache::write(folder, "cubin", &whole, &image);
        }
        Ok((image, false))
    }

    /// What was made.
    #[cfg(test)]
    pub fn keys(&self) -> Vec<Key> {
        self.made.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

/// Loads machine code, and finds the kernel in it.
fn load(gpu: &Gpu, of: &Compiled, image: &[u8]) -> Result<Handle> {
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
    Ok(Handle(function))
}

pub(crate) fn compile(
    rtc: &Nvrtc,
    source: &str,
    capability: u32,
    fused: bool,
) -> std::result::Result<Vec<u8>, String> {
    let text = CString::new(source).map_err(|error| error.to_string())?;
    let chip = CString::new(format!("--gpu-architecture=sm_{capability}")).unwrap_or_default();
    // Instructions of this library are rounded one by one, as on the CPU.
    let fmad = if fused { c"--fmad=true" } else { c"--fmad=false" };
    let options: [&CStr; 4] = [&chip, c"--std=c++17", fmad, c"-default-device"];
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
        if code != 0 {
            (rtc.nvrtcGetProgramLogSize)(program, &mut size);
            let mut log = vec![0u8; size];
            (rtc.nvrtcGetProgramLog)(program, log.as_mut_ptr().cast());
            (rtc.nvrtcDestroyProgram)(&mut program);
            return Err(String::from_utf8_lossy(&log).trim_end_matches('\0').to_string());
        }
        (rtc.nvrtcGetCUBINSize)(program, &mut size);
        let mut image = vec![0u8; size];
        let got = (rtc.nvrtcGetCUBIN)(program, image.as_mut_ptr().cast());
        (rtc.nvrtcDestroyProgram)(&mut program);
        if got == 0 { Ok(image) } else { Err(format!("no machine code (error {got})")) }
    }
}
