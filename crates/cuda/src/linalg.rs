//! Factorisations of matrices and linear systems.
//!
//! Small matrices have kernels of their own (`kernels/linalg.cu`), a block each, so that a large
//! batch of them is one launch. Larger ones are cuSOLVER's and cuBLAS's, one after the other; their
//! matrices are column-major, so a row-major one is its transpose: symmetric ones are used as they
//! are, others are copied. Eigenvalues and singular values are always the library's, in one call
//! for many small matrices. Signs, NaN for what has no factor, and scaling follow the CPU's
//! conventions (see [`Linalg`]); where the library is missing, the op runs on the host.

use crate::compile::KernelKey;
use crate::functions::PRELUDE;
use crate::gpu::{DeviceScratch, Gpu, LibraryHandle};
use crate::host;
use crate::loops::StridedOperand;
use crate::ops::copy;
use crate::solver::{MatrixBatch, Singular, Solver, Triangles};
use crate::text::compute;
use pullback_cuda_sys::DevicePtr;
use pullback_ir::{DType, Linalg, Line, Op, Result, Spec, element_count};
use smallvec::{SmallVec, smallvec};

const TEXT: &str = include_str!("kernels/linalg.cu");
const BLOCK: usize = 256;
/// Elements of a matrix that a block has in shared memory, and threads of such a block.
const SMALL: [(usize, u32); 4] = [(64, 32), (256, 32), (1024, 128), (4096, 256)];
/// Unknowns up to which a thread solves a triangular system.
const UNKNOWNS: usize = 64;

/// As `Matrices` in `kernels/linalg.cu`.
#[derive(Default)]
struct Matrices {
    addresses: [DevicePtr; 8],
    count: usize,
    sizes: [usize; 3],
    numbers: [isize; 6],
}

impl Matrices {
    fn words(&self) -> SmallVec<[u64; 24]> {
        let mut words: SmallVec<[u64; 24]> = SmallVec::from_slice(&self.addresses);
        words.push(self.count as u64);
        words.extend(self.sizes.map(|n| n as u64));
        words.extend(self.numbers.map(|n| n as u64));
        words
    }

    /// One thread for each element.
    fn each(&self, gpu: &Gpu, name: &'static str, dtype: DType, threads: usize) -> Result<()> {
        if threads == 0 {
            return Ok(());
        }
        let kernel = kernel(gpu, name, dtype, (0, 0))?;
        gpu.launch(kernel, threads.div_ceil(BLOCK), BLOCK, &self.words())
    }

    /// A block for each matrix, of this many elements.
    fn small(&self, gpu: &Gpu, name: &'static str, dtype: DType, elements: usize) -> Result<()> {
        let size = SMALL.into_iter().find(|size| elements <= size.0).unwrap_or(SMALL[3]);
        let kernel = kernel(gpu, name, dtype, (size.0 as u32, size.1))?;
        gpu.launch(kernel, self.count, size.1 as usize, &self.words())
    }
}

/// The text of a kernel of `kernels/linalg.cu`.
pub(crate) fn text(name: &str, dtype: DType, (most, threads): (u32, u32)) -> String {
    let sizes = format!("#define MOST {most}\n#define THREADS {threads}\n");
    format!("{PRELUDE}#define {name}\ntypedef {} C;\n{sizes}{TEXT}", compute(dtype))
}

fn kernel(gpu: &Gpu, name: &'static str, dtype: DType, sizes: (u32, u32)) -> Result<LibraryHandle> {
    let key = KernelKey::Named(name, smallvec![dtype], smallvec![sizes.0]);
    gpu.kernels.get(gpu, &key, || text(name, dtype, sizes))
}

fn is_small(elements: usize) -> bool {
    elements <= SMALL[3].0
}

