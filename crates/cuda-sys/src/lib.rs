//! The functions of NVIDIA's libraries that Pullback calls, found and opened at run time.
//!
//! Nothing of CUDA is needed to build this. A library is a struct of function pointers, filled from
//! the first file that opens, at its first use. Nothing here panics: a library, a symbol or a
//! device that is missing is an error that lists the folders searched. Handles are [`Ptr`],
//! addresses of a device [`DevicePtr`], and enumerations are integers, with the values of CUDA 12
//! and 13.

mod search;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// A handle of a library.
pub type Ptr = *mut c_void;
/// An address in the memory of a device.
pub type DevicePtr = u64;

/// What a function returns: a code, unless it says otherwise.
macro_rules! returned {
    () => {
        c_int
    };
    ($type:ty) => {
        $type
    };
}

/// A struct of the functions of a library, and how it is opened.
macro_rules! library {
    (
        $(#[$doc:meta])* $name:ident by $get:ident from $what:literal, $files:expr;
        $(fn $f:ident($($a:ty),* $(,)?) $(-> $result:ty)?;)*
    ) => {
        $(#[$doc])*
        #[allow(non_snake_case, missing_docs)]
        pub struct $name {
            $(pub $f: unsafe extern "C" fn($($a),*) -> returned!($($result)?),)*
            /// The file that was opened.
            pub path: String,
        }

        impl $name {
            fn open() -> Result<$name, String> {
                let (library, path) = search::open($what, $files)?;
                // SAFETY: the symbols have the types of the vendor's headers, and the library
                // stays open (it is leaked below).
                let this = unsafe {
                    $name {
                        $($f: *library
                            .get(concat!(stringify!($f), "\0").as_bytes())
                            .map_err(|_| format!("{path} has no function {}", stringify!($f)))?,)*
                        path: path.clone(),
                    }
                };
                std::mem::forget(library);
                Ok(this)
            }

            /// Functions that do nothing and return zero: for tests of what stops before the
            /// device.
            #[doc(hidden)]
            pub fn fake() -> $name {
                $name {
                    $($f: {
                        unsafe extern "C" fn nothing($(_: $a),*) -> returned!($($result)?) {
                            // SAFETY: a code, or the address of no string.
                            unsafe { std::mem::zeroed() }
                        }
                        nothing
                    },)*
                    path: "nowhere".into(),
                }
            }
        }

        /// Opens the library at the first call.
        ///
        /// # Errors
        /// A sentence that says which files were looked for, and where.
        pub fn $get() -> Result<&'static $name, &'static str> {
            static OPENED: OnceLock<Result<$name, String>> = OnceLock::new();
            OPENED.get_or_init($name::open).as_ref().map_err(String::as_str)
        }
    };
}

mod math;
mod nccl;

pub use math::{Cublas, Cufft, Cusolver, GetProperty, cublas, cufft, cusolver, version};
pub use nccl::{Nccl, NcclConfig, NcclId, nccl, nccl_version};

library! {
    /// The driver: there wherever the kernel module is.
    Driver by driver from "the NVIDIA driver", &["libcuda.so.1"];
    fn cuInit(c_uint);
    fn cuDriverGetVersion(*mut c_int);
    fn cuDeviceGet(*mut c_int, c_int);
    fn cuDeviceGetCount(*mut c_int);
    fn cuDeviceGetName(*mut c_char, c_int, c_int);
    fn cuDeviceGetAttribute(*mut c_int, c_int, c_int);
    fn cuDeviceTotalMem_v2(*mut usize, c_int);
    fn cuDevicePrimaryCtxRetain(*mut Ptr, c_int);
    fn cuCtxSetCurrent(Ptr);
    fn cuGetErrorName(c_int, *mut *const c_char);
    fn cuGetErrorString(c_int, *mut *const c_char);
    fn cuStreamCreate(*mut Ptr, c_uint);
    fn cuStreamSynchronize(Ptr);
    fn cuStreamDestroy_v2(Ptr);
    fn cuStreamBeginCapture_v2(Ptr, c_int);
    fn cuStreamEndCapture(Ptr, *mut Ptr);
    fn cuGraphGetNodes(Ptr, *mut Ptr, *mut usize);
    fn cuGraphInstantiateWithFlags(*mut Ptr, Ptr, u64);
    fn cuGraphLaunch(Ptr, Ptr);
    fn cuGraphExecDestroy(Ptr);
    fn cuGraphDestroy(Ptr);
    fn cuStreamWaitEvent(Ptr, Ptr, c_uint);
    fn cuEventCreate(*mut Ptr, c_uint);
    fn cuEventDestroy_v2(Ptr);
    fn cuEventRecord(Ptr, Ptr);
    fn cuEventSynchronize(Ptr);
    fn cuEventQuery(Ptr);
    fn cuEventElapsedTime(*mut f32, Ptr, Ptr);
    fn cuModuleLoadData(*mut Ptr, *const c_void);
    fn cuModuleGetFunction(*mut Ptr, Ptr, *const c_char);
    fn cuFuncSetAttribute(Ptr, c_int, c_int);
    fn cuLaunchKernel(
        Ptr, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Ptr, *mut Ptr, *mut Ptr,
    );
    fn cuMemAlloc_v2(*mut DevicePtr, usize);
    fn cuMemFree_v2(DevicePtr);
    fn cuMemGetInfo_v2(*mut usize, *mut usize);
    fn cuMemHostAlloc(*mut Ptr, usize, c_uint);
    fn cuMemFreeHost(Ptr);
    fn cuMemHostGetDevicePointer_v2(*mut DevicePtr, Ptr, c_uint);
    fn cuMemcpyHtoDAsync_v2(DevicePtr, *const c_void, usize, Ptr);
    fn cuMemcpyDtoHAsync_v2(*mut c_void, DevicePtr, usize, Ptr);
    fn cuMemcpyDtoDAsync_v2(DevicePtr, DevicePtr, usize, Ptr);
    fn cuMemsetD8Async(DevicePtr, u8, usize, Ptr);
    fn cuMemsetD16Async(DevicePtr, u16, usize, Ptr);
    fn cuMemsetD32Async(DevicePtr, c_uint, usize, Ptr);
}

library! {
    /// The compiler of CUDA C at run time.
    Nvrtc by nvrtc from "NVRTC", nvrtc_files();
    fn nvrtcVersion(*mut c_int, *mut c_int);
    fn nvrtcCreateProgram(*mut Ptr, *const c_char, *const c_char, c_int, *const Ptr, *const Ptr);
    fn nvrtcCompileProgram(Ptr, c_int, *const *const c_char);
    fn nvrtcGetProgramLogSize(Ptr, *mut usize);
    fn nvrtcGetProgramLog(Ptr, *mut c_char);
    fn nvrtcGetCUBINSize(Ptr, *mut usize);
    fn nvrtcGetCUBIN(Ptr, *mut c_char);
    fn nvrtcDestroyProgram(*mut Ptr);
}

/// A driver of CUDA 12 runs nothing of CUDA 13.
fn for_driver(files: &'static [&'static str]) -> &'static [&'static str] {
    match driver_version() {
        Some(..13000) => &files[1..],
        _ => files,
    }
}

