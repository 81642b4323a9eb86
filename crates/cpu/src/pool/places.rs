//! Pooling by positions: the elements of pieces at given positions, and the transpose.

use super::squares::{GiveToSquares, Squares, TakeOfSquares};
use super::{AxisPiece, Image, Number, PoolTask};
use crate::elem::{Elem, with_elem};
use crate::operand::Source;
use crate::simd::vectorised;
use crate::walk::Walk;
use half::{bf16, f16};
use pullback_ir::{DType, Pool, Pooling};

/// A position for each piece of each image.
pub(super) struct Places<'a> {
    pub of: Source<'a>,
    /// Of the pieces of an image.
    pub strides: [isize; 3],
    pub images: Walk<1>,
}

impl Places<'_> {
    /// If an image is divided into squares, and its operand's rows and positions are dense: the
    /// squares.
    fn squares(&self, job: &PoolTask) -> Option<Squares> {
        let columns = job.frames.pieces[2].len() as isize;
        let dense = job.strides[2] == 1 && self.strides[1..] == [columns, 1];
        Squares::of(&job.frames).filter(|_| dense)
    }

    /// The positions of an image.
    fn first(&self, image: usize) -> *const i64 {
        let [start] = self.images.offsets(image);
        self.of.ptr.cast::<i64>().wrapping_offset(start)
    }
}

pub(super) fn run(pool: &Pool, job: &PoolTask, places: &Places) {
    match &pool.kind {
        Pooling::Give(_) => match job.x.dtype {
            DType::F64 => give::<f64, f64>(job, places),
            DType::F32 => give::<f32, f32>(job, places),
            DType::BF16 => give::<bf16, f32>(job, places),
            DType::F16 => give::<f16, f32>(job, places),
            DType::I64 | DType::I32 | DType::U8 | DType::Bool => {
                unreachable!("`infer` rejects dtypes other than floats")
            }
        },
        Pooling::Take => with_elem!(job.x.dtype, T => take::<T>(job, places)),
        Pooling::Sum | Pooling::Spread(_) | Pooling::ArgMax => {
            unreachable!("called for kinds with positions")
        }
    }
}

/// A division of 32 bits by the same number many times, as a product.
struct Divisor {
    by: u64,
    /// 2^64 / by, rounded up; 0 for 1.
    inverse: u64,
}

impl Divisor {
    /// Division by a number from 1 to 2^32.
    fn new(by: usize) -> Divisor {
        Divisor { by: by as u64, inverse: (u64::MAX / by as u64).wrapping_add(1) }
    }

    /// Quotient and remainder: exact, as a number below 2^32 times what rounding added to the
    /// inverse, which is less than `by`, is less than 2^64.
    #[inline(always)]
    fn divide(&self, x: u32) -> (usize, usize) {
        let x = u64::from(x);
        let quotient = ((u128::from(x) * u128::from(self.inverse)) >> 64) as u64;
        let quotient = if self.inverse == 0 { x } else { quotient };
        (quotient as usize, (x - quotient * self.by) as usize)
    }
}

/// Calls `f` for the pieces of an image that have an element at their position: with the number of
/// the piece, its offset in the operand, if that has one for each piece, and the position.
#[inline(always)]
fn each_piece(
    job: &PoolTask,
    places: &Places,
    image: usize,
    mut f: impl FnMut(usize, isize, [usize; 3]),
) {
    let [depth, height, width] = &job.frames.pieces;
    let [planes, rows, length] = job.frames.lengths;
    let first = places.first(image);
    let (to, from) = (places.strides, job.strides);
    let inside = |p: usize, &(start, count, step): &AxisPiece| match step {
        1 => p.wrapping_sub(start) < count,
        _ => p >= start && (p - start).is_multiple_of(step) && (p - start) / step < count,
    };
    if planes * rows * length == 0 {
        return;
    }
    let narrow = u32::try_from(planes * rows * length).is_ok();
    let (by_row, by_length) = (Divisor::new(rows), Divisor::new(length));
    let split = |place: usize| match u32::try_from(place) {
        Ok(place) if narrow => {
            let (line, x) = by_length.divide(place);
            let (z, y) = if planes == 1 { (0, line) } else { by_row.divide(line as u32) };
            [z, y, x]
        }
        _ => [place / (rows * length), place / length % rows, place % length],
    };
    let mut number = 0;
    for (a, d) in depth.iter().enumerate() {
        for (b, h) in height.iter().enumerate() {
            let row = |s: [isize; 3]| a as isize * s[0] + b as isize * s[1];
            let (to_row, from_row) = (first.wrapping_offset(row(to)), row(from));
            for (c, w) in width.iter().enumerate() {
                // SAFETY: there is a position for each piece.
                let place = unsafe { *to_row.wrapping_offset(c as isize * to[2]) };
                if let Ok(place) = usize::try_from(place) {
                    let at = split(place);
                    if inside(at[0], d) && inside(at[1], h) && inside(at[2], w) {
                        f(number, from_row + c as isize * from[2], at);
                    }
                }
                number += 1;
            }
        }
    }
}

fn take<S: Elem>(job: &PoolTask, places: &Places) {
    let (count, _) = job.counts();
    let squares = places.squares(job);
    job.each::<S>(|image, x| {
        if let Some(squares) = squares {
            let of = Image { job, image, x };
            return vectorised(TakeOfSquares(of, squares, places.first(image)));
        }
        let out = job.out.ptr.cast::<S>().wrapping_add(image * count);
        // SAFETY: the results of an image are one task's.
        unsafe { (0..count).for_each(|k| out.add(k).write(S::default())) };
        each_piece(job, places, image, |number, _, at| {
            let [sd, sh, sw] = job.strides;
            let from = at[0] as isize * sd + at[1] as isize * sh + at[2] as isize * sw;
            // SAFETY: pieces are inside their axes, and results are one task's.
            unsafe { out.add(number).write(*x.wrapping_offset(from)) };
        });
    });
}

fn give<S: Elem<Compute = C>, C: Number>(job: &PoolTask, places: &Places) {
    let [_, rows, length] = job.frames.lengths;
    let size: usize = job.frames.lengths.iter().product();
    let squares = places.squares(job);
    job.each::<S>(|image, dy| {
        if let Some(squares) = squares {
            let of = Image { job, image, x: dy };
            return vectorised(GiveToSquares(of, squares, places.first(image)));
        }
        let mut sums = vec![C::default(); size];
        each_piece(job, places, image, |_, from, [a, b, c]| {
            // SAFETY: there is an element for each piece.
            sums[(a * rows + b) * length + c] += unsafe { (*dy.wrapping_offset(from)).load() };
        });
        for (i, &sum) in sums.iter().enumerate() {
            // SAFETY: the elements of an image are one task's.
            unsafe { *job.out.ptr.cast::<S>().add(image * size + i) = S::store(sum) };
        }
    });
}
