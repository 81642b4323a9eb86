//! Copying operands into panels: the order in which the tiles read them.
//!
//! A panel is a strip of `width` rows of A (or columns of B), laid out step by step of k: the
//! `width` elements of step 0, then those of step 1, …. The last panel is filled up with zeros.
//! After packing there are no strides and no narrow storage types: panels are dense and in the
//! compute type.

use super::Shared;
use crate::elem::Elem;
use crate::operand::Source;
use std::any::TypeId;

/// A strided matrix; strides in elements.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<S> {
    pub ptr: *const S,
    pub row: isize,
    pub col: isize,
}

// SAFETY: a matrix is only read, and made from a `Source`, which may be shared.
unsafe impl<S> Send for Matrix<S> {}
// SAFETY: as above.
unsafe impl<S> Sync for Matrix<S> {}

impl<S> Matrix<S> {
    /// The last two axes of a source, starting at an offset.
    pub(crate) fn of(x: &Source, offset: isize) -> Matrix<S> {
        let rank = x.shape.len();
        let ptr = x.ptr.cast::<S>().wrapping_offset(offset);
        Matrix { ptr, row: x.strides[rank - 2], col: x.strides[rank - 1] }
    }

    /// The same matrix from row `i` and column `j` on.
    pub(crate) fn at(self, i: usize, j: usize) -> Matrix<S> {
        let ptr = self.ptr.wrapping_offset(i as isize * self.row + j as isize * self.col);
        Matrix { ptr, ..self }
    }

    pub(crate) fn transposed(self) -> Matrix<S> {
        Matrix { ptr: self.ptr, row: self.col, col: self.row }
    }
}

/// Columns of B (or of Aᵀ) to be packed, cut into tasks.
pub(crate) struct Packing<S: Elem> {
    pub b: Matrix<S>,
    /// Columns.
    pub count: usize,
    /// Rows.
    pub k: usize,
    /// Columns per panel.
    pub width: usize,
    /// Elements from the start of a panel to the start of the next, at least `k * width`.
    pub stride: usize,
    /// Space for all panels.
    pub dst: Shared<S::Compute>,
}

impl<S: Elem> Packing<S> {
    const ROWS: usize = 32;
    const PANELS: usize = 4;

    /// Tasks are stripes of rows where those are dense, so that memory is read in order; otherwise
    /// groups of columns.
    pub(crate) fn tasks(&self) -> usize {
        if self.b.col == 1 {
            self.k.div_ceil(Self::ROWS)
        } else {
            self.count.div_ceil(Self::PANELS * self.width)
        }
    }

    /// One of several parts of the panels, as equal as possible.
    pub(super) fn share(&self, part: usize, parts: usize) -> Packing<S> {
        let panels = self.count.div_ceil(self.width);
        let cut = |part: usize| panels * part / parts;
        let (from, end) = (cut(part) * self.width, self.count.min(cut(part + 1) * self.width));
        let (b, dst) = (self.b.at(0, from), Shared(self.dst.at(cut(part) * self.stride)));
        Packing { b, count: end.saturating_sub(from), dst, ..*self }
    }

    /// Everything, on this thread.
    pub(super) fn all(&self) {
        // SAFETY: the whole lies inside the source and the destination.
        unsafe { panels(self.b, self.count, self.k, self.width, self.dst.at(0), self.stride) }
    }

    pub(crate) fn run(&self, task: usize) {
        let (width, stride) = (self.width, self.stride);
        // SAFETY: the part of this task lies inside the source and the destination.
        unsafe {
            if self.b.col == 1 {
                let from = task * Self::ROWS;
                let rows = Self::ROWS.min(self.k - from);
                panels(
                    self.b.at(from, 0),
                    self.count,
                    rows,
                    width,
                    self.dst.at(from * width),
                    stride,
                );
            } else {
                let from = task * Self::PANELS * width;
                let count = (Self::PANELS * width).min(self.count.saturating_sub(from));
                if count == 0 {
                    return;
                }
                panels(
                    self.b.at(0, from),
                    count,
                    self.k,
                    width,
                    self.dst.at(task * Self::PANELS * stride),
                    stride,
                );
            }
        }
    }
}

