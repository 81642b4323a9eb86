//! Views: operations that only change indices, so that nothing is copied.

use crate::shape::{Axes, Shape};
use smallvec::SmallVec;

/// The part of one axis that a slice takes: `len` elements from `start`, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Index of the first element.
    pub start: usize,
    /// Number of elements taken.
    pub len: usize,
    /// Distance between them, at least 1.
    pub step: usize,
}

/// An operation whose result has the same elements at other indices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// The same elements in the same row-major order, under another shape.
    Reshape(Shape),
    /// Axis `i` of the result is axis `order[i]` of the input.
    Permute(Axes),
    /// New leading axes, and axes of length 1 repeated. Its transpose is a sum.
    Broadcast(Shape),
    /// A span of each axis.
    Slice(SmallVec<[Span; 2]>),
    /// These axes read backwards.
    Flip(Axes),
    /// The diagonal of axes `a` and `b`, as a new last axis.
    Diagonal {
        /// How far above (positive) or below the main diagonal.
        offset: isize,
        /// The row axis.
        a: usize,
        /// The column axis.
        b: usize,
    },
    /// Windows of `size` along an axis, every `step`, as a new last axis.
    Unfold {
        /// The axis that is windowed.
        axis: usize,
        /// Elements in a window.
        size: usize,
        /// Distance between windows.
        step: usize,
    },
}
