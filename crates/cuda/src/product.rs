//! Matrix products, by cuBLASLt.
//!
//! `C[m,n] = A·B`, all row-major: the library counts columns first, so it is asked for
//! `Cᵀ = Bᵀ·Aᵀ`. A plan (descriptors and the first of the library's proposals) is made once for
//! each form of a product. The first proposal, not the fastest of a measurement: so the same bits
//! come out in every process.

use crate::gpu::{Gpu, Handle, device_error};
use crate::loops::Operand;
use crate::ops::copy;
use pullback_cuda_sys::{CublasLt, DevicePtr, LtHeuristic, Ptr, cublas_lt};
use pullback_ir::{DType, Result, element_count};
use rustc_hash::FxHashMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// Bytes of workspace of the stream.
const WORKSPACE: usize = 32 << 20;

pub(crate) struct Products {
    library: &'static CublasLt,
    handle: Handle,
    /// Held while a product is put into the queue: the kernels of one product pass sums to each
    /// other through it, and must not be interleaved with those of another thread's.
    workspace: Mutex<Option<DevicePtr>>,
    plans: Mutex<FxHashMap<Form, Plan>>,
}

/// A form of a product.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    dtype: DType,
    /// That of the result: the operands', or the type of the sums.
    out: DType,
    sizes: [usize; 3],
    /// How many products, and the distance of the operands and the result of each.
    batch: usize,
    steps: [isize; 3],
    /// The operands are stored with rows and columns exchanged.
    turned: [bool; 2],
    /// Elements from one row (or column, if exchanged) to the next.
    leading: [usize; 3],
    add: bool,
    /// Least alignment of the addresses: the library chooses by it.
    aligned: bool,
}

#[derive(Clone, Copy)]
struct Plan {
    descriptor: Handle,
    layouts: [Handle; 3],
    algorithm: [u64; 8],
}

/// The code of a dtype, and those in which sums and factors are.
fn codes(dtype: DType) -> Option<(c_int, c_int, c_int)> {
    match dtype {
        DType::F32 => Some((0, 68, 0)),
        DType::F64 => Some((1, 70, 1)),
        DType::F16 => Some((2, 68, 0)),
        DType::BF16 => Some((14, 68, 0)),
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => None,
    }
}

/// A matrix as the library sees it: whether it is exchanged, and its leading dimension.
fn seen(rows: usize, columns: usize, strides: [isize; 2]) -> Option<(bool, usize)> {
    let [r, c] = strides;
    let fits =
        |step: isize, least: usize| usize::try_from(step).ok().filter(|&s| s >= least.max(1));
    if c == 1 || columns == 1 {
        let leading = if rows == 1 { Some(columns.max(1)) } else { fits(r, columns) };
        if let Some(leading) = leading.filter(|_| c == 1 || columns == 1) {
            return Some((false, leading));
        }
    }
    if r == 1 || rows == 1 {
        let leading = if columns == 1 { Some(rows.max(1)) } else { fits(c, rows) };
        return leading.map(|leading| (true, leading));
    }
    None
}

impl Products {
    pub fn open(gpu: &Gpu) -> std::result::Result<Products, String> {
        let library = cublas_lt()?;
        let mut handle = null_mut();
        gpu.enter();
        // SAFETY: writes one handle.
        let code = unsafe { (library.cublasLtCreate)(&mut handle) };
        if code != 0 {
            return Err(format!("cuBLASLt cannot start (error {code})"));
        }
        let handle = Handle(handle);
        Ok(Products { library, handle, workspace: Mutex::default(), plans: Mutex::default() })
    }

