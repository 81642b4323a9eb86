//! The loops over vectors that factorisations spend their time in besides products: each compiled
//! once for each instruction set and type, all else is compiled once.

use super::Real;
use super::lanes::dot;
use super::view::{Cols, Grid};
use crate::simd::{Isa, SimdTask, vectorised};

#[inline(always)]
pub(super) fn axpy_loop<I: Isa, T: Real>(y: &mut [T], s: T, x: &[T]) {
    let n = y.len().min(x.len());
    let (y, x) = (&mut y[..n], &x[..n]);
    for i in 0..n {
        y[i] = s.fma::<I>(x[i], y[i]);
    }
}

/// The length of a vector, for any elements.
pub(super) fn norm<T: Real>(x: &[T]) -> T {
    let square = dot(x, x);
    if square > T::LOW * T::LOW && square < T::HIGH * T::HIGH {
        return square.root();
    }
    let largest = x.iter().fold(T::ZERO, |most, v| most.larger(v.size()));
    if largest == T::ZERO || !largest.finite() {
        return square;
    }
    let scale = largest.to_one();
    let sum = x.iter().fold(T::ZERO, |sum, &v| sum + (v * scale) * (v * scale));
    sum.root() / scale
}

struct Axpy<'a, T> {
    y: &'a mut [T],
    s: T,
    x: &'a [T],
}

impl<T: Real> SimdTask for Axpy<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        axpy_loop::<I, T>(self.y, self.s, self.x);
    }
}

/// y += s·x
pub(super) fn axpy<T: Real>(y: &mut [T], s: T, x: &[T]) {
    vectorised(Axpy { y, s, x });
}

struct Scale<'a, T> {
    x: &'a mut [T],
    s: T,
}

impl<T: Real> SimdTask for Scale<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        for x in self.x {
            *x *= self.s;
        }
    }
}

/// x *= s
pub(super) fn scale<T: Real>(x: &mut [T], s: T) {
    vectorised(Scale { x, s });
}

struct LinearCombination<'a, T> {
    y: &'a mut [T],
    a: Grid<'a, T>,
    x: &'a [T],
    s: T,
}

impl<T: Real> SimdTask for LinearCombination<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let LinearCombination { y, a, x, s } = self;
        let (m, n) = (a.rows, a.cols);
        let y = &mut y[..m];
        let mut j = 0;
        while j + 4 <= n {
            let (c0, c1, c2, c3) = (a.column(j), a.column(j + 1), a.column(j + 2), a.column(j + 3));
            let (c0, c1, c2, c3) = (&c0[..m], &c1[..m], &c2[..m], &c3[..m]);
            let (x0, x1, x2, x3) = (s * x[j], s * x[j + 1], s * x[j + 2], s * x[j + 3]);
            for i in 0..m {
                let sum = x1.fma::<I>(c1[i], x0.fma::<I>(c0[i], y[i]));
                y[i] = x3.fma::<I>(c3[i], x2.fma::<I>(c2[i], sum));
            }
            j += 4;
        }
        while j < n {
            axpy_loop::<I, T>(y, s * x[j], a.column(j));
            j += 1;
        }
    }
}

/// y += s·A·x, for dense columns.
pub(super) fn combine<T: Real>(y: &mut [T], s: T, a: Grid<T>, x: &[T]) {
    assert!(y.len() == a.rows && x.len() == a.cols);
    vectorised(LinearCombination { y, a, x, s });
}

struct Rotate<'a, T> {
    x: &'a mut [T],
    y: &'a mut [T],
    c: T,
    s: T,
}

impl<T: Real> SimdTask for Rotate<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        let n = self.x.len().min(self.y.len());
        let (x, y, c, s) = (&mut self.x[..n], &mut self.y[..n], self.c, self.s);
        for i in 0..n {
            let (a, b) = (x[i], y[i]);
            x[i] = c.fma::<I>(a, s * b);
            y[i] = c.fma::<I>(b, -(s * a));
        }
    }
}

/// (x, y) becomes (c·x + s·y, c·y − s·x).
pub(super) fn rotate<T: Real>(x: &mut [T], y: &mut [T], c: T, s: T) {
    vectorised(Rotate { x, y, c, s });
}

struct Sweep<'a, T> {
    z: Cols<'a, T>,
    first: usize,
    rotations: &'a [(T, T)],
    backward: bool,
}

impl<T: Real> SimdTask for Sweep<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        const STRIP: usize = 16;
        let Sweep { z, first, rotations, backward } = self;
        let mut top = 0;
        // A strip of rows at a time: the column that the next rotation shares stays in registers.
        while top + STRIP <= z.rows {
            sweep::<I, T, STRIP>(&z, top, first, rotations, backward);
            top += STRIP;
        }
        while top + 4 <= z.rows {
            sweep::<I, T, 4>(&z, top, first, rotations, backward);
            top += 4;
        }
        while top < z.rows {
            sweep::<I, T, 1>(&z, top, first, rotations, backward);
            top += 1;
        }
    }
}

#[inline(always)]
fn sweep<I: Isa, T: Real, const N: usize>(
    z: &Cols<T>,
    top: usize,
    first: usize,
    rotations: &[(T, T)],
    backward: bool,
) {
    let count = rotations.len();
    let at = |j: usize| z.ptr.wrapping_add(top + (first + j) * z.ld).cast::<[T; N]>();
    // SAFETY: `N` rows from `top` on, and the columns from `first` to `first + count`, are inside
    // the matrix, which is borrowed for writing (`rotate_columns` checks).
    unsafe {
        if backward {
            let mut held = at(count).read();
            for j in (0..count).rev() {
                let ((c, s), mut other) = (rotations[j], at(j).read());
                let mut done = [T::ZERO; N];
                for l in 0..N {
                    let (a, b) = (other[l], held[l]);
                    done[l] = c.fma::<I>(b, -(s * a));
                    other[l] = c.fma::<I>(a, s * b);
                }
                at(j + 1).write(done);
                held = other;
            }
            at(0).write(held);
        } else {
            let mut held = at(0).read();
            for (j, &(c, s)) in rotations.iter().enumerate() {
                let mut other = at(j + 1).read();
                let mut done = [T::ZERO; N];
                for l in 0..N {
                    let (a, b) = (held[l], other[l]);
                    done[l] = c.fma::<I>(a, s * b);
                    other[l] = c.fma::<I>(b, -(s * a));
                }
                at(j).write(done);
                held = other;
            }
            at(count).write(held);
        }
    }
}

/// Rotates the columns j and j + 1 from `first` on by the j-th (c, s): they become c·x + s·y and
/// c·y − s·x. From the first to the last, or backward.
pub(super) fn rotate_columns<T: Real>(
    z: Cols<T>,
    first: usize,
    rotations: &[(T, T)],
    backward: bool,
) {
    if rotations.is_empty() {
        return;
    }
    assert!(first + rotations.len() < z.cols);
    vectorised(Sweep { z, first, rotations, backward });
}
