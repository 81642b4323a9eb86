//! Pooling of squares of two by two elements that do not overlap, the usual case: four loops over
//! the elements of a square, side by side for all squares of a row, without tables of pieces.

use super::{Frames, Image, Least, Number, Place};
use crate::elem::Elem;
use crate::simd::{Isa, SimdTask};
use std::marker::PhantomData;

/// The squares of an image: as many rows of as many, from the first element on.
#[derive(Clone, Copy)]
pub(super) struct Squares {
    rows: usize,
    columns: usize,
    /// Elements of a row of the image, and rows.
    length: usize,
    height: usize,
}

impl Squares {
    /// If an image is divided into squares.
    pub(super) fn of(frames: &Frames) -> Option<Squares> {
        let [depth, rows, columns] = &frames.pieces;
        let pairs =
            |axis: &[super::AxisPiece]| axis.iter().enumerate().all(|(i, &p)| p == (2 * i, 2, 1));
        let [planes, height, length] = frames.lengths;
        let flat = planes == 1 && **depth == [(0, 1, 1)];
        (flat && pairs(rows) && pairs(columns)).then_some(Squares {
            rows: rows.len(),
            columns: columns.len(),
            length,
            height,
        })
    }
}

/// Calls a macro's body for each element of a square: its row and column.
macro_rules! for_each_element {
    ($j:ident, $t:ident => $body:block) => {
        for $j in 0..2 {
            for $t in 0..2 $body
        }
    };
}

/// Where the largest element of each square is: of equal ones the first, of two NaN the last.
pub(super) struct LargestOfSquares<'a, S, P>(pub Image<'a, S>, pub Squares, pub PhantomData<P>);

impl<S: Elem<Compute: Least>, P: Place> SimdTask for LargestOfSquares<'_, S, P> {
    #[inline(always)]
    #[allow(clippy::eq_op)] // unequal to itself: NaN
    fn run<I: Isa>(self) {
        let Image { job, image, x } = self.0;
        let Squares { rows, columns, length, .. } = self.1;
        let line = job.strides[1];
        for row in 0..rows {
            let x = [0, 1].map(|j| x.wrapping_offset((2 * row + j) as isize * line));
            let to = job.out.ptr.cast::<i64>().wrapping_add((image * rows + row) * columns);
            for k in 0..columns {
                // SAFETY: the squares are inside the image, whose rows are dense, and its results
                // are one task's.
                unsafe {
                    let mut best = ((*x[0].add(2 * k)).load(), 0);
                    for_each_element!(j, t => {
                        let v = (*x[j].add(2 * k + t)).load();
                        let wins = (v > best.0) | (v != v);
                        let at = j * length + t;
                        best = (if wins { v } else { best.0 }, if wins { at } else { best.1 });
                    });
                    *to.add(k) = P::at(2 * row * length + best.1, k, 2).wide();
                }
            }
        }
    }
}

/// The elements at positions, one for each square; zero where a position is outside its square.
pub(super) struct TakeOfSquares<'a, S>(pub Image<'a, S>, pub Squares, pub *const i64);

impl<S: Elem> SimdTask for TakeOfSquares<'_, S> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Image { job, image, x } = self.0;
        let Squares { rows, columns, length, .. } = self.1;
        let line = job.strides[1];
        for row in 0..rows {
            let x = [0, 1].map(|j| x.wrapping_offset((2 * row + j) as isize * line));
            let places = self.2.wrapping_add(row * columns);
            let to = job.out.ptr.cast::<S>().wrapping_add((image * rows + row) * columns);
            for k in 0..columns {
                // SAFETY: as above; there is a position for each square.
                unsafe {
                    let at = (*places.add(k)).wrapping_sub((2 * row * length + 2 * k) as i64);
                    let mut taken = S::default();
                    for_each_element!(j, t => {
                        let v = *x[j].add(2 * k + t);
                        taken = if at == (j * length + t) as i64 { v } else { taken };
                    });
                    *to.add(k) = taken;
                }
            }
        }
    }
}

/// The transpose of [`TakeOfSquares`].
pub(super) struct GiveToSquares<'a, S>(pub Image<'a, S>, pub Squares, pub *const i64);

impl<S: Elem<Compute = C>, C: Number> SimdTask for GiveToSquares<'_, S> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Image { job, image, x } = self.0;
        let Squares { rows, columns, length, height } = self.1;
        let out = job.out.ptr.cast::<S>().wrapping_add(image * height * length);
        // What `0 + v` gives where the general loops add to zeros.
        let given = |v: S| S::store(C::default() + v.load());
        for y in 0..height {
            let to = out.wrapping_add(y * length);
            // SAFETY: as above; the elements of an image are one task's.
            unsafe {
                if y >= 2 * rows {
                    (0..length).for_each(|i| *to.add(i) = S::default());
                    continue;
                }
                let row = y / 2;
                let places = self.2.wrapping_add(row * columns);
                let dy = x.wrapping_offset(row as isize * job.strides[1]);
                for k in 0..columns {
                    let at = (*places.add(k)).wrapping_sub((y * length + 2 * k) as i64);
                    let v = given(*dy.add(k));
                    *to.add(2 * k) = if at == 0 { v } else { S::default() };
                    *to.add(2 * k + 1) = if at == 1 { v } else { S::default() };
                }
                (2 * columns..length).for_each(|i| *to.add(i) = S::default());
            }
        }
    }
}
