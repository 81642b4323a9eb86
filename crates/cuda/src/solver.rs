//! cuSOLVER and cuBLAS: factorisations of matrices, one by one or in batches, triangular systems.
//!
//! Matrices are column-major here, dense, and one after the other. What a factorisation finds wrong
//! with a matrix is in `info`, a word on the device for each.

use crate::gpu::{DeviceScratch, Gpu, LibraryHandle, device_error};
use pullback_cuda_sys::{Cublas, Cusolver, DevicePtr, Ptr, cublas, cusolver};
use pullback_ir::{DType, Error, Result};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The libraries of a device.
pub(crate) struct Solver {
    solver: &'static Cusolver,
    blas: &'static Cublas,
    /// Of cuSOLVER, then of cuBLAS.
    handles: [LibraryHandle; 2],
    /// How Jacobi's method runs, for eigenvalues and for singular values: the defaults.
    jacobi: [LibraryHandle; 2],
    /// A handle serves one thread at a time.
    busy: Mutex<()>,
}

/// Column-major matrices of one size and dtype.
#[derive(Clone, Copy)]
pub(crate) struct MatrixBatch {
    pub dtype: DType,
    pub count: usize,
    pub m: usize,
    pub n: usize,
    pub at: DevicePtr,
}

/// Where results of singular values go: values, left and right vectors.
#[derive(Clone, Copy)]
pub(crate) struct Singular {
    pub values: DevicePtr,
    pub left: DevicePtr,
    pub right: DevicePtr,
    /// All vectors, not only those with a value.
    pub full: bool,
}

/// A triangle of stacks, and how it is seen.
#[derive(Clone, Copy)]
pub(crate) struct Triangles {
    pub dtype: DType,
    pub count: usize,
    pub n: usize,
    /// Right-hand sides of each.
    pub sides: usize,
    pub at: DevicePtr,
    /// Elements from one matrix to the next, and from one row (or column) to the next.
    pub step: isize,
    pub leading: usize,
    /// Columns, not rows, are contiguous.
    pub by_columns: bool,
    pub upper: bool,
    pub unit: bool,
}

const UPPER: c_int = 1;
const VECTORS: c_int = 1;

impl MatrixBatch {
    fn is_double(&self) -> bool {
        self.dtype == DType::F64
    }

    /// Matrix `i`, if each has `elements`.
    fn matrix(&self, i: usize, elements: usize) -> DevicePtr {
        self.at + (i * elements * self.dtype.size()) as u64
    }

    fn sizes(&self) -> (c_int, c_int) {
        (self.m as c_int, self.n as c_int)
    }
}

/// The word of `info` of matrix `i`.
fn word(info: DevicePtr, i: usize) -> DevicePtr {
    info + 4 * i as u64
}

impl Solver {
    pub fn open(gpu: &Gpu) -> std::result::Result<Solver, String> {
        let (solver, blas) = (cusolver()?, cublas()?);
        gpu.enter();
        let mut made = [null_mut(); 4];
        let [a, b, c, d] = &mut made;
        // SAFETY: each call writes one handle, or takes one that another has made.
        let codes = unsafe {
            [
                (solver.cusolverDnCreate)(a),
                (solver.cusolverDnSetStream)(*a, gpu.stream.0),
                (blas.cublasCreate_v2)(b),
                (blas.cublasSetStream_v2)(*b, gpu.stream.0),
                (solver.cusolverDnCreateSyevjInfo)(c),
                (solver.cusolverDnCreateGesvdjInfo)(d),
            ]
        };
        if let Some(code) = codes.iter().find(|&&code| code != 0) {
            return Err(format!("cuSOLVER cannot start (error {code})"));
        }
        let [a, b, c, d] = made.map(LibraryHandle);
        Ok(Solver { solver, blas, handles: [a, b], jacobi: [c, d], busy: Mutex::new(()) })
    }

