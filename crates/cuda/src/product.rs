//! Matrix products, by cuBLASLt.
//!
//! `C[m,n] = A·B`, all row-major: the library counts columns first, so it is asked for
//! `Cᵀ = Bᵀ·Aᵀ`. A plan (descriptors and one of the ways that the library proposes) is made once
//! for each form of a product: dtypes, sizes, layouts, alignment, switches.
//!
//! **Which way.** Where every run must give the same bits (`deterministic()`, the default), the
//! first proposal: it follows from form, chip and version of the library alone, and so do the sums
//! of every way that the library has. Otherwise a large product is measured in all proposed ways at
//! its first use, and the fastest is kept for later processes (`cache.rs`). A remembered way is
//! used only if it is among the proposals, so a file of another chip or version, or a damaged one,
//! is never run. It must not serve the default: bits would follow from whether a file is there.
//!
//! Narrow floats are summed in `f32` and rounded once: ways that add parts of a sum in the narrow
//! dtype are not asked for.
//!
//! **Workspace.** One for the stream, allocated when a way first needs it and kept. If there is no
//! memory, a way without workspace is taken where bits may differ; else that is the error.

use crate::cache;
use crate::describe::{describe, driver_words};
use crate::dry_run::{self, Preparation, in_dry_run};
use crate::gpu::{Gpu, LibraryHandle, device_error};
use crate::graph::captures_into;
use crate::loops::StridedOperand;
use crate::product_matrices::{StridedMatrices, codes};
use crate::tuning::{StreamTimer, fastest};
use pullback_cuda_sys::{CublasLt, DevicePtr, LtHeuristic, cublas_lt};
use pullback_ir::{DType, Error, ErrorKind, Result, deterministic, element_count, tf32_allowed};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// Bytes of workspace of the stream.
const WORKSPACE: usize = 32 << 20;
/// Multiply-adds from which a product is measured.
const WORTH_MEASURING: u128 = 2_000_000;
/// How many ways the library is asked for.
const WAYS: usize = 8;
/// The library takes so many products at once.
const MOST_AT_ONCE: usize = 65535;

pub(crate) struct Products {
    library: &'static CublasLt,
    handle: LibraryHandle,
    /// What measured choices are valid for: the chip, and the versions of library and driver.
    valid_for: String,
    /// Where they are kept.
    folder: Option<PathBuf>,
    /// Held while a product is put into the queue: the kernels of one product pass sums to each
    /// other through the workspace, and must not be interleaved with those of another thread's.
    state: Mutex<ProductState>,
}

#[derive(Default)]
struct ProductState {
    plans: FxHashMap<ProductForm, ProductPlan>,
    workspace: Workspace,
}

#[derive(Default)]
struct Workspace {
    at: DevicePtr,
    bytes: usize,
}

/// A form of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ProductForm {
    sizes: [usize; 3],
    /// How many products, and the distance of the operands and the result of each.
    batch: usize,
    steps: [isize; 3],
    /// Elements from one row (or column, if exchanged) to the next.
    leading: [usize; 3],
    dtype: DType,
    /// That of the result: the operands', or the type of the sums.
    out: DType,
    /// The operands are stored with rows and columns exchanged.
    turned: [bool; 2],
    add: bool,
    /// A row is added to every row of the result.
    bias: bool,
    /// Least alignment of the addresses: the library chooses by it.
    aligned: bool,
    /// `f32` operands are rounded to TF32.
    tf32: bool,
    /// The way may be chosen by the clock, so that bits differ between runs.
    free: bool,
}

/// What is added to a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addend {
    Alone,
    /// What is in the result already.
    Added,
    /// This row of elements like the operands', to every row. Of two matrices, not of stacks.
    Bias(DevicePtr),
}

struct ProductPlan {
    descriptors: Descriptors,
    algorithm: [u64; 8],
    /// Bytes that it needs.
    workspace: usize,
}

/// What the library knows a form by.
struct Descriptors {
    library: &'static CublasLt,
    product: LibraryHandle,
    /// Of B, A and C: the first operand of the library is our second.
    layouts: [LibraryHandle; 3],
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the library made them, and what was launched with them no longer needs them.
        unsafe {
            for layout in self.layouts.iter().filter(|layout| !layout.0.is_null()) {
                (self.library.cublasLtMatrixLayoutDestroy)(layout.0);
            }
            if !self.product.0.is_null() {
                (self.library.cublasLtMatmulDescDestroy)(self.product.0);
            }
        }
    }
}

impl ProductForm {
    fn multiply_adds(&self) -> u128 {
        self.sizes.iter().fold(self.batch as u128, |all, &n| all * n as u128)
    }
}