    fn plan(&self, form: &Form) -> std::result::Result<Plan, String> {
        let l = self.library;
        let (kind, sums, factors) = codes(form.dtype).ok_or("no product of integers")?;
        let ok = |code: c_int| match code {
            0 => Ok(()),
            code => Err(format!("cuBLASLt: error {code}")),
        };
        let (result, ..) = codes(form.out).ok_or("no product to integers")?;
        let [m, n, k] = form.sizes;
        let mut descriptor = null_mut();
        // SAFETY: handles are those that the library gave; values have the size that is passed.
        unsafe {
            ok((l.cublasLtMatmulDescCreate)(&mut descriptor, sums, factors))?;
            for (which, turned) in [(3, form.turned[1]), (4, form.turned[0])] {
                let value = c_int::from(turned);
                let at = (&raw const value).cast::<c_void>();
                ok((l.cublasLtMatmulDescSetAttribute)(descriptor, which, at, 4))?;
            }
            let layout = |kind: c_int, [rows, columns]: [usize; 2], leading: usize, step: isize| {
                let mut made = null_mut();
                let (rows, columns) = (rows as u64, columns as u64);
                ok((l.cublasLtMatrixLayoutCreate)(&mut made, kind, rows, columns, leading as i64))?;
                if form.batch > 1 {
                    let (count, step) = (form.batch as c_int, step as i64);
                    let at = (&raw const count).cast::<c_void>();
                    ok((l.cublasLtMatrixLayoutSetAttribute)(made, 5, at, 4))?;
                    let at = (&raw const step).cast::<c_void>();
                    ok((l.cublasLtMatrixLayoutSetAttribute)(made, 6, at, 8))?;
                }
                Ok::<Ptr, String>(made)
            };
            // Columns first: our rows are its columns.
            let exchange =
                |rows, columns, turned| if turned { (rows, columns) } else { (columns, rows) };
            let (a0, a1) = exchange(m, k, form.turned[0]);
            let (b0, b1) = exchange(k, n, form.turned[1]);
            let b = layout(kind, [b0, b1], form.leading[1], form.steps[1])?;
            let a = layout(kind, [a0, a1], form.leading[0], form.steps[0])?;
            let c = layout(result, [n, m], form.leading[2], form.steps[2])?;
            let mut preference = null_mut();
            ok((l.cublasLtMatmulPreferenceCreate)(&mut preference))?;
            let bytes = WORKSPACE as u64;
            let at = (&raw const bytes).cast::<c_void>();
            ok((l.cublasLtMatmulPreferenceSetAttribute)(preference, 1, at, 8))?;
            // What the addresses are multiples of; the library assumes 256 otherwise.
            let least = if form.aligned { 16 } else { form.dtype.size() as u32 };
            for which in 5..=8 {
                let at = (&raw const least).cast::<c_void>();
                ok((l.cublasLtMatmulPreferenceSetAttribute)(preference, which, at, 4))?;
            }
            let (mut found, mut ways) = (0, [LtHeuristic::default(); 1]);
            let code = (l.cublasLtMatmulAlgoGetHeuristic)(
                self.handle.0,
                descriptor,
                b,
                a,
                c,
                c,
                preference,
                1,
                ways.as_mut_ptr(),
                &mut found,
            );
            (l.cublasLtMatmulPreferenceDestroy)(preference);
            if code != 0 || found == 0 {
                return Err(format!("cuBLASLt has no way to compute it (error {code})"));
            }
            Ok(Plan {
                descriptor: Handle(descriptor),
                layouts: [Handle(b), Handle(a), Handle(c)],
                algorithm: ways[0].algorithm,
            })
        }
    }

