//! The arguments of kernels: strided sources to read and dense sinks to fill.
//!
//! Both are raw pointers, because a kernel may overwrite the elements it reads (`x.add_(y)`): a
//! `&[T]` and a `&mut [T]` over the same memory would be undefined behaviour, two raw pointers are
//! not. Every pointwise kernel follows the rule that makes this sound: element `i` of the sink is
//! written only after element `i` of every source that may alias it was read. All other kernels get
//! sinks that alias nothing.

use pullback_ir::DType;

/// A strided operand. `ptr` points at the element with index zero on every axis.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Address of the element at index 0, 0, …
    pub ptr: *const u8,
    /// Length of each axis.
    pub shape: &'a [usize],
    /// Stride along each axis, in elements; may be zero or negative.
    pub strides: &'a [isize],
    /// Type of the elements.
    pub dtype: DType,
}

/// A destination: dense, row-major, uninitialised before the kernel, full after it.
#[derive(Clone, Copy, Debug)]
pub struct Sink<'a> {
    /// Address of the first element.
    pub ptr: *mut u8,
    /// Length of each axis.
    pub shape: &'a [usize],
    /// Type of the elements.
    pub dtype: DType,
}

// SAFETY: operands are only made by `run`, which borrows the buffers they point into for the whole
// of the call; kernels pass disjoint parts of a sink to different threads.
unsafe impl Send for Source<'_> {}
// SAFETY: as above; sources are only read.
unsafe impl Sync for Source<'_> {}
// SAFETY: as above; threads write disjoint parts.
unsafe impl Send for Sink<'_> {}
// SAFETY: as above.
unsafe impl Sync for Sink<'_> {}

impl Source<'_> {
    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the elements are dense in row-major order.
    #[inline]
    pub fn is_dense(&self) -> bool {
        let mut expected = 1isize;
        for (&n, &s) in self.shape.iter().zip(self.strides).rev() {
            if n != 1 && s != expected {
                return n == 0;
            }
            expected *= n as isize;
        }
        true
    }
}

impl Sink<'_> {
    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
