//! Triangular systems with many right-hand sides, and Cholesky's factorisation.
//!
//! Both halve the triangle until it has at most [`BASE`] columns; what is between the halves is a
//! matrix product. The small triangles are solved for [`STRIP`] right-hand sides at a time, whose
//! sums stay in registers: the unknowns of a strip are vectors, the triangle's elements scalars.
//!
//! X·T = B is the case whose strips are adjacent in memory. T·X = B gathers a strip first.

use super::Real;
use super::lanes::project;
use super::product::{Into, product, subtract_lower};
use super::vector::combine;
use super::view::{Cols, Grid};
use crate::simd::{Isa, SimdTask, vectorised};

/// Columns of a triangle that is solved directly.
const BASE: usize = 16;
/// Right-hand sides that are solved at a time.
const STRIP: usize = 16;

/// Which triangle is solved with.
#[derive(Clone, Copy)]
pub(super) struct Triangle {
    pub upper: bool,
    pub unit: bool,
}

impl Triangle {
    /// The triangle of the transpose.
    pub(super) fn transposed(self) -> Triangle {
        Triangle { upper: !self.upper, ..self }
    }

    /// X becomes X·T⁻¹.
    pub(super) fn solve_right<T: Real>(self, t: Grid<T>, x: Cols<T>) {
        let n = t.cols;
        assert!(t.rows == n && x.cols == n);
        if n <= BASE {
            return self.strips(t, x, false);
        }
        let half = (n / 2).next_multiple_of(BASE).min(n - 1);
        let rest = n - half;
        let (mut left, mut right) = x.split_cols(half);
        if self.upper {
            self.solve_right(t.part(0, half, 0, half), left.again());
            product(right.again(), Into::Subtract, left.read(), t.part(0, half, half, rest));
            self.solve_right(t.part(half, rest, half, rest), right);
        } else {
            self.solve_right(t.part(half, rest, half, rest), right.again());
            product(left.again(), Into::Subtract, right.read(), t.part(half, rest, 0, half));
            self.solve_right(t.part(0, half, 0, half), left);
        }
    }

    /// X becomes T⁻¹·X.
    pub(super) fn solve_left<T: Real>(self, t: Grid<T>, x: Cols<T>) {
        let n = t.cols;
        assert!(t.rows == n && x.rows == n);
        if x.cols < 4 {
            let mut x = x;
            return (0..x.cols).for_each(|j| self.solve_vector(t, x.column_mut(j)));
        }
        if n <= BASE {
            return self.transposed().strips(t.t(), x, true);
        }
        let half = (n / 2).next_multiple_of(BASE).min(n - 1);
        let rest = n - half;
        let (mut above, mut below) = x.split_rows(half);
        if self.upper {
            self.solve_left(t.part(half, rest, half, rest), below.again());
            product(above.again(), Into::Subtract, t.part(0, half, half, rest), below.read());
            self.solve_left(t.part(0, half, 0, half), above);
        } else {
            self.solve_left(t.part(0, half, 0, half), above.again());
            product(below.again(), Into::Subtract, t.part(half, rest, 0, half), above.read());
            self.solve_left(t.part(half, rest, half, rest), below);
        }
    }

    /// One right-hand side: a few unknowns at a time.
    fn solve_vector<T: Real>(self, t: Grid<T>, x: &mut [T]) {
        const FEW: usize = 8;
        let n = t.cols;
        let mut sums = [T::ZERO; FEW];
        for done in (0..n).step_by(FEW) {
            let count = FEW.min(n - done);
            // The unknowns from `at` on are next; those of `known` are solved for.
            let at = if self.upper { n - done - count } else { done };
            let known = if self.upper { n - done..n } else { 0..done };
            if t.row != 1 {
                let rows = t.part(at, count, known.start, done).t();
                project(&mut sums, rows, &x[known]);
                (0..count).for_each(|i| x[at + i] -= sums[i]);
            }
            for step in 0..count {
                let i = at + if self.upper { count - 1 - step } else { step };
                let solved = if self.upper { i + 1..at + count } else { at..i };
                let sum = solved.fold(x[i], |sum, j| sum - t.at(i, j) * x[j]);
                x[i] = if self.unit { sum } else { sum / t.at(i, i) };
            }
            if t.row == 1 {
                let below =
                    t.part(if self.upper { 0 } else { at + count }, n - done - count, at, count);
                let (head, tail) = x.split_at_mut(if self.upper { at } else { at + count });
                let (y, x) = if self.upper { (head, &*tail) } else { (tail, &head[at..]) };
                combine(y, -T::ONE, below, &x[..count]);
            }
        }
    }

    fn strips<T: Real>(self, t: Grid<T>, x: Cols<T>, across: bool) {
        let n = t.cols;
        // In the order of solution: the coefficients of the unknowns before, then 1 / diagonal.
        let mut table = [[T::ZERO; BASE]; BASE];
        let order = |p: usize| if self.upper { p } else { n - 1 - p };
        for (p, row) in table.iter_mut().enumerate().take(n) {
            for (q, to) in row[..p].iter_mut().enumerate() {
                *to = -t.at(order(q), order(p));
            }
            let d = t.at(order(p), order(p));
            row[p] = if self.unit { T::ONE } else { T::ONE / d };
        }
        vectorised(TriangleStrips { n, table: &table, x, across, upper: self.upper });
    }
}