impl Workspace {
    /// Makes it at least so long. One that was shorter stays: a captured graph may refer to it.
    #[inline]
    fn reserve(&mut self, gpu: &Gpu, bytes: usize) -> Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let whole = gpu.alloc(WORKSPACE).map(|at| (at, WORKSPACE));
        (self.at, self.bytes) = whole.or_else(|_| gpu.alloc(bytes).map(|at| (at, bytes)))?;
        Ok(())
    }
}

fn library_ok(code: c_int) -> std::result::Result<(), String> {
    match code {
        0 => Ok(()),
        code => Err(format!("cuBLASLt: error {code}")),
    }
}

impl Products {
    pub fn open(gpu: &Gpu) -> std::result::Result<Products, String> {
        Products::open_with(gpu, cache::folder())
    }

    /// With choices in a folder.
    pub fn open_with(gpu: &Gpu, folder: Option<PathBuf>) -> std::result::Result<Products, String> {
        let library = cublas_lt()?;
        let (mut handle, mut version) = (null_mut(), [0; 3]);
        gpu.enter();
        // SAFETY: each call writes one handle or integer.
        let code = unsafe {
            for (which, number) in version.iter_mut().enumerate() {
                (library.cublasLtGetProperty)(which as c_int, number);
            }
            (library.cublasLtCreate)(&mut handle)
        };
        if code != 0 {
            return Err(format!("cuBLASLt cannot start (error {code})"));
        }
        let chip = describe(gpu.number)?;
        let ([major, minor, patch], driver) = (version, driver_words());
        let valid_for = format!(
            "cuBLASLt {major}.{minor}.{patch}, {driver}, {}, sm_{}, {} multiprocessors",
            chip.name, chip.capability, chip.units
        );
        let handle = LibraryHandle(handle);
        Ok(Products { library, handle, valid_for, folder, state: Mutex::default() })
    }

    /// What the library knows the form by, and the ways that it proposes with so much workspace: at
    /// least one.
    fn ways(
        &self,
        form: &ProductForm,
        workspace: usize,
    ) -> std::result::Result<(Descriptors, Vec<LtHeuristic>), String> {
        let (l, ok) = (self.library, library_ok);
        let (kind, sums, factors) = codes(form.dtype, form.tf32).ok_or("no product of integers")?;
        let (result, ..) = codes(form.out, false).ok_or("no product to integers")?;
        let [m, n, k] = form.sizes;
        let none = LibraryHandle(null_mut());
        let mut made = Descriptors { library: l, product: none, layouts: [none; 3] };
        let layout = |to: &mut LibraryHandle,
                      kind: c_int,
                      [rows, columns]: [usize; 2],
                      number: usize| {
            let (rows, columns, leading) = (rows as u64, columns as u64, form.leading[number]);
            // SAFETY: writes one handle; values have the size that is passed.
            unsafe {
                ok((l.cublasLtMatrixLayoutCreate)(&mut to.0, kind, rows, columns, leading as i64))?;
                if form.batch > 1 {
                    let (count, step) = (form.batch as c_int, form.steps[number] as i64);
                    let at = (&raw const count).cast::<c_void>();
                    ok((l.cublasLtMatrixLayoutSetAttribute)(to.0, 5, at, 4))?;
                    let at = (&raw const step).cast::<c_void>();
                    ok((l.cublasLtMatrixLayoutSetAttribute)(to.0, 6, at, 8))?;
                }
            }
            Ok::<(), String>(())
        };
        // Columns first: our rows are its columns.
        let exchange =
            |rows, columns, turned| if turned { [rows, columns] } else { [columns, rows] };
        let [b, a, c] = &mut made.layouts;
        layout(b, kind, exchange(k, n, form.turned[1]), 1)?;
        layout(a, kind, exchange(m, k, form.turned[0]), 0)?;
        layout(c, result, [n, m], 2)?;
        let mut preference = null_mut();
        let (mut found, mut ways) = (0, vec![LtHeuristic::default(); WAYS]);
        // SAFETY: handles are those that the library gave; values have the size that is passed.
        let code = unsafe {
            ok((l.cublasLtMatmulDescCreate)(&mut made.product.0, sums, factors))?;
            if form.bias {
                // The row in the dtype of the operands; where it is, is said at each launch.
                let (epilogue, address): (c_int, u64) = (4, 1 << 8);
                let set = |which: c_int, at: *const c_void, size: usize| {
                    (l.cublasLtMatmulDescSetAttribute)(made.product.0, which, at, size)
                };
                ok(set(7, (&raw const epilogue).cast::<c_void>(), size_of::<c_int>()))?;
                ok(set(8, (&raw const address).cast(), 8))?;
                ok(set(26, (&raw const kind).cast(), 4))?;
            }
            for (which, turned) in [(3, form.turned[1]), (4, form.turned[0])] {
                let value = c_int::from(turned);
                let at = (&raw const value).cast::<c_void>();
                ok((l.cublasLtMatmulDescSetAttribute)(made.product.0, which, at, 4))?;
            }
            ok((l.cublasLtMatmulPreferenceCreate)(&mut preference))?;
            let set = |which: c_int, at: *const c_void, size: usize| {
                (l.cublasLtMatmulPreferenceSetAttribute)(preference, which, at, size)
            };
            let bytes = workspace as u64;
            let mut code = set(1, (&raw const bytes).cast(), 8);
            if matches!(form.out, DType::F16 | DType::BF16) {
                // Parts of a split sum are added in the compute type.
                let schemes = 2u32;
                code |= set(3, (&raw const schemes).cast(), 4);
            }
            // What the addresses are multiples of; the library assumes 256 otherwise.
            let least = if form.aligned { 16 } else { form.dtype.size() as u32 };
            for which in 5..=8 {
                code |= set(which, (&raw const least).cast(), 4);
            }
            let [b, a, c] = made.layouts.map(|layout| layout.0);
            if code == 0 {
                code = (l.cublasLtMatmulAlgoGetHeuristic)(
                    self.handle.0,
                    made.product.0,
                    b,
                    a,
                    c,
                    c,
                    preference,
                    WAYS as c_int,
                    ways.as_mut_ptr(),
                    &mut found,
                );
            }
            (l.cublasLtMatmulPreferenceDestroy)(preference);
            code
        };
        ways.truncate(usize::try_from(found).unwrap_or(0));
        ways.retain(|way| way.state == 0);
        if code != 0 || ways.is_empty() {
            return Err(format!("cuBLASLt has no way to compute it (error {code})"));
        }
        Ok((made, ways))
    }

