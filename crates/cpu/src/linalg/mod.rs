//! Factorisations of matrices and linear systems, on `faer`.
//!
//! `faer` is column-major, tensors are row-major. So each matrix of a stack is copied into scratch
//! memory column by column (blocked, whatever its strides), factorised there in place, and copied
//! out: two passes over n² elements for n³ work.
//!
//! # The same bits for any number of threads
//!
//! `faer` runs on one thread here: its own parallelism splits by the number of threads. Our threads
//! share the matrices of a stack and, in a triangular solve, blocks of right-hand sides; both
//! splits depend on shapes alone. On two cores, `faer` on one thread is as fast as or faster than
//! other libraries on both.
//!
//! # What is not `faer`'s
//!
//! - LU (`lu.rs`): a column without a pivot is skipped, as LAPACK does, so that a singular matrix
//!   has factors and a determinant of exactly 0. `faer` divides by it.
//! - QR (`qr.rs`): reflections follow LAPACK's signs for every column, also for rank-deficient
//!   matrices.
//!
//! No kernel fails on a value: see [`Linalg`].

mod lu;
mod qr;
mod solve;
mod spectral;
#[cfg(test)]
mod tests;

use crate::buffer::Buffer;
use crate::elem::Elem;
use crate::index::IndexError;
use crate::operand::{Sink, Source};
use crate::pointwise;
use crate::walk::Walk;
use faer::dyn_stack::{MemStack, StackReq};
use faer::traits::RealField;
use faer::{MatMut, MatRef};
use pullback_ir::{DType, Linalg};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// f32 or f64.
trait Real: RealField + Elem<Compute = Self> + Copy + std::ops::Neg<Output = Self> {
    const NAN: Self;
    fn finite(self) -> bool;
    /// √(a² + b²)
    fn with(self, other: Self) -> Self;
    fn size(self) -> Self;
}

impl Real for f64 {
    const NAN: f64 = f64::NAN;
    fn finite(self) -> bool {
        self.is_finite()
    }
    fn with(self, other: f64) -> f64 {
        self.hypot(other)
    }
    fn size(self) -> f64 {
        self.abs()
    }
}

impl Real for f32 {
    const NAN: f32 = f32::NAN;
    fn finite(self) -> bool {
        self.is_finite()
    }
    fn with(self, other: f32) -> f32 {
        self.hypot(other)
    }
    fn size(self) -> f32 {
        self.abs()
    }
}

/// Runs one op of the family. The only error is a pivot out of range.
pub(crate) fn linalg(f: Linalg, x: &[Source], out: &[Sink]) -> Result<(), IndexError> {
    match f {
        Linalg::Permutation(rows) => return lu::permutation(rows, x[0], out[0]),
        Linalg::Cholesky
        | Linalg::TriangularSolve { .. }
        | Linalg::Lu
        | Linalg::LuSolve { .. }
        | Linalg::Qr { .. }
        | Linalg::Eigh
        | Linalg::Svd { .. } => {}
    }
    match x[0].dtype {
        DType::F64 => typed::<f64>(f, x, out),
        DType::F32 => typed::<f32>(f, x, out),
        other => unreachable!("`infer` accepts only f32 and f64, not {other}"),
    }
}

fn typed<T: Real>(f: Linalg, x: &[Source], out: &[Sink]) -> Result<(), IndexError> {
    match f {
        Linalg::Cholesky => solve::cholesky::<T>(x[0], out[0]),
        Linalg::TriangularSolve { upper, unit } => {
            let triangle = solve::Triangle { upper, unit };
            solve::triangular::<T>(triangle, x[0], x[1], out[0]);
        }
        Linalg::Lu => lu::lu::<T>(x[0], out[0], out[1]),
        Linalg::LuSolve { transpose } => {
            return lu::solve::<T>(transpose, x[1], x[2], x[3], out[0]);
        }
        Linalg::Qr { complete: _ } => qr::qr::<T>(x[0], out[0], out[1]),
        Linalg::Eigh => spectral::eigh::<T>(x[0], out[0], out[1]),
        Linalg::Svd { full: _ } => spectral::svd::<T>(x[0], out[0], out[1], out[2]),
        Linalg::Permutation(_) => unreachable!("it has no floats"),
    }
    Ok(())
}

/// The matrices of an operand.
struct Stack<'a> {
    x: Source<'a>,
    batches: Walk<1>,
    rows: usize,
    cols: usize,
}

impl<'a> Stack<'a> {
    fn of(x: Source<'a>) -> Stack<'a> {
        let lead = x.shape.len() - 2;
        let batches = Walk::new(&x.shape[..lead], [&x.strides[..lead]]);
        Stack { x, batches, rows: x.shape[lead], cols: x.shape[lead + 1] }
    }

    fn len(&self) -> usize {
        self.batches.len()
    }

    /// One of the matrices, as a separate operand.
    fn one(&self, i: usize) -> Source<'a> {
        let lead = self.x.shape.len() - 2;
        let [offset] = self.batches.offsets(i);
        let ptr = self.x.ptr.wrapping_offset(offset * self.x.dtype.size() as isize);
        Source {
            ptr,
            shape: &self.x.shape[lead..],
            strides: &self.x.strides[lead..],
            dtype: self.x.dtype,
        }
    }

    /// A copy of one matrix, column by column.
    fn load<T: Real>(&self, i: usize) -> Dense<T> {
        self.columns(i, 0, self.cols)
    }