struct TriangleStrips<'a, T> {
    n: usize,
    table: &'a [[T; BASE]; BASE],
    x: Cols<'a, T>,
    /// A right-hand side is a column, not a row.
    across: bool,
    upper: bool,
}

impl<T: Real> SimdTask for TriangleStrips<'_, T> {
    #[allow(clippy::needless_range_loop, reason = "the loops index several arrays")]
    #[inline(always)]
    fn run<I: Isa>(self) {
        let TriangleStrips { n, table, x, across, upper } = self;
        let mut strip = [[T::ZERO; STRIP]; BASE];
        let count = if across { x.cols } else { x.rows };
        let order = |p: usize| if upper { p } else { n - 1 - p };
        let mut from = 0;
        while from < count {
            let width = STRIP.min(count - from);
            // SAFETY: the elements read and written are those of `width` right-hand sides.
            unsafe {
                for p in 0..n {
                    if across {
                        let at = x.ptr.add(order(p) + from * x.ld);
                        for l in 0..width {
                            strip[p][l] = *at.add(l * x.ld);
                        }
                    } else if width == STRIP {
                        let at = x.ptr.add(from + order(p) * x.ld);
                        strip[p] = at.cast::<[T; STRIP]>().read();
                    } else {
                        let at = x.ptr.add(from + order(p) * x.ld);
                        for l in 0..width {
                            strip[p][l] = *at.add(l);
                        }
                    }
                }
            }
            for p in 0..n {
                let mut sum = strip[p];
                for q in 0..p {
                    let (s, v) = (table[p][q], &strip[q]);
                    for l in 0..STRIP {
                        sum[l] = s.fma::<I>(v[l], sum[l]);
                    }
                }
                for l in 0..STRIP {
                    strip[p][l] = sum[l] * table[p][p];
                }
            }
            // SAFETY: as above.
            unsafe {
                for p in 0..n {
                    if across {
                        let at = x.ptr.add(order(p) + from * x.ld);
                        for l in 0..width {
                            *at.add(l * x.ld) = strip[p][l];
                        }
                    } else if width == STRIP {
                        let at = x.ptr.add(from + order(p) * x.ld);
                        at.cast::<[T; STRIP]>().write(strip[p]);
                    } else {
                        let at = x.ptr.add(from + order(p) * x.ld);
                        for l in 0..width {
                            *at.add(l) = strip[p][l];
                        }
                    }
                }
            }
            from += width;
        }
    }
}

/// The lower triangle of A becomes L; what is above the diagonal is not read, and is no longer of
/// use. Returns the number of columns before the first whose pivot is not positive and finite.
pub(super) fn cholesky<T: Real>(a: Cols<T>) -> usize {
    let n = a.cols;
    if n <= BASE {
        let mut reached = n;
        vectorised(Corner { a, reached: &mut reached });
        return reached;
    }
    let half = (n / 2).next_multiple_of(BASE).min(n - 1);
    let (left, right) = a.split_cols(half);
    let (mut top, mut side) = left.split_rows(half);
    let reached = cholesky(top.again());
    if reached < half {
        return reached;
    }
    Triangle { upper: true, unit: false }.solve_right(top.read().t(), side.again());
    let (_, mut rest) = right.split_rows(half);
    subtract_lower(rest.again(), side.read(), side.read());
    half + cholesky(rest)
}

struct Corner<'a, T> {
    a: Cols<'a, T>,
    reached: &'a mut usize,
}

impl<T: Real> SimdTask for Corner<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self) {
        if self.a.cols <= 4 {
            corner::<I, T, 4>(self.a, self.reached);
        } else if self.a.cols <= 8 {
            corner::<I, T, 8>(self.a, self.reached);
        } else {
            corner::<I, T, BASE>(self.a, self.reached);
        }
    }
}

/// Column by column, each as one vector.
#[allow(clippy::needless_range_loop, reason = "the loops index several arrays")]
#[inline(always)]
fn corner<I: Isa, T: Real, const N: usize>(mut a: Cols<T>, reached: &mut usize) {
    let n = a.cols;
    let mut l = [[T::ZERO; N]; N];
    for j in 0..n {
        for i in j..n {
            l[j][i] = a.at(i, j);
        }
    }
    for j in 0..n {
        let mut sum = l[j];
        for k in 0..j {
            let (s, v) = (-l[k][j], &l[k]);
            for i in 0..N {
                sum[i] = s.fma::<I>(v[i], sum[i]);
            }
        }
        let pivot = sum[j];
        if !(pivot > T::ZERO && pivot.finite()) {
            *reached = j;
            break;
        }
        let root = pivot.root();
        let scale = T::ONE / root;
        for i in 0..N {
            l[j][i] = sum[i] * scale;
        }
        l[j][j] = root;
    }
    for j in 0..n {
        for i in j..n {
            a.set(i, j, l[j][i]);
        }
    }
}