/// Runs an op of the family.
pub(crate) fn run(
    gpu: &Gpu,
    f: Linalg,
    x: &[StridedOperand],
    out: &[StridedOperand],
    at: Option<Line>,
) -> Result<()> {
    let through_host = || host::run(gpu, &Op::Linalg(f), x, out, at);
    if let Linalg::Permutation(rows) = f {
        return permutation(gpu, f, rows, &x[0], &out[0], x, at);
    }
    let rank = x[0].shape.len();
    let (m, n) = (x[0].shape[rank - 2], x[0].shape[rank - 1]);
    let count = element_count(&x[0].shape[..rank - 2]);
    // Sizes and lengths of the libraries are of 32 bits.
    if m.max(n) > 1 << 15 || x.iter().any(|x| x.len() >= 1 << 31) {
        return through_host();
    }
    let needs_library = match f {
        Linalg::Cholesky | Linalg::Lu => !is_small(m * n),
        Linalg::Qr { .. } => !qr_is_small(m, n),
        Linalg::TriangularSolve { .. } | Linalg::LuSolve { .. } => n > UNKNOWNS,
        Linalg::Eigh | Linalg::Spectrum { .. } | Linalg::Svd { .. } => m.min(n) > 0,
        Linalg::Permutation(_) => false,
    };
    if needs_library && gpu.solver().is_err() {
        return through_host();
    }
    if count == 0 || (out.iter().all(|y| y.len() == 0) && !matches!(f, Linalg::LuSolve { .. })) {
        return Ok(());
    }
    let dtype = x[0].dtype;
    let of = MatrixBatch { dtype, count, m, n, at: x[0].at };
    match f {
        Linalg::Cholesky => cholesky(gpu, of, &x[0], &out[0]),
        Linalg::TriangularSolve { upper, unit } => {
            copy(gpu, &x[1], &out[0])?;
            solve(gpu, &x[0], &out[0], (upper, unit))
        }
        Linalg::Lu => lu(gpu, of, &x[0], out),
        Linalg::LuSolve { transpose } => lu_solve(gpu, f, transpose, x, &out[0], at),
        Linalg::Qr { .. } => qr(gpu, of, &x[0], out),
        Linalg::Eigh => eigh(gpu, of, &x[0], out),
        Linalg::Spectrum { singular } => spectrum(gpu, of, singular, &x[0], &out[0]),
        Linalg::Svd { full } => svd(gpu, of, full, &x[0], out),
        Linalg::Permutation(_) => Ok(()),
    }
}

/// The operand itself, or a dense copy.
fn dense<'a>(
    gpu: &'a Gpu,
    x: &StridedOperand,
) -> Result<(StridedOperand, Option<DeviceScratch<'a>>)> {
    if x.is_dense() {
        return Ok((x.clone(), None));
    }
    let memory = gpu.scratch(x.bytes())?;
    let to = StridedOperand::dense(memory.at, x.dtype, &x.shape);
    copy(gpu, x, &to)?;
    Ok((to, Some(memory)))
}

/// Memory of a stack of matrices, seen as if it held their columns one after the other.
fn by_columns(at: DevicePtr, like: &StridedOperand) -> StridedOperand {
    let rank = like.shape.len();
    let mut strides = pullback_ir::dense_strides(&like.shape);
    (strides[rank - 2], strides[rank - 1]) = (1, like.shape[rank - 2] as isize);
    StridedOperand::new(at, like.dtype, &like.shape, &strides)
}

fn infos<'a>(gpu: &'a Gpu, count: usize) -> Result<DeviceScratch<'a>> {
    let memory = gpu.scratch(4 * count)?;
    gpu.fill(memory.at, 0, 4 * count)?;
    Ok(memory)
}

/// The library, which [`run`] has opened.
fn library(gpu: &Gpu) -> Result<&Solver> {
    gpu.solver().map_err(|why| crate::gpu::device_error("linalg", why.to_string()))
}

fn cholesky(gpu: &Gpu, of: MatrixBatch, x: &StridedOperand, out: &StridedOperand) -> Result<()> {
    let (n, count) = (of.n, of.count);
    if is_small(n * n) {
        let (x, _held) = dense(gpu, x)?;
        let addresses = [x.at, out.at, 0, 0, 0, 0, 0, 0];
        let all = Matrices { addresses, count, sizes: [n, n, 0], ..Matrices::default() };
        return all.small(gpu, "CHOLESKY", of.dtype, n * n);
    }
    // The lower triangle of rows is the upper one of columns.
    copy(gpu, x, out)?;
    let info = infos(gpu, count)?;
    library(gpu)?.cholesky(gpu, MatrixBatch { at: out.at, ..of }, info.at)?;
    let parts = n.div_ceil(32);
    let addresses = [out.at, info.at, 0, 0, 0, 0, 0, 0];
    let all = Matrices { addresses, count, sizes: [n, n, parts], ..Matrices::default() };
    let kernel = kernel(gpu, "CHOLESKY_AFTER", of.dtype, (0, 0))?;
    gpu.launch(kernel, count * parts, BLOCK, &all.words())
}