    /// A copy of some columns of one matrix.
    fn columns<T: Real>(&self, i: usize, from: usize, count: usize) -> Dense<T> {
        let mut copy = Dense::<T>::uninit(self.rows, count);
        let one = self.one(i);
        let ptr = one.ptr.wrapping_offset(from as isize * one.strides[1] * size_of::<T>() as isize);
        let part = Source { ptr, shape: &[self.rows, count], ..one };
        pointwise::copy_to(part, copy.buffer.as_mut_ptr(), &[1, self.rows as isize]);
        copy
    }

    /// One matrix without a copy, if `faer` can read it: adjacent elements along one axis, a
    /// positive stride along the other.
    fn in_place<T: Real>(&self, i: usize) -> Option<MatRef<'a, T>> {
        let one = self.one(i);
        let (row, col) = (one.strides[0], one.strides[1]);
        let fits =
            (row == 1 && col >= self.rows as isize) || (col == 1 && row >= self.cols as isize);
        // SAFETY: the operand's layout was checked against its buffer, which is borrowed as long as
        // the operand is.
        fits.then(|| unsafe {
            MatRef::from_raw_parts(one.ptr.cast::<T>(), self.rows, self.cols, row, col)
        })
    }
}

/// An owned matrix, column-major.
struct Dense<T> {
    buffer: Buffer,
    rows: usize,
    cols: usize,
    elements: PhantomData<T>,
}

impl<T: Real> Dense<T> {
    /// Must not be read before it is filled.
    fn uninit(rows: usize, cols: usize) -> Dense<T> {
        let buffer = match Buffer::alloc(rows * cols * size_of::<T>()) {
            Ok(buffer) => buffer,
            Err(error) => panic!("linalg: {error}"),
        };
        Dense { buffer, rows, cols, elements: PhantomData }
    }

    fn zeros(rows: usize, cols: usize) -> Dense<T> {
        let mut x = Dense::uninit(rows, cols);
        // SAFETY: the buffer has space for the elements; all zero bits are zero.
        unsafe { std::ptr::write_bytes(x.buffer.as_mut_ptr(), 0, x.buffer.len()) };
        x
    }

    fn identity(rows: usize, cols: usize) -> Dense<T> {
        let mut x = Dense::zeros(rows, cols);
        (0..rows.min(cols))
            .for_each(|i| x.slice_mut()[i * rows + i] = faer::traits::math_utils::one());
        x
    }

    fn slice(&self) -> &[T] {
        // SAFETY: the elements were written by `load` or `zeros`.
        unsafe { std::slice::from_raw_parts(self.buffer.as_ptr().cast(), self.rows * self.cols) }
    }

    fn slice_mut(&mut self) -> &mut [T] {
        let len = self.rows * self.cols;
        // SAFETY: as in `slice`, and borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.as_mut_ptr().cast(), len) }
    }

    fn column(&self, j: usize) -> &[T] {
        &self.slice()[j * self.rows..(j + 1) * self.rows]
    }

    fn column_mut(&mut self, j: usize) -> &mut [T] {
        let rows = self.rows;
        &mut self.slice_mut()[j * rows..(j + 1) * rows]
    }

    fn view(&self) -> MatRef<'_, T> {
        MatRef::from_column_major_slice(self.slice(), self.rows, self.cols)
    }

    fn view_mut(&mut self) -> MatMut<'_, T> {
        let (rows, cols) = (self.rows, self.cols);
        MatMut::from_column_major_slice_mut(self.slice_mut(), rows, cols)
    }

    /// Copies the matrix to matrix `i` of a result.
    fn store(&self, out: Sink, i: usize) {
        self.store_columns(out, i, 0, self.cols);
    }

    /// Copies the matrix to the columns from `from` on of matrix `i` of a result whose rows have
    /// `cols` elements.
    fn store_columns(&self, out: Sink, i: usize, from: usize, cols: usize) {
        let ptr = out.ptr.cast::<T>().wrapping_add(i * self.rows * cols + from);
        let (shape, strides) = ([self.rows, self.cols], [1, self.rows as isize]);
        let source =
            Source { ptr: self.buffer.as_ptr(), shape: &shape, strides: &strides, dtype: T::DTYPE };
        pointwise::copy_to(source, ptr.cast(), &[cols as isize, 1]);
    }
}

/// The `n` elements that belong to task `i` of a dense result.
///
/// # Safety
/// The sink has at least `(i + 1) · n` elements of type `T`, and no other task uses these now.
unsafe fn part<'a, T>(out: Sink<'a>, i: usize, n: usize) -> &'a mut [T] {
    // SAFETY: guaranteed by the caller. Kernels write before they read; the types have no invalid
    // bits.
    unsafe { std::slice::from_raw_parts_mut(out.ptr.cast::<T>().add(i * n), n) }
}

/// Workspace for `faer`.
struct Work(Buffer);

impl Work {
    fn of(need: StackReq) -> Work {
        match Buffer::alloc(need.unaligned_bytes_required()) {
            Ok(buffer) => Work(buffer),
            Err(error) => panic!("linalg: {error}"),
        }
    }

    fn stack(&mut self) -> &mut MemStack {
        let (ptr, len) = (self.0.as_mut_ptr().cast::<MaybeUninit<u8>>(), self.0.len());
        // SAFETY: the bytes are ours, and may be uninitialised.
        MemStack::new(unsafe { std::slice::from_raw_parts_mut(ptr, len) })
    }
}
