//! Iteration over strided operands.
//!
//! Every kernel that reads strided operands goes through here. A [`Walk`] is made from one shape
//! and the strides of `N` operands over that shape. It first simplifies the shape, for all
//! operands together: axes of length one disappear, and two neighbouring axes become one when in
//! *every* operand stepping once along the outer is the same as stepping past the end of the
//! inner. A dense tensor of any rank becomes one axis; a row vector broadcast over a matrix
//! becomes two.
//!
//! What remains is iterated in row-major order as *runs* along the innermost axis: the closure gets
//! the offset of each operand's run, its stride, and the length of the run. The walk may be
//! restricted to any range of the row-major index space, which is how work is split over threads;
//! the runs of a split walk are pieces of those of the whole, in order.
//!
//! ```text
//! shape [4, 8, 16]   a dense      [128, 16, 1]  ┐  collapse   shape [32, 16]   a [16, 1]
//!                    b broadcast  [  0,  0, 1]  ┘  ───────►                    b [ 0, 1]
//! ```
//!
//! Up to [`INLINE`] collapsed axes live in the struct itself, so that walking a small tensor
//! allocates nothing. Higher ranks (rare after collapsing) spill to the heap.

use std::ops::Range;

/// Collapsed axes that are kept without a heap allocation.
const INLINE: usize = 6;

/// One collapsed axis: its length, and each operand's stride along it in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollapsedAxis<const N: usize> {
    /// Number of steps.
    pub(crate) len: usize,
    /// Stride of each operand, in elements.
    pub(crate) strides: [isize; N],
}

/// A run of elements along the innermost axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run<const N: usize> {
    /// Row-major index of the first element: also its offset in a dense tensor of this shape.
    pub(crate) start: usize,
    /// Offset of the first element in each operand, in elements.
    pub(crate) offsets: [isize; N],
    /// Stride in each operand, in elements.
    pub(crate) strides: [isize; N],
    /// Number of elements, at least one.
    pub(crate) len: usize,
}

/// A shape and `N` sets of strides, collapsed together and ready to be walked.
#[derive(Clone, Debug)]
pub(crate) struct Walk<const N: usize> {
    /// Number of elements.
    len: usize,
    /// Number of collapsed axes, at least one.
    rank: usize,
    /// The axes, innermost first, when there are at most `INLINE`.
    inline: [CollapsedAxis<N>; INLINE],
    /// All the axes, innermost first, when there are more; otherwise empty.
    spill: Vec<CollapsedAxis<N>>,
}

impl<const N: usize> Walk<N> {
    /// Collapses `shape` and the operands' strides. Every stride slice has the rank of `shape`.
    #[inline]
    pub(crate) fn new(shape: &[usize], strides: [&[isize]; N]) -> Self {
        debug_assert!(strides.iter().all(|s| s.len() == shape.len()));
        let unit = CollapsedAxis { len: 1, strides: [1; N] };
        let mut walk = Walk { len: 1, rank: 0, inline: [unit; INLINE], spill: Vec::new() };
        // `last` is the outermost axis so far, still open for merging.
        let mut last = unit;
        let mut open = false;
        for d in (0..shape.len()).rev() {
            let len = shape[d];
            walk.len *= len;
            if len == 1 {
                continue;
            }
            let mut axis = CollapsedAxis { len, strides: [0; N] };
            for (stride, all) in axis.strides.iter_mut().zip(strides) {
                *stride = all[d];
            }
            if !open {
                last = axis;
                open = true;
            } else if (0..N).all(|k| axis.strides[k] == last.strides[k] * last.len as isize) {
                last.len *= len;
            } else {
                walk.push(last);
                last = axis;
            }
        }
        walk.push(last);
        walk
    }

    /// Adds an axis outside the others.
    #[inline]
    fn push(&mut self, axis: CollapsedAxis<N>) {
        if self.rank < INLINE {
            self.inline[self.rank] = axis;
        } else {
            if self.rank == INLINE {
                self.spill.extend_from_slice(&self.inline);
            }
            self.spill.push(axis);
        }
        self.rank += 1;
    }

