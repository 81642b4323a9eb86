//! Custom ops: kernels that users wrote in CUDA C, and code for the host, with copies.

use crate::compile::{KernelKey, KernelSource};
use crate::dry_run::in_dry_run;
use crate::gpu::{Gpu, LibraryHandle, device_error};
use crate::host;
use crate::loops::StridedOperand;
use crate::ops::copy;
use pullback_cuda_sys::Ptr;
use pullback_ir::{
    CudaLaunch, CudaSource, Custom, DType, Device, Error, ErrorKind, Launch, Line, Op, Result,
    Spec, Work,
};
use smallvec::SmallVec;
use std::ffi::CString;
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;

const PRELUDE: &str = include_str!("kernels/custom.cu");

/// A kernel in CUDA C, for a custom op (`CustomOp::cuda`).
///
/// Its function gets the addresses of the operands, then those of the results, then the numbers of
/// its [`CudaLaunch`], each a `long long`. Operands and results are dense, in row-major order, and
/// aligned to their elements. Results are not set before: every element has to be written.
///
/// The text may use these names: `T0`, `T1`, … are the types of the operands' elements, `R0`, `R1`,
/// … those of the results', so that one text serves all dtypes. They are `double`, `float`,
/// `long long`, `int`, `unsigned char`, `bool`, and for `bf16` and `f16` types that convert from
/// and to `float`. It is compiled once for each list of dtypes, by NVRTC, without headers, and kept
/// on disk; what NVRTC reports has the lines of this text.
///
/// ```
/// use pullback_cuda::CudaKernel;
/// let text = r#"
///     extern "C" __global__ void cube(const T0* x, R0* y, long long n) {
///       long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
///       if (i < n) y[i] = x[i] * x[i] * x[i];
///     }"#;
/// // SAFETY: a thread reads and writes element i alone, and only if there is one.
/// let cube = unsafe { CudaKernel::elementwise("cube", text, 1, 1) };
/// assert_eq!(cube.function(), "cube");
/// ```
#[derive(Clone)]
pub struct CudaKernel {
    source: Arc<CudaSource>,
    launch: Arc<LaunchRule>,
}

type LaunchRule = dyn Fn(&[Spec], &[Spec]) -> Result<CudaLaunch> + Send + Sync;

impl CudaKernel {
    /// The function of this name in a text, which declares it as `extern "C" __global__ void`. For
    /// operands and results of given specs `launch` says with how many threads it is launched, or
    /// refuses them.
    ///
    /// ```
    /// use pullback_cuda::CudaKernel;
    /// use pullback_ir::{CudaLaunch, Error};
    /// let text = r#"
    ///     extern "C" __global__ void row_sums(const T0* x, R0* y, long long width) {
    ///       double sum = 0;
    ///       for (long long j = 0; j < width; j++) sum += x[blockIdx.x * width + j];
    ///       y[blockIdx.x] = sum;
    ///     }"#;
    /// // SAFETY: block i reads the `width` elements of row i and writes element i, and there are as
    /// // many blocks as rows.
    /// let sums = unsafe {
    ///     CudaKernel::new("row_sums", text, |x, y| match (x, y) {
    ///         ([x], [y]) if x.shape.split_last().is_some_and(|(_, rows)| *rows == y.shape[..]) => {
    ///             let width = *x.shape.last().unwrap_or(&1) as i64;
    ///             let [grid, block] = [[y.len() as u32, 1, 1], [1, 1, 1]];
    ///             Ok(CudaLaunch { grid, block, shared_bytes: 0, numbers: vec![width] })
    ///         }
    ///         _ => Err(Error::shape("row_sums", "takes one tensor with an axis")),
    ///     })
    /// };
    /// assert_eq!(sums.function(), "row_sums");
    /// ```
    ///
    /// # Safety
    /// For all specs that `launch` accepts, whatever the values are, the function must take these
    /// parameters, end, read operands and results alone, and write results alone. A kernel that
    /// does not corrupts memory of the device, or stops it for the rest of the process.
    #[must_use]
    pub unsafe fn new(
        function: &str,
        text: impl Into<String>,
        launch: impl Fn(&[Spec], &[Spec]) -> Result<CudaLaunch> + Send + Sync + 'static,
    ) -> CudaKernel {
        CudaKernel { source: Arc::new(CudaSource::new(function, text)), launch: Arc::new(launch) }
    }