fn lu(gpu: &Gpu, of: MatrixBatch, x: &StridedOperand, out: &[StridedOperand]) -> Result<()> {
    let (m, n, count) = (of.m, of.n, of.count);
    if is_small(m * n) {
        let (x, _held) = dense(gpu, x)?;
        let addresses = [x.at, out[0].at, out[1].at, 0, 0, 0, 0, 0];
        let all = Matrices { addresses, count, sizes: [m, n, 0], ..Matrices::default() };
        return all.small(gpu, "LU", of.dtype, m * n);
    }
    let (memory, info) = (gpu.scratch(x.bytes())?, infos(gpu, count)?);
    let columns = by_columns(memory.at, x);
    copy(gpu, x, &columns)?;
    library(gpu)?.lu(gpu, MatrixBatch { at: memory.at, ..of }, out[1].at, info.at)?;
    copy(gpu, &columns, &out[0])
}

fn qr_is_small(m: usize, n: usize) -> bool {
    is_small(m * n) && m <= 128
}

fn qr(gpu: &Gpu, of: MatrixBatch, x: &StridedOperand, out: &[StridedOperand]) -> Result<()> {
    let (m, n, count) = (of.m, of.n, of.count);
    let (q, r) = (&out[0], &out[1]);
    let wide = q.shape[q.shape.len() - 1];
    if qr_is_small(m, n) {
        let (x, _held) = dense(gpu, x)?;
        let addresses = [x.at, q.at, r.at, 0, 0, 0, 0, 0];
        let all = Matrices { addresses, count, sizes: [m, n, wide], ..Matrices::default() };
        return all.small(gpu, "QR", of.dtype, m * n);
    }
    let (memory, info) = (gpu.scratch(x.bytes())?, infos(gpu, count)?);
    copy(gpu, x, &by_columns(memory.at, x))?;
    // The reflections of the first columns, then Q in their place.
    let vectors = gpu.scratch(q.bytes().max(1))?;
    let columns = by_columns(vectors.at, q);
    if wide > n {
        // Columns without a reflection are not left to what the memory held.
        gpu.fill(vectors.at, 0, q.bytes())?;
    }
    let between = || {
        let addresses = [memory.at, r.at, 0, 0, 0, 0, 0, 0];
        let numbers = [(m * n) as isize, m as isize, 0, 0, 0, 0];
        let all = Matrices { addresses, count, sizes: [wide, n, 0], numbers };
        all.each(gpu, "UPPER", of.dtype, count * wide * n)?;
        let width = wide.min(n);
        let each = |at: DevicePtr, step: usize| {
            let strides = [step as isize, m as isize, 1];
            StridedOperand::new(at, of.dtype, &[count, width, m], &strides)
        };
        copy(gpu, &each(memory.at, m * n), &each(vectors.at, m * wide))
    };
    let at = MatrixBatch { at: memory.at, ..of };
    library(gpu)?.qr(gpu, at, (vectors.at, wide), info.at, between)?;
    copy(gpu, &columns, q)
}

/// What eigenvalues and singular values are computed of: scaled copies, and what is known of each.
struct PreparedMatrices<'a> {
    matrices: DeviceScratch<'a>,
    powers: DeviceScratch<'a>,
    bad: DeviceScratch<'a>,
    info: DeviceScratch<'a>,
}

