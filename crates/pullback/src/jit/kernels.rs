//! The generated code of programs, and what it takes.

use super::compile::{apart, optimised_in_stages};
use super::explain::{Explanation, Specialised};
use crate::backend::{DeviceProfile, Executable, KernelCode, NativeCode, planned_kernels};
use crate::{Device, Result};
use pullback_ir::Program;
use pullback_ir::pass::{Apart, Stage};

/// The code that is generated for the fused regions of a program, as text: on the CPU machine code
/// for this machine, none where it has no AVX2; for a GPU CUDA C, a text for each distinct region,
/// which needs no GPU. Equations that call kernels have none.
///
/// ```
/// use pullback::{Tensor, jit, native_code};
/// let f = jit(|x: &Tensor| x * x + 1.0);
/// f.of(&Tensor::from([1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]));
/// for code in native_code(&f.explain().specialisations[0].program)? {
///     println!("equations {:?}:\n{}", code.equations, code.text);
/// }
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the program is invalid, or there is no memory for its constants.
pub fn native_code(program: &Program) -> Result<Vec<NativeCode>> {
    if program.device().is_none_or(|device| device == Device::Cpu) {
        return Ok(Executable::new(program)?.listings());
    }
    let mut codes: Vec<NativeCode> = Vec::new();
    for kernel in device_kernels(program)? {
        let Some(text) = kernel.text else { continue };
        match codes.iter_mut().find(|code| code.text == *text) {
            Some(code) => code.equations.extend(kernel.equations),
            None => codes
                .push(NativeCode { equations: kernel.equations, text: text.as_ref().to_string() }),
        }
    }
    for code in &mut codes {
        code.equations.sort_unstable();
        code.equations.dedup();
    }
    Ok(codes)
}

/// The kernels of a program for a GPU, with the CUDA C of its regions, bytes moved, and where NVRTC
/// is found what a thread takes: registers and what did not fit into them. No GPU is needed:
/// without one, the code is that for compute capability 9.0. None for the CPU.
///
/// ```
/// use pullback::{DType, Device, Spec, Tensor, compiled_stages, device_kernels, trace};
/// let specs = [Spec::cpu(DType::F32, [4096])];
/// let program = trace(|x: &[Tensor]| x[0].square().exp(), &specs)?;
/// let stages = compiled_stages(&program.on_device(Device::Cuda(0)))?;
/// let kernels = device_kernels(&stages.last().unwrap().program)?;
/// println!("{}", kernels[0].text.as_ref().unwrap());
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the program is invalid.
pub fn device_kernels(program: &Program) -> Result<Vec<KernelCode>> {
    match program.device() {
        Some(device @ Device::Cuda(_)) => planned_kernels(program, device),
        Some(Device::Cpu) | None => Ok(Vec::new()),
    }
}

/// What each pass makes of a program, for the device that it is on. A program that was moved
/// ([`Program::on_device`]) is compiled for a GPU without one.
///
/// ```
/// use pullback::{DType, Spec, Tensor, compiled_stages, trace};
/// let specs = [Spec::cpu(DType::F32, [4])];
/// let program = trace(|x: &[Tensor]| x[0].square().exp(), &specs)?;
/// assert!(compiled_stages(&program)?.iter().any(|stage| stage.name == "fuse"));
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the program is invalid.
pub fn compiled_stages(program: &Program) -> Result<Vec<Stage>> {
    optimised_in_stages(program)
}

/// Pairs of equations of a traced program that share a value of at least so many bytes and do not
/// become one fused region, with what keeps them apart; the largest values first. It is compiled
/// again for that.
///
/// ```
/// use pullback::{DType, Spec, Tensor, not_fused, trace};
/// let specs = [Spec::cpu(DType::F32, [64, 64])];
/// let program = trace(|x: &[Tensor]| x[0].exp().sort(0, false).0.tanh(), &specs)?;
/// let found: Vec<String> = not_fused(&program, 0)?.iter().map(ToString::to_string).collect();
/// assert!(found[0].contains("`sort` is a kernel of its own; 16384 bytes written"), "{found:?}");
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If the program is invalid.
pub fn not_fused(program: &Program, least: usize) -> Result<Vec<Apart>> {
    apart(program, least)
}

impl Explanation {
    /// Joins the times of a profile of calls of the function: in the kernels of each program, the
    /// mean time of a call. Casts and steps of optimisers that run as one kernel with others have
    /// none: the profile has one row for all.
    ///
    /// ```
    /// use pullback::{Device, Tensor, jit, profile_device};
    /// let device = Device::Cuda(0);
    /// if device.is_available() {
    ///     let x = Tensor::randn([1024, 1024]).to(device);
    ///     let f = jit(|x: &Tensor| x.square().exp());
    ///     f.of(&x);
    ///     let (_, profile) = profile_device(device, || f.of(&x))?;
    ///     let mut explanation = f.explain();
    ///     explanation.join(&profile);
    ///     println!("{explanation}");
    /// }
    /// # Ok::<(), pullback::Error>(())
    /// ```
    pub fn join(&mut self, profile: &DeviceProfile) {
        self.specialisations.iter_mut().for_each(|made| made.join(profile));
    }
}

