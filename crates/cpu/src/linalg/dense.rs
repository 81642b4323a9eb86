//! Owned matrices and working memory.

use super::Real;
use super::view::{Cols, Grid};
use crate::buffer::Buffer;
use std::marker::PhantomData;

/// Working memory, whose content is unspecified.
pub(super) struct Scratch<T> {
    buffer: Buffer,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Real> Scratch<T> {
    pub(super) fn new(len: usize) -> Scratch<T> {
        let buffer = match Buffer::alloc(len * size_of::<T>()) {
            Ok(buffer) => buffer,
            Err(error) => panic!("linalg: {error}"),
        };
        Scratch { buffer, len, elements: PhantomData }
    }

    pub(super) fn zeros(len: usize) -> Scratch<T> {
        let mut x = Scratch::new(len);
        // SAFETY: the buffer has space for the elements; all zero bits are zero.
        unsafe { std::ptr::write_bytes(x.buffer.as_mut_ptr(), 0, x.buffer.len()) };
        x
    }

    pub(super) fn slice(&mut self) -> &mut [T] {
        // SAFETY: the buffer has as many elements, and every bit pattern is a number.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.as_mut_ptr().cast(), self.len) }
    }
}

/// An owned matrix with dense columns.
pub(super) struct Dense<T> {
    pub buffer: Buffer,
    pub rows: usize,
    pub cols: usize,
    /// From one column to the next.
    pub ld: usize,
    elements: PhantomData<T>,
}

impl<T: Real> Dense<T> {
    /// Must not be relied on before it is filled. Columns do not all start in the same few lines of
    /// a cache.
    pub(super) fn working(rows: usize, cols: usize) -> Dense<T> {
        let line = 64 / size_of::<T>();
        let lines = rows.div_ceil(line);
        let ld = if rows > 32 { (lines | 1) * line } else { rows };
        let buffer = match Buffer::alloc(ld * cols * size_of::<T>()) {
            Ok(buffer) => buffer,
            Err(error) => panic!("linalg: {error}"),
        };
        Dense { buffer, rows, cols, ld, elements: PhantomData }
    }

    pub(super) fn zeros(rows: usize, cols: usize) -> Dense<T> {
        let mut x = Dense::working(rows, cols);
        // SAFETY: the buffer has space for the elements; all zero bits are zero.
        unsafe { std::ptr::write_bytes(x.buffer.as_mut_ptr(), 0, x.buffer.len()) };
        x
    }

    pub(super) fn identity(rows: usize, cols: usize) -> Dense<T> {
        let mut x = Dense::zeros(rows, cols);
        (0..rows.min(cols)).for_each(|i| x.view_mut().set(i, i, T::ONE));
        x
    }

    pub(super) fn column(&self, j: usize) -> &[T] {
        self.view().column(j)
    }

    pub(super) fn column_mut(&mut self, j: usize) -> &mut [T] {
        assert!(j < self.cols);
        let ptr = self.buffer.as_mut_ptr().cast::<T>().wrapping_add(j * self.ld);
        // SAFETY: inside the matrix, which is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(ptr, self.rows) }
    }

    pub(super) fn view(&self) -> Grid<'_, T> {
        let ptr = self.buffer.as_ptr().cast();
        // SAFETY: the elements are ours.
        unsafe { Grid::new(ptr, self.rows, self.cols, 1, self.ld as isize) }
    }

    pub(super) fn view_mut(&mut self) -> Cols<'_, T> {
        let ptr = self.buffer.as_mut_ptr().cast();
        // SAFETY: the elements are ours, and every bit pattern is a number.
        let data = unsafe { std::slice::from_raw_parts_mut(ptr, self.ld * self.cols) };
        Cols::new(data, self.rows, self.cols, self.ld)
    }

    /// Whether all elements are finite, and the size of the largest.
    pub(super) fn largest(&self) -> (bool, T) {
        let (mut most, mut sum) = (T::ZERO, T::ZERO);
        for j in 0..self.cols {
            for &x in self.column(j) {
                most = most.larger(x.size());
                // NaN for what is not finite.
                sum += x * T::ZERO;
            }
        }
        (sum == T::ZERO, most)
    }
}