fn prepared<'a>(
    gpu: &'a Gpu,
    of: MatrixBatch,
    x: &StridedOperand,
    lower: bool,
    turned: bool,
) -> Result<PreparedMatrices<'a>> {
    let (x, _held) = dense(gpu, x)?;
    let to = PreparedMatrices {
        matrices: gpu.scratch(x.bytes())?,
        powers: gpu.scratch(of.count * of.dtype.size())?,
        bad: gpu.scratch(4 * of.count)?,
        info: infos(gpu, of.count)?,
    };
    let all = Matrices {
        addresses: [x.at, to.matrices.at, to.powers.at, to.bad.at, 0, 0, 0, 0],
        count: of.count,
        sizes: [of.m, of.n, usize::from(turned)],
        numbers: [isize::from(lower), 0, 0, 0, 0, 0],
    };
    gpu.launch(kernel(gpu, "BEFORE", of.dtype, (0, 0))?, of.count, BLOCK, &all.words())?;
    Ok(to)
}

/// Vectors as a library gives them.
struct Vectors {
    at: DevicePtr,
    /// Elements from matrix to matrix, from vector to vector, and along a vector.
    strides: [usize; 3],
    /// Their length, and how many are wanted.
    len: usize,
    wanted: usize,
    to: DevicePtr,
}

/// Writes values and vectors with the signs of the CPU: left ones as columns, right ones as rows.
fn finish(
    gpu: &Gpu,
    of: MatrixBatch,
    from: &PreparedMatrices<'_>,
    [left, right]: [Vectors; 2],
    (k, values, out): (usize, DevicePtr, DevicePtr),
) -> Result<()> {
    let most = left.wanted.max(right.wanted);
    let (a, b) = (left.strides.map(|s| s as isize), right.strides.map(|s| s as isize));
    let addresses =
        [left.at, right.at, values, left.to, right.to, out, from.powers.at, from.info.at];
    let vectors = of.count * most;
    let all = Matrices {
        addresses,
        count: vectors,
        sizes: [left.len, right.len, k],
        numbers: [a[0], a[1], a[2], b[0], b[1], b[2]],
    };
    let mut words = all.words();
    words.extend([from.bad.at, left.wanted as u64, right.wanted as u64, most as u64]);
    let kernel = kernel(gpu, "AFTER", of.dtype, (0, 0))?;
    gpu.launch(kernel, (vectors * 32).div_ceil(BLOCK), BLOCK, &words)
}

fn eigh(gpu: &Gpu, of: MatrixBatch, x: &StridedOperand, out: &[StridedOperand]) -> Result<()> {
    let n = of.n;
    let from = prepared(gpu, of, x, true, false)?;
    let values = gpu.scratch(out[0].bytes())?;
    let at = MatrixBatch { at: from.matrices.at, ..of };
    library(gpu)?.symmetric(gpu, at, values.at, from.info.at)?;
    let left =
        Vectors { at: from.matrices.at, strides: [n * n, n, 1], len: n, wanted: n, to: out[1].at };
    let right = Vectors { at: 0, strides: [0; 3], len: 0, wanted: 0, to: 0 };
    finish(gpu, of, &from, [left, right], (n, values.at, out[0].at))
}

/// The values of [`eigh`] or [`svd`]: vectors are computed and dropped.
fn spectrum(
    gpu: &Gpu,
    of: MatrixBatch,
    singular: bool,
    x: &StridedOperand,
    out: &StridedOperand,
) -> Result<()> {
    let (m, n, k) = (of.m, of.n, of.m.min(of.n));
    let rank = x.shape.len();
    let (left, right) = (gpu.scratch((of.count * m * k * of.dtype.size()).max(1))?, {
        gpu.scratch((of.count * k * n * of.dtype.size()).max(1))?
    });
    let vectors = |at: u64, last: [usize; 2]| {
        let mut shape: SmallVec<[usize; 6]> = SmallVec::from_slice(&x.shape[..rank - 2]);
        shape.extend(last);
        StridedOperand::dense(at, of.dtype, &shape)
    };
    let (u, v) = (vectors(left.at, [m, k]), vectors(right.at, [k, n]));
    match singular {
        false => eigh(gpu, of, x, &[out.clone(), u]),
        true => svd(gpu, of, false, x, &[u, out.clone(), v]),
    }
}

