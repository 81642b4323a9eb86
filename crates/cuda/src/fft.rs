//! Fourier transforms, by cuFFT.
//!
//! cuFFT transforms lines that lie at a fixed distance from each other, with a fixed distance
//! between the elements of a line. So an axis in front or at the end is transformed where it is;
//! for one in the middle there is a transform for each index in front of it if these are few, and
//! copies that move it to the end otherwise. Plans are kept; their working memory is the pool's.

use crate::gpu::{DeviceScratch, Gpu, device_error};
use crate::loops::{Loop, StridedOperand};
use crate::ops::copy;
use pullback_cuda_sys::{Cufft, DevicePtr, cufft};
use pullback_ir::{DType, Fft, Inst, Result, Scalar, Value, element_count};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

/// The library, with the plans of a device.
pub(crate) struct Transforms {
    library: &'static Cufft,
    plans: Mutex<HashMap<FftForm, FftPlan>>,
}

/// Plans that are kept; then the oldest half is made again.
const PLANS: usize = 128;
/// Transforms of an axis in the middle without copies.
const FEW: usize = 8;

/// What a plan follows from.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FftForm {
    double: bool,
    kind: FftKind,
    /// The length of the line: that of the real side, if there is one.
    n: usize,
    /// How many lines are side by side, with their elements as far apart; the lines follow each
    /// other otherwise.
    lines: usize,
    side_by_side: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum FftKind {
    Complex,
    ToComplex,
    ToReal,
}

#[derive(Clone, Copy)]
struct FftPlan {
    number: c_int,
    workspace: usize,
    age: usize,
}

impl FftForm {
    /// What cuFFT calls the transform.
    fn code(&self) -> c_int {
        match (self.kind, self.double) {
            (FftKind::ToComplex, false) => 0x2a,
            (FftKind::ToReal, false) => 0x2c,
            (FftKind::Complex, false) => 0x29,
            (FftKind::ToComplex, true) => 0x6a,
            (FftKind::ToReal, true) => 0x6c,
            (FftKind::Complex, true) => 0x69,
        }
    }
}

impl Transforms {
    pub fn open() -> std::result::Result<Transforms, String> {
        Ok(Transforms { library: cufft()?, plans: Mutex::default() })
    }

    fn plan(&self, gpu: &Gpu, form: &FftForm) -> Result<FftPlan> {
        let l = self.library;
        let half = form.n / 2 + 1;
        let (from, to) = match form.kind {
            FftKind::Complex => (form.n, form.n),
            FftKind::ToComplex => (form.n, half),
            FftKind::ToReal => (half, form.n),
        };
        let step = if form.side_by_side { form.lines as i64 } else { 1 };
        let next = |len: usize| if form.side_by_side { 1 } else { len as i64 };
        let (mut n, mut rows, mut rows_to) = ([form.n as i64], [from as i64], [to as i64]);
        let (mut number, mut workspace) = (0, 0);
        // SAFETY: the lists have one length each, as the rank is 1; the rest writes one number.
        unsafe {
            ok((l.cufftCreate)(&mut number))?;
            ok((l.cufftSetAutoAllocation)(number, 0))?;
            ok((l.cufftMakePlanMany64)(
                number,
                1,
                n.as_mut_ptr(),
                rows.as_mut_ptr(),
                step,
                next(from),
                rows_to.as_mut_ptr(),
                step,
                next(to),
                form.code(),
                form.lines as i64,
                &mut workspace,
            ))?;
            ok((l.cufftSetStream)(number, gpu.stream.0))?;
        }
        Ok(FftPlan { number, workspace, age: 0 })
    }