fn nvrtc_files() -> &'static [&'static str] {
    for_driver(&["libnvrtc.so.13", "libnvrtc.so.12"])
}

fn cublas_lt_files() -> &'static [&'static str] {
    for_driver(&["libcublasLt.so.13", "libcublasLt.so.12"])
}

/// A way to compute a product: what heuristics return.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LtHeuristic {
    /// The choice, opaque.
    pub algorithm: [u64; 8],
    /// Bytes of workspace that it needs.
    pub workspace: usize,
    /// Zero if it can be used.
    pub state: c_int,
    /// How many times the device is filled.
    pub waves: f32,
    /// Unused.
    pub reserved: [c_int; 4],
}

library! {
    /// Matrix products.
    CublasLt by cublas_lt from "cuBLASLt", cublas_lt_files();
    fn cublasLtCreate(*mut Ptr);
    fn cublasLtGetProperty(c_int, *mut c_int);
    fn cublasLtMatmulDescCreate(*mut Ptr, c_int, c_int);
    fn cublasLtMatmulDescDestroy(Ptr);
    fn cublasLtMatmulDescSetAttribute(Ptr, c_int, *const c_void, usize);
    fn cublasLtMatrixLayoutCreate(*mut Ptr, c_int, u64, u64, i64);
    fn cublasLtMatrixLayoutDestroy(Ptr);
    fn cublasLtMatrixLayoutSetAttribute(Ptr, c_int, *const c_void, usize);
    fn cublasLtMatmulPreferenceCreate(*mut Ptr);
    fn cublasLtMatmulPreferenceDestroy(Ptr);
    fn cublasLtMatmulPreferenceSetAttribute(Ptr, c_int, *const c_void, usize);
    fn cublasLtMatmulAlgoGetHeuristic(
        Ptr, Ptr, Ptr, Ptr, Ptr, Ptr, Ptr, c_int, *mut LtHeuristic, *mut c_int,
    );
    fn cublasLtMatmul(
        Ptr, Ptr, *const c_void, DevicePtr, Ptr, DevicePtr, Ptr, *const c_void, DevicePtr, Ptr,
        DevicePtr, Ptr, *const [u64; 8], DevicePtr, usize, Ptr,
    );
}