    /// A function of so many operands and results, all with as many elements, launched with at
    /// least one thread for each ([`CudaLaunch::over`]). Its last parameter is their number.
    ///
    /// ```
    /// use pullback_cuda::CudaKernel;
    /// let text = r#"
    ///     extern "C" __global__ void slope(const T0* x, const T1* dy, R0* dx, long long n) {
    ///       long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    ///       if (i < n) dx[i] = T0(3) * x[i] * x[i] * dy[i];
    ///     }"#;
    /// // SAFETY: a thread reads and writes element i alone, and only if there is one.
    /// let slope = unsafe { CudaKernel::elementwise("slope", text, 2, 1) };
    /// assert_eq!(slope.function(), "slope");
    /// ```
    ///
    /// # Safety
    /// As [`CudaKernel::new`], for any number of elements of any dtypes.
    #[must_use]
    pub unsafe fn elementwise(
        function: &str,
        text: impl Into<String>,
        operands: usize,
        results: usize,
    ) -> CudaKernel {
        let launch = move |x: &[Spec], y: &[Spec]| {
            if (x.len(), y.len()) != (operands, results) {
                let message = format!(
                    "its kernel takes {operands} operands and {results} results, given {} and {}",
                    x.len(),
                    y.len()
                );
                return Err(Error::argument("launch", message));
            }
            let mut counts = x.iter().chain(y).map(Spec::len);
            let count = counts.next().unwrap_or(0);
            match counts.all(|n| n == count) {
                true => Ok(CudaLaunch::over(count)),
                false => Err(Error::shape("launch", "operands and results differ in length").on(x)),
            }
        };
        // SAFETY: the caller promises it.
        unsafe { CudaKernel::new(function, text, launch) }
    }

    /// The name of the function.
    ///
    /// ```
    /// use pullback_cuda::CudaKernel;
    /// // SAFETY: it reads and writes nothing.
    /// let none = unsafe {
    ///     CudaKernel::elementwise("none", r#"extern "C" __global__ void none(long long) {}"#, 0, 0)
    /// };
    /// assert_eq!(none.function(), "none");
    /// ```
    pub fn function(&self) -> &str {
        self.source.function()
    }

    /// Its launches for operands and results of these specs: one.
    ///
    /// # Errors
    /// If it does not take them.
    #[doc(hidden)]
    pub fn launches(&self, inputs: &[&Spec], outputs: &[&Spec]) -> Result<Vec<Launch>> {
        let owned = |all: &[&Spec]| all.iter().map(|&s| s.clone()).collect::<Vec<_>>();
        let geometry = (self.launch)(&owned(inputs), &owned(outputs))?;
        let starts = [vec![0; inputs.len()], vec![0; outputs.len()]];
        Ok(vec![Launch { source: self.source.clone(), geometry, starts }])
    }
}

impl fmt::Debug for CudaKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaKernel({})", self.function())
    }
}

/// The C++ type of an element.
fn element(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::BF16 => "pullback::bf16",
        DType::F16 => "pullback::f16",
        DType::I64 => "long long",
        DType::I32 => "int",
        DType::U8 => "unsigned char",
        DType::Bool => "bool",
    }
}