    fn lock(&self, gpu: &Gpu) -> MutexGuard<'_, ()> {
        gpu.enter();
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self) -> Ptr {
        self.handles[0].0
    }

    /// Asks for the size of working memory, in elements, and takes it from the pool.
    fn work<'a>(
        &self,
        gpu: &'a Gpu,
        of: MatrixBatch,
        ask: impl FnOnce(*mut c_int) -> c_int,
    ) -> Result<(DeviceScratch<'a>, c_int)> {
        let mut elements = 0;
        ok(ask(&mut elements))?;
        let memory = gpu.scratch(elements.max(1) as usize * of.dtype.size())?;
        // Once more: ops of other threads may read that memory, and wait.
        gpu.enter();
        Ok((memory, elements))
    }

    /// Cholesky's factorisation of the upper triangle, which holds Lᵀ then.
    pub fn cholesky(&self, gpu: &Gpu, of: MatrixBatch, info: DevicePtr) -> Result<()> {
        let (_lock, l, n) = (self.lock(gpu), self.solver, of.n as c_int);
        let (size, run) = match of.is_double() {
            true => (l.cusolverDnDpotrf_bufferSize, l.cusolverDnDpotrf),
            false => (l.cusolverDnSpotrf_bufferSize, l.cusolverDnSpotrf),
        };
        // SAFETY: the matrices, the working memory and `info` are as long as the library asks.
        let (work, len) =
            self.work(gpu, of, |to| unsafe { size(self.handle(), UPPER, n, of.at, n, to) })?;
        for i in 0..of.count {
            let a = of.matrix(i, of.n * of.n);
            // SAFETY: as above.
            ok(unsafe { run(self.handle(), UPPER, n, a, n, work.at, len, word(info, i)) })?;
        }
        Ok(())
    }

    /// L and U in place, and pivots from 1.
    pub fn lu(&self, gpu: &Gpu, of: MatrixBatch, pivots: DevicePtr, info: DevicePtr) -> Result<()> {
        let (_lock, l, (m, n)) = (self.lock(gpu), self.solver, of.sizes());
        let (size, run) = match of.is_double() {
            true => (l.cusolverDnDgetrf_bufferSize, l.cusolverDnDgetrf),
            false => (l.cusolverDnSgetrf_bufferSize, l.cusolverDnSgetrf),
        };
        // SAFETY: the matrices, the working memory and `info` are as long as the library asks.
        let (work, _) =
            self.work(gpu, of, |to| unsafe { size(self.handle(), m, n, of.at, m, to) })?;
        for i in 0..of.count {
            let (a, p) = (of.matrix(i, of.m * of.n), word(pivots, i * of.m.min(of.n)));
            // SAFETY: as above; there are as many pivots as the matrix has.
            ok(unsafe { run(self.handle(), m, n, a, m, work.at, p, word(info, i)) })?;
        }
        Ok(())
    }

    /// Householder's factors of an m × n matrix in place: R above, reflections below the diagonal.
    /// Then `between` is called, after which the matrices at `q`, m × `wide`, that hold these
    /// reflections become Q.
    pub fn qr(
        &self,
        gpu: &Gpu,
        of: MatrixBatch,
        (q, wide): (DevicePtr, usize),
        info: DevicePtr,
        between: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let (_lock, l, (m, n)) = (self.lock(gpu), self.solver, of.sizes());
        let steps = of.m.min(of.n);
        let (size, run, size_q, run_q) = match of.is_double() {
            true => (
                l.cusolverDnDgeqrf_bufferSize,
                l.cusolverDnDgeqrf,
                l.cusolverDnDorgqr_bufferSize,
                l.cusolverDnDorgqr,
            ),
            false => (
                l.cusolverDnSgeqrf_bufferSize,
                l.cusolverDnSgeqrf,
                l.cusolverDnSorgqr_bufferSize,
                l.cusolverDnSorgqr,
            ),
        };
        let taus = gpu.scratch((of.count * steps).max(1) * of.dtype.size())?;
        let tau = |i: usize| taus.at + (i * steps * of.dtype.size()) as u64;
        // SAFETY: the matrices, the working memory and `info` are as long as the library asks.
        let (work, len) =
            self.work(gpu, of, |to| unsafe { size(self.handle(), m, n, of.at, m, to) })?;
        for i in 0..of.count {
            let (a, info) = (of.matrix(i, of.m * of.n), word(info, i));
            // SAFETY: as above.
            ok(unsafe { run(self.handle(), m, n, a, m, tau(i), work.at, len, info) })?;
        }
        between()?;
        let (columns, k) = (wide as c_int, steps as c_int);
        // SAFETY: as above.
        let (work, len) = self.work(gpu, of, |to| unsafe {
            size_q(self.handle(), m, columns, k, q, m, taus.at, to)
        })?;
        let q = MatrixBatch { n: wide, at: q, ..of };
        for i in 0..of.count {
            let (a, info) = (q.matrix(i, of.m * wide), word(info, i));
            // SAFETY: as above.
            ok(unsafe { run_q(self.handle(), m, columns, k, a, m, tau(i), work.at, len, info) })?;
        }
        Ok(())
    }

    /// The eigenvalues, ascending, of the symmetric matrices whose upper triangles these are, which
    /// become the eigenvectors. Small ones are by Jacobi's method, a whole batch at once; a single
    /// one too, so that its bits are those of a batch.
    pub fn symmetric(
        &self,
        gpu: &Gpu,
        of: MatrixBatch,
        values: DevicePtr,
        info: DevicePtr,
    ) -> Result<()> {
        let (_lock, l, n, double) = (self.lock(gpu), self.solver, of.n as c_int, of.is_double());
        if of.n <= SMALL {
            let (size, run) = match double {
                true => (l.cusolverDnDsyevjBatched_bufferSize, l.cusolverDnDsyevjBatched),
                false => (l.cusolverDnSsyevjBatched_bufferSize, l.cusolverDnSsyevjBatched),
            };
            let (how, h) = (self.jacobi[0].0, self.handle());
            for first in (0..of.count).step_by(MOST) {
                let some = MOST.min(of.count - first) as c_int;
                let a = of.matrix(first, of.n * of.n);
                let w = values + (first * of.n * of.dtype.size()) as u64;
                // SAFETY: the matrices, the working memory and `info` are as long as the library
                // asks.
                let (work, len) = self.work(gpu, of, |to| unsafe {
                    size(h, VECTORS, UPPER, n, a, n, w, to, how, some)
                })?;
                let info = word(info, first);
                // SAFETY: as above.
                ok(unsafe { run(h, VECTORS, UPPER, n, a, n, w, work.at, len, info, how, some) })?;
            }
            return Ok(());
        }
        let (size, run) = match double {
            true => (l.cusolverDnDsyevd_bufferSize, l.cusolverDnDsyevd),
            false => (l.cusolverDnSsyevd_bufferSize, l.cusolverDnSsyevd),
        };
        // SAFETY: as above.
        let (work, len) = self.work(gpu, of, |to| unsafe {
            size(self.handle(), VECTORS, UPPER, n, of.at, n, values, to)
        })?;
        for i in 0..of.count {
            let (a, info) = (of.matrix(i, of.n * of.n), word(info, i));
            let w = values + (i * of.n * of.dtype.size()) as u64;
            let h = self.handle();
            // SAFETY: as above.
            ok(unsafe { run(h, VECTORS, UPPER, n, a, n, w, work.at, len, info) })?;
        }
        Ok(())
    }

    /// Whether [`Solver::singular`] gives V, with all vectors, and not Vᵀ.
    pub fn by_jacobi(of: MatrixBatch) -> bool {
        of.m <= SMALL && of.n <= SMALL
    }

    /// The singular values, descending, of matrices with no more columns than rows, with left
    /// vectors as columns and right ones as rows (or as columns, see [`Solver::by_jacobi`]).
    pub fn singular(
        &self,
        gpu: &Gpu,
        of: MatrixBatch,
        to: Singular,
        info: DevicePtr,
    ) -> Result<()> {
        let (_lock, l, (m, n), double) = (self.lock(gpu), self.solver, of.sizes(), of.is_double());
        let (h, size) = (self.handle(), of.dtype.size());
        let part = |at: DevicePtr, i: usize, each: usize| at + (i * each * size) as u64;
        if Solver::by_jacobi(of) {
            let (ask, run) = match double {
                true => (l.cusolverDnDgesvdjBatched_bufferSize, l.cusolverDnDgesvdjBatched),
                false => (l.cusolverDnSgesvdjBatched_bufferSize, l.cusolverDnSgesvdjBatched),
            };
            let how = self.jacobi[1].0;
            for first in (0..of.count).step_by(MOST) {
                let some = MOST.min(of.count - first) as c_int;
                let a = of.matrix(first, of.m * of.n);
                let s = part(to.values, first, of.n);
                let (u, v) =
                    (part(to.left, first, of.m * of.m), part(to.right, first, of.n * of.n));
                // SAFETY: the matrices, the working memory and `info` are as long as the library
                // asks.
                let (work, len) = self.work(gpu, of, |to| unsafe {
                    ask(h, VECTORS, m, n, a, m, s, u, m, v, n, to, how, some)
                })?;
                let info = word(info, first);
                // SAFETY: as above.
                ok(unsafe {
                    run(h, VECTORS, m, n, a, m, s, u, m, v, n, work.at, len, info, how, some)
                })?;
            }
            return Ok(());
        }
        let (ask, run) = match double {
            true => (l.cusolverDnDgesvd_bufferSize, l.cusolverDnDgesvd),
            false => (l.cusolverDnSgesvd_bufferSize, l.cusolverDnSgesvd),
        };
        let rest = gpu.scratch(of.n * size)?;
        // SAFETY: as above.
        let (work, len) = self.work(gpu, of, |to| unsafe { ask(h, m, n, to) })?;
        let job = if to.full { b'A' } else { b'S' } as i8;
        let wide = if to.full { of.m } else { of.n };
        for i in 0..of.count {
            let a = of.matrix(i, of.m * of.n);
            let (s, u) = (part(to.values, i, of.n), part(to.left, i, of.m * wide));
            let (v, info) = (part(to.right, i, of.n * of.n), word(info, i));
            // SAFETY: as above.
            ok(unsafe {
                run(h, job, job, m, n, a, m, s, u, m, v, n, work.at, len, rest.at, info)
            })?;
        }
        Ok(())
    }

    /// Solves triangular systems with dense row-major right-hand sides, in place. With more than
    /// one matrix, `lists` has their addresses and those of the right-hand sides.
    pub fn triangular(
        &self,
        gpu: &Gpu,
        of: Triangles,
        sides: DevicePtr,
        lists: [DevicePtr; 2],
    ) -> Result<()> {
        let (_lock, l, h) = (self.lock(gpu), self.blas, self.handles[1].0);
        // Read by columns, rows are Xᵀ, and Xᵀ·Tᵀ = Bᵀ. So is T, if its rows are contiguous.
        let right = 1;
        let (turned, upper) = if of.by_columns { (1, of.upper) } else { (0, !of.upper) };
        let (upper, unit) = (c_int::from(upper), c_int::from(of.unit));
        let (m, n, lead) = (of.sides as c_int, of.n as c_int, of.leading as c_int);
        let (wide, narrow) = (1.0f64, 1.0f32);
        let double = of.dtype == DType::F64;
        let one = match double {
            true => (&raw const wide).cast::<c_void>(),
            false => (&raw const narrow).cast::<c_void>(),
        };
        if of.count == 1 {
            let run = if double { l.cublasDtrsm_v2 } else { l.cublasStrsm_v2 };
            // SAFETY: the triangle and the right-hand sides have these sizes.
            let code =
                unsafe { run(h, right, upper, turned, unit, m, n, one, of.at, lead, sides, m) };
            return ok(code);
        }
        let run = if double { l.cublasDtrsmBatched } else { l.cublasStrsmBatched };
        for first in (0..of.count).step_by(MOST) {
            let some = MOST.min(of.count - first) as c_int;
            let [a, b] = lists.map(|list| list + 8 * first as u64);
            // SAFETY: as above, for each of the addresses in the lists.
            ok(unsafe { run(h, right, upper, turned, unit, m, n, one, a, lead, b, m, some) })?;
        }
        Ok(())
    }
}

/// Largest matrices of Jacobi's method.
const SMALL: usize = 32;
/// Matrices that a library takes at once.
const MOST: usize = 65535;

fn ok(code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(failed(code)),
    }
}

#[cold]
fn failed(code: c_int) -> Error {
    device_error("linalg", format!("cuSOLVER or cuBLAS: error {code}"))
}
