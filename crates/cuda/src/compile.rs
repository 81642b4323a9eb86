//! CUDA C to machine code: once in a process, and once on a machine.
//!
//! Machine code is kept in files (in the folder `PULLBACK_CACHE`, or `pullback` in the user's
//! cache), whose name is a hash of the source, the compiler's version and the chip. A file is
//! written beside and renamed, and holds the whole key, so that a collision is seen. The plans of
//! cuDNN are kept beside them in the same way.

use crate::gpu::{Gpu, Handle, device_error};
use crate::text::LoopText;
use pullback_cuda_sys::{Nvrtc, nvrtc};
use pullback_ir::{DType, Result};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::ffi::{CStr, CString, c_int};
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::{PoisonError, RwLock};

/// The kernels of a device.
pub(crate) struct Kernels {
    /// As 90 for compute capability 9.0.
    pub capability: u32,
    made: RwLock<FxHashMap<Key, Handle>>,
}

/// What the text of a kernel follows from.
#[allow(clippy::large_enum_variant)] // made on the stack at every call: a box would be allocated there
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A loop over instructions.
    Loop(LoopText),
    /// A kernel of `kernels/`, for some dtypes and numbers.
    Named(&'static str, SmallVec<[DType; 4]>, SmallVec<[u32; 4]>),
}

impl Kernels {
    pub fn new(capability: u32) -> Kernels {
        Kernels { capability, made: RwLock::default() }
    }

    /// The kernel `k` of a source text, which is made at the first call with this key.
    pub fn get(&self, gpu: &Gpu, key: &Key, text: impl FnOnce() -> String) -> Result<Handle> {
        if let Some(kernel) = self.made.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Ok(*kernel);
        }
        let source = text();
        let image = self.image(&source)?;
        gpu.enter();
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the image is a whole one, from NVRTC or from a file that holds its length.
        unsafe {
            let mut load = || (gpu.driver.cuModuleLoadData)(&mut module, image.as_ptr().cast());
            let mut code = load();
            // Out of memory, while the pool may hold all of it.
            if code == 2 {
                gpu.pool().trim(gpu);
                code = load();
            }
            gpu.ok("compile", code)?;
            let name = c"k".as_ptr();
            gpu.ok("compile", (gpu.driver.cuModuleGetFunction)(&mut function, module, name))?;
        }
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        // Modules live as long as the process, so one that another thread has made meanwhile may
        // stay beside this one.
        Ok(*made.entry(key.clone()).or_insert(Handle(function)))
    }

    fn image(&self, source: &str) -> Result<Vec<u8>> {
        let rtc = nvrtc().map_err(|why| device_error("compile", why.to_string()))?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two integers.
        unsafe { (rtc.nvrtcVersion)(&mut major, &mut minor) };
        let whole = format!("sm_{} NVRTC {major}.{minor}\n{source}", self.capability);
        let file = cache_file(&whole, "cubin");
        if let Some(image) = file.as_ref().and_then(|file| read(file, &whole)) {
            return Ok(image);
        }
        let image = compile(rtc, source, self.capability)
            .map_err(|log| device_error("compile", format!("NVRTC refuses a kernel: {log}")))?;
        if let Some(file) = &file {
            write(file, &whole, &image);
        }
        Ok(image)
    }
}

/// Where what follows from this key is kept.
pub(crate) fn cache_file(whole: &str, kind: &str) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = variable("PULLBACK_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|p| p.join("pullback")))
        .or_else(|| variable("HOME").map(|p| p.join(".cache/pullback")))?
        .join("cuda");
    std::fs::create_dir_all(&folder).ok()?;
    let mut hasher = FxHasher::default();
    whole.hash(&mut hasher);
    Some(folder.join(format!("{:016x}.{kind}", hasher.finish())))
}

/// The image in a file, if it is that of this key: the lengths of the key and the image, the key,
/// the image.
pub(crate) fn read(file: &PathBuf, whole: &str) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file).ok()?;
    let (head, rest) = bytes.split_at_checked(16)?;
    let number = |at: usize| Some(u64::from_le_bytes(head[at..at + 8].try_into().ok()?) as usize);
    let (text, image) = rest.split_at_checked(number(0)?)?;
    (text == whole.as_bytes() && image.len() == number(8)?).then(|| image.to_vec())
}

/// A cache that cannot be written is none: the next process compiles again.
pub(crate) fn write(file: &PathBuf, whole: &str, image: &[u8]) {
    let mut bytes = (whole.len() as u64).to_le_bytes().to_vec();
    bytes.extend((image.len() as u64).to_le_bytes());
    bytes.extend(whole.as_bytes());
    bytes.extend(image);
    let part = file.with_extension(format!("{}.part", std::process::id()));
    let _ = std::fs::write(&part, &bytes).and_then(|()| std::fs::rename(&part, file));
}

pub(crate) fn compile(
    rtc: &Nvrtc,
    source: &str,
    capability: u32,
) -> std::result::Result<Vec<u8>, String> {
    let text = CString::new(source).map_err(|error| error.to_string())?;
    let chip = CString::new(format!("--gpu-architecture=sm_{capability}")).unwrap_or_default();
    // Instructions are rounded one by one, as on the CPU.
    let options: [&CStr; 4] = [&chip, c"--std=c++17", c"--fmad=false", c"-default-device"];
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