    fn run(&self, gpu: &Gpu, form: &FftForm, inverse: bool, at: &[[DevicePtr; 2]]) -> Result<()> {
        gpu.enter();
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if !plans.contains_key(form) {
            if plans.len() >= PLANS {
                self.forget(gpu, &mut plans)?;
            }
            let age = plans.values().map(|plan| plan.age + 1).max().unwrap_or(0);
            // The tables of a plan take memory beside the pool, which may hold all of it.
            let made = self.plan(gpu, form).or_else(|_| {
                gpu.release();
                self.plan(gpu, form)
            })?;
            let made = FftPlan { age, ..made };
            plans.insert(*form, made);
        }
        let plan = plans[form];
        let workspace = gpu.scratch(plan.workspace)?;
        // Once more: ops of other threads may read that memory, and wait.
        gpu.enter();
        let (l, number) = (self.library, plan.number);
        let sign = if inverse { 1 } else { -1 };
        // SAFETY: the working memory is as long as the plan asks for.
        ok(unsafe { (l.cufftSetWorkArea)(number, workspace.at) })?;
        for &[from, to] in at {
            // SAFETY: both sides have the lines of the form.
            ok(unsafe {
                match (form.kind, form.double) {
                    (FftKind::Complex, false) => (l.cufftExecC2C)(number, from, to, sign),
                    (FftKind::Complex, true) => (l.cufftExecZ2Z)(number, from, to, sign),
                    (FftKind::ToComplex, false) => (l.cufftExecR2C)(number, from, to),
                    (FftKind::ToComplex, true) => (l.cufftExecD2Z)(number, from, to),
                    (FftKind::ToReal, false) => (l.cufftExecC2R)(number, from, to),
                    (FftKind::ToReal, true) => (l.cufftExecZ2D)(number, from, to),
                }
            })?;
        }
        Ok(())
    }

    /// Destroys the older half of the plans, once nothing runs by them.
    fn forget(&self, gpu: &Gpu, plans: &mut HashMap<FftForm, FftPlan>) -> Result<()> {
        // SAFETY: the stream lives as long as the process.
        let code = unsafe { (gpu.driver.cuStreamSynchronize)(gpu.stream.0) };
        gpu.ok("fft", code)?;
        let mut ages: Vec<usize> = plans.values().map(|plan| plan.age).collect();
        ages.sort_unstable();
        let middle = ages[ages.len() / 2];
        plans.retain(|_, plan| {
            let keep = plan.age >= middle;
            if !keep {
                // SAFETY: the plan is forgotten here, and its work has ended.
                unsafe { (self.library.cufftDestroy)(plan.number) };
            }
            keep
        });
        Ok(())
    }
}

fn ok(code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(device_error("fft", format!("cuFFT: error {code}"))),
    }
}

/// The operand where it is, or a dense copy at an address that suits pairs.
fn dense<'a>(
    gpu: &'a Gpu,
    x: &StridedOperand,
    always: bool,
) -> Result<(StridedOperand, Option<DeviceScratch<'a>>)> {
    if !always && x.is_dense() && x.at.is_multiple_of(16) {
        return Ok((x.clone(), None));
    }
    let memory = gpu.scratch(x.bytes())?;
    let to = StridedOperand::dense(memory.at, x.dtype, &x.shape);
    copy(gpu, x, &to)?;
    Ok((to, Some(memory)))
}

/// An operand whose pairs lie on the last axis, as its axes without them; the two parts of a pair
/// are adjacent. Strides stay those of numbers.
fn first_parts(x: &StridedOperand) -> StridedOperand {
    let rank = x.shape.len() - 1;
    x.as_strided(&x.shape[..rank], &x.strides[..rank])
}