/// Packs `count` columns and `k` rows of `b` into panels of `width` columns, `stride` apart.
pub(crate) unsafe fn panels<S: Elem<Compute = C>, C: Copy + Default + 'static>(
    b: Matrix<S>,
    count: usize,
    k: usize,
    width: usize,
    dst: *mut C,
    stride: usize,
) {
    let whole = count / width;
    // SAFETY: all offsets stay within what the caller guarantees.
    unsafe {
        if b.col == 1 {
            for p in 0..k {
                let src = b.ptr.offset(p as isize * b.row);
                let dst = dst.add(p * width);
                for panel in 0..whole {
                    let (src, dst) = (src.add(panel * width), dst.add(panel * stride));
                    // The usual widths are known to the compiler, so a copy is a few moves.
                    match width {
                        32 => copy::<S, C, 32>(src, dst),
                        16 => copy::<S, C, 16>(src, dst),
                        12 => copy::<S, C, 12>(src, dst),
                        _ => (0..width).for_each(|j| *dst.add(j) = (*src.add(j)).load()),
                    }
                }
            }
        } else {
            for panel in 0..whole {
                strided(b.at(0, panel * width), width, k, width, dst.add(panel * stride));
            }
        }
        let rest = count - whole * width;
        if rest > 0 {
            let dst = dst.add(whole * stride);
            (0..width * k).for_each(|i| *dst.add(i) = C::default());
            strided(b.at(0, whole * width), rest, k, width, dst);
        }
    }
}

/// One panel from columns of any strides.
unsafe fn strided<S: Elem<Compute = C>, C: Copy>(
    b: Matrix<S>,
    count: usize,
    k: usize,
    width: usize,
    dst: *mut C,
) {
    // SAFETY: all offsets stay within what the caller guarantees.
    unsafe {
        let mut done = 0;
        if b.row == 1 && is_f32::<S>() {
            while done + 4 <= count {
                let src = b.ptr.offset(done as isize * b.col).cast();
                transpose_strip(src, b.col, k, dst.add(done).cast(), width);
                done += 4;
            }
        }
        // A block of steps at a time, so that the cache lines of all columns stay in L1.
        for from in (0..k).step_by(16) {
            for j in done..count {
                let src = b.ptr.offset(j as isize * b.col + from as isize * b.row);
                for p in 0..16.min(k - from) {
                    *dst.add((from + p) * width + j) = (*src.offset(p as isize * b.row)).load();
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn copy<S: Elem<Compute = C>, C: 'static, const N: usize>(src: *const S, dst: *mut C) {
    // By value: otherwise the compiler must assume that they overlap, and copies one by one.
    if TypeId::of::<S>() == TypeId::of::<C>() {
        // SAFETY: the caller has `N` elements on both sides, of the same type.
        return unsafe { dst.cast::<[C; N]>().write(src.cast::<[C; N]>().read()) };
    }
    // SAFETY: the caller has `N` elements on both sides.
    unsafe { dst.cast::<[C; N]>().write(src.cast::<[S; N]>().read().map(S::load)) };
}

fn is_f32<S: 'static>() -> bool {
    TypeId::of::<S>() == TypeId::of::<f32>()
}

/// Four columns, each `k` adjacent elements, to `k` steps of four adjacent elements.
#[inline(always)]
unsafe fn transpose_strip(src: *const f32, col: isize, k: usize, dst: *mut f32, width: usize) {
    // SAFETY: the offsets stay in the four columns and the `k` steps.
    unsafe {
        let mut p = 0;
        while p + 4 <= k {
            transpose_block(src.add(p), col, dst.add(p * width), width);
            p += 4;
        }
        while p < k {
            for j in 0..4 {
                *dst.add(p * width + j) = *src.offset(p as isize + j as isize * col);
            }
            p += 1;
        }
    }
}

/// Four columns of four elements.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn transpose_block(src: *const f32, col: isize, dst: *mut f32, width: usize) {
    use std::arch::x86_64::*;
    // SAFETY: SSE is part of the target; the caller has four elements in each column and step.
    unsafe {
        let mut r0 = _mm_loadu_ps(src);
        let mut r1 = _mm_loadu_ps(src.offset(col));
        let mut r2 = _mm_loadu_ps(src.offset(2 * col));
        let mut r3 = _mm_loadu_ps(src.offset(3 * col));
        _MM_TRANSPOSE4_PS(&mut r0, &mut r1, &mut r2, &mut r3);
        _mm_storeu_ps(dst, r0);
        _mm_storeu_ps(dst.add(width), r1);
        _mm_storeu_ps(dst.add(2 * width), r2);
        _mm_storeu_ps(dst.add(3 * width), r3);
    }
}

/// Four columns of four elements, which the compiler shuffles in registers.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn transpose_block(src: *const f32, col: isize, dst: *mut f32, width: usize) {
    // SAFETY: the caller has four elements in each column and step.
    unsafe {
        let r: [[f32; 4]; 4] =
            std::array::from_fn(|j| src.offset(j as isize * col).cast::<[f32; 4]>().read());
        for p in 0..4 {
            dst.add(p * width).cast::<[f32; 4]>().write([r[0][p], r[1][p], r[2][p], r[3][p]]);
        }
    }
}