    /// The plan of a form that is new, and whether it stays so.
    #[cold]
    fn plan(
        &self,
        gpu: &Gpu,
        form: &ProductForm,
        at: [DevicePtr; 4],
        workspace: &mut Workspace,
    ) -> Result<(ProductPlan, bool)> {
        let made = self.ways(form, WORKSPACE).map_err(|why| device_error("dot", why))?;
        let (descriptors, ways) = made;
        let mut plan =
            ProductPlan { descriptors, algorithm: ways[0].algorithm, workspace: ways[0].workspace };
        if !form.free || form.multiply_adds() < WORTH_MEASURING || ways.len() == 1 {
            return Ok((plan, true));
        }
        let key = format!("{}\n{form:?}", self.valid_for);
        let way = match self.remembered(&key, &ways) {
            Some(way) => way,
            None => {
                // Nothing can be measured while a graph is captured.
                let Some(watch) = StreamTimer::new(gpu) else { return Ok((plan, false)) };
                let measured =
                    self.measured(gpu, (form, &plan.descriptors, &ways), at, workspace, &watch);
                let Some(way) = measured else { return Ok((plan, true)) };
                if let Some(folder) = &self.folder {
                    let bytes: Vec<u8> =
                        ways[way].algorithm.iter().flat_map(|word| word.to_le_bytes()).collect();
                    cache::write(folder, "product", &key, &bytes);
                }
                way
            }
        };
        (plan.algorithm, plan.workspace) = (ways[way].algorithm, ways[way].workspace);
        Ok((plan, true))
    }

    /// The way that an earlier process has found to be the fastest.
    fn remembered(&self, key: &str, ways: &[LtHeuristic]) -> Option<usize> {
        let bytes = cache::read(self.folder.as_ref()?, "product", key)?;
        let same = |way: &LtHeuristic| {
            way.algorithm.iter().flat_map(|word| word.to_le_bytes()).eq(bytes.iter().copied())
        };
        ways.iter().position(same)
    }