/// Runs a transform. Results are dense.
pub(crate) fn run(
    gpu: &Gpu,
    transforms: &Transforms,
    f: Fft,
    x: &StridedOperand,
    out: &StridedOperand,
) -> Result<()> {
    if out.len() == 0 {
        return Ok(());
    }
    let (axis, kind, inverse) = match f {
        Fft::Complex { axis, inverse } => (axis, FftKind::Complex, inverse),
        Fft::Real(axis) => (axis, FftKind::ToComplex, false),
        Fft::Hermitian { axis, .. } => (axis, FftKind::ToReal, true),
    };
    let n = if kind == FftKind::ToReal { out.shape[axis] } else { x.shape[axis] };
    if n == 1 {
        return one(gpu, kind, x, out);
    }
    // Axes without that of the pairs.
    let rank = x.shape.len() - usize::from(kind != FftKind::ToComplex);
    let outer = element_count(&x.shape[..axis]);
    let inner = element_count(&x.shape[axis + 1..rank]);
    let double = x.dtype == DType::F64;
    let in_middle = outer > 1 && inner > 1;
    if in_middle && (outer > FEW || kind != FftKind::Complex) || !out.at.is_multiple_of(16) {
        return moved(gpu, transforms, f, (axis, rank), x, out);
    }
    // cuFFT may use its operand for working memory on the way to real numbers.
    let (x, _held) = dense(gpu, x, kind == FftKind::ToReal)?;
    if kind == FftKind::ToReal {
        make_real(gpu, &x, axis, n)?;
    }
    let form = match inner {
        1 => FftForm { double, kind, n, lines: outer, side_by_side: false },
        _ => FftForm { double, kind, n, lines: inner, side_by_side: true },
    };
    let pair = 2 * x.dtype.size();
    let step = (n * inner * pair) as u64;
    let count = if in_middle { outer as u64 } else { 1 };
    let at: Vec<[DevicePtr; 2]> =
        (0..count).map(|i| [x.at + i * step, out.at + i * step]).collect();
    transforms.run(gpu, &form, inverse, &at)
}

/// A line of one element is its own transform.
fn one(gpu: &Gpu, kind: FftKind, x: &StridedOperand, out: &StridedOperand) -> Result<()> {
    match kind {
        FftKind::Complex => copy(gpu, x, out),
        FftKind::ToComplex => {
            gpu.fill(out.at, 0, out.bytes())?;
            copy(gpu, x, &first_parts(out))
        }
        FftKind::ToReal => copy(gpu, &first_parts(x), out),
    }
}

/// With copies between which the axis is the last one.
fn moved(
    gpu: &Gpu,
    transforms: &Transforms,
    f: Fft,
    (axis, rank): (usize, usize),
    x: &StridedOperand,
    out: &StridedOperand,
) -> Result<()> {
    let order = |x: &StridedOperand| -> Vec<usize> {
        (0..rank).filter(|&d| d != axis).chain([axis]).chain(rank..x.shape.len()).collect()
    };
    let (from, to) = (x.permuted(&order(x)), out.permuted(&order(out)));
    let memory = [gpu.scratch(x.bytes())?, gpu.scratch(out.bytes())?];
    let a = StridedOperand::dense(memory[0].at, x.dtype, &from.shape);
    let b = StridedOperand::dense(memory[1].at, out.dtype, &to.shape);
    copy(gpu, &from, &a)?;
    let last = rank - 1;
    let f = match f {
        Fft::Complex { inverse, .. } => Fft::Complex { axis: last, inverse },
        Fft::Real(_) => Fft::Real(last),
        Fft::Hermitian { len, .. } => Fft::Hermitian { axis: last, len },
    };
    run(gpu, transforms, f, &a, &b)?;
    copy(gpu, &b, &to)
}

/// Sets the imaginary parts to zero that must be for a real result: those of the first coefficient
/// and, for an even number of results, of the last.
fn make_real(gpu: &Gpu, x: &StridedOperand, axis: usize, n: usize) -> Result<()> {
    let parts = first_parts(x).from(1);
    let last = parts.shape[axis] - 1;
    let places: &[usize] = if n.is_multiple_of(2) { &[0, last] } else { &[0] };
    for &place in places {
        let mut to = parts.from(place as isize * parts.strides[axis]);
        to.shape[axis] = 1;
        let of = Loop {
            shape: &to.shape.clone(),
            inner: 0,
            body: &[Inst::Literal(Scalar::from(0.0), x.dtype)],
            values: &[Value { dtype: x.dtype, row: true }],
            inputs: &[],
            outputs: &[(0, to)],
            immediate: 0,
        };
        of.run(gpu)?;
    }
    Ok(())
}