    fn run(&self, gpu: &Gpu, form: &Form, at: [DevicePtr; 3]) -> Result<()> {
        let plan = {
            let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
            match plans.get(form) {
                Some(plan) => *plan,
                None => {
                    let made = self.plan(form).map_err(|why| device_error("dot", why))?;
                    plans.insert(*form, made);
                    made
                }
            }
        };
        let mut workspace = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let scratch = match *workspace {
            Some(scratch) => scratch,
            None => *workspace.insert(gpu.alloc(WORKSPACE)?),
        };
        let double = form.dtype == DType::F64;
        let (one, sum) = (1.0f64, if form.add { 1.0f64 } else { 0.0 });
        let (one32, sum32) = (one as f32, sum as f32);
        let factor = |wide: &f64, narrow: &f32| match double {
            true => std::ptr::from_ref(wide).cast::<c_void>(),
            false => std::ptr::from_ref(narrow).cast::<c_void>(),
        };
        let ([a, b, c], [lb, la, lc]) = (at, plan.layouts);
        gpu.enter();
        // SAFETY: the plan is that of this form, whose matrices are at these addresses.
        let code = unsafe {
            (self.library.cublasLtMatmul)(
                self.handle.0,
                plan.descriptor.0,
                factor(&one, &one32),
                b,
                lb.0,
                a,
                la.0,
                factor(&sum, &sum32),
                c,
                lc.0,
                c,
                lc.0,
                &plan.algorithm,
                scratch,
                WORKSPACE,
                gpu.stream.0,
            )
        };
        match code {
            0 => Ok(()),
            code => Err(device_error("dot", format!("cuBLASLt: error {code}"))),
        }
    }
}

/// Whether there are products in this dtype.
pub(crate) fn has(dtype: DType) -> bool {
    codes(dtype).is_some()
}

/// `out = a·b` over the last two axes, or `out += a·b`; `out` is dense, and of the dtype of the
/// operands or of their sums.
pub(crate) fn dot(gpu: &Gpu, a: &Operand, b: &Operand, out: &Operand, add: bool) -> Result<()> {
    let rank = out.shape.len();
    let [m, n] = [out.shape[rank - 2], out.shape[rank - 1]];
    let k = a.shape[rank - 1];
    if out.len() == 0 {
        return Ok(());
    }
    if k == 0 {
        return if add { Ok(()) } else { gpu.fill(out.at, 0, out.bytes()) };
    }
    let batch = &out.shape[..rank - 2];
    // One step over all batch axes for each operand, or a dense copy.
    let step = |x: &Operand| -> Option<isize> {
        let mut axes: Vec<(usize, isize)> = Vec::new();
        for (&n, &s) in batch.iter().zip(&x.strides) {
            match axes.last_mut() {
                _ if n == 1 => {}
                Some((before, by)) if *by == s * n as isize => (*before, *by) = (*before * n, s),
                _ => axes.push((n, s)),
            }
        }
        match axes[..] {
            [] => Some(0),
            [(_, s)] if s >= 0 => Some(s),
            _ => None,
        }
    };
    let matrix = |x: &Operand| {
        seen(x.shape[rank - 2], x.shape[rank - 1], [x.strides[rank - 2], x.strides[rank - 1]])
            .zip(step(x))
    };
    let mut held = Vec::new();
    let mut dense = |x: &Operand| -> Result<Operand> {
        if matrix(x).is_some() {
            return Ok(x.clone());
        }
        let memory = gpu.scratch(x.bytes())?;
        let to = Operand::dense(memory.at, x.dtype, &x.shape);
        copy(gpu, x, &to)?;
        held.push(memory);
        Ok(to)
    };
    let (a, b) = (dense(a)?, dense(b)?);
    let ((ta, la), sa) = matrix(&a).unwrap_or(((false, k), (m * k) as isize));
    let ((tb, lb), sb) = matrix(&b).unwrap_or(((false, n), (k * n) as isize));
    let (all, step_out) = (element_count(batch), (m * n) as isize);
    let (size, to) = (a.dtype.size() as isize, out.dtype.size() as isize);
    // The library takes so many products at once.
    const MOST: usize = 65535;
    for first in (0..all).step_by(MOST) {
        let moved =
            |at: DevicePtr, step: isize| at.wrapping_add_signed((step * first as isize) as i64);
        let at = [moved(a.at, sa * size), moved(b.at, sb * size), moved(out.at, step_out * to)];
        let form = Form {
            dtype: a.dtype,
            out: out.dtype,
            sizes: [m, n, k],
            batch: MOST.min(all - first),
            steps: [sa, sb, step_out],
            turned: [ta, tb],
            leading: [la, lb, n],
            add,
            aligned: at.iter().all(|at| at.is_multiple_of(16)),
        };
        gpu.products()?.run(gpu, &form, at)?;
    }
    Ok(())
}