/// The whole text that is compiled: the lines of the user's keep their numbers.
pub(crate) fn text(source: &CudaSource, inputs: &[DType], outputs: &[DType]) -> String {
    let mut all = PRELUDE.to_string();
    for (letter, dtypes) in [("T", inputs), ("R", outputs)] {
        for (i, &dtype) in dtypes.iter().enumerate() {
            all.push_str(&format!("typedef {} {letter}{i};\n", element(dtype)));
        }
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = if source.function().chars().all(plain) { source.function() } else { "kernel" };
    all.push_str(&format!("#line 1 \"{name}.cu\"\n{}", source.text()));
    all
}

/// Runs a custom op: its kernel, or its code for the host.
pub(crate) fn run(
    gpu: &Gpu,
    (op, of): (&Op, &Custom),
    x: &[StridedOperand],
    out: &[StridedOperand],
    at: Option<Line>,
) -> Result<()> {
    let Work::Kernel { kernel, .. } = of.work() else {
        return Err(Error::argument(of.name(), "has no kernel"));
    };
    let device = Device::Cuda(gpu.number);
    let specs = |all: &[StridedOperand]| {
        all.iter().map(|x| Spec::on(device, x.dtype, &x.shape[..])).collect::<Vec<_>>()
    };
    let (inputs, outputs) = (specs(x), specs(out));
    let (inputs, outputs): (Vec<&Spec>, Vec<&Spec>) =
        (inputs.iter().collect(), outputs.iter().collect());
    let failed = |error: Error| match at {
        Some(at) if error.location().is_none() => error.on(inputs.iter().copied()).at(at),
        _ => error,
    };
    let Some(launches) = kernel.launches(&inputs, &outputs).map_err(failed)? else {
        return host::run(gpu, op, x, out, at);
    };
    // Dense memory for what is not.
    let mut held = Vec::new();
    let mut dense = |x: &StridedOperand, filled: bool| -> Result<u64> {
        if x.is_dense() {
            return Ok(x.at);
        }
        let memory = gpu.scratch(x.bytes())?;
        let address = memory.at;
        if filled {
            copy(gpu, x, &StridedOperand::dense(address, x.dtype, &x.shape))?;
        }
        held.push(memory);
        Ok(address)
    };
    let from = x.iter().map(|x| dense(x, true)).collect::<Result<Vec<u64>>>()?;
    let to = out.iter().map(|y| dense(y, false)).collect::<Result<Vec<u64>>>()?;
    for one in &launches {
        let kernel = compiled(gpu, of.name(), &one.source, x, out).map_err(failed)?;
        let mut words: SmallVec<[u64; 16]> = SmallVec::new();
        for (addresses, starts) in [(&from, &one.starts[0]), (&to, &one.starts[1])] {
            words.extend(addresses.iter().zip(starts).map(|(at, start)| at + *start as u64));
        }
        words.extend(one.geometry.numbers.iter().map(|&n| n as u64));
        launch(gpu, kernel, &one.geometry, &words)
            .map_err(|e| failed(Error::new(e.kind(), of.name(), "was not launched").because(e)))?;
    }
    for (y, &at) in out.iter().zip(&to).filter(|(y, at)| y.at != **at) {
        copy(gpu, &StridedOperand::dense(at, y.dtype, &y.shape), y)?;
    }
    Ok(())
}

fn compiled(
    gpu: &Gpu,
    op: &'static str,
    source: &Arc<CudaSource>,
    x: &[StridedOperand],
    out: &[StridedOperand],
) -> Result<LibraryHandle> {
    let dtypes =
        |all: &[StridedOperand]| all.iter().map(|x| x.dtype).collect::<SmallVec<[DType; 4]>>();
    let (inputs, outputs) = (dtypes(x), dtypes(out));
    let key = KernelKey::Custom(source.clone(), inputs.clone(), outputs.clone());
    let kernel = gpu.kernels.get_or_make(gpu, &key, || {
        let function = CString::new(source.function()).unwrap_or_default();
        KernelSource { text: text(source, &inputs, &outputs), function, fused: true }
    });
    kernel.map_err(|error| {
        let message = format!("its CUDA C, `{}`, is not a kernel", source.function());
        Error::new(ErrorKind::Device, op, message).because(error)
    })
}

fn launch(gpu: &Gpu, kernel: LibraryHandle, geometry: &CudaLaunch, words: &[u64]) -> Result<()> {
    let CudaLaunch { grid, block, shared_bytes, .. } = geometry;
    if grid.contains(&0) {
        return Ok(());
    }
    let threads = block.iter().map(|&n| u64::from(n)).product::<u64>();
    if threads == 0 || threads > 1024 {
        let message =
            format!("a block of {block:?} has {threads} threads, and 1 to 1024 are right");
        return Err(device_error("launch", message));
    }
    if in_dry_run() {
        return Ok(());
    }
    gpu.enter();
    let mut size = size_of_val(words);
    // A buffer with all parameters, and its size.
    let mut extra: [Ptr; 5] =
        [1 as Ptr, words.as_ptr().cast_mut().cast(), 2 as Ptr, (&raw mut size).cast(), null_mut()];
    // SAFETY: who made the kernel promises that it takes these parameters and stays within its
    // operands and results (`CudaKernel::new`); the driver copies the parameters.
    let code = unsafe {
        (gpu.driver.cuLaunchKernel)(
            kernel.0,
            grid[0],
            grid[1],
            grid[2],
            block[0],
            block[1],
            block[2],
            *shared_bytes,
            gpu.stream().0,
            null_mut(),
            extra.as_mut_ptr(),
        )
    };
    gpu.ok("launch", code)
}