    /// The fastest way. What is written meanwhile is written over, or is scratch memory where the
    /// product is to be added; `None` if there is none.
    fn measured(
        &self,
        gpu: &Gpu,
        (form, descriptors, ways): (&ProductForm, &Descriptors, &[LtHeuristic]),
        [a, b, c, bias]: [DevicePtr; 4],
        workspace: &mut Workspace,
        watch: &StreamTimer<'_>,
    ) -> Option<usize> {
        let [m, n, _] = form.sizes;
        let bytes = form.batch * m * n * form.out.size();
        let scratch = if form.add { Some(gpu.scratch(bytes).ok()?) } else { None };
        let to = match &scratch {
            Some(scratch) => {
                gpu.fill(scratch.at, 0, bytes).ok()?;
                scratch.at
            }
            None => c,
        };
        // All ways that there is memory for.
        let most = ways.iter().map(|way| way.workspace).max().unwrap_or(0);
        let _ = workspace.reserve(gpu, most.max(1));
        // Some tens of microseconds, in which the host puts several products into the queue.
        let busy = || (0..8).try_for_each(|_| gpu.fill(workspace.at, 0, workspace.bytes));
        fastest(ways.len(), |way, count| {
            let LtHeuristic { algorithm, workspace: needs, .. } = &ways[way];
            if *needs > workspace.bytes {
                return None;
            }
            let run = || {
                for _ in 0..count {
                    let at = [a, b, to, bias];
                    let code =
                        self.launch(gpu, form, descriptors, algorithm, at, (workspace.at, *needs));
                    library_ok(code).map_err(|why| device_error("dot", why))?;
                }
                Ok(())
            };
            watch.time(busy, run)
        })
    }

    /// Computes a product in the way of its plan.
    fn run(&self, gpu: &Gpu, form: &ProductForm, at: [DevicePtr; 4]) -> Result<()> {
        if in_dry_run() {
            return self.dry_run(gpu, form, at);
        }
        gpu.enter();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ProductState { plans, workspace } = &mut *state;
        let (once, small);
        let mut plan = match plans.entry(*form) {
            Entry::Occupied(found) => &*found.into_mut(),
            Entry::Vacant(place) => match self.plan(gpu, form, at, workspace)? {
                (plan, true) => &*place.insert(plan),
                (plan, false) => {
                    once = plan;
                    &once
                }
            },
        };
        if captures_into().is_some() {
            // The graph has a workspace of its own.
            let scratch = gpu.scratch(plan.workspace)?;
            let at = (at, (scratch.at, plan.workspace));
            return match self.launch(gpu, form, &plan.descriptors, &plan.algorithm, at.0, at.1) {
                0 => Ok(()),
                code => Err(refused(code)),
            };
        }
        if let Err(error) = workspace.reserve(gpu, plan.workspace) {
            // Another way, if that is allowed and there is one; else the error is that of memory.
            let other = if form.free { self.ways(form, workspace.bytes).ok() } else { None };
            let Some((descriptors, ways)) = other else { return Err(error) };
            let LtHeuristic { algorithm, workspace, .. } = ways[0];
            small = ProductPlan { descriptors, algorithm, workspace };
            plan = &small;
        }
        // Once more: ops of other threads may read what became the workspace, and wait.
        gpu.enter();
        let scratch = (workspace.at, plan.workspace);
        let launch = || self.launch(gpu, form, &plan.descriptors, &plan.algorithm, at, scratch);
        match launch() {
            0 => Ok(()),
            code => self.retry(gpu, code, launch),
        }
    }

    /// Makes the plan alone, unless it has to be measured.
    #[cold]
    fn dry_run(&self, gpu: &Gpu, form: &ProductForm, at: [DevicePtr; 4]) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ProductState { plans, workspace } = &mut *state;
        if let Entry::Vacant(place) = plans.entry(*form) {
            let (plan, stays) = self.plan(gpu, form, at, workspace)?;
            if stays {
                dry_run::count(Preparation::Product);
                place.insert(plan);
            }
        }
        Ok(())
    }

    /// A product that was refused, once more with the memory that the pool can give back: the
    /// library loads a kernel at its first use, and names a lack of memory in several ways.
    #[cold]
    fn retry(&self, gpu: &Gpu, code: c_int, launch: impl FnOnce() -> c_int) -> Result<()> {
        const ALLOCATION_FAILED: c_int = 3;
        const EXECUTION_FAILED: c_int = 13;
        const INTERNAL_ERROR: c_int = 14;
        let code = match code {
            ALLOCATION_FAILED | EXECUTION_FAILED | INTERNAL_ERROR => {
                gpu.release();
                launch()
            }
            code => code,
        };
        match code {
            0 => Ok(()),
            ALLOCATION_FAILED => {
                let message =
                    format!("cuBLASLt finds no memory on cuda:{} to compute it", gpu.number);
                Err(Error::new(ErrorKind::Memory, "dot", message))
            }
            code => Err(gpu.explained("dot", refused(code))),
        }
    }

    #[inline]
    fn launch(
        &self,
        gpu: &Gpu,
        form: &ProductForm,
        descriptors: &Descriptors,
        algorithm: &[u64; 8],
        [a, b, c, bias]: [DevicePtr; 4],
        (scratch, bytes): (DevicePtr, usize),
    ) -> c_int {
        let (one, sum) = (1.0f64, if form.add { 1.0f64 } else { 0.0 });
        let (one32, sum32) = (one as f32, sum as f32);
        let factor = |wide: &f64, narrow: &f32| match form.dtype {
            DType::F64 => std::ptr::from_ref(wide).cast::<c_void>(),
            _ => std::ptr::from_ref(narrow).cast::<c_void>(),
        };
        let [lb, la, lc] = descriptors.layouts.map(|layout| layout.0);
        // SAFETY: the descriptors are those of this form, whose matrices are at these addresses,
        // and the workspace is as long as the way needs.
        unsafe {
            if form.bias {
                let (product, at) = (descriptors.product.0, (&raw const bias).cast());
                let code = (self.library.cublasLtMatmulDescSetAttribute)(product, 8, at, 8);
                if code != 0 {
                    return code;
                }
            }
            (self.library.cublasLtMatmul)(
                self.handle.0,
                descriptors.product.0,
                factor(&one, &one32),
                b,
                lb,
                a,
                la,
                factor(&sum, &sum32),
                c,
                lc,
                c,
                lc,
                algorithm,
                scratch,
                bytes,
                gpu.stream().0,
            )
        }
    }
}