library! {
    /// Convolutions and attention, as graphs that are put together from descriptors. It opens the
    /// libraries of its parts itself, at their first use: those beside the file that was opened, as
    /// its run path says.
    Cudnn by cudnn from "cuDNN", &["libcudnn.so.9"];
    fn cudnnGetProperty(c_int, *mut c_int);
    fn cudnnCreate(*mut Ptr);
    fn cudnnSetStream(Ptr, Ptr);
    fn cudnnBackendCreateDescriptor(c_int, *mut Ptr);
    fn cudnnBackendDestroyDescriptor(Ptr);
    fn cudnnBackendSetAttribute(Ptr, c_int, c_int, i64, *const c_void);
    fn cudnnBackendGetAttribute(Ptr, c_int, c_int, i64, *mut i64, *mut c_void);
    fn cudnnBackendFinalize(Ptr);
    fn cudnnBackendExecute(Ptr, Ptr, Ptr);
}

/// The version of a cuDNN, as 9, 14 and 0 for 9.14.0.
pub fn cudnn_version(library: &Cudnn) -> [c_int; 3] {
    [0, 1, 2].map(|part| {
        let mut value = 0;
        // SAFETY: writes one integer; the parts are numbered so.
        unsafe { (library.cudnnGetProperty)(part, &mut value) };
        value
    })
}

/// The driver, initialised.
///
/// # Errors
/// A sentence that says what is missing: the driver, or a device.
pub fn initialised() -> Result<&'static Driver, &'static str> {
    static READY: OnceLock<Result<&'static Driver, String>> = OnceLock::new();
    let ready = READY.get_or_init(|| {
        let driver = driver()?;
        // SAFETY: called with the flags that it takes: none.
        match unsafe { (driver.cuInit)(0) } {
            0 => Ok(driver),
            100 => Err(format!("{} finds no device", driver.path)),
            code => Err(format!("{} cannot start: {}", driver.path, error_text(driver, code))),
        }
    });
    ready.as_ref().map(|driver| *driver).map_err(String::as_str)
}

/// How many devices the driver has; none without a driver.
pub fn device_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let Ok(driver) = initialised() else { return 0 };
        let mut count = 0;
        // SAFETY: writes one integer.
        match unsafe { (driver.cuDeviceGetCount)(&mut count) } {
            0 => count.max(0) as usize,
            _ => 0,
        }
    })
}

/// The version of CUDA that the driver is for, as 13000 for 13.0.
pub fn driver_version() -> Option<c_int> {
    let (driver, mut version) = (driver().ok()?, 0);
    // SAFETY: writes one integer.
    (unsafe { (driver.cuDriverGetVersion)(&mut version) } == 0).then_some(version)
}

/// What the driver says of an error: its name and a sentence.
pub fn error_text(driver: &Driver, code: c_int) -> String {
    let text = |get: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
        let mut text = std::ptr::null();
        // SAFETY: writes the address of a string that lives as long as the library.
        match unsafe { get(code, &mut text) } {
            0 if !text.is_null() => {
                // SAFETY: as above; it ends with a zero.
                unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
            }
            _ => format!("error {code}"),
        }
    };
    format!("{} ({})", text(driver.cuGetErrorString), text(driver.cuGetErrorName))
}
