//! Borrowed parts of matrices.
//!
//! [`Cols`] is a part with adjacent rows, that is, dense columns some distance apart, borrowed for
//! writing. It can be split into parts that do not overlap, so that one may be written while
//! another is read, which slices cannot express. [`Grid`] is read only and has any strides.

use super::Real;
use std::marker::PhantomData;

/// A matrix that is read: any strides.
pub(super) struct Grid<'a, T> {
    pub ptr: *const T,
    pub rows: usize,
    pub cols: usize,
    /// From one row to the next.
    pub row: isize,
    /// From one column to the next.
    pub col: isize,
    life: PhantomData<&'a T>,
}

impl<T> Clone for Grid<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Grid<'_, T> {}

impl<'a, T: Real> Grid<'a, T> {
    /// # Safety
    /// All elements may be read while the borrow lasts.
    pub(super) unsafe fn new(
        ptr: *const T,
        rows: usize,
        cols: usize,
        row: isize,
        col: isize,
    ) -> Grid<'a, T> {
        Grid { ptr, rows, cols, row, col, life: PhantomData }
    }

    #[inline(always)]
    pub(super) fn at(&self, i: usize, j: usize) -> T {
        debug_assert!(i < self.rows && j < self.cols);
        // SAFETY: inside the matrix.
        unsafe { *self.ptr.offset(i as isize * self.row + j as isize * self.col) }
    }

    pub(super) fn t(self) -> Grid<'a, T> {
        Grid { rows: self.cols, cols: self.rows, row: self.col, col: self.row, ..self }
    }

    /// `rows` rows from `i` on and `cols` columns from `j` on.
    pub(super) fn part(self, i: usize, rows: usize, j: usize, cols: usize) -> Grid<'a, T> {
        assert!(i + rows <= self.rows && j + cols <= self.cols);
        let ptr = self.ptr.wrapping_offset(i as isize * self.row + j as isize * self.col);
        Grid { ptr, rows, cols, ..self }
    }

    /// A column whose elements are adjacent.
    #[inline(always)]
    pub(super) fn column(self, j: usize) -> &'a [T] {
        assert!(self.row == 1 && j < self.cols);
        // SAFETY: inside the matrix, whose rows are adjacent.
        unsafe {
            std::slice::from_raw_parts(self.ptr.wrapping_offset(j as isize * self.col), self.rows)
        }
    }
}

/// A matrix that is written: dense columns.
pub(super) struct Cols<'a, T> {
    pub ptr: *mut T,
    pub rows: usize,
    pub cols: usize,
    /// From one column to the next.
    pub ld: usize,
    life: PhantomData<&'a mut T>,
}

impl<'a, T: Real> Cols<'a, T> {
    pub(super) fn new(data: &'a mut [T], rows: usize, cols: usize, ld: usize) -> Cols<'a, T> {
        assert!(ld >= rows && (cols == 0 || data.len() >= (cols - 1) * ld + rows));
        Cols { ptr: data.as_mut_ptr(), rows, cols, ld, life: PhantomData }
    }

    /// The same part, borrowed for a shorter time.
    pub(super) fn again(&mut self) -> Cols<'_, T> {
        Cols { life: PhantomData, ..*self }
    }

    pub(super) fn read(&self) -> Grid<'_, T> {
        let (row, col) = (1, self.ld as isize);
        Grid { ptr: self.ptr, rows: self.rows, cols: self.cols, row, col, life: PhantomData }
    }

    /// `rows` rows from `i` on and `cols` columns from `j` on.
    pub(super) fn part(self, i: usize, rows: usize, j: usize, cols: usize) -> Cols<'a, T> {
        assert!(i + rows <= self.rows && j + cols <= self.cols);
        Cols { ptr: self.ptr.wrapping_add(i + j * self.ld), rows, cols, ..self }
    }

    /// The columns before `j`, and those from `j` on.
    pub(super) fn split_cols(self, j: usize) -> (Cols<'a, T>, Cols<'a, T>) {
        assert!(j <= self.cols);
        let right = self.ptr.wrapping_add(j * self.ld);
        (Cols { cols: j, ..self }, Cols { ptr: right, cols: self.cols - j, ..self })
    }

    /// The rows before `i`, and those from `i` on.
    pub(super) fn split_rows(self, i: usize) -> (Cols<'a, T>, Cols<'a, T>) {
        assert!(i <= self.rows);
        let below = self.ptr.wrapping_add(i);
        (Cols { rows: i, ..self }, Cols { ptr: below, rows: self.rows - i, ..self })
    }

    #[inline(always)]
    pub(super) fn at(&self, i: usize, j: usize) -> T {
        debug_assert!(i < self.rows && j < self.cols);
        // SAFETY: inside the matrix.
        unsafe { *self.ptr.add(i + j * self.ld) }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, i: usize, j: usize, x: T) {
        debug_assert!(i < self.rows && j < self.cols);
        // SAFETY: inside the matrix, which is borrowed for writing.
        unsafe { *self.ptr.add(i + j * self.ld) = x }
    }

    #[inline(always)]
    pub(super) fn column(&self, j: usize) -> &[T] {
        assert!(j < self.cols);
        // SAFETY: inside the matrix.
        unsafe { std::slice::from_raw_parts(self.ptr.add(j * self.ld), self.rows) }
    }

    #[inline(always)]
    pub(super) fn column_mut(&mut self, j: usize) -> &mut [T] {
        assert!(j < self.cols);
        // SAFETY: inside the matrix, which is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(j * self.ld), self.rows) }
    }

    /// Two different columns.
    pub(super) fn pair(&mut self, i: usize, j: usize) -> (&mut [T], &mut [T]) {
        assert!(i != j && i < self.cols && j < self.cols);
        // SAFETY: inside the matrix; different columns do not overlap.
        unsafe {
            (
                std::slice::from_raw_parts_mut(self.ptr.add(i * self.ld), self.rows),
                std::slice::from_raw_parts_mut(self.ptr.add(j * self.ld), self.rows),
            )
        }
    }

    pub(super) fn fill(&mut self, x: T) {
        (0..self.cols).for_each(|j| self.column_mut(j).fill(x));
    }
}