#[cold]
fn refused(code: c_int) -> Error {
    device_error("dot", format!("cuBLASLt: error {code}"))
}

/// Whether there are products in this dtype.
pub(crate) fn has(dtype: DType) -> bool {
    codes(dtype, false).is_some()
}

/// `out = a·b` over the last two axes, or `out += a·b`; `out` is dense, and of the dtype of the
/// operands or of their sums.
pub(crate) fn dot(
    gpu: &Gpu,
    a: &StridedOperand,
    b: &StridedOperand,
    out: &StridedOperand,
    add: bool,
) -> Result<()> {
    let sum = if add { Addend::Added } else { Addend::Alone };
    gpu.products()?.dot(gpu, a, b, out, sum)
}

/// `out = a·b` of two matrices, or with a bias.
pub(crate) fn dot_with_bias(
    gpu: &Gpu,
    a: &StridedOperand,
    b: &StridedOperand,
    out: &StridedOperand,
    bias: Option<&StridedOperand>,
) -> Result<()> {
    let sum = bias.map_or(Addend::Alone, |row| Addend::Bias(row.at));
    gpu.products()?.dot(gpu, a, b, out, sum)
}

impl Products {
    /// As [`dot`].
    pub fn dot(
        &self,
        gpu: &Gpu,
        a: &StridedOperand,
        b: &StridedOperand,
        out: &StridedOperand,
        sum: Addend,
    ) -> Result<()> {
        let (add, bias) = match sum {
            Addend::Alone => (false, None),
            Addend::Added => (true, None),
            Addend::Bias(at) => (false, Some(at)),
        };
        let rank = out.shape.len();
        debug_assert!(bias.is_none() || rank == 2);
        let [m, n] = [out.shape[rank - 2], out.shape[rank - 1]];
        let k = a.shape[rank - 1];
        let all = element_count(&out.shape[..rank - 2]);
        if all * m * n == 0 {
            return Ok(());
        }
        if k == 0 && bias.is_none() {
            return if add { Ok(()) } else { gpu.fill(out.at, 0, out.bytes()) };
        }
        let dtype = a.dtype;
        let (size, size_out) = (dtype.size() as isize, out.dtype.size() as isize);
        let (a, b) = (StridedMatrices::of(gpu, a)?, StridedMatrices::of(gpu, b)?);
        let steps = [a.step, b.step, (m * n) as isize];
        let (tf32, free) = (dtype == DType::F32 && tf32_allowed(), !deterministic());
        for first in (0..all).step_by(MOST_AT_ONCE) {
            let moved =
                |at: DevicePtr, step: isize| at.wrapping_add_signed((step * first as isize) as i64);
            let at = [
                moved(a.at, steps[0] * size),
                moved(b.at, steps[1] * size),
                moved(out.at, steps[2] * size_out),
                bias.unwrap_or(0),
            ];
            let form = ProductForm {
                sizes: [m, n, k],
                batch: MOST_AT_ONCE.min(all - first),
                steps,
                leading: [a.leading, b.leading, n],
                dtype,
                out: out.dtype,
                turned: [a.turned, b.turned],
                add,
                bias: bias.is_some(),
                aligned: at.iter().all(|at| at.is_multiple_of(16)),
                tf32,
                free,
            };
            self.run(gpu, &form, at)?;
        }
        Ok(())
    }
}