fn identity(gpu: &Gpu, out: &StridedOperand) -> Result<()> {
    let rank = out.shape.len();
    let (m, n) = (out.shape[rank - 2], out.shape[rank - 1]);
    let count = element_count(&out.shape[..rank - 2]);
    let addresses = [out.at, 0, 0, 0, 0, 0, 0, 0];
    let all = Matrices { addresses, count, sizes: [m, n, 0], ..Matrices::default() };
    all.each(gpu, "IDENTITY", out.dtype, out.len())
}

fn svd(
    gpu: &Gpu,
    of: MatrixBatch,
    full: bool,
    x: &StridedOperand,
    out: &[StridedOperand],
) -> Result<()> {
    let (m, n, k) = (of.m, of.n, of.m.min(of.n));
    if k == 0 {
        return identity(gpu, &out[0]).and_then(|()| identity(gpu, &out[2]));
    }
    // Rows of a wide matrix are the columns of its transpose, which is tall.
    let wide = m < n;
    let from = prepared(gpu, of, x, false, !wide)?;
    let (rows, columns) = (m.max(n), k);
    let tall = MatrixBatch { m: rows, n: columns, at: from.matrices.at, ..of };
    let jacobi = Solver::by_jacobi(tall);
    let full_left = if full || jacobi { rows } else { columns };
    let size = of.dtype.size();
    let values = gpu.scratch(of.count * k * size)?;
    let u = gpu.scratch(of.count * rows * full_left * size)?;
    let v = gpu.scratch(of.count * columns * columns * size)?;
    let to = Singular { values: values.at, left: u.at, right: v.at, full };
    library(gpu)?.singular(gpu, tall, to, from.info.at)?;
    let along =
        if jacobi { [columns * columns, columns, 1] } else { [columns * columns, 1, columns] };
    let long = [rows * full_left, rows, 1];
    let (left_wanted, right_wanted) = (out[0].shape[out[0].shape.len() - 1], {
        let rank = out[2].shape.len();
        out[2].shape[rank - 2]
    });
    let of_u = |len, wanted, to| Vectors { at: u.at, strides: long, len, wanted, to };
    let of_v = |len, wanted, to| Vectors { at: v.at, strides: along, len, wanted, to };
    let vectors = match wide {
        false => [of_u(m, left_wanted, out[0].at), of_v(n, right_wanted, out[2].at)],
        true => [of_v(m, left_wanted, out[0].at), of_u(n, right_wanted, out[2].at)],
    };
    finish(gpu, of, &from, vectors, (k, values.at, out[1].at))
}

/// The order of rows after exchanges. `operands` are those of the op, for an error.
fn permutation(
    gpu: &Gpu,
    f: Linalg,
    rows: usize,
    pivots: &StridedOperand,
    out: &StridedOperand,
    operands: &[StridedOperand],
    at: Option<Line>,
) -> Result<()> {
    let each = pivots.shape[pivots.shape.len() - 1];
    let count = element_count(&pivots.shape[..pivots.shape.len() - 1]);
    if rows == 0 {
        return Ok(());
    }
    let (pivots, _held) = dense(gpu, pivots)?;
    let specs: Vec<Spec> = operands.iter().map(|x| Spec::cpu(x.dtype, &x.shape[..])).collect();
    let (call, fault) = gpu.may_fail(f.name(), &specs, at);
    let all = Matrices {
        addresses: [pivots.at, out.at, fault, 0, 0, 0, 0, 0],
        count,
        sizes: [rows, each, call as usize],
        ..Matrices::default()
    };
    all.each(gpu, "PERMUTATION", DType::F32, count)
}

