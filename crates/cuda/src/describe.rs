//! What the driver says of a device, and what was opened from where.

use pullback_cuda_sys::{GetProperty, Nvrtc, error_text, initialised, version};
use std::ffi::{CStr, c_int};
use std::sync::LazyLock;

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

/// The driver in words, for keys of what is kept on disk: the version of CUDA that it is for, and
/// its own, where the system says it.
pub(crate) fn driver_words() -> &'static str {
    static WORDS: LazyLock<String> = LazyLock::new(|| {
        let cuda = pullback_cuda_sys::driver_version().unwrap_or(0);
        let own = std::fs::read_to_string("/sys/module/nvidia/version").unwrap_or_default();
        format!("driver {cuda} {}", own.trim())
    });
    &WORDS
}

/// The version of NVRTC.
pub(crate) fn nvrtc_words(library: &Nvrtc) -> String {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two integers.
    unsafe { (library.nvrtcVersion)(&mut major, &mut minor) };
    format!("NVRTC {major}.{minor}")
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
    lines.push(match pullback_cuda_sys::nvrtc() {
        Ok(library) => found(&nvrtc_words(library), Ok(library.path.as_str())),
        Err(why) => found("NVRTC", Err(why)),
    });
    lines.push(match pullback_cuda_sys::cublas_lt() {
        Ok(library) => {
            let name = format!("cuBLASLt {}", version(library.cublasLtGetProperty));
            found(&name, Ok(library.path.as_str()))
        }
        Err(why) => found("cuBLASLt", Err(why)),
    });
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
    lines.push(match pullback_cuda_sys::nccl() {
        Ok(library) => {
            let version = pullback_cuda_sys::nccl_version(library);
            found(&format!("NCCL {version}"), Ok(library.path.as_str()))
        }
        Err(why) => format!("NCCL (only for several GPUs, which else go through the host): {why}"),
    });
    lines
}
