//! Factorisations of matrices and linear systems.
//!
//! Tensors are row-major, the factorisations here column-major. So each matrix of a stack is copied
//! into working memory column by column (blocked, whatever its strides), factorised there in place,
//! and copied out: two passes over n² elements for n³ work. Right-hand sides are copied as rows: as
//! columns of the transpose, they make one vector of many systems.
//!
//! | file | what |
//! |---|---|
//! | `product.rs`, `vector.rs`, `lanes.rs` | products, and the loops over vectors; all else calls these |
//! | `triangle.rs`, `pivot.rs`, `householder.rs` | Cholesky, triangular systems, LU, QR |
//! | `tridiagonal.rs`, `implicit.rs`, `divide.rs` | symmetric eigenvalues: reduction, small and large |
//! | `bidiagonal.rs`, `bulge.rs`, `divide_singular.rs` | the same for singular values |
//! | `secular.rs` | the equation by which both join their halves |
//! | `decompose.rs` | the two of these from end to end |
//! | `solve.rs`, `lu.rs`, `qr.rs`, `spectral.rs` | the ops: stacks, tasks, conventions |
//!
//! Only the loops in `vector.rs`, `lanes.rs` and a few like them are compiled for each instruction
//! set ([`crate::simd`]); products use the tiles of [`crate::dot`].
//!
//! # The same bits for any number of threads
//!
//! A factorisation runs on one thread. Threads share the matrices of a stack and, in a triangular
//! solve, blocks of right-hand sides; both splits depend on shapes alone.
//!
//! # Conventions
//!
//! - LU: a column without a pivot is skipped, as LAPACK does, so that a singular matrix has factors
//!   and a determinant of exactly 0.
//! - QR: reflections follow LAPACK's signs for every column, also for rank-deficient matrices.
//! - Matrices whose elements are near the largest or smallest numbers are scaled by a power of two
//!   first.
//!
//! No kernel fails on a value: see [`Linalg`].

mod bidiagonal;
mod bulge;
mod decompose;
mod dense;
mod divide;
mod divide_singular;
mod householder;
mod implicit;
mod lanes;
mod lu;
mod pivot;
mod product;
mod qr;
mod real;
mod secular;
mod solve;
mod spectral;
#[cfg(test)]
mod tests;
mod triangle;
mod tridiagonal;
mod vector;
mod view;

use crate::index::IndexError;
use crate::operand::{Sink, Source};
use crate::pointwise;
use crate::walk::Walk;
use dense::{Dense, Scratch};
use pullback_ir::{DType, Linalg};
use real::Real;
use view::Grid;

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
        | Linalg::Spectrum { .. }
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
            let triangle = triangle::Triangle { upper, unit };
            solve::triangular::<T>(triangle, x[0], x[1], out[0]);
        }
        Linalg::Lu => lu::lu::<T>(x[0], out[0], out[1]),
        Linalg::LuSolve { transpose } => {
            return lu::solve::<T>(transpose, x[1], x[2], x[3], out[0]);
        }
        Linalg::Qr { complete: _ } => qr::qr::<T>(x[0], out[0], out[1]),
        Linalg::Eigh => spectral::eigh::<T>(x[0], out[0], out[1]),
        Linalg::Spectrum { singular } => spectral::spectrum::<T>(singular, x[0], out[0]),
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

    /// Reads one matrix, column by column.
    fn read<T: Real>(&self, i: usize, to: &mut [T]) {
        let one = self.one(i);
        assert!(self.rows * self.cols <= to.len());
        for (c, column) in to.chunks_exact_mut(self.rows.max(1)).take(self.cols).enumerate() {
            for (r, to) in column.iter_mut().enumerate() {
                let at = r as isize * one.strides[0] + c as isize * one.strides[1];
                // SAFETY: inside the operand, whose layout was checked.
                *to = unsafe { *one.ptr.cast::<T>().wrapping_offset(at) };
            }
        }
    }

    /// A copy of one matrix, column by column.
    fn load<T: Real>(&self, i: usize) -> Dense<T> {
        self.columns(i, 0, self.cols)
    }

    /// A copy of the transpose of one matrix.
    fn load_transposed<T: Real>(&self, i: usize) -> Dense<T> {
        self.columns_transposed(i, 0, self.cols)
    }

    /// A copy of some columns of one matrix.
    fn columns<T: Real>(&self, i: usize, from: usize, count: usize) -> Dense<T> {
        let mut copy = Dense::<T>::working(self.rows, count);
        let strides = [1, copy.ld as isize];
        self.copy_columns::<T>(i, from, count, copy.buffer.as_mut_ptr(), &strides);
        copy
    }

    /// A copy of some columns of one matrix, as rows.
    fn columns_transposed<T: Real>(&self, i: usize, from: usize, count: usize) -> Dense<T> {
        let mut copy = Dense::<T>::working(count, self.rows);
        let strides = [copy.ld as isize, 1];
        self.copy_columns::<T>(i, from, count, copy.buffer.as_mut_ptr(), &strides);
        copy
    }

    fn copy_columns<T: Real>(
        &self,
        i: usize,
        from: usize,
        count: usize,
        to: *mut u8,
        strides: &[isize; 2],
    ) {
        let one = self.one(i);
        let ptr = one.ptr.wrapping_offset(from as isize * one.strides[1] * size_of::<T>() as isize);
        let part = Source { ptr, shape: &[self.rows, count], ..one };
        pointwise::copy_to(part, to, strides);
    }

    /// One matrix without a copy, if its elements are adjacent along one axis.
    fn in_place<T: Real>(&self, i: usize) -> Option<Grid<'a, T>> {
        let one = self.one(i);
        let (row, col) = (one.strides[0], one.strides[1]);
        let fits =
            (row == 1 && col >= self.rows as isize) || (col == 1 && row >= self.cols as isize);
        // SAFETY: the operand's layout was checked against its buffer, which is borrowed as long as
        // the operand is.
        fits.then(|| unsafe { Grid::new(one.ptr.cast::<T>(), self.rows, self.cols, row, col) })
    }
}

/// Copies a matrix to matrix `i` of a result.
fn store<T: Real>(x: &Dense<T>, out: Sink, i: usize) {
    store_columns(x, false, out, i, 0, x.cols);
}

/// Copies a matrix, or its transpose, to the columns from `from` on of matrix `i` of a result whose
/// rows have `cols` elements.
fn store_columns<T: Real>(
    x: &Dense<T>,
    transpose: bool,
    out: Sink,
    i: usize,
    from: usize,
    cols: usize,
) {
    let (mut shape, mut strides) = ([x.rows, x.cols], [1, x.ld as isize]);
    if transpose {
        shape.reverse();
        strides.reverse();
    }
    let ptr = out.ptr.cast::<T>().wrapping_add(i * shape[0] * cols + from);
    let source =
        Source { ptr: x.buffer.as_ptr(), shape: &shape, strides: &strides, dtype: T::DTYPE };
    pointwise::copy_to(source, ptr.cast(), &[cols as isize, 1]);
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
