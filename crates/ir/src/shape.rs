//! Shapes, axes and the arithmetic of both.

use crate::Few;

/// Length of each axis, outermost first. Inline up to rank 4.
pub type Shape = Few<usize>;

/// A set or order of axes, already counted from the front.
pub type Axes = Few<usize>;

/// Stride along each axis, in elements.
pub type Strides = Few<isize>;

/// How many indices a shape has. What `infer` accepts can be counted (see
/// [`fits_memory`](crate::infer::fits_memory)); for any other shape this saturates.
///
/// ```
/// # use pullback_ir::element_count;
/// assert_eq!(element_count(&[4, 3]), 12);
/// assert_eq!(element_count(&[usize::MAX, 2]), usize::MAX);
/// assert_eq!(element_count(&[usize::MAX, 2, 0]), 0);
/// ```
#[inline]
pub fn element_count(shape: &[usize]) -> usize {
    shape.iter().fold(1, |count: usize, &n| count.saturating_mul(n))
}

/// Strides of a dense row-major array of this shape; saturated if it does not fit in memory.
#[inline]
pub fn dense_strides(shape: &[usize]) -> Strides {
    let mut strides = Strides::new();
    set_dense_strides(shape, &mut strides);
    strides
}

/// The same, where they are wanted.
#[inline]
pub(crate) fn set_dense_strides(shape: &[usize], strides: &mut Strides) {
    strides.fill(shape.len(), 1);
    for i in (1..shape.len()).rev() {
        let length = isize::try_from(shape[i].max(1)).unwrap_or(isize::MAX);
        strides[i - 1] = strides[i].saturating_mul(length);
    }
}

/// The shape to which both broadcast, by NumPy's rule: aligned at the last axis, lengths must be
/// equal or one of them 1.
///
/// ```
/// # use pullback_ir::broadcast_shapes;
/// assert_eq!(broadcast_shapes(&[4, 1], &[3]).as_deref(), Some(&[4, 3][..]));
/// assert_eq!(broadcast_shapes(&[2], &[3]), None);
/// ```
pub fn broadcast_shapes(a: &[usize], b: &[usize]) -> Option<Shape> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| if i + s.len() < rank { 1 } else { s[i + s.len() - rank] };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// An axis that may count from the end (`-1` is the last) as one that counts from the front.
pub fn normalize_axis(axis: isize, rank: usize) -> Option<usize> {
    // A 0-d tensor accepts the axes of a vector of one element, as other libraries do.
    let n = rank.max(1) as isize;
    let from_front = if axis < 0 { axis + n } else { axis };
    (0..n).contains(&from_front).then_some(from_front as usize)
}

/// The axes of `0..rank` that are not in `axes`.
pub fn other_axes(axes: &[usize], rank: usize) -> Axes {
    (0..rank).filter(|i| !axes.contains(i)).collect()
}

/// The permutation that undoes `order`.
pub fn inverse_order(order: &[usize]) -> Axes {
    let mut inverse: Axes = Few::from_elem(0, order.len());
    for (to, &from) in order.iter().enumerate() {
        inverse[from] = to;
    }
    inverse
}