    /// Number of elements in the whole walk.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The collapsed axes, innermost first; never empty.
    #[inline]
    pub(crate) fn axes(&self) -> &[CollapsedAxis<N>] {
        if self.rank <= INLINE { &self.inline[..self.rank] } else { &self.spill }
    }

    /// The innermost axis: the longest run, and the strides inside every run.
    #[inline]
    pub(crate) fn inner(&self) -> CollapsedAxis<N> {
        self.axes()[0]
    }

    /// Offsets of the element with row-major index `index` in each operand.
    #[inline]
    pub(crate) fn offsets(&self, mut index: usize) -> [isize; N] {
        let mut offsets = [0isize; N];
        for axis in self.axes() {
            let at = (index % axis.len) as isize;
            index /= axis.len;
            for (offset, stride) in offsets.iter_mut().zip(axis.strides) {
                *offset += at * stride;
            }
        }
        offsets
    }

    /// Calls `f` for each run of the whole walk, in row-major order.
    #[inline]
    pub(crate) fn for_each(&self, f: impl FnMut(Run<N>)) {
        self.for_range(0..self.len, f);
    }

    /// Calls `f` for each run of the elements whose row-major index is in `range`, in order. The
    /// first and the last run may be parts of a full one.
    #[inline]
    pub(crate) fn for_range(&self, range: Range<usize>, mut f: impl FnMut(Run<N>)) {
        debug_assert!(range.end <= self.len);
        if range.start >= range.end {
            return;
        }
        if self.rank == 1 {
            let inner = self.inline[0];
            let mut offsets = [0; N];
            for (offset, stride) in offsets.iter_mut().zip(inner.strides) {
                *offset = stride * range.start as isize;
            }
            f(Run { start: range.start, offsets, strides: inner.strides, len: range.len() });
            return;
        }
        self.for_runs(range, &mut f);
    }

    /// The runs of a walk of several axes. Not generic over `f`, as it would be compiled for every
    /// kernel again.
    fn for_runs(&self, range: Range<usize>, f: &mut dyn FnMut(Run<N>)) {
        let mut cursor = self.cursor(range.start);
        while cursor.index < range.end {
            let run = cursor.next_run(range.end - cursor.index);
            f(run);
        }
    }

    /// A cursor into the walk, which returns runs of any length.
    #[inline]
    pub(crate) fn cursor(&self, index: usize) -> Cursor<'_, N> {
        let axes = self.axes();
        let mut rest = index;
        let mut inline = [0usize; INLINE];
        let mut spill = Vec::new();
        if axes.len() > INLINE {
            spill.resize(axes.len(), 0);
        }
        let at: &mut [usize] = if axes.len() > INLINE { &mut spill } else { &mut inline };
        let mut offsets = [0isize; N];
        for (axis, at) in axes.iter().zip(at.iter_mut()) {
            if axis.len == 0 {
                break;
            }
            *at = rest % axis.len;
            rest /= axis.len;
            for (offset, stride) in offsets.iter_mut().zip(axis.strides) {
                *offset += *at as isize * stride;
            }
        }
        Cursor { axes, index, offsets, inline, spill }
    }
}

/// A position in a [`Walk`] that advances run by run.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a, const N: usize> {
    axes: &'a [CollapsedAxis<N>],
    /// Row-major index of the next element.
    index: usize,
    /// Offsets of the next element.
    offsets: [isize; N],
    inline: [usize; INLINE],
    spill: Vec<usize>,
}