impl Specialised {
    /// What is not fused, and why: a sentence for each pair of equations that share a large value,
    /// equal ones once, with how often.
    ///
    /// ```
    /// use pullback::{Tensor, jit};
    /// let f = jit(|x: &Tensor| x.exp().sort(0, false).0.tanh());
    /// f.of(&Tensor::ones([256, 256]));
    /// for sentence in f.explain().specialisations[0].not_fused() {
    ///     println!("{sentence}");
    /// }
    /// ```
    pub fn not_fused(&self) -> Vec<String> {
        let mut lines: Vec<(String, usize)> = Vec::new();
        for pair in &self.apart {
            let line = pair.to_string();
            match lines.iter_mut().find(|known| known.0 == line) {
                Some(known) => known.1 += 1,
                None => lines.push((line, 1)),
            }
        }
        let line = |(line, n): (String, usize)| match n {
            1 => line,
            n => format!("{line} (×{n})"),
        };
        lines.into_iter().map(line).collect()
    }

    /// As [`Explanation::join`], for one program.
    ///
    /// ```
    /// use pullback::{DeviceProfile, Tensor, jit};
    /// let f = jit(|x: &Tensor| x.square());
    /// f.of(&Tensor::from([1.0, 2.0]));
    /// let mut made = f.explain().specialisations.pop().unwrap();
    /// made.join(&DeviceProfile::default());
    /// assert!(made.device_kernels.is_empty(), "it ran on the CPU");
    /// ```
    pub fn join(&mut self, profile: &DeviceProfile) {
        for kernel in &mut self.device_kernels {
            let same = profile.calls.iter().filter(|call| {
                call.kernel == kernel.kernel
                    && call.operands == kernel.operands
                    && call.at == kernel.at
            });
            let times: Vec<f64> = same.map(|call| call.milliseconds).collect();
            let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
            kernel.milliseconds = (!times.is_empty()).then_some(mean);
        }
    }
}

/// A table of kernels, those first that move most (or take longest, if all have times): how often
/// each is called, megabytes that a call moves, registers of a thread and bytes that it spills,
/// milliseconds of a call and the achieved bandwidth.
///
/// ```
/// use pullback::{KernelCode, kernel_table};
/// let copy = KernelCode {
///     kernel: "copy".into(),
///     equations: vec![0, 3],
///     bytes: 8_000_000,
///     milliseconds: Some(0.004),
///     ..KernelCode::default()
/// };
/// let lines = kernel_table(&[copy]);
/// assert!(lines[1].contains("2000  copy"), "{lines:?}");
/// ```
pub fn kernel_table(kernels: &[KernelCode]) -> Vec<String> {
    let mut rows: Vec<&KernelCode> = kernels.iter().collect();
    let timed = kernels.iter().all(|kernel| kernel.milliseconds.is_some());
    let cost = |kernel: &KernelCode| {
        let of = if timed { kernel.milliseconds } else { None };
        of.unwrap_or(kernel.bytes as f64) * kernel.equations.len() as f64
    };
    rows.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
    let head = ["calls", "MB", "registers", "spilled", "ms", "GB/s"];
    let line = |of: [String; 6], kernel: &str| {
        let [calls, moved, registers, spilled, ms, rate] = of;
        format!("{calls:>5} {moved:>9} {registers:>9} {spilled:>7} {ms:>8} {rate:>5}  {kernel}")
    };
    let mut lines = vec![line(head.map(String::from), "kernel")];
    for kernel in rows {
        let usage = |f: fn(&pullback_ir::KernelUsage) -> usize| {
            kernel.usage.as_ref().map_or(String::from("-"), |usage| f(usage).to_string())
        };
        let ms = kernel.milliseconds;
        let of = [
            kernel.equations.len().to_string(),
            format!("{:.3}", kernel.bytes as f64 / 1e6),
            usage(|usage| usage.registers),
            usage(|usage| usage.spilled),
            ms.map_or("-".into(), |ms| format!("{ms:.4}")),
            ms.filter(|&ms| ms > 0.0)
                .map_or("-".into(), |ms| format!("{:.0}", kernel.bytes as f64 / ms / 1e6)),
        ];
        let at = kernel.at.map_or(String::new(), |at| format!("  at {at}"));
        let operands = shortened(&kernel.operands);
        lines.push(line(of, format!("{} {operands}{at}", kernel.kernel).trim_end()));
    }
    lines
}

/// The first of many operands.
fn shortened(operands: &str) -> String {
    match operands.char_indices().nth(100) {
        Some((cut, _)) => format!("{} …", &operands[..cut]),
        None => operands.to_string(),
    }
}
