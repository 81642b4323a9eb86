//! The positions of a strided view's elements in its buffer.
//!
//! Every view operation is arithmetic on a `Layout`; nothing is copied. Only `reshape` may fail:
//! for some shapes a permuted array has no strides, and then the elements must be copied.

use crate::Few;
use crate::shape::{Axes, Shape, Strides, dense_strides, element_count, set_dense_strides};
use crate::view::{Span, View};
use smallvec::SmallVec;

/// Shape, strides (in elements) and offset of the first element (in elements).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Length of each axis.
    pub shape: Shape,
    /// Stride along each axis; zero where an axis is broadcast.
    pub strides: Strides,
    /// Position of the element at index 0, 0, …
    pub offset: usize,
}

impl Layout {
    /// Dense, row-major, from the start of the buffer.
    #[inline]
    pub fn dense(shape: Shape) -> Layout {
        Layout { strides: dense_strides(&shape), shape, offset: 0 }
    }

    /// Makes this [`Layout::dense`], where it is: nothing is moved.
    #[inline]
    pub fn set_dense(&mut self, shape: &Shape) {
        self.shape.set(shape);
        set_dense_strides(shape, &mut self.strides);
        self.offset = 0;
    }

    /// One element for every index of `shape`.
    #[inline]
    pub fn splat(shape: Shape) -> Layout {
        Layout { strides: Few::from_elem(0, shape.len()), shape, offset: 0 }
    }

    /// Number of indices.
    #[inline]
    pub fn len(&self) -> usize {
        element_count(&self.shape)
    }

    /// Whether there are no indices.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the elements are dense in row-major order (at any offset).
    #[inline]
    pub fn is_dense(&self) -> bool {
        let mut expected = 1isize;
        for (&n, &s) in self.shape.iter().zip(&self.strides).rev() {
            if n != 1 && s != expected {
                return self.is_empty();
            }
            expected = expected.saturating_mul(isize::try_from(n).unwrap_or(isize::MAX));
        }
        true
    }

    /// Whether the elements lie next to each other in some order of the axes.
    pub fn is_dense_in_some_order(&self) -> bool {
        let mut axes: SmallVec<[(isize, usize); 5]> =
            self.strides.iter().copied().zip(self.shape.iter().copied()).collect();
        axes.retain(|axis| axis.1 != 1);
        axes.sort_unstable();
        let mut expected = 1usize;
        self.is_empty()
            || axes.into_iter().all(|(stride, n)| {
                let next = usize::try_from(stride) == Ok(expected);
                expected = expected.saturating_mul(n);
                next
            })
    }

    /// Whether two indices may share an element, so that writing through this layout is ambiguous.
    /// Conservative for exotic strides: `true` when it cannot be excluded.
    pub fn overlaps(&self) -> bool {
        let mut axes: SmallVec<[(usize, usize); 5]> =
            self.shape.iter().zip(&self.strides).map(|(&n, &s)| (s.unsigned_abs(), n)).collect();
        axes.retain(|&mut (_, n)| n != 1);
        if axes.iter().any(|&(_, n)| n == 0) {
            return false;
        }
        axes.sort_unstable();
        let mut reach = 0usize;
        for (stride, n) in axes {
            if stride <= reach {
                return true;
            }
            reach = reach.saturating_add(stride.saturating_mul(n - 1));
        }
        false
    }

    /// Whether elements of `size` bytes with these strides, the first of them at element `offset`,
    /// are all inside a buffer of this many bytes. `None` where the arithmetic itself overflows.
    #[inline]
    pub fn inside(
        bytes: usize,
        offset: usize,
        shape: &[usize],
        strides: &[isize],
        size: usize,
    ) -> Option<bool> {
        // Nearly every operand is dense.
        let (mut len, mut dense) = (1usize, shape.len() == strides.len());
        for (&n, &s) in shape.iter().zip(strides).rev() {
            dense &= s == len as isize;
            len = len.saturating_mul(n);
        }
        if dense && len > 0 {
            return Some(offset.checked_add(len)?.checked_mul(size)? <= bytes);
        }
        let offset = isize::try_from(offset).ok()?;
        let (mut low, mut high, mut empty) = (offset, offset, false);
        for (&n, &s) in shape.iter().zip(strides) {
            let reach = s.checked_mul(isize::try_from(n).ok()? - 1)?;
            low = low.checked_add(reach.min(0))?;
            high = high.checked_add(reach.max(0))?;
            empty |= n == 0;
        }
        let end = (high as usize).checked_add(1)?.checked_mul(size)?;
        Some(shape.len() == strides.len() && (empty || (low >= 0 && end <= bytes)))
    }

    /// Whether every index is inside a buffer of this many elements.
    pub fn is_within(&self, len: usize) -> bool {
        if self.is_empty() {
            return true;
        }
        let (mut low, mut high) = (self.offset as i128, self.offset as i128);
        for (&n, &stride) in self.shape.iter().zip(&self.strides) {
            let reach = (stride as i128).saturating_mul(n as i128 - 1);
            low = low.saturating_add(reach.min(0));
            high = high.saturating_add(reach.max(0));
        }
        low >= 0 && high < len as i128
    }