impl<const N: usize> Cursor<'_, N> {
    /// How many elements are left of the current run, and its strides.
    #[inline]
    pub(crate) fn run_left(&self) -> (usize, [isize; N]) {
        let at = if self.axes.len() > INLINE { self.spill[0] } else { self.inline[0] };
        (self.axes[0].len - at, self.axes[0].strides)
    }

    /// Takes the next run: up to the end of the innermost axis, but at most `limit` elements.
    /// There must be an element left and `limit` must not be zero.
    #[inline]
    pub(crate) fn next_run(&mut self, limit: usize) -> Run<N> {
        let axes = self.axes;
        let at: &mut [usize] = if axes.len() > INLINE { &mut self.spill } else { &mut self.inline };
        let inner = axes[0];
        let len = (inner.len - at[0]).min(limit);
        let run = Run { start: self.index, offsets: self.offsets, strides: inner.strides, len };
        self.index += len;
        at[0] += len;
        for k in 0..N {
            self.offsets[k] += len as isize * inner.strides[k];
        }
        // Carry: an axis at its end is reset and advances the next.
        let mut d = 0;
        while at[d] == axes[d].len && d + 1 < axes.len() {
            at[d] = 0;
            at[d + 1] += 1;
            for k in 0..N {
                self.offsets[k] +=
                    axes[d + 1].strides[k] - axes[d].len as isize * axes[d].strides[k];
            }
            d += 1;
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row-major list of offsets, computed naively.
    fn naive(shape: &[usize], strides: &[isize]) -> Vec<isize> {
        let n: usize = shape.iter().product();
        (0..n)
            .map(|mut i| {
                let mut at = 0;
                for d in (0..shape.len()).rev() {
                    at += (i % shape[d]) as isize * strides[d];
                    i /= shape[d];
                }
                at
            })
            .collect()
    }

    fn listed<const N: usize>(walk: &Walk<N>, range: Range<usize>) -> Vec<[isize; N]> {
        let mut seen = Vec::new();
        let mut next = range.start;
        walk.for_range(range, |run| {
            assert_eq!(run.start, next);
            assert!(run.len > 0);
            next += run.len;
            for i in 0..run.len as isize {
                seen.push(std::array::from_fn(|k| run.offsets[k] + i * run.strides[k]));
            }
        });
        seen
    }

    #[test]
    fn dense_is_one_run_and_scalars_are_one_element() {
        let walk = Walk::new(&[2, 3, 1, 4], [&[12, 4, 7, 1]]);
        assert_eq!(walk.axes().len(), 1);
        assert_eq!(walk.inner().len, 24);
        let scalar = Walk::new(&[], [&[], &[]]);
        assert_eq!(scalar.len(), 1);
        assert_eq!(listed(&scalar, 0..1), vec![[0, 0]]);
        let empty = Walk::new(&[3, 0, 2], [&[0, 2, 1]]);
        assert_eq!(empty.len(), 0);
        empty.for_each(|_| panic!("an empty walk has no run"));
    }

    #[test]
    fn collapses_only_what_all_operands_allow() {
        let walk = Walk::new(&[4, 8, 16], [&[128, 16, 1], &[0, 0, 1]]);
        let axes: Vec<_> = walk.axes().iter().map(|a| (a.len, a.strides)).collect();
        assert_eq!(axes, vec![(16, [1, 1]), (32, [16, 0])]);
    }

    #[test]
    fn every_range_lists_the_same_elements() {
        let cases: &[(&[usize], &[isize], &[isize])] = &[
            (&[3, 4, 5], &[20, 5, 1], &[1, 3, 12]),
            (&[3, 4, 5], &[-20, 5, -1], &[0, 1, 0]),
            (&[2, 1, 3], &[3, 9, 1], &[1, 0, 2]),
            (&[2, 2, 2, 2, 2, 2, 2, 2], &[1, 2, 4, 8, 16, 32, 64, 128], &[0, 1, 0, 1, 0, 1, 0, 1]),
            (&[7], &[2], &[-1]),
        ];
        for &(shape, a, b) in cases {
            let walk = Walk::new(shape, [a, b]);
            let want: Vec<[isize; 2]> =
                naive(shape, a).into_iter().zip(naive(shape, b)).map(|(a, b)| [a, b]).collect();
            for start in 0..=walk.len() {
                for end in start..=walk.len() {
                    assert_eq!(listed(&walk, start..end), want[start..end]);
                }
                if start < walk.len() {
                    assert_eq!(walk.offsets(start), want[start]);
                }
            }
        }
    }
}