fn lu_solve(
    gpu: &Gpu,
    f: Linalg,
    transpose: bool,
    x: &[StridedOperand],
    out: &StridedOperand,
    at: Option<Line>,
) -> Result<()> {
    let (lu, pivots, b) = (&x[1], &x[2], &x[3]);
    let rank = out.shape.len();
    let (n, sides) = (out.shape[rank - 2], out.shape[rank - 1]);
    let count = element_count(&out.shape[..rank - 2]);
    let memory = gpu.scratch((8 * count * n).max(1))?;
    let order = StridedOperand::dense(memory.at, DType::I64, &pivots.shape);
    permutation(gpu, f, n, pivots, &order, x, at)?;
    if out.len() == 0 {
        return Ok(());
    }
    let rows = |from: &StridedOperand, to: &StridedOperand, undo: bool| {
        let all = Matrices {
            addresses: [from.at, order.at, to.at, 0, 0, 0, 0, 0],
            count,
            sizes: [n, sides, usize::from(undo)],
            ..Matrices::default()
        };
        all.each(gpu, "ROWS", out.dtype, out.len())
    };
    if !transpose {
        let (b, _held) = dense(gpu, b)?;
        rows(&b, out, false)?;
        solve(gpu, lu, out, (false, true))?;
        return solve(gpu, lu, out, (true, false));
    }
    let order: Vec<usize> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    let turned = lu.permuted(&order);
    let moved = gpu.scratch(out.bytes())?;
    let work = StridedOperand::dense(moved.at, out.dtype, &out.shape);
    copy(gpu, b, &work)?;
    solve(gpu, &turned, &work, (false, false))?;
    solve(gpu, &turned, &work, (true, true))?;
    rows(&work, out, true)
}

/// The dense right-hand sides become T⁻¹·B.
fn solve(
    gpu: &Gpu,
    triangle: &StridedOperand,
    sides: &StridedOperand,
    (upper, unit): (bool, bool),
) -> Result<()> {
    let rank = triangle.shape.len();
    let n = triangle.shape[rank - 1];
    let count = element_count(&triangle.shape[..rank - 2]);
    let columns = sides.shape[rank - 1];
    if sides.len() == 0 {
        return Ok(());
    }
    // One step over all matrices, and rows or columns that are contiguous, or a copy.
    let step = |x: &StridedOperand| -> Option<isize> {
        let mut found: Option<(usize, isize)> = None;
        for (&len, &stride) in x.shape[..rank - 2].iter().zip(&x.strides).filter(|a| *a.0 != 1) {
            found = match found {
                None => Some((len, stride)),
                Some((before, by)) if by == stride * len as isize => Some((before * len, stride)),
                Some(_) => return None,
            };
        }
        Some(found.map_or(0, |axis| axis.1))
    };
    let adjacent = |x: &StridedOperand| {
        let (row, column) = (x.strides[rank - 2], x.strides[rank - 1]);
        let leads = |stride: isize| stride >= n.max(1) as isize && stride <= i32::MAX as isize;
        (column == 1 && leads(row)) || (row == 1 && leads(column)) || n == 1
    };
    let memory;
    let fits = step(triangle).is_some() && (n <= UNKNOWNS || adjacent(triangle));
    let triangle = match fits {
        true => triangle.clone(),
        false => {
            memory = gpu.scratch(triangle.bytes())?;
            let to = StridedOperand::dense(memory.at, triangle.dtype, &triangle.shape);
            copy(gpu, triangle, &to)?;
            to
        }
    };
    let by = step(&triangle).unwrap_or((n * n) as isize);
    let (row, column) = (triangle.strides[rank - 2], triangle.strides[rank - 1]);
    if n <= UNKNOWNS {
        let all = Matrices {
            addresses: [triangle.at, sides.at, 0, 0, 0, 0, 0, 0],
            count,
            sizes: [n, n, columns],
            numbers: [by, row, column, isize::from(upper), isize::from(unit), 0],
        };
        return all.each(gpu, "SOLVE", sides.dtype, count * columns);
    }
    let of = Triangles {
        dtype: sides.dtype,
        count,
        n,
        sides: columns,
        at: triangle.at,
        step: by,
        leading: row.max(column) as usize,
        by_columns: column != 1,
        upper,
        unit,
    };
    let lists = gpu.scratch(16 * count)?;
    let lists_at = [lists.at, lists.at + 8 * count as u64];
    if count > 1 {
        let size = sides.dtype.size() as isize;
        let steps = [of.step * size, (n * columns) as isize * size];
        let all = Matrices {
            addresses: [lists_at[0], lists_at[1], 0, 0, 0, 0, 0, 0],
            count,
            numbers: [of.at as isize, steps[0], sides.at as isize, steps[1], 0, 0],
            ..Matrices::default()
        };
        all.each(gpu, "ADDRESSES", DType::F32, count)?;
    }
    library(gpu)?.triangular(gpu, of, sides.at, lists_at)
}