    /// The layout seen through a view operation; `None` where a copy is needed (`Reshape` of
    /// elements that are not evenly spaced). The view must have been checked by `infer`.
    pub fn view(&self, view: &View) -> Option<Layout> {
        let mut out = match view {
            View::Reshape(shape) => self.reshape(shape)?,
            View::Permute(order) => self.permute(order),
            View::Broadcast(shape) => self.broadcast(shape),
            View::Slice(spans) => self.slice(spans),
            View::Flip(axes) => self.flip(axes),
            View::Diagonal { offset, a, b } => self.diagonal(*offset, *a, *b),
            View::Unfold { axis, size, step } => self.unfold(*axis, *size, *step),
        };
        if out.is_empty() {
            // An empty view has no element at its start, so its offset is unchanged: flipping
            // `[0, 3]` would move it past the end of a buffer without elements.
            out.offset = self.offset;
        }
        Some(out)
    }

    fn permute(&self, order: &[usize]) -> Layout {
        Layout {
            shape: order.iter().map(|&i| self.shape[i]).collect(),
            strides: order.iter().map(|&i| self.strides[i]).collect(),
            offset: self.offset,
        }
    }

    fn broadcast(&self, shape: &Shape) -> Layout {
        let new = shape.len() - self.shape.len();
        let stride = |i: usize| match i.checked_sub(new) {
            Some(j) if self.shape[j] == shape[i] => self.strides[j],
            _ => 0,
        };
        let strides = (0..shape.len()).map(stride).collect();
        Layout { shape: shape.clone(), strides, offset: self.offset }
    }

    fn slice(&self, spans: &[Span]) -> Layout {
        let mut out = self.clone();
        for (i, span) in spans.iter().enumerate() {
            out.shape[i] = span.len;
            // With one element the step is unused, and may be any number.
            if span.len > 1 {
                out.strides[i] *= span.step as isize;
            }
            if span.len > 0 {
                out.offset = shift(out.offset, self.strides[i] * span.start as isize);
            }
        }
        out
    }

    fn flip(&self, axes: &Axes) -> Layout {
        let mut out = self.clone();
        for &i in axes {
            if self.shape[i] > 0 {
                let last = self.strides[i] * (self.shape[i] - 1) as isize;
                out.offset = shift(out.offset, last);
            }
            out.strides[i] = -self.strides[i];
        }
        out
    }

    fn diagonal(&self, offset: isize, a: usize, b: usize) -> Layout {
        let (skip_a, skip_b) = (offset.min(0).unsigned_abs(), offset.max(0) as usize);
        let len = diagonal_len(self.shape[a], self.shape[b], offset);
        let mut out = self.clone();
        if len > 0 {
            let first = self.strides[a] * skip_a as isize + self.strides[b] * skip_b as isize;
            out.offset = shift(out.offset, first);
        }
        for i in [a.max(b), a.min(b)] {
            out.shape.remove(i);
            out.strides.remove(i);
        }
        out.shape.push(len);
        out.strides.push(self.strides[a] + self.strides[b]);
        out
    }

    fn unfold(&self, axis: usize, size: usize, step: usize) -> Layout {
        let mut out = self.clone();
        out.shape[axis] = (self.shape[axis] - size) / step + 1;
        // As in a slice: with one window the step is unused.
        if out.shape[axis] > 1 {
            out.strides[axis] *= step as isize;
        }
        out.shape.push(size);
        out.strides.push(self.strides[axis]);
        out
    }

    /// Splits and merges axes where the strides allow it. Axes are matched in groups: the shortest
    /// runs of old and new axes with the same number of elements; a group of old axes must be
    /// evenly spaced to be split differently.
    fn reshape(&self, shape: &Shape) -> Option<Layout> {
        if self.is_dense() {
            return Some(Layout { offset: self.offset, ..Layout::dense(shape.clone()) });
        }
        let old: SmallVec<[(usize, isize); 5]> =
            self.shape.iter().copied().zip(self.strides.iter().copied()).collect();
        let old: SmallVec<[_; 5]> = old.into_iter().filter(|&(n, _)| n != 1).collect();
        let mut strides: Strides = Few::from_elem(0, shape.len());
        let (mut i, mut j) = (0, 0);
        while i < old.len() {
            let (first, start) = (i, j);
            let (mut have, mut want) = (old[i].0, 1);
            i += 1;
            while have != want {
                if want < have {
                    want *= shape[j];
                    j += 1;
                } else {
                    have *= old[i].0;
                    i += 1;
                }
            }
            // The old axes first..i must be mergeable into one.
            for k in first..i - 1 {
                if old[k].1 != old[k + 1].1 * old[k + 1].0 as isize {
                    return None;
                }
            }
            let mut stride = old[i - 1].1;
            for k in (start..j).rev() {
                strides[k] = stride;
                stride *= shape[k] as isize;
            }
        }
        Some(Layout { shape: shape.clone(), strides, offset: self.offset })
    }
}

/// Length of the diagonal `offset` above the main one.
pub fn diagonal_len(rows: usize, columns: usize, offset: isize) -> usize {
    let rows = rows.saturating_sub(offset.min(0).unsigned_abs());
    rows.min(columns.saturating_sub(offset.max(0) as usize))
}

fn shift(offset: usize, by: isize) -> usize {
    offset.wrapping_add_signed(by)
}
