//! A layout as a chain of views of flat memory.
//!
//! Eager tensors are strided views of a buffer, with any strides. In a program a value is a
//! variable, and a view of it is an equation: this file finds the views that produce a given
//! layout, for any strides.

use crate::shape::{Axes, Shape};
use crate::view::{Span, View};
use crate::{Layout, inverse_order};
use smallvec::SmallVec;

impl Layout {
    /// The views that turn dense memory of `len` elements, as one axis, into this layout.
    ///
    /// Axes are split off from the largest stride to the smallest: a window of the span of all
    /// smaller axes, moved by the stride (`unfold`), is one axis in front of the rest. Then they
    /// are permuted, flipped, and broadcast.
    ///
    /// ```
    /// use pullback_ir::{Few, Layout, Shape};
    /// let wanted = Layout { shape: Shape::from_slice(&[3, 2]), strides: Few::from_slice(&[-1, 0]), offset: 7 };
    /// let mut found = Layout::dense(Shape::from_slice(&[10]));
    /// for view in wanted.views_of_flat(10) {
    ///     found = found.view(&view).unwrap();
    /// }
    /// assert_eq!((found.strides[0], found.offset, &found.shape[..]), (-1, 7, &[3, 2][..]));
    /// ```
    pub fn views_of_flat(&self, len: usize) -> Vec<View> {
        let mut views = Vec::new();
        let part = |start: usize, count: usize, step: usize| {
            View::Slice(SmallVec::from_elem(Span { start, len: count, step }, 1))
        };
        if self.is_dense() {
            if (self.offset, self.len()) != (0, len) {
                views.push(part(if self.is_empty() { 0 } else { self.offset }, self.len(), 1));
            }
            if self.shape[..] != [self.len()] {
                views.push(View::Reshape(self.shape.clone()));
            }
            return views;
        }
        // The axes with a stride, by decreasing stride, and the position of the first element in
        // memory.
        let moves = |&i: &usize| self.shape[i] > 1 && self.strides[i] != 0;
        let mut order: SmallVec<[usize; 5]> = (0..self.shape.len()).filter(moves).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(self.strides[i].unsigned_abs()));
        let mut start = self.offset;
        for &i in order.iter().filter(|&&i| self.strides[i] < 0) {
            start = start.wrapping_add_signed(self.strides[i] * (self.shape[i] as isize - 1));
        }
        // The span of the axes from the k-th on.
        let mut spans: SmallVec<[usize; 5]> = SmallVec::from_elem(1, order.len() + 1);
        for (k, &i) in order.iter().enumerate().rev() {
            spans[k] = spans[k + 1] + self.strides[i].unsigned_abs() * (self.shape[i] - 1);
        }
        if (start, spans[0]) != (0, len) {
            views.push(part(start, spans[0], 1));
        }
        for (k, &i) in order.iter().enumerate() {
            let step = self.strides[i].unsigned_abs();
            views.push(View::Unfold { axis: k, size: spans[k + 1], step });
        }
        // The last window is one element wide.
        let counts: Shape = order.iter().map(|&i| self.shape[i]).collect();
        views.push(View::Reshape(counts));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if sorted != order {
            let places: Axes =
                order.iter().map(|i| sorted.iter().position(|j| j == i).unwrap_or(0)).collect();
            views.push(View::Permute(inverse_order(&places)));
        }
        let turned: Axes = (0..sorted.len()).filter(|&k| self.strides[sorted[k]] < 0).collect();
        if !turned.is_empty() {
            views.push(View::Flip(turned));
        }
        let alone = |i: usize| if moves(&i) || self.shape[i] == 1 { self.shape[i] } else { 1 };
        let with_ones: Shape = (0..self.shape.len()).map(alone).collect();
        if with_ones.len() != sorted.len() {
            views.push(View::Reshape(with_ones.clone()));
        }
        if with_ones != self.shape {
            views.push(View::Broadcast(self.shape.clone()));
        }
        views
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::view_shape;
    use crate::{DType, Few, Spec};

    fn places(layout: &Layout) -> Vec<isize> {
        let mut places = vec![layout.offset as isize];
        for (&n, &s) in layout.shape.iter().zip(&layout.strides) {
            places = places.iter().flat_map(|&p| (0..n as isize).map(move |i| p + i * s)).collect();
        }
        places
    }

    #[test]
    fn every_layout_is_reached() {
        let cases: &[(&[usize], &[isize], usize)] = &[
            (&[], &[], 3),
            (&[5], &[1], 2),
            (&[5], &[-2], 11),
            (&[4], &[0], 9),
            (&[3, 4], &[4, 1], 0),
            (&[4, 3], &[1, 4], 0),
            (&[2, 3, 2], &[1, 0, -5], 6),
            (&[2, 2, 2], &[3, 3, 1], 1),
            (&[1, 3, 1], &[7, 2, 0], 4),
            (&[0, 3], &[3, 1], 0),
            (&[3, 0], &[-3, 7], 5),
            (&[2, 3], &[1, 1], 0),
        ];
        for &(shape, strides, offset) in cases {
            let wanted = Layout {
                shape: Shape::from_slice(shape),
                strides: Few::from_slice(strides),
                offset,
            };
            let mut found = Layout::dense(Shape::from_slice(&[12]));
            for view in wanted.views_of_flat(12) {
                let shape = view_shape(&view, &Spec::cpu(DType::F32, found.shape.clone()))
                    .expect("a view that fits");
                found = found.view(&view).expect("strides");
                assert_eq!(found.shape, shape);
            }
            assert_eq!(found.shape, wanted.shape);
            assert_eq!(places(&found), places(&wanted), "{wanted:?}");
        }
    }
}
